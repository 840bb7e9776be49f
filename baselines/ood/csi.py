"""CSI, contrasting shifted instances (Tack, Mo, Jeong & Shin, NeurIPS 2020), with labels: rotations are negatives.

Step 1, SupCLR: two augmented views of every image in four rotations r = 0 … 3, eight images per sample, with label y
+ K r. A rotated image is *another class*: it repels its original. With unit projections u and positives P(i) (same
label):

    L = mean_i  -1/(|P(i)| + 1) sum_{j in P(i)} log( exp(u_i.u_j / t) / sum_{l != i} exp(u_i.u_l / t) ),     t = 0.07

Step 2: the backbone is frozen (eval mode) and three linear heads are trained on augmented images: class (K, unrotated
images), rotation (4) and joint (4 K).

    s(x) = -max_y softmax_y( mean_r joint(x rotated by r)_{y + K r} )          (the paper's ensemble, CSI-ens)

The image itself counts among its positives, as released, with a constant for its logarithm. If the recipe flips, an
image is mirrored before it is rotated: a mirror image rotated by 90 degrees is the image rotated by 270 degrees and
mirrored, which has another label. Every rotated image has views of its own: resized crop, colour jitter and grey; of
the jitter only brightness and contrast act on grey images. Each step takes the recipe's epochs. Step 1 sends eight
images per sample forward and back, step 2 four forward: together 9.3 times the network passes of plain training.

Paper: CSI: Novelty Detection via Contrastive Learning on Distributionally Shifted Instances, NeurIPS 2020.
Code: https://github.com/alinlab/CSI; OpenOOD's `csi`.
Settings: t = 0.07, projection 128, smallest crop 0.08, weight decay 1e-6 in step 1, rate x0.1 at 60/75/90 % in step 2.
Deviations: the optimiser is the recipe's and not 700 epochs of LARS; step 1 as published would be 700 x 8 = 5,600 plain
    epochs. Contrast is about the mean of all channels (theirs: of each), and the crop comes before the jitter.
Parity: tests/parity/test_ood_trained.py::test_csi_contrast_by_brute_force
Score: the paper's ensemble over rotations (CSI-ens) ranks; OpenOOD's, the class head alone, is declared beside it.
    The first was the better one on digits that no table reports (benchmarks/ood_candidates.py).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sgoif.bench.methods.base import OODDetector
from sgoif.bench.methods.ood.rotations import rotations
from sgoif.bench.methods.tasks import OODTask
from sgoif.training.cost.compute_counter import COMPUTE
from sgoif.training.images import ImageSource
from sgoif.training.learner import Learner
from sgoif.training.models import build_network
from sgoif.training.seeds import seeded_weights

# RGB to a luma axis and two chroma axes (YIQ): hue is a rotation of the chroma, saturation its length
YIQ = torch.tensor([[0.299, 0.587, 0.114], [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]])


def mirrored(x: Tensor, u: Tensor) -> Tensor:
    """Images [n, C, H, W], each mirrored if its uniform number u [n] is below a half."""
    return torch.where((u < 0.5).view(-1, 1, 1, 1), x.flip(3), x)


def shifted_labels(y: Tensor, n_classes: int) -> Tensor:
    """Labels y + K r in the order of `rotations`, [4 n]."""
    return torch.cat([y + n_classes * r for r in range(4)])


def supcon(u: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """The loss above on unit rows u [n, d], without the constants."""
    similarity = u @ u.T / temperature
    itself = torch.eye(len(u), dtype=torch.bool, device=u.device)
    log_p = similarity - similarity.masked_fill(itself, -torch.inf).logsumexp(1, keepdim=True)
    positive = (labels[:, None] == labels) & ~itself
    return (-(log_p * positive).sum(1) / (positive.sum(1) + 1)).mean()


def numbers(channels: int) -> int:
    """How many random numbers one view of one image takes."""
    return 7 + (3 if channels == 3 else 0)


@functools.cache
def colour_axes(device: torch.device) -> tuple[Tensor, Tensor]:
    """YIQ and back; kept on the device, since a captured step cannot fetch them."""
    return YIQ.to(device), torch.linalg.inv(YIQ).to(device)


def view(x: Tensor, u: Tensor, smallest: float) -> Tensor:
    """One SimCLR view of images [n, C, H, W] in 0 … 1, made with uniform numbers u [numbers, n]."""
    n, channels, drawn = len(x), x.shape[1], iter(u)

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * next(drawn)

    def chance(p: float) -> Tensor:
        return next(drawn) < p

    area, ratio = uniform(smallest, 1.0), torch.exp(uniform(-0.2877, 0.2877))  # aspect 3/4 … 4/3
    width, height = (area * ratio).sqrt().clamp_max(1), (area / ratio).sqrt().clamp_max(1)
    dx, dy = (1 - width) * uniform(-1, 1), (1 - height) * uniform(-1, 1)
    zero = torch.zeros_like(dx)
    theta = torch.stack([torch.stack([width, zero, dx], 1), torch.stack([zero, height, dy], 1)], 1)
    grid = F.affine_grid(theta, list(x.shape), align_corners=False)
    x = F.grid_sample(x, grid, padding_mode="reflection", align_corners=False)

    jitter = chance(0.8).view(n, 1, 1, 1)
    brightness, contrast = (uniform(0.6, 1.4).view(n, 1, 1, 1) for _ in range(2))
    out = (x * brightness).clamp(0, 1)
    mean = out.mean((1, 2, 3), keepdim=True)
    out = (mean + (out - mean) * contrast).clamp(0, 1)
    if channels == 3:
        to, back = colour_axes(x.device)
        saturation, hue = uniform(0.6, 1.4), uniform(-0.1, 0.1) * 2 * torch.pi
        luma, i, q = torch.einsum("ij,njhw->nihw", to, out).unbind(1)
        c, s = (t.view(n, 1, 1) for t in (saturation * hue.cos(), saturation * hue.sin()))
        turned = torch.stack([luma, c * i - s * q, s * i + c * q], 1)
        out = torch.einsum("ij,njhw->nihw", back, turned).clamp(0, 1)
    x = torch.where(jitter, out, x)
    if channels == 3:
        luma = torch.einsum("j,njhw->nhw", to[0], x)[:, None].expand_as(x)
        x = torch.where(chance(0.2).view(n, 1, 1, 1), luma, x)
    return x


class Heads(nn.Module):
    def __init__(self, width: int, n_classes: int):
        super().__init__()
        self.linear = nn.Linear(width, n_classes)
        self.rotation = nn.Linear(width, 4)
        self.joint = nn.Linear(width, 4 * n_classes)

    def loss(self, z: Tensor, y: Tensor, n_classes: int) -> Tensor:
        """z [4 n, d] in the order of `rotations`, y [n]."""
        turn = torch.arange(4 * len(y), device=y.device) // len(y)
        return (
            F.cross_entropy(self.linear(z[: len(y)]), y)
            + F.cross_entropy(self.rotation(z), turn)
            + F.cross_entropy(self.joint(z), shifted_labels(y, n_classes))
        )

    def ensemble(self, z: Tensor) -> Tensor:
        """mean_r joint(x_r)_{y + K r}, [n, K], from z [4 n, d]."""
        n, k = len(z) // 4, self.linear.out_features
        joint = self.joint(z).view(4, n, 4, k)
        return torch.stack([joint[r, :, r] for r in range(4)]).mean(0)


class CSI(OODDetector):
    name = "csi"
    title = "CSI"
    group = "Generative (so called)"
    order = 2
    reads_plain = False
    candidates: ClassVar = {
        "ensemble": "joint head over four rotations, the paper's",
        "class_head": "class head, OpenOOD's",
    }
    ranked_by = "ensemble"

    @dataclass(frozen=True)
    class Params:
        temperature: float = 0.07
        projection: int = 128
        crop: float = 0.08  # smallest area of a view
        weight_decay: float = 1e-6
        batch_share: float = 0.5  # samples per step of step 1, of the recipe's batch (eight images each)

    def __init__(self, **params):
        super().__init__(**params)
        self.need(self.params.temperature > 0, "temperature", "a temperature above 0")
        self.need(self.params.projection >= 1, "projection", "at least 1")
        self.need(self.params.weight_decay >= 0, "weight_decay", "must not be negative")
        for key in ("crop", "batch_share"):
            self.need(0 < getattr(self.params, key) <= 1, key, "a share above 0, at most 1")

    def fit(self, task: OODTask) -> None:
        p, images = self.params, task.train
        self.task, rows = task, numbers(images.channels)
        mean, std = (torch.tensor(v, device=images.device).view(1, -1, 1, 1) for v in (images.mean, images.std))

        def draws(*shape: int) -> list[Tensor]:
            """Numbers of views […, rows, 4 n], and if the recipe flips those of mirror images […, n]."""
            *views, n = shape
            coins = [torch.rand(*views, n)] if task.recipe.flip else []
            return [torch.rand(*views, rows, 4 * n), *coins]

        def turned_view(x: Tensor, u: Tensor, coins: Tensor | None = None) -> Tensor:
            """A view of each rotation of the images x [n, …], by numbers u [rows, 4 n], normalised, [4 n, …]."""
            pixels = images.denormalise(x).clamp(0, 1)
            pixels = pixels if coins is None else mirrored(pixels, coins)
            return (view(rotations(pixels), u, p.crop) - mean) / std

        with seeded_weights(task.seed):
            net = build_network(task.recipe.model, task.n_classes, images.channels, images.size)
            width = net.head.in_features
            net.projection = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, p.projection))
            heads = Heads(width, task.n_classes)
        size = max(round(p.batch_share * task.recipe.batch_size), 2)
        batches = task.batches(batch_size=size, shift=0, flip=False)  # the views shift and flip
        recipe = replace(task.recipe, weight_decay=p.weight_decay)
        learner = Learner.for_batches(recipe, task.n_classes, batches, task.seed, network=net)

        def contrast(batch) -> tuple[Tensor]:
            x = torch.cat([turned_view(batch.x, *drawn) for drawn in zip(*batch.extra, strict=True)])
            u = F.normalize(net.projection(learner.features(x)), dim=1)
            return (supcon(u, shifted_labels(batch.labels, task.n_classes).repeat(2), p.temperature),)

        step = learner.stepper(contrast)
        for epoch in task.session.epochs(recipe.epochs, learner, phase="contrast"):
            for batch in batches.epoch(epoch):
                step(batch.with_extra(*draws(2, len(batch.labels))))
        self.net, self.heads = net.eval(), heads

        batches = task.batches(shift=0, flip=False)
        steps = {"schedule": "step", "milestones": (0.6, 0.75, 0.9), "gamma": 0.1}
        recipe = replace(task.recipe, compile=False, **steps)  # the heads have no backbone
        head_learner = Learner.for_batches(recipe, task.n_classes, batches, task.seed, network=heads)

        def on_frozen(batch) -> tuple[Tensor]:
            with torch.no_grad(), head_learner.forward_context():
                z = net.features(turned_view(batch.x, *batch.extra)).float()
            COMPUTE.forward_passes += len(z)
            return (heads.loss(z, batch.labels, task.n_classes),)

        step = head_learner.stepper(on_frozen)
        for epoch in task.session.epochs(recipe.epochs, head_learner, phase="heads"):
            for batch in batches.epoch(epoch):
                step(batch.with_extra(*draws(len(batch.labels))))

    @torch.no_grad()
    def _head_logits(self, images: ImageSource) -> dict[str, Tensor]:
        """Logits of the ensemble and of the class head, [n, K] each, of one pass over the rotations."""
        both: dict[str, list[Tensor]] = {"ensemble": [], "class_head": []}
        for index in torch.arange(len(images), device=images.device).split(512):
            z = self.net.features(rotations(images.batch(index)))
            both["ensemble"].append(self.heads.ensemble(z))
            both["class_head"].append(self.heads.linear(z[: len(index)]))
            COMPUTE.forward_passes += len(z)
        return {name: torch.cat(parts) for name, parts in both.items()}

    def logits(self, images: ImageSource) -> Tensor:
        return self._head_logits(images)[self.score_name]

    def scores(self, images: ImageSource) -> dict[str, Tensor]:
        return {name: -logits.softmax(1).amax(1) for name, logits in self._head_logits(images).items()}
