"""Copies under several labels: exact ones, near ones, none by chance; cells find what all pairs find."""

import numpy as np
import pytest
import torch

from sgoif.label_noise.copies import content_digests
from sgoif.scan.findings import neighbours
from sgoif.scan.findings.duplicates import chance_ratio, find_copies
from sgoif.utils.digits import load_digit_images


@pytest.fixture(scope="module")
def digits():
    images, labels = load_digit_images()
    return images.reshape(len(images), -1).astype(np.float32), labels


def copied(digits, change):
    """The digits and changed copies of 30 of them under another label; the position of every copied one."""
    x, labels = digits
    rows = np.random.default_rng(1).permutation(len(x))[:30]
    return np.concatenate([x, change(x[rows])]), np.concatenate([labels, (labels[rows] + 1) % 10]), rows


def found(x, labels, features=True):
    return find_copies(labels, content_digests(x), torch.from_numpy(x) if features else None)


@pytest.mark.parametrize("features", [True, False])
def test_exact_copies_with_another_label_are_found(digits, features):
    x, labels, rows = copied(digits, lambda part: part)
    assert {(c.kind, *c.examples) for c in found(x, labels, features)} == {
        ("exact", int(i), len(digits[0]) + n) for n, i in enumerate(rows)
    }


def test_copies_with_the_same_label_are_no_finding(digits):
    x, labels = digits
    assert found(np.concatenate([x, x[:30]]), np.concatenate([labels, labels[:30]])) == []


def test_near_copies_are_found_and_nothing_else(digits):
    rng = np.random.default_rng(2)
    x, labels, rows = copied(digits, lambda part: (part + rng.normal(0, 3, part.shape)).astype(np.float32))
    groups = found(x, labels)
    assert {tuple(c.examples) for c in groups} == {(int(i), len(digits[0]) + n) for n, i in enumerate(rows)}
    assert all(c.kind == "near" and 0.99 < c.similarity < 1 for c in groups)
    assert found(*digits) == [], "unlike digits are no copies, however dense their classes are"


def test_few_examples_have_no_near_copies(digits):
    x, labels = digits[0][:20], digits[1][:20]
    assert found(np.concatenate([x, x[:5] + 0.1]), np.concatenate([labels, (labels[:5] + 1) % 10])) == []


def test_three_near_copies_are_one_group(digits):
    x, labels = digits
    three = np.concatenate([x, x[:1] + 2, x[:1] - 2 * (x[:1] > 9)]).astype(np.float32)
    groups = found(three, np.concatenate([labels, [5, 6]]))
    assert [c.examples for c in groups] == [[0, len(x), len(x) + 1]]


def test_by_chance_a_tenth_of_an_example_has_a_copy():
    """Points at random in m dimensions: the limit on r_1 / r_k is undercut as rarely as it says."""
    rng, below = np.random.default_rng(0), 0
    for _ in range(20):
        points = torch.from_numpy(rng.normal(size=(400, 8)))
        distance = torch.cdist(points, points).sort(dim=1).values[:, 1:11]
        ratio = chance_ratio(distance)
        assert 0.2 < ratio < 0.5
        below += int((distance[:, 0] <= ratio * distance[:, -1]).sum())
    assert below <= 8, "2 of 20 scans are expected; pairs count twice"


def test_cells_find_the_near_neighbours_that_all_pairs_find(digits, monkeypatch):
    rows = neighbours.directions(torch.from_numpy(digits[0]))
    exact, where = neighbours.nearest_neighbours(rows, 10)
    monkeypatch.setattr(neighbours, "ALL_PAIRS", 500)
    monkeypatch.setattr(neighbours, "CELL_SIZE", 100)
    monkeypatch.setattr(neighbours, "BLOCK", 5_000)
    cosine, position = neighbours.nearest_neighbours(rows, 10)
    assert (position[:, 0] == where[:, 0]).float().mean() > 0.9
    assert (position != torch.arange(len(rows)).unsqueeze(1)).all() and (cosine <= exact + 1e-5).all()
    each = torch.arange(len(rows)).unsqueeze(1).expand_as(position)
    assert torch.allclose((rows[each] * rows[position]).sum(2), cosine, atol=1e-5)


def test_small_cells_leave_places_empty(monkeypatch):
    monkeypatch.setattr(neighbours, "ALL_PAIRS", 4)
    monkeypatch.setattr(neighbours, "CELL_SIZE", 2)
    rows = neighbours.directions(torch.randn(12, 3, generator=torch.Generator().manual_seed(0)))
    cosine, _ = neighbours.nearest_neighbours(rows, 11)
    assert cosine.shape == (12, 11) and (cosine[:, -1] == -1).any() and (cosine >= -1).all()
