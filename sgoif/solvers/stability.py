"""The stability controller: tolerance, confidence and step size of every anchor, by tensor operations alone.

    beta_t  = gamma1 * lr_t * Gbar_t / n + gamma2 * weight_decay / n         (stability proxy)
    Gamma_t = condition proxy of the backend
    tau_t   = kappa * beta_t * Gamma_t                                        (tolerance)
    c_v     = clip(1 - R_v / tau_t, 0, 1),   R_v = ||g_v - H phi_v|| / ||g_v|| on examples that made neither phi_v nor P

R_v is measured in the norm of the scores. With M^-1 the best inverse available and g_i the gradients of the probe
examples,

    R_v = rms_i <M^-1 (g_v - H phi_v), g_i> / rms_i <M^-1 g_v, g_i>,

an estimate of the relative error of scores by phi_v; phi_v = 0 has R_v = 1. A Euclidean norm would emphasise stiff
directions, which hardly change a score.

Taken literally, tau_t is about 1e-6 and every c_v is 0. `tolerance="relative"` divides beta_t and Gamma_t by their
running medians, each ratio clipped to a factor of two, so that kappa is dimensionless. With kappa = 2 the calm end of
a schedule, where beta_t is at most half its median, has tau_t = 1 and c_v = 1 - R_v.

In a score an anchor has the weight t_v = min(1, c_v / 0.5), so it counts in full from confidence 0.5 on. (Weights by
c_v itself put the examples of different classes on different scales, which cost up to 3 points of AUC-PR on the tuning
noise of CIFAR-10 and CIFAR-100; see docs/lab-notebook/defaults.md.)
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sgoif.config import InfluenceConfig
from sgoif.solvers.iterative import safe_divide

MEDIAN_CHECKS = 64  # checks in the running medians
MAX_TOLERANCE_RATIO = 2.0  # beta / median and Gamma / median change tau by at most this factor either way
RESIDUAL_GROWTH = 1.2  # a residual has grown if it exceeds the last one by this factor (probe batches differ)
FULL_CONFIDENCE = 0.5  # an anchor with at least this confidence counts in full
MAX_EIGENVALUE_CHANGE = 2.0  # step sizes grow only while the largest eigenvalue changes by less than this factor
STEP_SIZE_RANGE = (2**-6, 1.0)
STEP_SIZE_GROWTH = 1.5
AVERAGE_KEPT, AVERAGE_ADDED = 0.9, 0.1  # weights of the moving average of residuals
MAX_AVERAGED_RESIDUAL = 1e3


def running_median(history: Tensor) -> Tensor:
    """Return the median over checks, shape [m], of a history [MEDIAN_CHECKS, m] with NaN for checks to come."""
    return history.nanmedian(dim=0).values


class StabilityController(nn.Module):
    """Keeps per anchor, shape [K], `step_size`, `residual` R_v, `average` (moving average of R_v) and `confidence` c_v.

    Step sizes lie in (0, 1], in units of the largest safe step.

    Args:
        config: Supplies gate, tolerance, weighting and the constants of the formulas.
        n_anchors: Number of anchors K.
        n_examples: Number of training examples n.
        dtype: Type of the buffers.
    """

    step_size: Tensor
    residual: Tensor
    average: Tensor
    confidence: Tensor
    history: Tensor
    tolerance: Tensor
    largest_eigenvalue: Tensor

    def __init__(self, config: InfluenceConfig, n_anchors: int, n_examples: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.config = config
        self.n_examples = n_examples
        self.gated = config.gate != "none"
        for name, value in (("step_size", 1.0), ("residual", 1.0), ("average", 1.0), ("confidence", 0.0)):
            self.register_buffer(name, torch.full((n_anchors,), value, dtype=dtype))
        self.register_buffer("history", torch.full((MEDIAN_CHECKS, 2), torch.nan, dtype=dtype))
        self.register_buffer("tolerance", torch.ones((), dtype=dtype))
        self.register_buffer("largest_eigenvalue", torch.ones((), dtype=dtype))

    def update_tolerance(
        self,
        learning_rate: Tensor | float,
        weight_decay: Tensor | float,
        gradient_norm: Tensor,
        condition: Tensor,
    ) -> None:
        """Update the stability proxy beta_t and the tolerance tau_t.

        Args:
            learning_rate: lr_t.
            weight_decay: Weight decay of the optimiser.
            gradient_norm: Gbar_t, a scalar.
            condition: Gamma_t, a scalar.
        """
        config, n = self.config, self.n_examples
        beta = config.gamma1 * learning_rate * gradient_norm / n + config.gamma2 * weight_decay / n
        proxies = torch.stack([beta, condition])
        proxies = torch.where(torch.isfinite(proxies), proxies, self.history[-1])
        self.history = torch.cat([self.history[1:], proxies.unsqueeze(0)])
        if config.tolerance == "literal":
            self.tolerance = config.kappa * proxies[0] * proxies[1]
        else:
            ratios = (proxies / running_median(self.history)).nan_to_num(1.0)
            ratios = ratios.clamp(1 / MAX_TOLERANCE_RATIO, MAX_TOLERANCE_RATIO)
            self.tolerance = config.kappa * ratios[0] * ratios[1]

    def update_step_size(self, residual: Tensor, largest_eigenvalue: Tensor) -> None:
        """Halve the step size of anchors whose residual grew; let the others grow while the curvature is calm.

        Args:
            residual: R_v that the last steps led to, shape [K].
            largest_eigenvalue: Top eigenvalue of P^-1 H, a scalar; calm if it hardly changed since the last check.
        """
        residual = residual.nan_to_num(torch.inf)
        grew = residual > RESIDUAL_GROWTH * self.residual
        last = self.largest_eigenvalue
        calm = torch.maximum(largest_eigenvalue / last, last / largest_eigenvalue) < MAX_EIGENVALUE_CHANGE
        grown = torch.where(calm, self.step_size * STEP_SIZE_GROWTH, self.step_size)
        self.step_size = torch.where(grew, self.step_size / 2, grown).clamp(*STEP_SIZE_RANGE)
        self.largest_eigenvalue = largest_eigenvalue

    def update_confidence(self, residual: Tensor, usable: Tensor) -> None:
        """Update the confidence of the directions that scores will use.

        Args:
            residual: Their residuals R_v, shape [K].
            usable: Mask of the anchors that have a target, shape [K].
        """
        self.residual = torch.where(usable, residual, 1.0).nan_to_num(torch.inf)
        recent = self.residual.clamp(max=MAX_AVERAGED_RESIDUAL)
        self.average = AVERAGE_KEPT * self.average + AVERAGE_ADDED * recent
        tolerance = 2 * self.average if self.config.gate == "moving_average" else self.tolerance
        confidence = torch.ones_like(residual)
        if self.gated:
            confidence = (1 - self.residual / tolerance).clamp(0, 1)
        self.confidence = torch.where(usable, confidence, 0)

    def relative_error(self) -> Tensor:
        """Return the estimated relative error of each anchor's scores, shape [K].

        It is R_v times sqrt(lambda_1(P^-1 H)), since R_v takes P^-1 for H^-1.
        """
        return self.residual * self.largest_eigenvalue.clamp(min=1).sqrt()

    def trust(self) -> Tensor:
        """Return how far each anchor counts, t_v = min(1, c_v / FULL_CONFIDENCE), shape [K]."""
        return (self.confidence / FULL_CONFIDENCE).clamp(max=1)

    def anchor_weights(self) -> Tensor:
        """Return the factor of phi_v in the scoring direction, shape [K]: t_v^2 / sum t_u, or 1 / K if uniform."""
        if self.config.weighting == "uniform":
            return torch.full_like(self.confidence, 1 / len(self.confidence))
        trust = self.trust()
        return safe_divide(trust.square(), trust.sum())
