"""Shift sentinel: how far a test image lies from what the network was trained on, in one forward pass.

The influence of an example on itself is g' H^-1 g with g = e (x) a and H ~ A (x) B. Its two sides carry different news:
the output side (B, of the last layer) sees images between the classes; the input side a' A^-1 a, which every layer has,
sees inputs the layer was never fitted to. Training statistics are streamed: class sums and second moments in float64,
and of single images nothing but a bounded bank of anchors. From one forward pass follow

    output        log E_{y~p}[(e_y - p)' B^-1 (e_y - p)] = log tr(B^-1 (diag(p) - p p')),   B = E[diag(p) - p p']
    energy        - log sum_k exp f_k
    leverage_i    log (a_i - m_i)' (A_i + damping_i I)^-1 (a_i - m_i)        of pooled activations and features a_i
    support       - mean cosine to the nearest anchors in curvature-whitened features
    residual      share of the whitened features outside the span of the class anchors
    influence     log E_{y~p}[g' H^-1 g] of the last layer = output + log a' A^-1 a

Each is z-scored on held-back ID images. A leverage counts only by what it exceeds the usual by (`excess`, in standard
deviations): inside the bulk it says nothing about classes, beyond it the layer extrapolates.

    score = output z_output + energy z_energy + ... + leverage sum_i relu(z_leverage_i - excess)

**Higher = more out-of-distribution.**
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

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


def pooled(maps: Tensor, width: int = 1024) -> list[Tensor]:
    """Two views [n, d] of maps [n, C, H, W]: what is there (mean and standard deviation of each channel) and where
    (means over the finest grid of at most `width` cells x channels that divides the map evenly; left out if that is
    one cell). Vectors [n, C] stay as they are."""
    if maps.ndim == 2 or maps.shape[2:].numel() == 1:
        return [maps.flatten(1)]
    channels, height, across = maps.shape[1:]
    mean = maps.mean((2, 3), keepdim=True)
    views = [torch.cat([mean.flatten(1), (maps - mean).square().mean((2, 3)).sqrt()], 1)]
    sides = [g for g in range(2, height + 1) if height % g == across % g == 0 and g * g * channels <= width]
    if sides:
        views.append(F.adaptive_avg_pool2d(maps, max(sides)).flatten(1))
    return views


class Moments:
    """Streaming class sums and second moment of rows [n, d], in float64: any split into batches gives the same."""

    def __init__(self, n_classes: int, width: int, device: torch.device | str = "cpu"):
        options = {"dtype": torch.float64, "device": device}
        self.counts = torch.zeros(n_classes, **options)
        self.sums = torch.zeros(n_classes, width, **options)
        self.products = torch.zeros(width, width, **options)

    def add(self, rows: Tensor, labels: Tensor) -> None:
        rows = rows.double()
        self.counts.index_add_(0, labels, torch.ones_like(labels, dtype=torch.float64))
        self.sums.index_add_(0, labels, rows)
        self.products.addmm_(rows.T, rows)

    @property
    def count(self) -> Tensor:
        return self.counts.sum()

    @property
    def mean(self) -> Tensor:
        return self.sums.sum(0) / self.count

    @property
    def class_means(self) -> Tensor:
        """[K, d]; a class without an example has the mean of all."""
        means = self.sums / self.counts.clamp(min=1).unsqueeze(1)
        return torch.where(self.counts.unsqueeze(1) > 0, means, self.mean)

    def second_moment(self) -> Tensor:
        """E[a a'], the input factor of K-FAC."""
        return self.products / self.count

    def covariance(self) -> Tensor:
        return self.second_moment() - torch.outer(self.mean, self.mean)

    def within(self) -> Tensor:
        """Covariance around the class means."""
        means = self.class_means
        return self.second_moment() - means.T @ (means * (self.counts / self.count).unsqueeze(1))


class Metric:
    """x' (M + damping * tr(M)/d I)^-1 x for a symmetric positive semi-definite M, by its eigenvectors."""

    def __init__(self, matrix: Tensor, damping: float, dtype: torch.dtype = torch.float32):
        values, vectors = torch.linalg.eigh(matrix.double())
        values = values.clamp(min=0)
        self.damping = damping * values.mean().clamp(min=1e-12)
        self.root = (vectors / (values + self.damping).sqrt()).to(dtype)  # [d, d]; root root' is the damped inverse

    def whiten(self, rows: Tensor) -> Tensor:
        return rows @ self.root

    def leverage(self, rows: Tensor) -> Tensor:
        """[n] x' (M + damping)^-1 x"""
        return self.whiten(rows).square().sum(1)


@dataclass(frozen=True)
class ShiftConfig:
    """Damping (relative to the mean eigenvalue), size of the anchor bank, and weights of the z-scored components."""

    damping: float = 0.01
    bank: int = 5000
    neighbours: int = 10
    output: float = 1.0
    energy: float = 0.5
    support: float = 0.0
    residual: float = 0.0
    influence: float = 0.0
    leverage: float = 0.5  # of each view of each layer
    excess: float = 1.5

    def __post_init__(self):
        if not self.damping > 0:
            raise InfluenceError(f"ShiftConfig.damping: must be above 0, not {self.damping!r}")
        for name in ("bank", "neighbours"):
            if getattr(self, name) < 1:
                raise InfluenceError(f"ShiftConfig.{name}: must be at least 1, not {getattr(self, name)!r}")
        for name in WEIGHTS:
            if not getattr(self, name) >= 0:
                raise InfluenceError(f"ShiftConfig.{name}: a weight must not be negative, not {getattr(self, name)!r}")


WEIGHTS = ("output", "energy", "support", "residual", "influence", "leverage")


class ShiftSentinel:
    """`observe` the training images once, `calibrate` on held-back ID images, then `score` anything.

    sentinel = ShiftSentinel(n_classes)
    for trace, labels in training: sentinel.observe(trace, labels)
    sentinel.calibrate(held_back_traces)
    scores = sentinel.score(trace)                           # [n] higher = more out-of-distribution
    """

    def __init__(self, n_classes: int, config: ShiftConfig | None = None):
        self.n_classes, self.config = n_classes, config or ShiftConfig()
        self.layers: list[Moments] | None = None
        self.centre: dict[str, Tensor] = {}
        self.scale: dict[str, Tensor] = {}
        self._fitted = False

    # --- training images --------------------------------------------------------------------------------------------

    def observe(self, trace: Trace, labels: Tensor) -> None:
        """Adds a batch of training images with their labels [n]."""
        if labels.shape != (len(trace),) or trace.logits.shape[1] != self.n_classes:
            raise BatchError(
                f"ShiftSentinel.observe: {tuple(labels.shape)} labels and {tuple(trace.logits.shape)} logits for "
                f"{self.n_classes} classes"
            )
        if self.layers is None:
            self._start(trace)
        for moments, rows in zip(self.layers, trace.layers(), strict=True):
            moments.add(rows, torch.zeros_like(labels))
        self.features.add(trace.features, labels)
        self.outputs.add(trace.logits.double().softmax(1), torch.zeros_like(labels))
        self._keep(trace, labels)
        self._fitted = False

    def _start(self, trace: Trace) -> None:
        device = trace.logits.device
        self.layers = [Moments(1, rows.shape[1], device) for rows in trace.layers()]
        self.features = Moments(self.n_classes, trace.features.shape[1], device)
        self.outputs = Moments(1, self.n_classes, device)
        self._rows = trace.features.new_zeros(0, trace.features.shape[1])
        self._order = torch.zeros(0, dtype=torch.float64, device=device)
        self._seen = 0

    def _keep(self, trace: Trace, labels: Tensor) -> None:
        """A bounded sample of the features as anchors, in the order of a low-discrepancy sequence; agreeing first."""
        index = torch.arange(self._seen, self._seen + len(trace), dtype=torch.float64, device=labels.device)
        self._seen += len(trace)
        order = (index * 0.6180339887498949) % 1.0 + (trace.logits.argmax(1) != labels)
        order, rows = torch.cat([self._order, order]), torch.cat([self._rows, trace.features])
        first = order.argsort(stable=True)[: self.config.bank]
        self._order, self._rows = order[first], rows[first]

    def _fit(self) -> None:
        """From sums to metrics."""
        if self.layers is None:
            raise InfluenceError("ShiftSentinel has seen no training images: call observe first")
        damping = self.config.damping
        self.means = [m.mean.float() for m in self.layers]
        self.metrics = [Metric(m.covariance(), damping) for m in self.layers]
        self.input = Metric(with_one(self.features), damping)
        self.output = Metric(torch.diag(self.outputs.mean) - self.outputs.second_moment(), damping, torch.float64)
        self.centre_of_features = self.features.mean.float()
        self.around_classes = Metric(self.features.within(), damping)
        self.around_mean = self.metrics[-1]
        self.bank = F.normalize(self.around_classes.whiten(self._rows - self.centre_of_features))
        anchors = self.around_mean.whiten(self.features.class_means.float() - self.centre_of_features)
        _, lengths, basis = torch.linalg.svd(anchors - anchors.mean(0), full_matrices=False)
        self.span = basis[lengths > 1e-3 * lengths[0].clamp(min=1e-12)]
        self._fitted = True

    # --- test images ------------------------------------------------------------------------------------------------

    def components(self, trace: Trace) -> dict[str, Tensor]:
        """Every component [n], higher = more out-of-distribution, before z-scoring."""
        if not self._fitted:
            self._fit()
        output = _log(self.output_side(trace))
        out = {"output": output, "energy": -trace.logits.logsumexp(1)}
        for l, (rows, mean, metric) in enumerate(zip(trace.layers(), self.means, self.metrics, strict=True), 1):
            out[f"leverage_{l}"] = _log(metric.leverage(rows - mean))
        centred = trace.features - self.centre_of_features
        k = min(self.config.neighbours, len(self.bank))
        cosines = F.normalize(self.around_classes.whiten(centred)) @ self.bank.T
        out["support"] = -cosines.topk(k, 1).values.mean(1)
        whitened = self.around_mean.whiten(centred)
        inside = (whitened @ self.span.T).square().sum(1)
        out["residual"] = 1 - inside / whitened.square().sum(1).clamp(min=1e-12)
        out["influence"] = output + _log(self.input_side(trace))
        return out

    def input_side(self, trace: Trace) -> Tensor:
        """[n] a' (A + damping I)^-1 a of the last layer, a = (z, 1)."""
        return self.input.leverage(torch.cat([trace.features, torch.ones_like(trace.features[:, :1])], 1))

    def output_side(self, trace: Trace) -> Tensor:
        """[n] tr((B + damping I)^-1 (diag(p) - p p')); times `input_side` it is E_{y~p}[g' H^-1 g]."""
        p, root = trace.logits.double().softmax(1), self.output.root  # a confident p leaves a small difference
        return (p @ root.square().sum(1) - (p @ root).square().sum(1)).clamp(min=1e-9).float()

    def calibrate(self, traces: Iterable[Trace]) -> None:
        """Centre and scale of every component on held-back ID images."""
        parts = [self.components(t) for t in traces]
        if not parts:
            raise InfluenceError("ShiftSentinel.calibrate: no held-back images")
        for name in parts[0]:
            values = torch.cat([p[name] for p in parts]).double()
            self.centre[name] = values.mean().float()
            self.scale[name] = values.std(correction=0).clamp(min=1e-6).float()

    def score(self, trace: Trace) -> Tensor:
        """[n] higher = more out-of-distribution."""
        if not self.centre:
            raise InfluenceError("ShiftSentinel is not calibrated: call calibrate with held-back ID images")
        total = torch.zeros_like(trace.logits[:, 0])
        for name, values in self.components(trace).items():
            kind = name.split("_")[0]
            z = (values - self.centre[name]) / self.scale[name]
            total += getattr(self.config, kind) * ((z - self.config.excess).relu() if kind == "leverage" else z)
        return total


def with_one(moments: Moments) -> Tensor:
    """E[(a, 1) (a, 1)'], the K-FAC input factor of a linear layer with a bias."""
    mean = moments.mean
    top = torch.cat([moments.second_moment(), mean.unsqueeze(1)], 1)
    return torch.cat([top, torch.cat([mean, mean.new_ones(1)]).unsqueeze(0)], 0)


def _log(values: Tensor) -> Tensor:
    return values.clamp(min=1e-12).log()
