"""Counts the computation of the cell that is being computed in this process."""

from __future__ import annotations

import torch
from torch import Tensor


class ComputeCounter:
    """Counts images passed through networks, and the time of compiling.

    Attributes:
        forward_passes: Images passed through networks, in units of one forward pass. A training step counts three:
            its backward pass costs about two forward passes.
        compile_seconds: Seconds of the first steps of compiled networks. Most of them go into compiling, which later
            networks of the same process do not need.
    """

    forward_passes: int
    compile_seconds: float

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Set both counts to zero."""
        self.forward_passes = 0
        self.compile_seconds = 0.0

    def add_batch(self, x: Tensor) -> None:
        """Count one forward pass of a batch, and its backward pass where gradients are recorded.

        Args:
            x: The batch, shape [n, ...].
        """
        self.forward_passes += len(x) * (3 if torch.is_grad_enabled() else 1)


COMPUTE = ComputeCounter()  # of the cell being computed in this process
