"""The interface of a curvature backend: an estimate P_t of the curvature that can be updated, multiplied and inverted.

    P_t = C_t + D_t,   C_t: running curvature of the backend,   D_t: its damping.

The residual of an anchor is measured against H_t = C(probe batch) + D_t, the matrix-free curvature of fresh examples
with the SAME damping. With another damping the stochastic iteration diverges, even where P_t^-1 alone is accurate.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from sgoif.config import InfluenceConfig
from sgoif.gradients.factored_batch import FactoredBatch
from sgoif.gradients.parameter_space import ParameterSpace

MIN_MEAN_EIGENVALUE = 1e-12  # keeps the damping positive


class Curvature(nn.Module, ABC):
    """Running curvature over a `ParameterSpace`; a subclass with a `name` is registered under it.

    All tensors are buffers, so that `state_dict()` holds everything.

    Args:
        space: Layout of the parameters in scope.
        config: Supplies damping, rank and numbers of examples.
        closed_form: Whether batches have the exact Gauss-Newton matrix (head scope); else the empirical Fisher is used.
        dtype: Type of the buffers.
    """

    name: ClassVar[str]
    side_stream_refresh: ClassVar[bool] = False  # whether `refresh` is a long chain of kernels on its own buffers alone
    registry: ClassVar[dict[str, type[Curvature]]] = {}

    weight: Tensor

    def __init_subclass__(cls) -> None:
        Curvature.registry[cls.name] = cls

    def __init__(self, space: ParameterSpace, config: InfluenceConfig, closed_form: bool, dtype: torch.dtype) -> None:
        super().__init__()
        self.space = space
        self.config = config
        self.kind = "ggn" if closed_form else "fisher"
        self.register_buffer("weight", torch.zeros((), dtype=dtype))

    @abstractmethod
    def update(self, batch: FactoredBatch, decay: float) -> None:
        """Add a materialised batch to the running statistics, old ones times `decay`; never wait for the device."""

    @abstractmethod
    def refresh(self) -> None:
        """Refactorise from the running statistics; the methods below use this state until the next call."""

    @abstractmethod
    def flops_per_product(self) -> int:
        """Return the floating-point operations that a check spends per row: one `damp` and two `solve`."""

    @abstractmethod
    def matvec(self, rows: Tensor) -> Tensor:
        """Return P_t V for rows V of shape [K, d]."""

    @abstractmethod
    def solve(self, rows: Tensor) -> Tensor:
        """Return P_t^-1 V for rows V of shape [K, d]."""

    @abstractmethod
    def damp(self, rows: Tensor) -> Tensor:
        """Return D_t V for rows V of shape [K, d]."""

    @abstractmethod
    def condition(self) -> Tensor:
        """Return Gamma_t, an upper estimate of the condition number of P_t, as a device scalar."""

    @abstractmethod
    def mean_eigenvalue(self) -> Tensor:
        """Return trace(P_t) / d as a device scalar, the preconditioner of the ablation without preconditioning."""
