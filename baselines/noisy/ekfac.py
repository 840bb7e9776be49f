"""Self-influence by EK-FAC. Grosse et al., 2023 (arXiv:2308.03296); EK-FAC: George et al., NeurIPS 2018.

    s_i = g_i' (F + lambda I)^-1 g_i

with the gradient g_i of an example's loss in the last layer and the Fisher matrix F in the basis of its Kronecker
factors. There g = c e (x) a with e = p - onehot(y) and a = [z, 1]; with the eigenvectors Q_S of mean (diag p - p p')
and Q_A of mean a a', and the exact second moments in that basis (the correction of EK-FAC),

    L_kd = mean_n c^2 [Q_S' (diag p_n - p_n p_n') Q_S]_kk (Q_A' a_n)_d^2
    s_i  = sum_kd c^2 (Q_S' e_i)_k^2 (Q_A' a_i)_d^2 / (L_kd + lambda),          lambda = 0.1 mean L

The expectation over the labels that the network would draw is taken exactly instead of by sampling one. Released code:
github.com/pomonam/kronfluence, whose damping by `None` this is (its default is 1e-8). `last`: the last checkpoint;
`late`: the mean over the checkpoints of the last half of training, each with its own Fisher matrix.
Removal rule: the suspicious component of a two-Gaussian mixture. Cost: a pass per checkpoint beyond the plain run.
Deviation: the last layer alone, as for TracIn and FastIF.
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


def self_influence(logits: Tensor, features: Tensor, labels: Tensor, c: float, damping: float) -> Tensor:
    """[N] s_i from logits [N, K] and features [N, d], with lambda = damping times the mean second moment."""
    p, a = logits.double().softmax(1), F.pad(features.double(), (0, 1), value=1.0)
    e = p - F.one_hot(labels, p.shape[1])
    mean_p = p.mean(0)
    _, q_s = torch.linalg.eigh(torch.diag(mean_p) - p.T @ p / len(p))
    _, q_a = torch.linalg.eigh(a.T @ a / len(a))
    a_squared = (a @ q_a).square()
    fisher = (p @ q_s.square() - (p @ q_s).square()).clamp(min=0)  # diagonal of Q_S' (diag p - p p') Q_S, [N, K]
    moments = c**2 * fisher.T @ a_squared / len(p)  # L, [K, D]
    inverse = 1 / (moments + damping * moments.mean())
    return c**2 * ((e @ q_s).square() @ inverse * a_squared).sum(1)


class EKFAC(NoisyLabelDetector):
    name = "ekfac"
    title = "EK-FAC self-influence"
    group = "Free detectors"
    order = 12
    reads_plain = True
    candidates: ClassVar = {
        "last": "self-influence at the last checkpoint (published)",
        "late": "mean self-influence over the checkpoints of the last half of training",
    }
    ranked_by = "last"

    @dataclass(frozen=True)
    class Params:
        damping: float = 0.1  # lambda, relative to the mean second moment

    def __init__(self, **params):
        super().__init__(**params)
        self.need(self.params.damping > 0, "damping", "must be above 0")

    def detect(self, task: NoisyTask) -> Detection:
        late = []
        for epoch in task.plain.checkpoint_epochs:
            if in_window(epoch, task.recipe.epochs):
                net = task.plain.network(epoch)
                logits, z = task.predict(net, features=True)
                late.append(self_influence(logits, z, task.labels, net.scale, self.params.damping).cpu())
                task.session.check_time()
        scores = {"last": late[-1].numpy(), "late": torch.stack(late).mean(0).numpy()}
        return self.detection(scores, remove=by_mixture)
