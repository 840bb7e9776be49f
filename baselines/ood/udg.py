"""UDG, unsupervised dual grouping (Yang, Wang, Feng, Yan, Zheng, Zhang & Liu, ICCV 2021): outliers sorted by groups.

Every epoch the features of all images (labelled or not, not augmented; PCA to 256, whitened, unit length) are
clustered.

* ID filtering: in a cluster where one label makes up more than `purity`, the unlabelled members take that label.
* Outlier exposure: every other unlabelled image shall be answered uniformly. (`heavy` weighs those in a cluster that is
  more than `purity` unlabelled. The released program has such a weight of 2 in a branch that is never taken.)

    L = CE(labelled + filtered) + 0.5 mean_i w_i CE(uniform, p_i) + 0.1 mean_i v_i CE(auxiliary head, cluster of i)
    s(x) = -max_k p_k

The auxiliary head is drawn anew every epoch (cluster numbers mean nothing across epochs); v is proportional to
1 / sqrt(cluster size), its mean over the clusters is 1. Purity is a share of all members, unlabelled ones included, by
the labels that the epoch before gave. Labelled and unlabelled images pass the network apart, as batches of their own.
The unlabelled set shares no class with any test set.

Paper: Semantically Coherent Out-of-Distribution Detection, ICCV 2021.
Code: https://github.com/Jingkang50/ICCV21_SCOOD; OpenOOD's `udg`.
Settings: purity 0.8, weights 0.5 and 0.1, up to 1,000 clusters, two unlabelled images for a labelled one.
Deviations: one cluster per 50 images; an empty cluster counts as one of one image (released: as one of 1e-10). The
    auxiliary set is what the configuration names (OpenOOD: TIN-597, other classes of ImageNet). Grey auxiliary images
    beside photographs teach that grey is strange and nothing about photographs.
Parity: tests/parity/test_ood_trained.py::test_udg_loss_by_hand
Score: the negative largest softmax probability.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sgoif.bench.methods.base import OODDetector
from sgoif.bench.methods.ood.kmeans import kmeans
from sgoif.bench.methods.tasks import OODTask
from sgoif.errors import UserError
from sgoif.training.batches import Batches
from sgoif.training.images import ImageSource
from sgoif.training.learner import Learner
from sgoif.training.models import build_network
from sgoif.training.predict import predict
from sgoif.training.seeds import mix_seed, seeded_weights

UNLABELLED = -1


def whiten(z: Tensor, width: int = 256) -> Tensor:
    """At most `width` principal components of unit variance (0 where there is no variance), rows of unit length."""
    z = z - z.mean(0)
    values, vectors = torch.linalg.eigh((z.T @ z / len(z)).double())
    keep = slice(max(len(values) - width, 0), None)
    values, vectors = values[keep], vectors[:, keep]
    alive = values > 1e-6 * values[-1].clamp_min(1e-12)
    scale = torch.where(alive, values.clamp_min(1e-12).rsqrt(), torch.zeros_like(values))
    return F.normalize(z @ (vectors * scale).float(), dim=1)


def dual_groups(
    cluster: Tensor, labels: Tensor, before: Tensor, n_classes: int, purity: float, heavy: float
) -> tuple[Tensor, Tensor]:
    """Labels [n] after ID filtering (UNLABELLED where no label is pure) and outlier weights [n].

    Purity counts the labels of the epoch `before` [n].
    """
    k = int(cluster.max()) + 1
    column = torch.where(before == UNLABELLED, n_classes, before)
    counts = torch.bincount(cluster * (n_classes + 1) + column, minlength=k * (n_classes + 1)).view(k, n_classes + 1)
    share = counts / counts.sum(1, keepdim=True).clamp_min(1)
    best, label = share[:, :n_classes].max(1)
    given = torch.where(best > purity, label, UNLABELLED)[cluster]
    weight = torch.where(share[:, n_classes] > purity, heavy, 1.0)[cluster]
    return torch.where(labels == UNLABELLED, given, labels), weight


class UDG(OODDetector):
    name = "udg"
    title = "UDG"
    group = "Augmentation (so called)"
    order = 2
    reads_plain = False
    uses_auxiliary = True

    @dataclass(frozen=True)
    class Params:
        clusters: int = 1000  # at most; one per 50 images on smaller data
        purity: float = 0.8
        heavy: float = 1.0  # OE weight in clusters of unlabelled images
        outlier: float = 0.5
        auxiliary: float = 0.1
        ratio: int = 2  # unlabelled images per labelled one in a step

    def __init__(self, **params):
        super().__init__(**params)
        self.need(0 < self.params.purity < 1, "purity", "a share between 0 and 1")
        for key in ("clusters", "ratio"):
            self.need(getattr(self.params, key) >= 1, key, "at least 1")
        for key in ("heavy", "outlier", "auxiliary"):
            self.need(getattr(self.params, key) >= 0, key, "must not be negative")

    @staticmethod
    def loss(f: Tensor, y: Tensor, weight: Tensor, outlier: float) -> Tensor:
        """CE where y is a label, `outlier` times the weighted uniform CE where it is UNLABELLED."""
        known = y != UNLABELLED
        log_p = f.log_softmax(1)
        own = -log_p.gather(1, y.clamp_min(0)[:, None]).squeeze(1)
        uniform = -log_p.mean(1) * weight
        ce = (own * known).sum() / known.sum().clamp_min(1)
        return ce + outlier * (uniform * ~known).sum() / (~known).sum().clamp_min(1)

    def fit(self, task: OODTask) -> None:
        p, other = self.params, task.auxiliary
        if other is None:
            raise UserError("method udg needs auxiliary images: give the dataset an auxiliary set, or leave udg out")
        r, batches = task.recipe, task.batches()
        size, seed = p.ratio * batches.batch_size, mix_seed(task.seed, "unlabelled")
        n, m = len(task.train), len(other)
        unlabelled = Batches(other, torch.zeros(m, dtype=torch.long), size, seed, shift=r.shift, flip=r.flip)
        labels = torch.cat([task.labels, task.labels.new_full((m,), UNLABELLED)])
        k = max(min(p.clusters, (n + m) // 50), 2)
        with seeded_weights(task.seed):
            net = build_network(r.model, task.n_classes, task.train.channels, task.train.size)
            net.auxiliary = nn.Linear(net.head.in_features, k)
        net.register_buffer("pseudo", labels)  # of the epoch before, saved with the network
        # not compiled: batches are larger than those of other methods, and would have to be compiled for
        learner = Learner.for_batches(replace(r, compile=False), task.n_classes, batches, task.seed, network=net)

        def grouped(batch) -> tuple[Tensor]:
            more, cluster, pseudo, weight, rarity = batch.extra
            z = torch.cat([learner.features(batch.x), learner.features(more)])  # batch norm sees one set at a time
            groups = F.cross_entropy(net.auxiliary(z), cluster, reduction="none") * rarity
            return (self.loss(net.classify(z), pseudo, weight, p.outlier) + p.auxiliary * groups.mean(),)

        step = learner.stepper(grouped)
        for epoch in task.session.epochs(r.epochs, learner):
            z = [predict(net, images, precision=r.precision, features=True)[1] for images in (task.train, other)]
            cluster = kmeans(whiten(torch.cat(z)), k)
            pseudo, weight = dual_groups(cluster, labels, net.pseudo, task.n_classes, p.purity, p.heavy)
            net.pseudo.copy_(pseudo)
            rarity = torch.bincount(cluster, minlength=k).clamp_min(1).float().rsqrt()
            rarity = rarity / rarity.mean()
            self._renew(net.auxiliary, learner.optimizer)
            for batch, more in zip(batches.epoch(epoch), self._endless(unlabelled, epoch), strict=False):
                at = torch.cat([batch.index, n + more.index])
                step(batch.with_extra(more.x, cluster[at], pseudo[at], weight[at], rarity[cluster[at]]))
        taken = (pseudo[n:] != UNLABELLED).float().mean()
        self.task, self.net, self.filtered = task, net, float(taken)

    @staticmethod
    def _renew(head: nn.Linear, optimizer: torch.optim.Optimizer) -> None:
        """New weights, no momentum: cluster numbers have changed their meaning."""
        with torch.no_grad():
            head.weight.copy_(0.01 * torch.randn(head.weight.shape))
            head.bias.zero_()
            for weight in head.parameters():
                for moment in optimizer.state.get(weight, {}).values():
                    if torch.is_tensor(moment):
                        moment.zero_()

    @staticmethod
    def _endless(batches: Batches, epoch: int):
        """Minibatches of one epoch, and of as many further rounds as are asked for."""
        for turn in range(10_000):
            yield from batches.epoch(10_000 * epoch + turn)

    def score(self, images: ImageSource) -> Tensor:
        return -self.logits(images).softmax(1).amax(1)

    def extras(self) -> dict[str, float]:
        return {"filtered_share": self.filtered}
