"""Kronecker-factored curvature (the default).

    C_l = A_l (x) B_l,   P_l = (A_l + lambda_A I) (x) (B_l + lambda_B I),
    lambda_A = damping * tr(A_l) / in,   lambda_B = damping * tr(B_l) / out,

with A_l = E[a a']. In head scope B = E[diag(p) - p p'] / T, the exact Gauss-Newton factor of the outputs; in deep
scopes B_l = E[e e'], summed over the positions of a convolution. The damping is
D = P - A (x) B = lambda_A I (x) B + lambda_B A (x) I + lambda_A lambda_B I.

In deep scopes factors may have thousands of rows, so products may use a GPU's tensor cores (TF32). The rounding that
this adds to P^-1 V lies in directions of little curvature, which hardly change a score.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from sgoif.backend import collectives
from sgoif.backend.linalg import damped_inverse, left_multiply, tf32_products
from sgoif.config import InfluenceConfig
from sgoif.curvature.base import MIN_MEAN_EIGENVALUE, Curvature
from sgoif.gradients.factored_batch import FactoredBatch
from sgoif.gradients.parameter_space import ParameterSpace


class KroneckerFactor(nn.Module):
    """One side of one layer: the running sum [m, m], and since the last refresh its mean, damping and inverse.

    Args:
        size: Rows m of the factor.
        dtype: Type of the buffers.
    """

    sum: Tensor
    mean: Tensor
    inverse: Tensor
    damping: Tensor

    def __init__(self, size: int, dtype: torch.dtype) -> None:
        super().__init__()
        for name in ("sum", "mean", "inverse"):
            self.register_buffer(name, torch.zeros(size, size, dtype=dtype))
        self.register_buffer("damping", torch.ones((), dtype=dtype))

    def refresh(self, weight: Tensor, damping: float, products: AbstractContextManager[None]) -> None:
        """Compute mean, damping and inverse from the running sum.

        Args:
            weight: Number of examples in the sum, over all processes.
            damping: Damping relative to the mean eigenvalue.
            products: Context for the products of the inverse.
        """
        mean = self.sum.clone()
        collectives.sum_(mean)
        mean /= weight.clamp(min=torch.finfo(mean.dtype).tiny)
        self.mean = mean
        self.damping = damping * mean.diagonal().mean().clamp(min=MIN_MEAN_EIGENVALUE)
        with products:
            self.inverse = damped_inverse(mean, self.damping)

    def damped_trace(self) -> Tensor:
        """Return the trace of the damped factor."""
        return self.mean.diagonal().sum() + len(self.mean) * self.damping

    def condition(self) -> Tensor:
        """Return an upper estimate of the condition number of the damped factor."""
        return 1 + torch.linalg.matrix_norm(self.mean) / self.damping  # type: ignore[no-any-return]


class KroneckerCurvature(Curvature):
    """Keeps one `KroneckerFactor` per side of each layer, in `inputs` (A_l) and `outputs` (B_l)."""

    name = "kfac"
    side_stream_refresh = True

    def __init__(self, space: ParameterSpace, config: InfluenceConfig, closed_form: bool, dtype: torch.dtype) -> None:
        super().__init__(space, config, closed_form, dtype)
        self.inputs = nn.ModuleList(KroneckerFactor(columns, dtype) for _, columns in space.shapes)
        self.outputs = nn.ModuleList(KroneckerFactor(rows, dtype) for rows, _ in space.shapes)

    def factors(self) -> list[tuple[KroneckerFactor, KroneckerFactor]]:
        """Return the factors (A_l, B_l) of each layer."""
        return [
            (a, b)
            for a, b in zip(self.inputs, self.outputs, strict=True)
            if isinstance(a, KroneckerFactor) and isinstance(b, KroneckerFactor)
        ]

    def _products(self) -> AbstractContextManager[None]:
        return nullcontext() if self.kind == "ggn" else tf32_products(enabled=True)

    def update(self, batch: FactoredBatch, decay: float) -> None:
        mass = batch.mass
        with self._products():
            for layer, (a, b) in zip(batch.materialised_layers(), self.factors(), strict=True):
                layer.add_to_input_factor(a.sum, decay, mass)
                if self.kind == "ggn":
                    _add_gauss_newton(b.sum, batch, decay)
                else:
                    layer.add_to_output_factor(b.sum, decay)
            self.weight.mul_(decay).add_(mass.sum())

    def refresh(self) -> None:
        weight = self.weight.clone()
        collectives.sum_(weight)
        for pair in self.factors():
            for factor in pair:
                factor.refresh(weight, self.config.damping, self._products())

    def flops_per_product(self) -> int:
        return 6 * sum(out * inputs * (out + inputs) for out, inputs in self.space.shapes)

    def solve(self, rows: Tensor) -> Tensor:
        blocks = []
        for block, (a, b) in zip(self.space.split(rows), self.factors(), strict=True):
            with self._products():
                blocks.append(left_multiply(b.inverse, block @ a.inverse))
        return self.space.join(blocks)

    def matvec(self, rows: Tensor) -> Tensor:
        blocks = []
        for block, (a, b) in zip(self.space.split(rows), self.factors(), strict=True):
            right = block @ a.mean + a.damping * block
            blocks.append(left_multiply(b.mean, right) + b.damping * right)
        return self.space.join(blocks)

    def damp(self, rows: Tensor) -> Tensor:
        blocks = []
        for block, (a, b) in zip(self.space.split(rows), self.factors(), strict=True):
            eye = torch.eye(len(b.mean), dtype=b.mean.dtype, device=b.mean.device)
            with self._products():
                left = a.damping * (b.mean + b.damping * eye)
                blocks.append(left_multiply(left, block, onto=block @ (b.damping * a.mean)))
        return self.space.join(blocks)

    def condition(self) -> Tensor:
        return torch.stack([a.condition() * b.condition() for a, b in self.factors()]).max()

    def mean_eigenvalue(self) -> Tensor:
        return torch.stack([a.damped_trace() * b.damped_trace() for a, b in self.factors()]).sum() / self.space.dim


def _add_gauss_newton(factor: Tensor, batch: FactoredBatch, decay: float) -> None:
    """Set B <- decay B + sum_i m_i (diag(p_i) - p_i p_i') / T, in place."""
    weighted = batch.probs * (batch.mass / batch.temperature).unsqueeze(1)
    factor.addmm_(weighted.T, batch.probs, beta=decay, alpha=-1)
    factor.diagonal().add_(weighted.sum(0))
