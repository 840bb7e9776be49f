"""How many labels are wrong, without the truth.

With the log-odds of the latent classes (`InfluenceResult.odds`) the count is the expected number of wrong labels, the
sum of their probabilities. From scores alone two signs are combined, and the larger counts. The score's own zero: a
positive score means that the example raises the anchors' loss, so the examples above zero are a count that stays near
nothing on clean data; wrong labels the model has begun to believe fall below it, so it is a low count under heavy
noise. The two humps: scores of right and of wrong labels, each class scaled alike, follow a mixture of two normal
distributions; where the humps stand apart, the weight of the upper one is the better count.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sgoif.errors import InfluenceError

ITERATIONS = 200
POINTS = 2048  # of the scores' distribution that the mixture is fitted to
APART = 2.0  # Ashman's D: two normals further apart than this are two humps
RATIO = 2.0  # one deviation is at most this multiple of the other, so that no hump swallows the other's tail


def per_class_scale(scores: Tensor, given: Tensor) -> Tensor:
    """Scores divided by the root mean square of their given class: classes differ in scale, zero stays zero."""
    classes = int(given.max()) + 1
    squares = torch.zeros(classes, dtype=scores.dtype).index_add_(0, given, scores.square())
    counts = torch.bincount(given, minlength=classes).clamp(min=1)
    return scores / torch.sqrt(squares / counts).clamp(min=torch.finfo(scores.dtype).tiny)[given]


def two_normals(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """EM for a mixture of two normals, started at the two sides of zero: (means, deviations, weights), each `[2]`,
    lower first."""
    if len(x) > POINTS:  # evenly spaced quantiles stand for all
        x = x.sort().values[torch.linspace(0, len(x) - 1, POINTS, dtype=torch.float64).round().long()]
    upper = (x > 0).to(x.dtype) if (x > 0).any() and (x <= 0).any() else (x > x.median()).to(x.dtype)
    floor = 0.05 * x.std().clamp(min=1e-12)
    member = torch.stack([1 - upper, upper])
    for _ in range(ITERATIONS):
        mass = member.sum(1).clamp(min=1e-9)
        mean = (member * x).sum(1) / mass
        deviation = torch.sqrt((member * (x - mean.unsqueeze(1)).square()).sum(1) / mass).clamp(min=floor)
        middle = deviation.prod().sqrt()
        deviation = deviation.clamp(middle / math.sqrt(RATIO), middle * math.sqrt(RATIO))
        weight = mass / len(x)
        z = (x - mean.unsqueeze(1)) / deviation.unsqueeze(1)
        member = torch.softmax(weight.log().unsqueeze(1) - deviation.log().unsqueeze(1) - z.square() / 2, dim=0)
    order = mean.argsort()
    return mean[order], deviation[order], weight[order]


def estimate_wrong(scores: Tensor, given: Tensor, odds: Tensor | None = None) -> tuple[int, Tensor]:
    """Estimated number of wrong labels, and the mask `[N]` of that many highest scores.

    `scores` `[N]`: higher = more suspicious, zero = harmless, as `InfluenceResult.suspicion` is; `given` `[N]`: the
    given labels; `odds` `[N]`: log-odds that a label is wrong, as `InfluenceResult.odds` is.
    """
    scores, given = torch.as_tensor(scores).double().cpu(), torch.as_tensor(given).long().cpu()
    if scores.shape != given.shape or scores.dim() != 1 or len(scores) == 0:
        raise InfluenceError(
            f"estimate_wrong: scores {tuple(scores.shape)} and given {tuple(given.shape)} must both be [N]"
        )
    if not torch.isfinite(scores).all():
        raise InfluenceError("estimate_wrong: scores must be finite")
    if odds is not None and odds.shape != scores.shape:
        raise InfluenceError(f"estimate_wrong: odds {tuple(odds.shape)} for scores {tuple(scores.shape)}")
    count = count_by_scores(scores, given) if odds is None else round(float(odds.double().sigmoid().sum()))
    mask = torch.zeros(len(scores), dtype=torch.bool)
    mask[scores.argsort(descending=True)[:count]] = True
    return count, mask


def count_by_scores(scores: Tensor, given: Tensor) -> int:
    """The number above zero or, where there are two humps, the weight of the upper one if that is more."""
    count = int((scores > 0).sum())
    mean, deviation, weight = two_normals(per_class_scale(scores, given))
    distance = math.sqrt(2) * (mean[1] - mean[0]) / torch.linalg.vector_norm(deviation)
    if distance > APART and mean[0] < 0 < mean[1]:  # a skewed hump of harmless examples is not two
        count = max(count, round(float(weight[1]) * len(scores)))
    return count
