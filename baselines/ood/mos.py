"""MOS, minimum others score (Huang & Li, CVPR 2021): a softmax per group of classes, each with a slot for "others".

The K classes are split into G groups. Group g has its own softmax over (others, classes of g); an image of another
group has the label "others" there.        L = sum_g CE_g        s(x) = min_g p_g(others | x)

An image that every group calls "others" is unknown. The plain network is fine-tuned with a new head (zeros at first,
K + G logits) by BiT's rule, as in the paper: SGD 0.003, no weight decay, rate x0.1 at 30/60/90 %, mixup 0.1; in batches
of 128, as in OpenOOD (in a short training larger ones leave too few steps for a head that starts at zero). Groups:
k-means of the class means of the plain features (the paper's "feature clustering"; labels alone are needed).

Paper: MOS: Towards Scaling Out-of-distribution Detection for Large Semantic Space, CVPR 2021.
Code: https://github.com/deeplearning-wisc/large_scale_ood; OpenOOD's `mos`.
Settings: SGD 0.003, x0.1 at 30/60/90 %, mixup 0.1, batches of 128; 30 % of the recipe's steps, at least 200.
Deviations: mixup mixes the images too (OpenOOD's mixes only the labels, and not at all below 20,000 images); no
    warm-up; groups by k-means of class means; the whole network is trained (the authors' command freezes the backbone).
Parity: tests/parity/test_ood_trained.py::test_mos_groups_labels_loss_and_score_by_hand
Score: the smallest probability of "others".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sgoif.bench.methods.base import OODDetector
from sgoif.bench.methods.ood.kmeans import kmeans
from sgoif.bench.methods.tasks import OODTask
from sgoif.training.images import ImageSource
from sgoif.training.learner import Learner
from sgoif.training.models import Network
from sgoif.training.seeds import numpy_generator, seeded_weights


def default_groups(n_classes: int) -> int:
    """10 classes: 2 groups, 100 classes: 20 groups, as in OpenOOD."""
    return max(2, min(n_classes // 5, 20))


class Groups:
    """Which classes belong together, and where their logits lie: [others, class, class, …] group after group."""

    def __init__(self, members: list[Tensor]):
        self.members = [m for m in members if len(m)]
        self.sizes = [len(m) + 1 for m in self.members]

    @classmethod
    def of_means(cls, means: Tensor, n: int) -> Groups:
        cluster = kmeans(means, n)
        return cls([(cluster == g).nonzero().flatten() for g in range(n)])

    def log_softmax(self, logits: Tensor) -> list[Tensor]:
        """Per group the log probabilities [n, 1 + classes]."""
        return [part.log_softmax(1) for part in logits.split(self.sizes, dim=1)]

    def targets(self, y: Tensor) -> list[Tensor]:
        """Per group the label [n]: 0 for others, 1 + position for a class of the group."""
        found = [(y[:, None] == m).long() for m in self.members]
        return [(hit * torch.arange(1, hit.shape[1] + 1, device=y.device)).sum(1) for hit in found]

    def loss(self, logits: Tensor, y: Tensor) -> Tensor:
        parts = zip(self.log_softmax(logits), self.targets(y), strict=True)
        return sum(F.nll_loss(p, t) for p, t in parts)

    def mixed_loss(self, logits: Tensor, y: Tensor, other: Tensor, shares: Tensor) -> Tensor:
        """Loss of images mixed from two, by the share [2] and the label [n] of either."""
        return shares[0] * self.loss(logits, y) + shares[1] * self.loss(logits, other)

    def classes(self, logits: Tensor) -> Tensor:
        """log p of each class in its own group, [n, K]."""
        out = logits.new_empty(len(logits), sum(self.sizes) - len(self.sizes))
        for p, m in zip(self.log_softmax(logits), self.members, strict=True):
            out[:, m] = p[:, 1:]
        return out

    def score(self, logits: Tensor) -> Tensor:
        """min over the groups of p(others), [n]."""
        return torch.stack([p[:, 0] for p in self.log_softmax(logits)]).amin(0).exp()


class MOS(OODDetector):
    name = "mos"
    title = "MOS"
    group = "Generative (so called)"
    order = 4

    @dataclass(frozen=True)
    class Params:
        n_groups: int | None = None  # None: by the number of classes
        lr: float = 0.003
        share: float = 0.3  # length of the fine-tuning, of the recipe's epochs
        min_steps: int = 200
        batch_size: int = 128  # at most
        mixup: float = 0.1  # parameter of the Beta distribution; 0: none

    def __init__(self, **params):
        super().__init__(**params)
        p = self.params
        self.need(p.n_groups is None or p.n_groups >= 2, "n_groups", "at least 2 groups, or null")
        self.need(p.share >= 0, "share", "a share that is not negative")
        self.need(p.mixup >= 0, "mixup", "must not be negative")
        self.need(p.lr > 0, "lr", "must be above 0")
        self.need(p.min_steps >= 0, "min_steps", "must not be negative")
        self.need(p.batch_size >= 2, "batch_size", "must be at least 2")

    def fit(self, task: OODTask) -> None:
        p = self.params
        batches = task.batches(batch_size=min(p.batch_size, task.recipe.batch_size))
        features, labels = task.plain.features, F.one_hot(task.labels, task.n_classes).float()
        means = (labels.T @ features) / labels.sum(0)[:, None].clamp_min(1)
        with seeded_weights(task.seed):
            self.groups = Groups.of_means(means, p.n_groups or default_groups(task.n_classes))
        plain = task.plain.network()
        head = nn.Linear(plain.head.in_features, sum(self.groups.sizes))
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)
        net = Network(plain.backbone, head, plain.stages).train()
        epochs = max(round(p.share * task.recipe.epochs), -(-p.min_steps // batches.steps), 1)
        # not compiled: a third of a training is over before compiling has paid
        bit = {"optimizer": "sgd", "momentum": 0.9, "nesterov": False, "weight_decay": 0.0, "compile": False}
        recipe = replace(task.recipe, lr=p.lr, schedule="step", milestones=(0.3, 0.6, 0.9), gamma=0.1, **bit)
        learner = Learner.for_batches(recipe, task.n_classes, batches, task.seed, epochs, network=net)

        def mixed_loss(batch) -> tuple[Tensor]:
            shares, other = batch.extra
            f = learner(shares[0] * batch.x + shares[1] * batch.x[other])
            return (self.groups.mixed_loss(f, batch.labels, batch.labels[other], shares),)

        step = learner.stepper(mixed_loss)
        for epoch in task.session.epochs(epochs, learner, phase="tune"):
            rng = numpy_generator(task.seed, "mixup", epoch)
            for batch in batches.epoch(epoch):
                lam = float(rng.beta(p.mixup, p.mixup)) if p.mixup else 1.0
                partners = torch.from_numpy(rng.permutation(len(batch.labels)))
                step(batch.with_extra(torch.tensor([lam, 1 - lam]), partners))
        self.task, self.net = task, net

    def score(self, images: ImageSource) -> Tensor:
        return self.groups.score(self.task.predict(self.net, images)[0])

    def logits(self, images: ImageSource) -> Tensor:
        return self.groups.classes(self.task.predict(self.net, images)[0])

    def extras(self) -> dict[str, float]:
        return {"groups": float(len(self.groups.sizes))}
