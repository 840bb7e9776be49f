"""Training by a loss that is corrected for how labels are corrupted, as trusted images tell it.

Hendrycks, Mazeika, Wilson & Gimpel, NeurIPS 2018 (arXiv:1802.05300): the network of the plain run tells on trusted
images how labels are corrupted, and another one is trained with that knowledge, on the trusted images too:

    C[k] = mean of p(x; plain run) over the trusted images x of class k                            [K, K]
    loss = -log sum_k p_k(x) C[k, y]   of a training image,     -log p_y(x)   of a trusted one

`baselines/noisy/glc.py` trains so, and SG-OIF can watch it (`baselines/noisy/sgoif_glc.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif.bench.methods.robust.losses import TrainingLoss
from sgoif.bench.methods.robust.training import with_trusted
from sgoif.bench.methods.tasks import NoisyTask
from sgoif.errors import UserError
from sgoif.training.batches import Batches

LEAST = 1e-12  # of a probability whose logarithm is taken


def corruption(probabilities: Tensor, clean: Tensor) -> Tensor:
    """C [K, K] from the probabilities [V, K] of trusted images and their labels [V]; without any, a row of I."""
    n_classes = probabilities.shape[1]
    rows = torch.eye(n_classes, dtype=probabilities.dtype, device=probabilities.device)
    for k in clean.unique().tolist():
        rows[k] = probabilities[clean == k].mean(0)
    return rows


def corrected_loss(logits: Tensor, labels: Tensor, matrix: Tensor, is_trusted: Tensor) -> Tensor:
    """Losses [n] of logits [n, K]: by the corruption matrix [K, K], of trusted examples (bool, [n]) as usual."""
    seen = (logits.softmax(1) * matrix.T[labels]).sum(1)
    return torch.where(is_trusted, F.cross_entropy(logits, labels, reduction="none"), -seen.clamp(min=LEAST).log())


class GoldCorrection(TrainingLoss):
    """The corrected loss; examples from position `n_noisy` on are trusted."""

    def __init__(self, matrix: Tensor, n_noisy: int) -> None:
        """Set the corruption matrix, shape [K, K], and the number of examples that are not trusted."""
        self.matrix = matrix
        self.n_noisy = n_noisy

    def __call__(self, logits: Tensor, labels: Tensor, index: Tensor) -> Tensor:
        """Return the mean loss of a step; see `TrainingLoss`."""
        return corrected_loss(logits, labels, self.matrix, index >= self.n_noisy).mean()


@dataclass(frozen=True)
class CorrectedTraining:
    """What such a training needs.

    Attributes:
        batches: Training images, followed by the trusted ones, shuffled into the same minibatches.
        loss: The corrected loss.
        labels: Their labels, given and clean, shape [N + V].
    """

    batches: Batches
    loss: GoldCorrection
    labels: Tensor


def corrected_training(task: NoisyTask, method: str) -> CorrectedTraining:
    """Prepare a training by the corrected loss.

    Args:
        task: Data and recipe, with the plain run and trusted images.
        method: Name of the method, for the message.

    Raises:
        UserError: If there are no trusted images, or images are streamed from disk.
    """
    if task.trusted is None:
        raise UserError(f"{method} needs trusted images (noisy.<dataset>.val): its corruption matrix is of them")
    images, clean = task.trusted
    clean = clean.to(task.labels.device)
    matrix = corruption(task.predict(task.plain.network(), images)[0].float().softmax(1), clean)
    loss = GoldCorrection(matrix, len(task.labels))
    return CorrectedTraining(with_trusted(task, images, clean), loss, torch.cat([task.labels, clean]))
