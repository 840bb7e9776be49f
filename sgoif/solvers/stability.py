"""The stability controller: tolerance, confidence and step size of every anchor, by tensor operations alone.

    beta_t  = gamma1 * lr_t * Gbar_t / n + gamma2 * weight_decay / n         (stability proxy)
    Gamma_t = condition proxy of the backend
    tau_t   = kappa * beta_t * Gamma_t                                        (tolerance)
    c_v     = clip(1 - R_v / tau_t, 0, 1),   R_v = ||g_v - H phi_v|| / ||g_v|| on examples that made neither phi_v nor P

R_v is measured in the norm in which scores live: with M^-1 the best inverse at hand and g_i the probe examples'
gradients,

    R_v = rms_i <M^-1 (g_v - H phi_v), g_i> / rms_i <M^-1 g_v, g_i>,

an estimate of how wrong the scores by phi_v are, relative to their size; phi_v = 0 has R_v = 1. (A Euclidean norm
would weigh stiff directions, which hardly move a score.) Read literally, tau_t is about 1e-6 and every c_v is 0.
`tolerance="relative"` divides beta_t and Gamma_t by their running medians, within a factor of two each way: kappa is
then dimensionless. With kappa = 2 the calm end of a schedule, where beta_t is at most half its median, has tau_t = 1,
c_v = 1 - R_v. In a score an anchor counts by its trust t_v = min(1, c_v / 0.5): in full while it is more right than
wrong. (Weights by c_v itself put the classes' examples on different scales, which cost up to 3 points of AUC-PR on
the tuning noise of CIFAR-10 and CIFAR-100; see docs/measurements.md.)
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sgoif.config import InfluenceConfig
from sgoif.solvers.iterative import quotient

MEMORY = 64  # checks in the running medians
SPREAD = 2.0  # how far beta / median and Gamma / median may move tau either way
GROWTH = 1.2  # a residual has grown when it exceeds the last one by this factor (probe batches differ)
TRUSTED = 0.5  # an anchor with at least this confidence counts in full
CALM = 2.0  # curvature is calm while its largest eigenvalue moved by less than this factor between checks


def running_median(history: Tensor) -> Tensor:
    """Median over checks `[MEMORY, m]`, ignoring the NaN of checks that have not happened: `[m]`."""
    return history.nanmedian(dim=0).values


class Controller(nn.Module):
    """Buffers per anchor `[K]`: `rho` (step size in (0, 1], in units of the largest safe step), `residual` R_v,
    `average` (moving average of R_v), `confidence` c_v."""

    def __init__(self, config: InfluenceConfig, anchors: int, n_examples: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.config, self.n_examples = config, n_examples
        self.controlled = config.gate != "none"
        for name, value in (("rho", 1.0), ("residual", 1.0), ("average", 1.0), ("confidence", 0.0)):
            self.register_buffer(name, torch.full((anchors,), value, dtype=dtype))
        self.register_buffer("history", torch.full((MEMORY, 2), torch.nan, dtype=dtype))
        self.register_buffer("tau", torch.ones((), dtype=dtype))
        self.register_buffer("largest", torch.ones((), dtype=dtype))

    def observe(self, rate: float, weight_decay: float, gradient_norm: Tensor, condition: Tensor) -> None:
        """Update the stability proxy and the tolerance tau_t."""
        config, n = self.config, self.n_examples
        beta = config.gamma1 * rate * gradient_norm / n + config.gamma2 * weight_decay / n
        seen = torch.stack([beta, condition])
        seen = torch.where(torch.isfinite(seen), seen, self.history[-1])
        self.history = torch.cat([self.history[1:], seen.unsqueeze(0)])
        if config.tolerance == "literal":
            self.tau = config.kappa * seen[0] * seen[1]
        else:
            ratios = (seen / running_median(self.history)).nan_to_num(1.0).clamp(1 / SPREAD, SPREAD)
            self.tau = config.kappa * ratios[0] * ratios[1]

    def control(self, residual: Tensor, largest: Tensor) -> None:
        """Contraction check on the residuals R_v `[K]` that the last steps led to.

        One that grew halves rho; one that did not, while the curvature is calm (`largest`, the top eigenvalue of P^-1
        H, hardly moved since the last check), lets it grow again.
        """
        residual = residual.nan_to_num(torch.inf)
        grew = residual > GROWTH * self.residual
        calm = torch.maximum(largest / self.largest, self.largest / largest) < CALM
        self.rho = torch.where(grew, self.rho / 2, torch.where(calm, self.rho * 1.5, self.rho)).clamp(2**-6, 1.0)
        self.largest = largest

    def trust(self, residual: Tensor, usable: Tensor) -> None:
        """Confidence of the directions that will be used, from their residuals `[K]`; `usable` marks anchors with a
        target."""
        self.residual = torch.where(usable, residual, 1.0).nan_to_num(torch.inf)
        self.average = 0.9 * self.average + 0.1 * self.residual.clamp(max=1e3)
        tau = 2 * self.average if self.config.gate == "moving_average" else self.tau
        confidence = (1 - self.residual / tau).clamp(0, 1) if self.controlled else torch.ones_like(residual)
        self.confidence = torch.where(usable, confidence, 0)

    def error(self) -> Tensor:
        """Estimated relative error of each anchor's scores `[K]`: R_v times sqrt(lambda_1(P^-1 H)), since R_v takes
        P^-1 for H^-1."""
        return self.residual * self.largest.clamp(min=1).sqrt()

    def trusted(self) -> Tensor:
        """How far each anchor counts: t_v = min(1, c_v / TRUSTED) `[K]`."""
        return (self.confidence / TRUSTED).clamp(max=1)

    def weights(self) -> Tensor:
        """What multiplies phi_v in the one aggregated direction: w_v t_v = t_v^2 / sum t_u, or 1/K when uniform.
        `[K]`"""
        if self.config.weighting == "uniform":
            return torch.full_like(self.confidence, 1 / len(self.confidence))
        trust = self.trusted()
        return quotient(trust.square(), trust.sum())
