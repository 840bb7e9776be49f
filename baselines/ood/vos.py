"""VOS, virtual outlier synthesis (Du, Wang, Cai & Li, ICLR 2022): outliers drawn where class Gaussians are least
likely.

Features of each class wait in a queue. With their means mu_k and one shared covariance S (+ 1e-4 I), `candidates`
points per class are drawn from N(mu_k, S) and the `keep` least likely become virtual outliers v. A logistic head phi
tells the weighted energies of images and outliers apart, and its loss shapes the classifier:

    E(f) = -log sum_k w_k exp f_k,   w = relu(learnt)
    L = CE(f(x), y) + weight CE(phi(E), image or outlier)        s(x) = -log sum_k exp f_k(x)

A candidate is mu + C e with C C' = S, e standard normal, and its log density is -|e|^2 / 2 + const: the least likely
has the longest e. Length and direction of e are independent, and |e|^2 is chi-square with d degrees, so it is enough to
draw the `keep` largest of `candidates` chi-squares (the largest of n uniform numbers is u^(1/n), mapped by the quantile
function) and a direction for each: the same distribution without the candidates.

Paper: VOS: Learning What You Don't Know by Virtual Outlier Synthesis, ICLR 2022.
Code: https://github.com/deeplearning-wisc/vos; OpenOOD's `vos`.
Settings: 10,000 candidates a class, one kept, weight 0.1, after 40 % of training.
Deviations: w is trained and energies stay in the graph (OpenOOD draws new weights at every call and cuts the gradient,
    which leaves plain training); candidates are drawn by their length; queues hold as many as the smallest class, at
    most `queue`, so that they fill on small data.
Parity: tests/parity/test_ood_trained.py::test_vos_energy_and_loss_are_pytorch_oods
Score: the plain energy, as the authors' test script and OpenOOD have it (`weighted`: with the w of the loss).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sgoif.bench.methods.base import OODDetector
from sgoif.bench.methods.tasks import OODTask
from sgoif.training.images import ImageSource
from sgoif.training.learner import Learner
from sgoif.training.models import build_network
from sgoif.training.seeds import seeded_weights


def weighted_energy(logits: Tensor, weights: Tensor) -> Tensor:
    """-log sum_k relu(w_k) exp f_k, [n]; the largest logit is taken out of the sum."""
    top = logits.detach().amax(1, keepdim=True)
    total = (F.relu(weights) * (logits - top).exp()).sum(1)
    return -(top.squeeze(1) + total.clamp_min(1e-30).log())


def longest(k: int, candidates: int, keep: int, width: int) -> Tensor:
    """The `keep` largest of `candidates` norms of standard normal vectors [width], k times: [k, keep], descending."""
    from scipy.special import gammainccinv

    # the next largest of n uniform numbers is the largest of n - 1 below the one before
    log_u = torch.rand(k, keep, dtype=torch.float64).clamp_min(1e-300).log()
    log_u = (log_u / torch.arange(candidates, candidates - keep, -1)).cumsum(1)
    squares = 2 * gammainccinv(width / 2, -torch.expm1(log_u).numpy())
    return torch.from_numpy(squares).sqrt().float()


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
        counts = (y[:, None] == torch.arange(k, device=y.device)).sum(0)
        order = y.argsort(stable=True)  # class after class
        y, first = y[order], counts.cumsum(0) - counts
        rank = torch.arange(len(y), device=y.device) - first[y]  # position among the batch's images of the class
        # a class with more images than places: all that share a place write what the last of them has
        last = rank + (counts[y] - 1 - rank) // size * size
        self.features[y, (self.seen[y] + rank) % size] = z[order[first[y] + last]].to(self.features.dtype)
        self.seen += counts

    @property
    def full(self) -> bool:
        return bool((self.seen >= self.features.shape[1]).all())

    @torch.no_grad()
    def sample(self, candidates: int, keep: int) -> Tensor:
        """Virtual outliers [K * keep, d]."""
        k, _, width = self.features.shape
        e = F.normalize(torch.randn(k, keep, width), dim=2) * longest(k, candidates, keep, width)[:, :, None]
        means = self.features.mean(1)
        # in float64: rounding must not make the covariance indefinite
        centred = (self.features - means[:, None]).flatten(0, 1).double()
        covariance = centred.T @ centred / len(centred) + 1e-4 * torch.eye(width, device=means.device)
        # its error flag is not waited for: features that are not finite end as a loss that is not
        factor = torch.linalg.cholesky_ex(covariance).L.float()
        return (means[:, None] + e.to(means.device, non_blocking=True) @ factor.T).flatten(0, 1)

    def loss(self, inside: Tensor, outside: Tensor) -> Tensor:
        """Logistic loss on the energies of image logits and outlier logits."""
        energy = torch.cat([weighted_energy(inside, self.weights), weighted_energy(outside, self.weights)])
        is_image = (torch.arange(len(energy), device=energy.device) < len(inside)).long()
        return F.cross_entropy(self.phi(energy[:, None]), is_image)


class VOS(OODDetector):
    name = "vos"
    title = "VOS"
    group = "Generative (so called)"
    order = 6
    reads_plain = False

    @dataclass(frozen=True)
    class Params:
        queue: int = 1000
        candidates: int = 10_000
        keep: int = 1  # outliers per class and step
        weight: float = 0.1
        start: float = 0.4  # share of the epochs before outliers are used
        weighted: bool = False  # True: the weighted energy of the loss at test, too

    def __init__(self, **params):
        super().__init__(**params)
        p = self.params
        self.need(p.queue >= 2, "queue", "at least 2 features per class")
        self.need(1 <= p.keep <= p.candidates, "keep", "between 1 and candidates")
        self.need(p.weight >= 0, "weight", "must not be negative")
        self.need(0 <= p.start <= 1, "start", "a share between 0 and 1")

    def fit(self, task: OODTask) -> None:
        p, batches = self.params, task.batches()
        smallest = int(torch.bincount(task.labels, minlength=task.n_classes).min())
        with seeded_weights(task.seed):
            net = build_network(task.recipe.model, task.n_classes, task.train.channels, task.train.size)
            net.outliers = VirtualOutliers(task.n_classes, max(min(p.queue, smallest), 2), net.head.in_features)
        learner = Learner.for_batches(task.recipe, task.n_classes, batches, task.seed, network=net)
        start = round(p.start * task.recipe.epochs)

        def with_outliers(batch) -> tuple[Tensor]:
            z = learner.features(batch.x)
            f = net.classify(z)
            loss = F.cross_entropy(f, batch.labels)
            if batch.extra:
                loss = loss + p.weight * net.outliers.loss(f, net.classify(*batch.extra))
            else:  # fused optimisers want every weight to have a gradient from the first step on
                loss = loss + 0 * sum(w.sum() for w in net.outliers.parameters())
            net.outliers.push(z, batch.labels)
            return (loss,)

        step = learner.stepper(with_outliers)
        for epoch in task.session.epochs(task.recipe.epochs, learner):
            ready = epoch >= start and net.outliers.full
            for batch in batches.epoch(epoch):
                step(batch.with_extra(net.outliers.sample(p.candidates, p.keep)) if ready else batch)
        self.task, self.net = task, net

    def score(self, images: ImageSource) -> Tensor:
        weights = self.net.outliers.weights.detach()
        return weighted_energy(self.logits(images), weights if self.params.weighted else torch.ones_like(weights))
