"""What a curvature backend is: an estimate P_t of the curvature that can be updated, multiplied and inverted.

    P_t = C_t + D_t,   C_t: what the backend has learnt,   D_t: its damping.

The residual of an anchor is measured against H_t = C(probe batch) + D_t, the matrix-free curvature of fresh examples
with the SAME damping: with unmatched damping the stochastic iteration diverges although P_t^-1 alone is fine (seen in
the trials). A backend is registered by subclassing with a `name`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from sgoif.config import InfluenceConfig
from sgoif.gradients.factored_batch import FactoredBatch
from sgoif.gradients.parameter_space import Space


class Curvature(nn.Module, ABC):
    """Running curvature over a `Space`; all tensors are buffers, so that state_dict() holds everything."""

    name: ClassVar[str]
    chained: ClassVar[bool] = False  # whether `refresh` is a long chain of kernels that reads its own buffers alone
    registry: ClassVar[dict[str, type[Curvature]]] = {}

    def __init_subclass__(cls) -> None:
        Curvature.registry[cls.name] = cls

    def __init__(self, space: Space, config: InfluenceConfig, closed_form: bool, dtype: torch.dtype) -> None:
        super().__init__()
        self.space, self.config = space, config
        self.kind = "ggn" if closed_form else "fisher"
        self.register_buffer("weight", torch.zeros((), dtype=dtype))

    @abstractmethod
    def update(self, batch: FactoredBatch, decay: float) -> None:
        """Fold a settled batch into the running statistics, old ones times `decay`. No host synchronisation."""

    @abstractmethod
    def refresh(self) -> None:
        """Refactorise from the running statistics; the other methods answer for this moment until the next call."""

    @abstractmethod
    def arithmetic(self) -> int:
        """Floating-point operations of one `damp` and two `solve` of a row: what a check spends on a product."""

    @abstractmethod
    def matvec(self, rows: Tensor) -> Tensor:
        """P_t V for V `[K, d]`."""

    @abstractmethod
    def solve(self, rows: Tensor) -> Tensor:
        """P_t^-1 V for V `[K, d]`."""

    @abstractmethod
    def damp(self, rows: Tensor) -> Tensor:
        """D_t V for V `[K, d]`."""

    @abstractmethod
    def condition(self) -> Tensor:
        """Gamma_t: an upper estimate of the condition number of P_t, as a device scalar."""

    @abstractmethod
    def mean_eigenvalue(self) -> Tensor:
        """trace(P_t) / d, as a device scalar: the scalar preconditioner of the ablation without preconditioning."""
