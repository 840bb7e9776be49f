"""Kronecker-factored curvature (the default).

    C_l = A_l (x) B_l,   P_l = (A_l + lambda_A I) (x) (B_l + lambda_B I),
    lambda_A = damping * tr(A_l) / in,   lambda_B = damping * tr(B_l) / out,

with A_l = E[a a'] and, in head scope, B = E[diag(p) - p p'] / T, the exact output Gauss-Newton factor; elsewhere B_l
= E[e e'], and products go by a GPU's tensor cores (TF32), since factors may have thousands of rows: the rounding that
adds to P^-1 V lies in directions of little curvature, which hardly move a score. Every probe of the damping agrees
with P - A (x) B = lambda_A I (x) B + lambda_B A (x) I + lambda_A lambda_B.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from sgoif.backend import collectives
from sgoif.backend.linalg import from_left, products
from sgoif.curvature.base import Curvature
from sgoif.gradients.factored_batch import FactoredBatch


def damped_inverse(matrix: Tensor, damping: Tensor) -> Tensor:
    """(M + damping I)^-1 by Cholesky, without the host synchronisation of an error check."""
    eye = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
    factor, _ = torch.linalg.cholesky_ex(matrix + damping * eye)
    root = torch.linalg.solve_triangular(factor, eye, upper=False)
    return root.T @ root


class KroneckerCurvature(Curvature):
    """Buffers per layer l: sums `input_l` `[in, in]`, `output_l` `[out, out]`, and since the last refresh their means,
    inverses and dampings."""

    name = "kfac"
    chained = True

    def __init__(self, space, config, closed_form, dtype) -> None:
        super().__init__(space, config, closed_form, dtype)
        self.count = len(space.shapes)
        for l, (out, inputs) in enumerate(space.shapes):
            for side, size in (("input", inputs), ("output", out)):
                for role in ("sum", "mean", "inverse"):
                    self.register_buffer(f"{side}_{role}_{l}", torch.zeros(size, size, dtype=dtype))
                self.register_buffer(f"{side}_damping_{l}", torch.ones((), dtype=dtype))

    def _products(self) -> AbstractContextManager:
        return nullcontext() if self.kind == "ggn" else products(fast=True)

    def update(self, batch: FactoredBatch, decay: float) -> None:
        with self._products():
            self._update(batch, decay)

    def _update(self, batch: FactoredBatch, decay: float) -> None:
        mass = batch.mass
        for l, layer in enumerate(batch.layers):
            layer.fold_input(getattr(self, f"input_sum_{l}"), decay, mass)
            output = getattr(self, f"output_sum_{l}")
            if self.kind == "ggn":
                weighted = batch.probs * (mass / batch.temperature).unsqueeze(1)
                output.addmm_(weighted.T, batch.probs, beta=decay, alpha=-1)
                output.diagonal().add_(weighted.sum(0))
            else:
                layer.fold_output(output, decay)
        self.weight.mul_(decay).add_(mass.sum())

    def refresh(self) -> None:
        weight = self.weight.clone()
        collectives.sum_(weight)
        for l in range(self.count):
            for side in ("input", "output"):
                mean = getattr(self, f"{side}_sum_{l}").clone()
                collectives.sum_(mean)
                mean /= weight.clamp(min=torch.finfo(mean.dtype).tiny)
                damping = self.config.damping * mean.diagonal().mean().clamp(min=1e-12)
                setattr(self, f"{side}_mean_{l}", mean)
                setattr(self, f"{side}_damping_{l}", damping)
                with self._products():
                    setattr(self, f"{side}_inverse_{l}", damped_inverse(mean, damping))

    def arithmetic(self) -> int:
        return 6 * sum(out * inputs * (out + inputs) for out, inputs in self.space.shapes)

    def _layer(self, l: int, role: str) -> tuple[Tensor, Tensor]:
        return getattr(self, f"input_{role}_{l}"), getattr(self, f"output_{role}_{l}")

    def solve(self, rows: Tensor) -> Tensor:
        blocks = []
        for l, block in enumerate(self.space.split(rows)):
            inputs, outputs = self._layer(l, "inverse")
            with self._products():
                blocks.append(from_left(outputs, block @ inputs))
        return self.space.join(blocks)

    def matvec(self, rows: Tensor) -> Tensor:
        blocks = []
        for l, block in enumerate(self.space.split(rows)):
            (inputs, outputs), (left, right) = self._layer(l, "mean"), self._layer(l, "damping")
            wide = block @ inputs + left * block
            blocks.append(from_left(outputs, wide) + right * wide)
        return self.space.join(blocks)

    def damp(self, rows: Tensor) -> Tensor:
        blocks = []
        for l, block in enumerate(self.space.split(rows)):
            (inputs, outputs), (left, right) = self._layer(l, "mean"), self._layer(l, "damping")
            eye = torch.eye(len(outputs), dtype=outputs.dtype, device=outputs.device)
            with self._products():
                blocks.append(from_left(left * (outputs + right * eye), block, onto=block @ (right * inputs)))
        return self.space.join(blocks)

    def condition(self) -> Tensor:
        worst = []
        for l in range(self.count):
            pairs = zip(self._layer(l, "mean"), self._layer(l, "damping"), strict=True)
            sides = [1 + torch.linalg.matrix_norm(mean) / damping for mean, damping in pairs]
            worst.append(sides[0] * sides[1])
        return torch.stack(worst).max()

    def mean_eigenvalue(self) -> Tensor:
        traces = []
        for l in range(self.count):
            pairs = zip(self._layer(l, "mean"), self._layer(l, "damping"), strict=True)
            sides = [mean.diagonal().sum() + len(mean) * damping for mean, damping in pairs]
            traces.append(sides[0] * sides[1])
        return torch.stack(traces).sum() / self.space.dim
