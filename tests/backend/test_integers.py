"""Integers as users hand them over."""

import numpy as np
import pandas
import pytest
import torch

from sgoif.backend.integers import as_integers


@pytest.mark.parametrize(
    "values",
    [
        [3, 1, 2],
        np.array([3, 1, 2], dtype=np.uint32),
        np.array([3, 1, 2], dtype=object),
        torch.tensor([3, 1, 2], dtype=torch.int16),
        pandas.Series([3, 1, 2], index=[7, 5, 9]),
        pandas.Series([9, 3, 1, 2])[lambda column: column < 9],
    ],
)
def test_whole_numbers_are_taken_by_position(values):
    assert as_integers(values).tolist() == [3, 1, 2]


@pytest.mark.parametrize("values", [[0.5], [True], np.array(["a"], dtype=object), pandas.Series([None]), "12", None])
def test_anything_else_is_none(values):
    assert as_integers(values) is None
