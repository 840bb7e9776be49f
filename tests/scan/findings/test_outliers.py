"""Outliers: foreign examples come first, ordinary data has next to none beyond chance."""

import numpy as np
import pytest
import torch

from sgoif.scan.findings.outliers import LISTED, find_outliers, outlier_scores


def blobs(n=1500, seed=0):
    """Features of three classes, the logits of a head that knows them, and labels."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, n)
    centres = 4 * np.eye(3, 12)
    x = centres[labels] + rng.normal(size=(n, 12))
    return x, x @ centres.T, labels


def as_tensors(x, logits, labels):
    return torch.from_numpy(x).float(), torch.from_numpy(logits).float(), labels


def test_foreign_examples_are_beyond_chance_and_come_first():
    x, logits, labels = blobs()
    x[:5, 6] += 20
    found = find_outliers(*as_tensors(x, logits, labels))
    assert set(found.examples[:5]) == set(range(5)) and 5 <= found.beyond_chance <= 8


def test_ordinary_data_has_about_one_example_beyond_chance():
    counts = [find_outliers(*as_tensors(*blobs(seed=s))).beyond_chance for s in range(10)]
    assert np.mean(counts) < 3
    found = find_outliers(*as_tensors(*blobs()))
    assert len(found.examples) == max(LISTED, found.beyond_chance)


def test_no_example_is_scored_by_a_sentinel_that_has_seen_it():
    """Features of as many dimensions as examples: whoever was observed would look ordinary."""
    x, logits, labels = blobs(400)
    x[0] = 0
    x[0, 11] = 50
    scores = outlier_scores(*as_tensors(x, logits, labels))
    x[0, 11] = 5000
    assert outlier_scores(*as_tensors(x, logits, labels))[0] > scores[0] + 1


@pytest.mark.parametrize("n", [0, 199])
def test_few_examples_have_no_outliers(n):
    assert find_outliers(*as_tensors(*blobs(n))).examples == []
