"""Integers that users hand over as tensors, arrays or lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)  # types that torch stores and hardly computes with


def as_integers(values: Any) -> Tensor | None:
    """Return values as a tensor of integers; None if they are anything else, truth values among it."""
    try:
        if hasattr(values, "to_numpy"):  # a pandas series: by position, whatever its index says
            values = values.to_numpy()
        if isinstance(values, np.ndarray) and values.dtype.kind == "O":
            values = values.tolist()
        found = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError):
        return None
    if found.dtype in UNSIGNED:
        found = found.long()
    whole = not (found.is_floating_point() or found.is_complex() or found.dtype == torch.bool)
    return found if whole or found.numel() == 0 else None  # an empty list is a tensor of floats


def describe(values: Any) -> str:
    """Say what was given in the place of integers, for a message."""
    if isinstance(values, Tensor):
        return f"{values.dtype} of shape {tuple(values.shape)}"
    return f"a {type(values).__name__}"
