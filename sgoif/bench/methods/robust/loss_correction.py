"""Training by a loss that is corrected for how labels are corrupted, so that the network predicts clean labels.

Patrini, Rozza, Menon, Nock & Qu, CVPR 2017 (arXiv:1609.03683), "forward": with C[k, y] the probability that class k has
the label y,

    loss = -log sum_k p_k(x) C[k, y].

**Where C comes from.** SG-OIF that watches two trainings takes the noise matrix that its class model has found in the
first (`sgoif@twice`). Gold loss correction (Hendrycks, Mazeika, Wilson & Gimpel, NeurIPS 2018, arXiv:1802.05300) asks
the network of the plain run about trusted images, and trains on these too:

    C[k] = mean of p(x; plain run) over the trusted images x of class k,     loss = -log p_y(x)   of a trusted one.

`baselines/noisy/glc.py` trains so, and SG-OIF can watch it (`baselines/noisy/sgoif_glc.py`).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif.bench.methods.robust.losses import TrainingLoss
from sgoif.bench.methods.robust.training import PreparedTraining, with_trusted
from sgoif.bench.methods.tasks import NoisyTask
from sgoif.errors import UserError

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


class CorrectedCrossEntropy(TrainingLoss):
    """The corrected loss; examples from position `n_noisy` on are trusted."""

    def __init__(self, matrix: Tensor, n_noisy: int) -> None:
        """Set the corruption matrix, shape [K, K], and the number of examples that are not trusted."""
        self.matrix = matrix
        self.n_noisy = n_noisy

    def __call__(self, logits: Tensor, labels: Tensor, index: Tensor) -> Tensor:
        """Return the mean loss of a step; see `TrainingLoss`."""
        return corrected_loss(logits, labels, self.matrix, index >= self.n_noisy).mean()


def gold_training(task: NoisyTask, method: str) -> PreparedTraining:
    """Prepare a training by gold loss correction: trusted images are shuffled into the same minibatches.

    Args:
        task: Data and recipe, with the plain run and trusted images.
        method: Name of the method, for the message.

    Raises:
        UserError: If there are no trusted images or no plain run, or images are streamed from disk.
    """
    if task.trusted is None:
        raise UserError(f"{method} needs trusted images (noisy.<dataset>.val): its corruption matrix is of them")
    if task.plain is None:
        raise UserError(f"{method} needs the plain run: its network tells how labels are corrupted")
    images, clean = task.trusted
    clean = clean.to(task.labels.device)
    matrix = corruption(task.predict(task.plain.network(), images)[0].float().softmax(1), clean)
    loss = CorrectedCrossEntropy(matrix, len(task.labels))
    return PreparedTraining(with_trusted(task, images, clean), loss, torch.cat([task.labels, clean]))
