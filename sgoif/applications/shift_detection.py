"""Shift sentinel: how far a test image lies from what the network was trained on, in one forward pass.

The influence of an example on itself is g' H^-1 g with g = e (x) a and H ~ A (x) B. Its two sides carry different news:
the output side (B, of the last layer) sees images between the classes; the input side a' A^-1 a, which every layer has,
sees inputs the layer was never fitted to. Training statistics are streamed, class sums and second moments in float64;
of single images nothing is kept. From one forward pass follow, with p = softmax(f / T) at the temperature T of SG-OIF's
own gradients and class anchors m_v = mean features of class v,

    output        log E_{y~p}[(e_y - p)' B^-1 (e_y - p)] = log tr(B^-1 (diag(p) - p p')),   B = E[diag(p) - p p']
    kinship       - max_v (m_v' z - |m_v|^2 / 2)                             of the features z: no anchor speaks for it
    leverage_i    log (a_i - m_i)' (A_i + damping_i I)^-1 (a_i - m_i)        of pooled activations and features a_i

B^-1 forgives doubt between classes that training confuses too. Softening matters: a network that fits its training
labels leaves at T = 1 nothing in B but a few hard images. Each component is z-scored on held-back ID images.

A shift shows in some component, not in all, so the alternative to "in distribution" is a mixture: with the share s_j
the ID density tilted by exp(z_j). The score is the log likelihood ratio,

    score = log sum_j s_j exp(z_j) / E_ID[exp(z_j)]

(the share of leverage spread evenly over its views). A component with heavy tails among ID images pays for them in its
normaliser. exp(score) has mean 1 over the held-back images, so at most a share alpha of these scores above
log(1 / alpha): a threshold without OOD data. **Higher = more out-of-distribution.**
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sgoif.applications.streaming_moments import Metric, Moments
from sgoif.config import InfluenceConfig
from sgoif.errors import BatchError, InfluenceError


@dataclass
class Trace:
    """What one forward pass leaves: views [n, d_i] of the stages, features [n, d], logits [n, K]."""

    stages: Sequence[Tensor]
    features: Tensor
    logits: Tensor

    def __len__(self) -> int:
        return len(self.logits)

    def layers(self) -> list[Tensor]:
        return [*self.stages, self.features]


@dataclass(frozen=True)
class ShiftConfig:
    """Damping (relative to the mean eigenvalue), temperature, and the share of shifts expected in each component."""

    damping: float = 0.01
    temperature: float = InfluenceConfig.temperature  # at up to ten classes; falls with more as in InfluenceConfig
    output: float = 0.7
    kinship: float = 0.2
    leverage: float = 0.1  # of all views of all layers together

    def __post_init__(self):
        for name in ("damping", "temperature"):
            if not getattr(self, name) > 0:
                raise InfluenceError(f"ShiftConfig.{name}: must be above 0, not {getattr(self, name)!r}")
        for name in SHARES:
            if not getattr(self, name) >= 0:
                raise InfluenceError(f"ShiftConfig.{name}: a share must not be negative, not {getattr(self, name)!r}")
        if not abs(sum(getattr(self, name) for name in SHARES) - 1) < 1e-6:
            shares = ", ".join(f"{name} {getattr(self, name)!r}" for name in SHARES)
            raise InfluenceError(f"ShiftConfig: the shares must add up to 1, not {shares}")


SHARES = ("output", "kinship", "leverage")


class ShiftSentinel:
    """`observe` the training images once, `calibrate` on held-back ID images, then `score` anything.

    sentinel = ShiftSentinel(n_classes)
    for trace, labels in training: sentinel.observe(trace, labels)
    sentinel.calibrate(held_back_traces)
    scores = sentinel.score(trace)                           # [n] higher = more out-of-distribution
    """

    def __init__(self, n_classes: int, config: ShiftConfig | None = None):
        self.n_classes, self.config = n_classes, config or ShiftConfig()
        self.temperature = InfluenceConfig(temperature=self.config.temperature).softening(n_classes)
        self.layers: list[Moments] | None = None
        self.scale: dict[str, tuple[Tensor, Tensor, Tensor]] = {}  # mean, deviation, log E_ID[exp z] of a component
        self._fitted = False

    # --- training images --------------------------------------------------------------------------------------------

    def observe(self, trace: Trace, labels: Tensor) -> None:
        """Adds a batch of training images with their labels [n]."""
        if labels.shape != (len(trace),) or trace.logits.shape[1] != self.n_classes:
            raise BatchError(
                f"ShiftSentinel.observe: {tuple(labels.shape)} labels and {tuple(trace.logits.shape)} logits for "
                f"{self.n_classes} classes"
            )
        one = torch.zeros_like(labels)
        if self.layers is None:
            device = trace.logits.device
            *stages, features = (rows.shape[1] for rows in trace.layers())
            self.layers = [*(Moments(1, d, device) for d in stages), Moments(self.n_classes, features, device)]
            self.outputs = Moments(1, self.n_classes, device)
        for moments, rows in zip(self.layers, trace.layers(), strict=True):
            moments.add(rows, labels if moments is self.layers[-1] else one)
        self.outputs.add(self._softened(trace), one)
        self._fitted = False

    def _softened(self, trace: Trace) -> Tensor:
        return (trace.logits.double() / self.temperature).softmax(1)  # a confident p leaves a small difference

    def _fit(self) -> None:
        """From sums to metrics."""
        if self.layers is None:
            raise InfluenceError("ShiftSentinel has seen no training images: call observe first")
        damping = self.config.damping
        self.means = [m.mean.float() for m in self.layers]
        self.metrics = [Metric(m.covariance(), damping) for m in self.layers]
        self.output = Metric(torch.diag(self.outputs.mean) - self.outputs.second_moment(), damping, torch.float64)
        self.anchors = self.layers[-1].class_means.float()
        self._fitted = True

    # --- test images ------------------------------------------------------------------------------------------------

    def components(self, trace: Trace) -> dict[str, Tensor]:
        """Every component [n], higher = more out-of-distribution, before z-scoring."""
        if not self._fitted:
            self._fit()
        kin = trace.features @ self.anchors.T - self.anchors.square().sum(1) / 2
        out = {"output": _log(self.output_side(trace)), "kinship": -kin.amax(1)}
        for l, (rows, mean, metric) in enumerate(zip(trace.layers(), self.means, self.metrics, strict=True), 1):
            out[f"leverage_{l}"] = _log(metric.leverage(rows - mean))
        return out

    def output_side(self, trace: Trace) -> Tensor:
        """[n] tr((B + damping I)^-1 (diag(p) - p p')) = E_{y~p}[(e_y - p)' (B + damping I)^-1 (e_y - p)]"""
        p, root = self._softened(trace), self.output.root
        return (p @ root.square().sum(1) - (p @ root).square().sum(1)).clamp(min=1e-9).float()

    def calibrate(self, traces: Iterable[Trace]) -> None:
        """Mean, deviation and normaliser of every component on held-back ID images."""
        parts = [self.components(t) for t in traces]
        if not parts:
            raise InfluenceError("ShiftSentinel.calibrate: no held-back images")
        for name in parts[0]:
            values = torch.cat([p[name] for p in parts]).double()
            mean, deviation = values.mean(), values.std(correction=0).clamp(min=1e-6)
            normaliser = ((values - mean) / deviation).logsumexp(0) - math.log(len(values))
            self.scale[name] = mean.float(), deviation.float(), normaliser.float()

    def score(self, trace: Trace) -> Tensor:
        """[n] higher = more out-of-distribution; above log(1 / alpha) for at most a share alpha of held-back images."""
        if not self.scale:
            raise InfluenceError("ShiftSentinel is not calibrated: call calibrate with held-back ID images")
        terms = []
        for name, values in self.components(trace).items():
            mean, deviation, normaliser = self.scale[name]
            kind = name.split("_")[0]
            share = getattr(self.config, kind) / (len(self.metrics) if kind == "leverage" else 1)
            if share > 0:
                terms.append((values - mean) / deviation - normaliser + math.log(share))
        return torch.stack(terms).logsumexp(0)


def _log(values: Tensor) -> Tensor:
    return values.clamp(min=1e-12).log()
