"""Copies share a fold, so that no head has seen the label that it is asked about."""

import numpy as np
import pytest
import torch

import sgoif
from sgoif.label_noise.copies import copy_groups
from sgoif.label_noise.held_out_classes import draw_folds


def blocks(rows: torch.Tensor, size: int):
    return ((first, rows[first : first + size]) for first in range(0, len(rows), size))


@pytest.mark.parametrize("size", [2, 3, 100])
def test_equal_rows_are_one_group(size):
    rows = torch.tensor([[1.0, 2.0], [2.0, 1.0], [1.0, 2.0], [0.0, 0.0], [-0.0, 0.0], [2.0, 1.0], [1.0, 2.0000002]])
    assert copy_groups(blocks(rows, size), np.zeros(7)).tolist() == [0, 1, 0, 2, 2, 1, 3]


def test_rows_that_were_labelled_one_by_one_are_no_copies():
    rows = torch.tensor([[1.0], [2.0], [1.0], [2.0], [1.0], [3.0]])
    assert copy_groups(blocks(rows, 4), np.array([0, 1, 0, 1, 2, 1])).tolist() == [0, 1, 2, 3, 4, 5]
    many = torch.cat([torch.arange(10.0, 210.0), torch.arange(10.0, 210.0)])[:, None]
    labels = np.zeros(406)
    labels[2] = 1  # one contradiction of two hundred
    expected = [0, 1, 2, *range(3, 203), *range(3, 203), 1, 203, 203]
    found = copy_groups(blocks(torch.cat([rows[[0, 1, 0]], many, rows[[1, 5, 5]]]), 64), labels)
    assert found.tolist() == expected


def test_rows_that_differ_in_one_number_are_told_apart():
    rows = torch.zeros(300, 40)
    rows[torch.arange(299), torch.arange(299) % 40] = torch.arange(1.0, 300.0)
    assert copy_groups(blocks(rows, 64), np.zeros(300)).tolist() == list(range(300))


def test_a_group_is_in_one_fold_and_others_are_as_without_groups():
    labels = np.random.default_rng(0).integers(0, 3, 60)
    assert draw_folds(labels, 1, np.arange(60)).tolist() == draw_folds(labels, 1).tolist()
    group = np.concatenate([np.arange(60), np.arange(20)])
    fold = draw_folds(np.concatenate([labels, labels[:20]]), 1, group)
    assert fold[:60].tolist() == draw_folds(labels, 1).tolist() and (fold[60:] == fold[:20]).all()


def test_copies_hide_no_wrong_label():
    """Three copies of every row with the same label: heads that had seen one would believe the wrong labels."""
    rng = np.random.default_rng(3)
    true = rng.integers(0, 4, 300)
    rows = (rng.normal(size=(4, 12))[true] * 1.5 + rng.normal(size=(300, 12))).astype(np.float32)
    wrong = rng.random(300) < 0.2
    given = np.where(wrong, (true + rng.integers(1, 4, 300)) % 4, true)
    issues = sgoif.find_label_issues(np.tile(rows, (3, 1)), np.tile(given, 3))
    found = issues.result.log_odds.numpy() > 0
    assert found[np.tile(wrong, 3)].mean() > 0.7  # 0.26 where copies are spread over the folds
