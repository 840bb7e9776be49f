"""Estimates how many labels are wrong, and which, without knowing the truth.

With the log-odds o_i of a class model (`InfluenceResult.log_odds`) the count is the expected number of wrong labels,
sum_i sigmoid(o_i).

From scores alone the count is the larger of two:

* The number of scores above zero. A positive score means that the example raises the anchors' loss, so this count stays
  near zero on clean data. Memorised wrong labels score below zero, so it undercounts under heavy noise.
* The weight of the upper component of two Gaussians, fitted to the scores after every class is brought to the same
  scale. It counts only if the components are separated and lie on the two sides of zero.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sgoif.errors import InfluenceError
from sgoif.label_noise.two_gaussians import fit_two_gaussians


def scale_per_class(scores: Tensor, labels: Tensor) -> Tensor:
    """Divide scores by the root mean square of the scores with the same label; zero stays zero.

    Args:
        scores: Shape [N], on the host.
        labels: Shape [N], on the host.

    Returns:
        Scaled scores, shape [N].
    """
    n_classes = int(labels.max()) + 1
    squares = torch.zeros(n_classes, dtype=scores.dtype).index_add_(0, labels, scores.square())
    counts = torch.bincount(labels, minlength=n_classes).clamp(min=1)
    return scores / torch.sqrt(squares / counts).clamp(min=torch.finfo(scores.dtype).tiny)[labels]


def estimate_label_errors(scores: Tensor, labels: Tensor, log_odds: Tensor | None = None) -> tuple[int, Tensor]:
    """Estimate the number of wrong labels and take that many of the highest scores.

    Args:
        scores: Shape [N]; higher means more suspicious, zero means harmless.
        labels: Labels, shape [N].
        log_odds: Log-odds that a label is wrong, shape [N], if there are any.

    Returns:
        The number of wrong labels, and the mask [N] of that many highest scores.

    Raises:
        InfluenceError: If the shapes do not match or a score is not finite.
    """
    scores, labels = torch.as_tensor(scores).double().cpu(), torch.as_tensor(labels).long().cpu()
    if scores.shape != labels.shape or scores.dim() != 1 or len(scores) == 0:
        raise InfluenceError(
            f"label errors: scores {tuple(scores.shape)} and labels {tuple(labels.shape)} must both be [N]"
        )
    if not torch.isfinite(scores).all():
        raise InfluenceError("label errors: scores must be finite")
    if log_odds is not None and log_odds.shape != scores.shape:
        raise InfluenceError(f"label errors: log-odds {tuple(log_odds.shape)} for scores {tuple(scores.shape)}")
    if log_odds is None:
        count = count_from_scores(scores, labels)
    else:
        count = round(float(log_odds.double().sigmoid().sum()))
    mask = torch.zeros(len(scores), dtype=torch.bool)
    mask[scores.argsort(descending=True)[:count]] = True
    return count, mask


def count_from_scores(scores: Tensor, labels: Tensor) -> int:
    """Count wrong labels by their scores alone, as the module describes.

    Args:
        scores: Shape [N], on the host; higher means more suspicious, zero means harmless.
        labels: Shape [N], on the host.

    Returns:
        The estimated number of wrong labels.
    """
    count = int((scores > 0).sum())
    fit = fit_two_gaussians(scale_per_class(scores, labels))
    if fit.separated and fit.mean[0] < 0 < fit.mean[1]:  # a skewed distribution of harmless scores is not two
        count = max(count, round(float(fit.weight[1]) * len(scores)))
    return count
