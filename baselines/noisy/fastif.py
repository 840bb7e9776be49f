"""FastIF. Guo, Rajani, Hase, Bansal & Xiong, EMNLP 2021 (arXiv:2012.15781).

Influence functions made affordable. For each validation anchor v (here: a trusted image):

    1. kNN      keep the k training examples whose penultimate features lie nearest to v's; only they are judged
    2. LiSSA    s_v ~ (H + damp scale I)^-1 g_v from minibatch Hessians H_j of the training loss:
                    h_0 = g_v,   h_{j+1} = g_v + (1 - damp) h_j - H_j h_j / scale,   s_v = h_J / scale,
                averaged over `replicas` independent chains. It converges when scale > lambda_max(H_j).
    3. score    influence(i, v) = -g_i . s_v, how up-weighting i changes the loss of v: positive = harmful

    `knn`            s_i = mean of influence(i, v) over the anchors v that retrieved i (published)
    `all`            over all anchors, whether they retrieved i or not: here k = N costs nothing more
    `balanced`       the same with every class of anchors counting alike: a plain mean is ruled by misclassified ones
    `balanced_soft`  the same for the loss at temperature 4, f / 4, at which memorised examples still have a gradient

Parameters are those of the last layer (the paper takes the last few). There f = c (W z + b); with errors
e = p - onehot(y) and a = [z, 1] the gradient is c e (x) a, and the Hessian of the mean loss maps V [K, d + 1] to

    H V = mean_n c^2 (diag(p_n) - p_n p_n') (V a_n) (x) a_n

so that all anchors go through LiSSA at once, as one matrix.

Examples that no anchor retrieved say nothing: they score 0, are never removed, and their share is in `extras` as
1 - `coverage`. Among each other they stand in seeded random order: a jitter smaller than the smallest non-zero
|score|, which therefore changes no order between a judged example and any other.

`scale=None` is twice the largest eigenvalue of H by power iteration (the paper's 1e4 is a guess for its BERT, and would
damp with damp * scale = 50). Damping and number of steps are the paper's; one chain over batches of 128 replaces three
chains over single examples.
Official code: github.com/salesforce/fast-influence-functions (`influence_utils/nn_influence_utils.py`).

Removal rule: of the judged examples the suspicious component of a two-Gaussian mixture
(`score_threshold.by_mixture`), as far as it is harmful (s > 0).

Deviations: gradients of the last layer alone; one chain over batches of 128 for three over single examples; `scale`
    from the curvature; no weight decay in gradients and Hessians (released: 0.005); `knn` averages over anchors
    (released for several: one query by their mean features, and one s of their mean gradient).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif.bench.methods.base import Detection, NoisyLabelDetector
from sgoif.bench.methods.score_threshold import by_mixture
from sgoif.bench.methods.tasks import NoisyTask
from sgoif.errors import UserError
from sgoif.training.learner import Diverged
from sgoif.training.seeds import mix_seed, numpy_generator, torch_generator

TEMPERATURE = 4.0  # of `balanced_soft`: SG-OIF's default


def columns(v: Tensor) -> Tensor:
    """[M, K, D] -> [D, K M]: by class, then by direction. So matrix products and sums over classes read whole rows."""
    return v.permute(2, 1, 0).flatten(1).contiguous()


def from_columns(v: Tensor, k: int) -> Tensor:
    """[D, K M] -> [M, K, D]."""
    return v.view(len(v), k, -1).permute(2, 1, 0)


def logit_curvature(p: Tensor, a: Tensor, v: Tensor) -> Tensor:
    """(diag(p_n) - p_n p_n') (V a_n): p [n, K], a [n, D], v [D, K M] -> [n, K M]."""
    u = (a @ v).view(*p.shape, -1)  # change of the logits along v, [n, K, M]
    u *= p[:, :, None]
    return u.addcmul_(p[:, :, None], u.sum(1, keepdim=True), value=-1).flatten(1)


def hvp(p: Tensor, a: Tensor, v: Tensor, c: float = 1.0) -> Tensor:
    """Hessian of the mean cross-entropy in the head times v: p [n, K], a [n, D], v [M, K, D] -> [M, K, D]."""
    return (c**2 / len(a)) * from_columns(a.T @ logit_curvature(p, a, columns(v)), p.shape[1])


def largest_eigenvalue(p: Tensor, a: Tensor, c: float = 1.0, steps: int = 30, seed: int = 0) -> float:
    """lambda_max of the head's Hessian over all of p, a by power iteration."""
    g = torch_generator(seed, "power")
    v = torch.randn(1, p.shape[1], a.shape[1], generator=g).to(a)
    for _ in range(steps):
        v = hvp(p, a, v / v.norm().clamp(min=1e-30), c)
    return float(v.norm())


def lissa(p: Tensor, a: Tensor, g: Tensor, c: float, damp: float, scale: float, steps: int, batch: int, seed: int):
    """(H + damp scale I)^-1 g for every row of g [M, K, D], from `steps` minibatches drawn by `seed`."""
    generator = torch.Generator().manual_seed(seed)
    batch = min(batch, len(a))
    drawn = torch.randint(len(a), (steps, batch), generator=generator).to(a.device) if batch < len(a) else None
    start = h = columns(g)
    for step in range(steps):
        p_n, a_n = (p, a) if drawn is None else (p[drawn[step]], a[drawn[step]])
        bent = logit_curvature(p_n, a_n, h)
        h = torch.add(start, h, alpha=1 - damp).addmm_(a_n.T, bent, alpha=-(c**2) / (batch * scale))
    return from_columns(h / scale, p.shape[1])


def nearest(anchors: Tensor, features: Tensor, k: int, block: int = 8192) -> Tensor:
    """[M, k] indices of each anchor's nearest features (L2), a block of the training set at a time."""
    best = index = None
    for start in range(0, len(features), block):
        distance = torch.cdist(anchors, features[start : start + block])
        candidates = torch.arange(start, start + distance.shape[1], device=features.device).expand_as(distance)
        if best is not None:
            distance, candidates = torch.cat([best, distance], 1), torch.cat([index, candidates], 1)
        best, order = distance.topk(min(k, distance.shape[1]), largest=False)
        index = candidates.gather(1, order)
    return index


def break_ties(scores: np.ndarray, judged: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Random order among the examples nobody judged, without moving them past any judged one."""
    real = np.abs(scores[judged & (scores != 0)])
    gap = real.min() if real.size else 1.0
    return np.where(judged, scores, gap * rng.uniform(-0.5, 0.5, len(scores)))


def class_balanced(labels: Tensor) -> Tensor:
    """[M] weights that sum to 1, alike for every class that occurs."""
    _, place, counts = labels.unique(return_inverse=True, return_counts=True)
    return 1 / (counts[place].float() * len(counts))


class Head:
    """The last layer on some examples: probabilities p [n, K], inputs a = [z, 1] [n, D], errors e [n, K], scale c."""

    def __init__(self, logits: Tensor, features: Tensor, labels: Tensor, scale: float):
        self.logits, self.labels, self.c = logits, labels, scale
        self.p, self.a = logits.softmax(1), F.pad(features, (0, 1), value=1.0)
        self.errors = self.p - F.one_hot(labels, logits.shape[1])

    def soften(self, temperature: float) -> Head:
        """The same for the loss of f / temperature."""
        return Head(self.logits / temperature, self.a[:, :-1], self.labels, self.c / temperature)

    def gradients(self) -> Tensor:
        """[n, K, D] gradient of each example's loss."""
        return self.c * torch.einsum("nk,nd->nkd", self.errors, self.a)

    def influence(self, s: Tensor, index: Tensor | slice = slice(None)) -> Tensor:
        """[n] -g_i . s for s [K, D]."""
        return -self.c * (self.errors[index] * (self.a[index] @ s.T)).sum(1)


class FastIF(NoisyLabelDetector):
    name = "fastif"
    title = "FastIF †"
    group = "Methods of the paper"
    order = 6
    shown_variants: ClassVar = {
        "all_trusted": {
            "title": "FastIF, all trusted †",
            "group": "Given all clean labels that were set aside",
            "order": 2,
            "ranked": False,
        }
    }
    reads_plain = True
    uses_trusted = True
    candidates: ClassVar = {
        "knn": "mean influence on the anchors that retrieved the example (published)",
        "all": "mean influence on all anchors",
        "balanced": "mean influence on all anchors, every class alike",
        "balanced_soft": "the same for the loss at temperature 4",
    }
    ranked_by = "balanced_soft"

    @dataclass(frozen=True)
    class Params:
        k: int = 1000  # neighbours per anchor, at most the training set
        n_anchors: int = 100  # trusted images used, at most all
        damp: float = 5e-3
        scale: float | None = None  # None: 2 lambda_max(H)
        steps: int = 1000  # J
        replicas: int = 1
        batch_size: int = 128  # examples per Hessian-vector product

    def __init__(self, **params):
        super().__init__(**params)
        for key in ("k", "n_anchors", "steps", "replicas", "batch_size"):
            self.need(getattr(self.params, key) >= 1, key, "at least 1")
        self.need(0 <= self.params.damp < 1, "damp", "in [0, 1)")
        self.need(self.params.scale is None or self.params.scale > 0, "scale", "above 0, or none to estimate it")

    def detect(self, task: NoisyTask) -> Detection:
        if task.trusted is None:
            raise UserError("fastif needs trusted images (noisy.<dataset>.val): its anchors are validation examples")
        net = task.plain.network()
        images, clean = task.trusted
        order = numpy_generator(task.seed, "fastif", "anchors").permutation(len(images))
        chosen = np.sort(order[: self.params.n_anchors])
        logits, z = task.predict(net, features=True)
        v_logits, v_z = task.predict(net, images, chosen, features=True)
        v_labels = clean.to(logits.device)[torch.as_tensor(chosen, device=logits.device)]

        train, anchors = Head(logits, z, task.labels, net.scale), Head(v_logits, v_z, v_labels, net.scale)
        s, scale = self.solve(train, anchors.gradients(), task.seed)
        weights = class_balanced(v_labels)
        soft, soft_anchors = train.soften(TEMPERATURE), anchors.soften(TEMPERATURE)
        mean = torch.einsum("m,mkd->kd", weights, soft_anchors.gradients())[None]
        soft_direction, _ = self.solve(soft, mean, task.seed)
        knn, judged = self.retrieved(train, s, nearest(v_z, z, min(self.params.k, len(z))))
        scores = {
            "knn": break_ties(knn, judged, numpy_generator(task.seed, "fastif", "ties")),
            "all": train.influence(s.mean(0)).double().cpu().numpy(),
            "balanced": train.influence(torch.einsum("m,mkd->kd", weights, s)).double().cpu().numpy(),
            "balanced_soft": soft.influence(soft_direction[0]).double().cpu().numpy(),
        }
        if self.score_name != "knn":
            judged = np.ones_like(judged)

        def harmful(ranking: np.ndarray) -> np.ndarray:
            remove = np.zeros(len(ranking), dtype=bool)
            remove[judged] = by_mixture(ranking[judged])
            return remove & (ranking > 0)

        return self.detection(
            scores,
            remove=harmful,
            extras={
                "coverage": float(judged.mean()),
                "anchors": float(len(chosen)),
                "scale": float(scale),
                "hvps": float(self.params.steps * self.params.replicas * (len(chosen) + 1)),
            },
        )

    def solve(self, head: Head, g: Tensor, seed: int) -> tuple[Tensor, float]:
        """s_v ~ (H + damp scale I)^-1 g_v for every row of g [M, K, D], and the scale."""
        q = self.params
        scale = q.scale or 2 * largest_eigenvalue(head.p, head.a, head.c, seed=seed)
        chains = [
            lissa(head.p, head.a, g, head.c, q.damp, scale, q.steps, q.batch_size, mix_seed(seed, "lissa", replica))
            for replica in range(q.replicas)
        ]
        s = torch.stack(chains).mean(0)
        if not torch.isfinite(s).all():
            raise Diverged(f"LiSSA diverged: scale {scale:.3g} is below the largest eigenvalue of a minibatch Hessian")
        return s, scale

    @staticmethod
    def retrieved(head: Head, s: Tensor, neighbours: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """[N] mean influence on the anchors that retrieved an example, and which were retrieved by any."""
        total, times = torch.zeros(2, len(head.a)).to(head.a)
        for near, s_v in zip(neighbours, s, strict=True):
            total.index_add_(0, near, head.influence(s_v, near))
            times.index_add_(0, near, torch.ones(len(near)).to(head.a))
        return (total / times.clamp(min=1)).double().cpu().numpy(), (times > 0).cpu().numpy()
