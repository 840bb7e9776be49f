"""Mixture of two Gaussians on a line, and Ashman's D, which says whether they are two at all.

D = sqrt(2) |mean_1 - mean_0| / sqrt(deviation_0^2 + deviation_1^2)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

ITERATIONS = 200
MAX_POINTS = 2048  # quantiles that stand for all values in the fit
MIN_ASHMAN_D = 2.0  # two Gaussians with a larger D are separated
MAX_DEVIATION_RATIO = 2.0  # between the two deviations, so that neither takes over the other's tail


@dataclass(frozen=True)
class TwoGaussians:
    """Parameters of the mixture, lower component first.

    Attributes:
        mean: Shape [2].
        deviation: Standard deviations, shape [2].
        weight: Shares of the components, shape [2].
    """

    mean: Tensor
    deviation: Tensor
    weight: Tensor

    @property
    def separated(self) -> bool:
        """Whether Ashman's D is above `MIN_ASHMAN_D`."""
        ashman_d = math.sqrt(2) * (self.mean[1] - self.mean[0]) / torch.linalg.vector_norm(self.deviation)
        return bool(ashman_d > MIN_ASHMAN_D)


def fit_two_gaussians(x: Tensor) -> TwoGaussians:
    """Fit the mixture by EM, started with the values above and below zero.

    Args:
        x: Values, shape [N]. If all lie on one side of zero, the fit starts at the two sides of the median.

    Returns:
        The fitted mixture.
    """
    if len(x) > MAX_POINTS:
        x = x.sort().values[torch.linspace(0, len(x) - 1, MAX_POINTS, dtype=torch.float64).round().long()]
    both_sides = (x > 0).any() and (x <= 0).any()
    upper = (x > 0).to(x.dtype) if both_sides else (x > x.median()).to(x.dtype)
    min_deviation = 0.05 * x.std().clamp(min=1e-12)
    member = torch.stack([1 - upper, upper])
    for _ in range(ITERATIONS):
        mass = member.sum(1).clamp(min=1e-9)
        mean = (member * x).sum(1) / mass
        deviation = torch.sqrt((member * (x - mean.unsqueeze(1)).square()).sum(1) / mass).clamp(min=min_deviation)
        middle = deviation.prod().sqrt()
        deviation = deviation.clamp(middle / math.sqrt(MAX_DEVIATION_RATIO), middle * math.sqrt(MAX_DEVIATION_RATIO))
        weight = mass / len(x)
        z = (x - mean.unsqueeze(1)) / deviation.unsqueeze(1)
        member = torch.softmax(weight.log().unsqueeze(1) - deviation.log().unsqueeze(1) - z.square() / 2, dim=0)
    order = mean.argsort()
    return TwoGaussians(mean[order], deviation[order], weight[order])


def upper_component_probability(x: Tensor) -> Tensor:
    """Return the probability that each value belongs to the upper component of a mixture of two Gaussians.

    Args:
        x: Values, shape [N]; the fit starts at the two sides of zero.

    Returns:
        Probabilities, shape [N], on the host in double precision; all zero unless the components are separated.
    """
    x = x.double().cpu()
    fit = fit_two_gaussians(x)
    if not fit.separated:
        return torch.zeros_like(x)
    z = (x - fit.mean.unsqueeze(1)) / fit.deviation.unsqueeze(1)
    return torch.softmax((fit.weight / fit.deviation).log().unsqueeze(1) - z.square() / 2, dim=0)[1]
