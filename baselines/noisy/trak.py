"""Self-influence by TRAK. Park, Georgiev, Ilyas, Leclerc & Madry, ICML 2023 (arXiv:2303.14186).

The network is read as a linear model in the gradients phi of its margin, log p_y / (1 - p_y), and an example's
influence on itself is its leverage in that model times how far its label is from being learnt:

    phi_i = P' grad log(p_y / (1 - p_y)),    tau_i = (1 - p_y(x_i)) phi_i' (Phi' Phi + lambda I)^-1 phi_i

with all phi as the rows of Phi and a random projection P to `dimension` numbers. For the last layer the gradient is
c u (x) a with a = [z, 1], u = onehot(y) - q, and q the softmax over the other classes. `last`: the last checkpoint.
`ensemble`: the mean leverage over the checkpoints of the last half of training, times the mean of 1 - p_y, as the
authors average models. Official code: github.com/MadryLab/trak (package `traker`; `lambda_reg`).
Removal rule: the suspicious component of a two-Gaussian mixture. Cost: a pass per checkpoint beyond the plain run.
Deviations: the last layer alone, as for TracIn, FastIF and EK-FAC. Checkpoints of one training stand for models trained
apart. Where the layer has no more than `dimension` parameters nothing is projected. lambda is relative to the mean
diagonal of Phi' Phi, since u adds up to zero and the matrix has no inverse (published: 0, after a projection).
The package divides each model's inverse by its mean absolute value before it averages models; `ensemble` does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif.bench.methods.base import Detection, NoisyLabelDetector
from sgoif.bench.methods.robust.visits import in_window
from sgoif.bench.methods.score_threshold import by_mixture
from sgoif.bench.methods.tasks import NoisyTask
from sgoif.training.seeds import torch_generator

BLOCK = 2048  # examples whose gradients are there at once


def margin_errors(logits: Tensor, labels: Tensor) -> Tensor:
    """u [N, K], the gradient of log p_y / (1 - p_y) in the logits [N, K]."""
    own = F.one_hot(labels, logits.shape[1])
    return own - logits.masked_fill(own.bool(), -torch.inf).softmax(1)


def leverages(errors: Tensor, features: Tensor, damping: float, projection: Tensor | None = None) -> Tensor:
    """Leverage [N] of gradients u (x) a from u [N, K] and a [N, D], after a projection [K D, m] if there is one."""

    def gradients(start: int) -> Tensor:
        rows = slice(start, start + BLOCK)
        found = torch.einsum("nk,nd->nkd", errors[rows], features[rows]).flatten(1)
        return found if projection is None else found @ projection

    starts = range(0, len(errors), BLOCK)
    gram: Tensor = sum(g.T @ g for g in map(gradients, starts))
    gram.diagonal().add_(damping * gram.diagonal().mean())
    factor = torch.linalg.cholesky(gram)
    solved = [torch.linalg.solve_triangular(factor, gradients(s).T, upper=False).square().sum(0) for s in starts]
    return torch.cat(solved)


class TRAK(NoisyLabelDetector):
    name = "trak"
    title = "TRAK self-influence"
    group = "Free detectors"
    order = 13
    reads_plain = True
    candidates: ClassVar = {
        "last": "self-influence at the last checkpoint",
        "ensemble": "mean over the checkpoints of the last half of training (published: over models)",
    }
    ranked_by = "last"

    @dataclass(frozen=True)
    class Params:
        dimension: int = 2048  # of the projected gradients
        damping: float = 1e-3  # lambda, relative to the mean diagonal of Phi' Phi

    def __init__(self, **params):
        super().__init__(**params)
        self.need(self.params.dimension >= 1, "dimension", "at least 1")
        self.need(self.params.damping > 0, "damping", "must be above 0")

    def detect(self, task: NoisyTask) -> Detection:
        leverage, missing = [], []
        for epoch in task.plain.checkpoint_epochs:
            if in_window(epoch, task.recipe.epochs):
                logits, z = task.predict(task.plain.network(epoch), features=True)
                a = F.pad(z.float(), (0, 1), value=1.0)
                u = margin_errors(logits.float(), task.labels)
                leverage.append(leverages(u, a, self.params.damping, self._projection(u, a, task.seed)).double().cpu())
                own = logits.double().softmax(1).gather(1, task.labels[:, None]).squeeze(1)
                missing.append(1 - own.cpu())
                task.session.check_time()
        mean = torch.stack(leverage).mean(0) * torch.stack(missing).mean(0)
        return self.detection(
            {"last": (leverage[-1] * missing[-1]).numpy(), "ensemble": mean.numpy()}, remove=by_mixture
        )

    def _projection(self, u: Tensor, a: Tensor, seed: int) -> Tensor | None:
        """Random signs [K D, dimension] over the root of the dimension; None where there are no more parameters."""
        size, m = u.shape[1] * a.shape[1], self.params.dimension
        if size <= m:
            return None
        signs = torch.randint(0, 2, (size, m), generator=torch_generator(seed, "trak"), dtype=torch.int8)
        return (signs.to(a.device).to(a.dtype) * 2 - 1) / m**0.5
