"""How much arithmetic the cell that is being computed has done, counted where images pass through networks."""

import torch
from torch import Tensor


class Work:
    """Images passed through networks, in units of one forward pass (a training step counts three), and the seconds of
    first steps of compiled networks: most of them go into compiling, which later networks of a process need not."""

    def __init__(self):
        self.reset()

    def reset(self) -> None:
        self.passes, self.compiling = 0, 0.0

    def step(self, x: Tensor) -> None:
        """A forward pass, with a backward pass to follow where gradients are recorded."""
        self.passes += len(x) * (3 if torch.is_grad_enabled() else 1)


WORK = Work()  # of the cell being computed in this process
