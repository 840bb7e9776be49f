"""The anchor bank by hand: buckets, running sums, parts of external data, coverage and refreshing."""

from dataclasses import replace

import pytest
import torch

from sgoif import InfluenceConfig
from sgoif.anchors.bank import AnchorBank
from tests.gradients.test_factored_batch import head_batch, rows_of

DOUBLE = torch.float64


def bank(count: int = 2, n_classes: int = 2, dim: int = 6, **changes) -> AnchorBank:
    return AnchorBank(InfluenceConfig(**changes), count, n_classes, dim, DOUBLE)


def test_buckets_share_the_examples_of_a_class_or_the_classes():
    labels, index = torch.tensor([0, 1, 2, 1]), torch.tensor([0, 1, 5, 4])
    assert bank(6, 3).buckets(labels, index).tolist() == [0, 3, 5, 2]  # two buckets a class, by the index
    assert bank(2, 3).buckets(labels, index).tolist() == [0, 1, 0, 1]  # fewer buckets than classes


def test_anchors_are_means_by_recency_and_agreement():
    kept, batch = bank(), head_batch()
    kept.update(batch, 0.5)
    weights = batch.recency * batch.agreement
    expected = torch.zeros(2, 6, dtype=DOUBLE).index_add(0, batch.labels, weights[:, None] * rows_of(batch))
    torch.testing.assert_close(kept.total, expected)
    again = head_batch(seed=3)
    kept.update(again, 0.5)
    more = again.recency * again.agreement
    expected = expected / 2 + torch.zeros(2, 6, dtype=DOUBLE).index_add(0, again.labels, more[:, None] * rows_of(again))
    total = [weights[batch.labels == v].sum() / 2 + more[again.labels == v].sum() for v in (0, 1)]
    torch.testing.assert_close(kept.targets(), expected / torch.stack(total)[:, None])


def test_trusted_anchors_count_every_finite_example_alike():
    kept, batch = bank(source="trusted"), head_batch()
    batch = replace(batch, recency=torch.ones(4, dtype=DOUBLE))
    kept.replace([batch], None)
    rows = rows_of(batch)
    torch.testing.assert_close(kept.targets(), torch.stack([(rows[0] + rows[2]) / 2, rows[3]]))  # 1 is not finite
    kept.replace([batch], None)
    assert kept.weight.tolist() == [2, 1]  # replaced, not added to


def test_a_part_of_the_data_takes_the_place_of_its_share():
    kept, batch = bank(source="trusted"), replace(head_batch(), recency=torch.ones(4, dtype=DOUBLE))
    kept.replace([batch], None)
    kept.replace([batch], 16)  # 4 of 16 examples
    assert kept.weight.tolist() == [2 * 0.75 + 2, 1 * 0.75 + 1]


def test_an_empty_bucket_has_no_target():
    kept, batch = bank(3, 3), head_batch()
    kept.update(batch, 1.0)
    assert (kept.targets()[2] == 0).all() and torch.isfinite(kept.targets()).all()


@pytest.mark.parametrize(("angle", "expected"), [(0.02, True), (1.5, False)])
def test_the_most_redundant_and_least_trusted_anchor_is_found(angle, expected):
    """Two directions at an angle: the Gram matrix has the eigenvalue 1 - cos(angle)."""
    kept = bank(3, 3, coverage=0.1)
    phi = torch.zeros(3, 6, dtype=DOUBLE)
    phi[0, 0] = 5
    phi[1, :2] = 2 * torch.tensor([torch.cos(torch.tensor(angle)), torch.sin(torch.tensor(angle))])
    confidence = torch.tensor([0.9, 0.2, 0.0], dtype=DOUBLE)  # the third has no direction at all
    lambda_min, chosen = kept.find_redundant(phi, confidence)
    assert lambda_min.item() == pytest.approx(1 - torch.cos(torch.tensor(angle)).item(), rel=1e-3, abs=1e-6)
    assert chosen.tolist() == [False, expected, False]


def test_a_refreshed_anchor_forgets_half():
    kept = bank()
    kept.update(head_batch(), 1.0)
    total, weight = kept.total.clone(), kept.weight.clone()
    kept.refresh(torch.tensor([True, False]))
    torch.testing.assert_close(kept.total, total * torch.tensor([[0.5], [1.0]]))
    torch.testing.assert_close(kept.weight, weight * torch.tensor([0.5, 1.0]))
    assert torch.isnan(bank().lambda_min)
