"""Images in the four rotations by quarter turns, which some methods learn to tell apart."""

from __future__ import annotations

import torch
from torch import Tensor


def rotations(x: Tensor) -> Tensor:
    """Return [4 n, C, H, H] of images [n, C, H, H]: all of them unrotated, then all by 90 degrees, …"""
    return torch.cat([torch.rot90(x, r, (2, 3)) for r in range(4)])
