"""What a training loop can do differently: losses, mixed images, augmentation, dropout, class sizes."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

LONG_TAIL = 20  # images of the largest class to one of the smallest, where a variant is about class sizes

Loss = Callable[[Tensor, Tensor], Tensor]
Mix = Callable[[Tensor, np.random.Generator], tuple[Tensor, Tensor, float]]


# --- losses: of logits [n, K] and labels [n] -----------------------------------------------------------------------


def smoothed(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy to labels that give 0.1 to all classes alike."""
    return F.cross_entropy(logits, labels, label_smoothing=0.1)


def focal(logits: Tensor, labels: Tensor) -> Tensor:
    """Focal loss with exponent 2 (Lin et al., 2017)."""
    loss = F.cross_entropy(logits, labels, reduction="none")
    return ((1 - (-loss).exp()) ** 2 * loss).mean()


def binary(logits: Tensor, labels: Tensor) -> Tensor:
    """Binary cross-entropy of every class, summed, as in timm's newer recipes."""
    targets = F.one_hot(labels, logits.shape[1]).float()
    return F.binary_cross_entropy_with_logits(logits, targets, reduction="sum") / len(labels)


# --- mixed images: of images [n, C, H, W] to mixed ones, whom each was mixed with [n], and the larger share ---------


def mixup(alpha: float) -> Mix:
    """Sums of two images, their shares from Beta(alpha, alpha) (Zhang et al., 2018)."""

    def mix(x: Tensor, rng: np.random.Generator) -> tuple[Tensor, Tensor, float]:
        share = rng.beta(alpha, alpha)
        share = max(share, 1 - share)
        other = torch.from_numpy(rng.permutation(len(x)))
        return share * x + (1 - share) * x[other], other, share

    return mix


def cutmix(x: Tensor, rng: np.random.Generator) -> tuple[Tensor, Tensor, float]:
    """Images with a rectangle of another one, at most half of the area (Yun et al., 2019; alpha = 1)."""
    height, width = x.shape[2:]
    part = np.sqrt(min(share := rng.uniform(), 1 - share))
    top, left = (int(rng.integers(side - int(part * side) + 1)) for side in (height, width))
    rows, columns = slice(top, top + int(part * height)), slice(left, left + int(part * width))
    other = torch.from_numpy(rng.permutation(len(x)))
    mixed = x.clone()
    mixed[:, :, rows, columns] = x[other][:, :, rows, columns]
    return mixed, other, 1 - int(part * height) * int(part * width) / (height * width)


def without_a_square(x: Tensor, rng: np.random.Generator) -> Tensor:
    """Set a square of half the side to zero in every image, each elsewhere (Cutout; DeVries and Taylor, 2017)."""
    side = x.shape[2] // 2
    corner = torch.from_numpy(rng.integers(0, x.shape[2] - side + 1, (len(x), 2)))
    place = torch.arange(x.shape[2])
    inside = (place >= corner[:, :, None]) & (place < corner[:, :, None] + side)  # [n, 2, side]
    return x.masked_fill((inside[:, 0, :, None] & inside[:, 1, None, :])[:, None], 0.0)


@dataclass(frozen=True)
class Variant:
    """What a loop does differently.

    Attributes:
        loss: Of logits and labels.
        mix: How images are mixed, or None.
        shifts: Whether images are shifted and flipped.
        cutout: Whether a square of every image is taken out.
        dropout: Share of the features that is dropped before the last layer.
        clip: Largest norm of the gradient, or None.
        parts: Backward passes of a step, as in gradient accumulation.
        balance: Images of the largest class to one of the smallest.
        balanced_sampler: Whether every label is drawn as often, with replacement.
        weighted: Whether the loss weighs labels by the inverse of their frequency.
        extra_pass: Whether images are watched before they are mixed, in a pass of its own without gradient.
    """

    loss: Loss = F.cross_entropy
    mix: Mix | None = None
    shifts: bool = True
    cutout: bool = False
    dropout: float = 0.0
    clip: float | None = None
    parts: int = 1
    balance: float = 1
    balanced_sampler: bool = False
    weighted: bool = False
    extra_pass: bool = False


VARIANTS = {
    "plain": Variant(),
    "no augmentation": Variant(shifts=False),
    "Cutout": Variant(cutout=True),
    "mixup 0.2": Variant(mix=mixup(0.2)),
    "mixup 1": Variant(mix=mixup(1.0)),
    "mixup 1, extra pass": Variant(mix=mixup(1.0), extra_pass=True),
    "CutMix 1": Variant(mix=cutmix),
    "CutMix 1, extra pass": Variant(mix=cutmix, extra_pass=True),
    "label smoothing 0.1": Variant(loss=smoothed),
    "focal loss": Variant(loss=focal),
    "binary cross-entropy": Variant(loss=binary),
    "dropout 0.5": Variant(dropout=0.5),
    "clipped gradients": Variant(clip=1.0),
    "accumulated, 4 of 32": Variant(parts=4),
    "long tail": Variant(balance=LONG_TAIL),
    "long tail, class weights": Variant(balance=LONG_TAIL, weighted=True),
    "long tail, balanced sampler": Variant(balance=LONG_TAIL, balanced_sampler=True),
}
