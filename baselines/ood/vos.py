"""VOS, virtual outlier synthesis (Du, Wang, Cai & Li, ICLR 2022): outliers drawn where class Gaussians are least
likely.

Features of each class wait in a queue. With their means mu_k and one shared covariance S (+ 1e-4 I), `candidates`
points per class are drawn from N(mu_k, S) and the `keep` least likely become virtual outliers v. A logistic head phi
tells the weighted energies of images and outliers apart, and its loss shapes the classifier:

    E(f) = -log sum_k w_k exp f_k,   w = relu(learnt)
    L = CE(f(x), y) + weight CE(phi(E), image or outlier)        s(x) = E(f(x))

A candidate is mu + C e with C C' = S, e standard normal, and its log density is -|e|^2 / 2 + const: the least likely
has the longest e. Length and direction of e are independent, so it is enough to draw `candidates` lengths (chi-square
with d degrees) and a direction for those kept: the same distribution, d times cheaper. Differences from OpenOOD, on
purpose: w is trained and the energies stay in the graph (theirs draws new random weights at every call and cuts the
gradient, which leaves plain training). Queues hold as many as the smallest class, at most `queue`, so that they fill
on small data.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sgoif.bench.contracts import OODDetector, OODTask
from sgoif.bench.images import ImageSet
from sgoif.bench.learner import Learner, seeded_weights
from sgoif.bench.models import build


def weighted_energy(logits: Tensor, weights: Tensor) -> Tensor:
    """-log sum_k relu(w_k) exp f_k, [n]; the largest logit is taken out of the sum."""
    top = logits.detach().amax(1, keepdim=True)
    total = (F.relu(weights) * (logits - top).exp()).sum(1)
    return -(top.squeeze(1) + total.clamp_min(1e-30).log())


class VirtualOutliers(nn.Module):
    """Class queues of features (ring buffers) and the energy head."""

    def __init__(self, n_classes: int, queue: int, width: int):
        super().__init__()
        self.register_buffer("features", torch.zeros(n_classes, queue, width))
        self.register_buffer("seen", torch.zeros(n_classes, dtype=torch.long))
        self.weights = nn.Parameter(torch.rand(n_classes))
        self.phi = nn.Linear(1, 2)

    @torch.no_grad()
    def push(self, z: Tensor, y: Tensor) -> None:
        """The newest features of each class replace its oldest."""
        k, size, _ = self.features.shape
        member = F.one_hot(y, k)
        rank = (member.cumsum(0) * member).sum(1) - 1  # position among the batch's images of the class
        counts = member.sum(0)
        fresh = rank >= counts[y] - size  # a class with more images than places: its last ones
        slot = (self.seen[y] + rank) % size
        self.features[y[fresh], slot[fresh]] = z[fresh].detach()
        self.seen += counts

    @property
    def full(self) -> bool:
        return bool((self.seen >= self.features.shape[1]).all())

    @torch.no_grad()
    def sample(self, candidates: int, keep: int) -> Tensor:
        """Virtual outliers [K * keep, d]."""
        k, _, width = self.features.shape
        means = self.features.mean(1)
        centred = (self.features - means[:, None]).flatten(0, 1)
        eye = torch.eye(width, device=means.device)
        factor = torch.linalg.cholesky(centred.T @ centred / len(centred) + 1e-4 * eye)
        squares = torch.distributions.Chi2(float(width)).sample((k, candidates))  # drawn on the CPU
        lengths = squares.topk(keep, dim=1).values.sqrt().to(means.device)
        e = F.normalize(torch.randn(k, keep, width), dim=2).to(means.device) * lengths[:, :, None]
        return (means[:, None] + e @ factor.T).flatten(0, 1)

    def loss(self, inside: Tensor, outside: Tensor) -> Tensor:
        """Logistic loss on the energies of image logits and outlier logits."""
        energy = torch.cat([weighted_energy(inside, self.weights), weighted_energy(outside, self.weights)])
        is_image = torch.cat([torch.ones(len(inside)), torch.zeros(len(outside))]).long().to(energy.device)
        return F.cross_entropy(self.phi(energy[:, None]), is_image)


class VOS(OODDetector):
    name = "vos"
    title = "VOS"
    reads_plain = False

    @dataclass(frozen=True)
    class Params:
        queue: int = 1000
        candidates: int = 10_000
        keep: int = 1  # outliers per class and step
        weight: float = 0.1
        start: float = 0.4  # share of the epochs before outliers are used
        weighted: bool = True  # False: plain energy at test, -log sum_k exp f_k

    def __init__(self, **params):
        super().__init__(**params)
        p = self.params
        self.need(p.queue >= 2, "queue", "at least 2 features per class")
        self.need(1 <= p.keep <= p.candidates, "keep", "between 1 and candidates")
        self.need(0 <= p.start <= 1, "start", "a share between 0 and 1")

    def fit(self, task: OODTask) -> None:
        p, batches = self.params, task.batches()
        smallest = int(torch.bincount(task.labels, minlength=task.n_classes).min())
        with seeded_weights(task.seed):
            net = build(task.recipe.model, task.n_classes, task.train.channels, task.train.size)
            net.outliers = VirtualOutliers(task.n_classes, max(min(p.queue, smallest), 2), net.head.in_features)
        learner = Learner.for_batches(task.recipe, task.n_classes, batches, task.seed, network=net)
        start = round(p.start * task.recipe.epochs)
        for epoch in task.session.epochs(task.recipe.epochs, learner):
            ready = epoch >= start and net.outliers.full
            for batch in batches.epoch(epoch):
                z = learner.features(batch.x)
                f = net.classify(z)
                loss = F.cross_entropy(f, batch.y)
                if ready:
                    virtual = net.outliers.sample(p.candidates, p.keep)
                    loss = loss + p.weight * net.outliers.loss(f, net.classify(virtual))
                else:  # fused optimisers want every weight to have a gradient from the first step on
                    loss = loss + 0 * sum(w.sum() for w in net.outliers.parameters())
                net.outliers.push(z, batch.y)
                learner.step(loss)
        self.task, self.net = task, net

    def score(self, images: ImageSet) -> Tensor:
        weights = self.net.outliers.weights.detach()
        return weighted_energy(self.logits(images), weights if self.params.weighted else torch.ones_like(weights))
