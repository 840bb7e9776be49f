"""Shift sentinel: how far a test image lies from the training data, from one forward pass.

The influence of an example on itself is g' H^-1 g with g = e (x) a and H ~ A (x) B. Its two sides carry different
information. The output side (B, of the last layer) responds to images between the classes. The input side a' A^-1 a,
which every layer has, responds to inputs that the layer was never fitted to.

Training statistics are streamed as class sums and second moments in float64; nothing is kept of single images. One
forward pass gives these components, with p = softmax(f / T) at the temperature T of SG-OIF's own gradients and class
anchors m_v = mean features of class v:

    output        log E_{y~p}[(e_y - p)' B^-1 (e_y - p)] = log tr(B^-1 (diag(p) - p p')),   B = E[diag(p) - p p']
    kinship       - max_v (m_v' z - |m_v|^2 / 2)                             of the features z: similar to no anchor
    leverage_i    log (a_i - m_i)' (A_i + damping_i I)^-1 (a_i - m_i)        of pooled activations and features a_i

B^-1 discounts doubt between classes that training confuses too. Softening matters: at T = 1 a network that fits its
training labels leaves nothing in B but a few hard images. Each component is z-scored on held-back in-distribution (ID)
images.

A shift shows in some component, not in all. So the alternative to "in distribution" is a mixture: with the share s_j
the ID density tilted by exp(z_j). The score is the log likelihood ratio,

    score = log sum_j s_j exp(z_j) / E_ID[exp(z_j)]

(the share of leverage is spread evenly over its views). The normaliser penalises a component with heavy tails among ID
images. exp(score) has mean 1 over the held-back images, so at most a share alpha of them scores above log(1 / alpha):
a threshold without OOD data. **Higher = more out-of-distribution.**
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sgoif.applications.streaming_moments import MahalanobisMetric, Moments
from sgoif.config import InfluenceConfig
from sgoif.errors import BatchError, InfluenceError

SHARES = ("output", "kinship", "leverage")


@dataclass
class Activations:
    """What is needed of one forward pass.

    Attributes:
        stages: Views of the stages' activations (see `pooled`), each of shape [n, d_i].
        features: Inputs of the classification layer, shape [n, d].
        logits: Model outputs, shape [n, K].
    """

    stages: Sequence[Tensor]
    features: Tensor
    logits: Tensor

    def __len__(self) -> int:
        """Return the number n of images."""
        return len(self.logits)

    def layers(self) -> list[Tensor]:
        """Return the views of the stages, then the features, float32 whatever precision the pass had."""
        return [rows.float() for rows in (*self.stages, self.features)]


@dataclass(frozen=True)
class ShiftConfig:
    """Settings of the shift sentinel.

    Attributes:
        damping: Damping relative to the mean eigenvalue.
        temperature: Value for up to ten classes; it falls with more, as in `InfluenceConfig`.
        output: Share of shifts expected in the output component.
        kinship: Share of shifts expected in the kinship component.
        leverage: Share of shifts expected in the leverage of all views of all layers together.
    """

    damping: float = 0.01
    temperature: float = InfluenceConfig.temperature
    output: float = 0.7
    kinship: float = 0.2
    leverage: float = 0.1

    def __post_init__(self) -> None:
        for name in ("damping", "temperature"):
            if not getattr(self, name) > 0:
                raise InfluenceError(f"ShiftConfig.{name}: must be above 0, not {getattr(self, name)!r}")
        for name in SHARES:
            if not getattr(self, name) >= 0:
                raise InfluenceError(f"ShiftConfig.{name}: a share must not be negative, not {getattr(self, name)!r}")
        if not abs(sum(getattr(self, name) for name in SHARES) - 1) < 1e-6:
            shares = ", ".join(f"{name} {getattr(self, name)!r}" for name in SHARES)
            raise InfluenceError(f"ShiftConfig: the shares must add up to 1, not {shares}")


@dataclass(frozen=True)
class _Fit:
    """What follows from the streamed sums: a mean and a metric per layer, the output metric, the class anchors."""

    means: list[Tensor]
    metrics: list[MahalanobisMetric]
    output: MahalanobisMetric
    anchors: Tensor


class ShiftSentinel:
    """Scores images by how far they lie from the training data.

    `observe` the training images once, `calibrate` on held-back ID images, then `score` anything.

        sentinel = ShiftSentinel(n_classes)
        for activations, labels in training:
            sentinel.observe(activations, labels)
        sentinel.calibrate(held_back)
        scores = sentinel.score(activations)  # [n] higher = more out-of-distribution

    Attributes:
        n_classes: Number of classes K.
        config: Settings.
        temperature: T of the softened predictions.
        layers: Moments of every view, the features last; None before the first batch.
        outputs: Moments of the softened predictions; None before the first batch.
        scale: Component -> mean, deviation and log E_ID[exp z] on the held-back images.
    """

    def __init__(self, n_classes: int, config: ShiftConfig | None = None) -> None:
        """Start without any image.

        Args:
            n_classes: Number of classes K.
            config: Settings; None takes the defaults.
        """
        self.n_classes, self.config = n_classes, config or ShiftConfig()
        self.temperature = InfluenceConfig(temperature=self.config.temperature).softening(n_classes)
        self.layers: list[Moments] | None = None
        self.outputs: Moments | None = None
        self.scale: dict[str, tuple[Tensor, Tensor, Tensor]] = {}
        self._fit: _Fit | None = None

    def observe(self, activations: Activations, labels: Tensor) -> None:
        """Add a batch of training images.

        Args:
            activations: One forward pass of n images.
            labels: Their labels, shape [n].

        Raises:
            BatchError: If labels or logits have an unexpected shape.
        """
        if labels.shape != (len(activations),) or activations.logits.shape[1] != self.n_classes:
            raise BatchError(
                f"ShiftSentinel.observe: {tuple(labels.shape)} labels and {tuple(activations.logits.shape)} logits for "
                f"{self.n_classes} classes"
            )
        one_class = torch.zeros_like(labels)
        if self.layers is None or self.outputs is None:
            device = activations.logits.device
            *stages, features = (rows.shape[1] for rows in activations.layers())
            self.layers = [*(Moments(1, d, device) for d in stages), Moments(self.n_classes, features, device)]
            self.outputs = Moments(1, self.n_classes, device)
        for moments, rows in zip(self.layers, activations.layers(), strict=True):
            moments.add(rows, labels if moments is self.layers[-1] else one_class)
        self.outputs.add(self._softened(activations), one_class)
        self._fit = None

    def _softened(self, activations: Activations) -> Tensor:
        """Softened predictions; in double precision, as a confident p leaves a small difference."""
        return (activations.logits.double() / self.temperature).softmax(1)

    def _fitted(self) -> _Fit:
        """The metrics of the images observed so far."""
        if self._fit is not None:
            return self._fit
        if self.layers is None or self.outputs is None:
            raise InfluenceError("ShiftSentinel has seen no training images: call observe first")
        damping = self.config.damping
        output_factor = torch.diag(self.outputs.mean) - self.outputs.second_moment()
        self._fit = _Fit(
            means=[m.mean.float() for m in self.layers],
            metrics=[MahalanobisMetric(m.covariance(), damping) for m in self.layers],
            output=MahalanobisMetric(output_factor, damping, torch.float64),
            anchors=self.layers[-1].class_means.float(),
        )
        return self._fit

    def components(self, activations: Activations) -> dict[str, Tensor]:
        """Compute every component before z-scoring.

        Args:
            activations: One forward pass of n images.

        Returns:
            Name of a component -> values, shape [n]; higher = more out-of-distribution.

        Raises:
            InfluenceError: If no training images were observed.
        """
        fit, layers = self._fitted(), activations.layers()
        kinship = layers[-1] @ fit.anchors.T - fit.anchors.square().sum(1) / 2
        found = {"output": _log(self.output_side(activations)), "kinship": -kinship.amax(1)}
        for number, (rows, mean, metric) in enumerate(zip(layers, fit.means, fit.metrics, strict=True), 1):
            found[f"leverage_{number}"] = _log(metric.leverage(rows - mean))
        return found

    def output_side(self, activations: Activations) -> Tensor:
        """Compute the output side of the self-influence.

            tr((B + damping I)^-1 (diag(p) - p p')) = E_{y~p}[(e_y - p)' (B + damping I)^-1 (e_y - p)]

        Args:
            activations: One forward pass of n images.

        Returns:
            Values, shape [n].
        """
        p, root = self._softened(activations), self._fitted().output.root
        values: Tensor = p @ root.square().sum(1) - (p @ root).square().sum(1)
        return values.clamp(min=1e-9).float()

    def calibrate(self, held_back: Iterable[Activations]) -> None:
        """Set mean, deviation and normaliser of every component from held-back ID images.

        Args:
            held_back: Forward passes of ID images that were not trained on.

        Raises:
            InfluenceError: If there are no held-back images.
        """
        parts = [self.components(activations) for activations in held_back]
        if not parts:
            raise InfluenceError("ShiftSentinel.calibrate: no held-back images")
        for name in parts[0]:
            values = torch.cat([p[name] for p in parts]).double()
            mean, deviation = values.mean(), values.std(correction=0).clamp(min=1e-6)
            normaliser = ((values - mean) / deviation).logsumexp(0) - math.log(len(values))
            self.scale[name] = mean.float(), deviation.float(), normaliser.float()

    def score(self, activations: Activations) -> Tensor:
        """Score images; at most a share alpha of the held-back images scores above log(1 / alpha).

        Args:
            activations: One forward pass of n images.

        Returns:
            Scores, shape [n]; higher = more out-of-distribution.

        Raises:
            InfluenceError: If the sentinel is not calibrated.
        """
        return self.mix(self.components(activations))

    def mix(self, components: Mapping[str, Tensor], shares: ShiftConfig | None = None) -> Tensor:
        """Score images from their components, perhaps with other shares: a share of 1 is that part alone.

        Args:
            components: What `components` returned, shape [n] each.
            shares: Settings whose shares are used; None takes those of the sentinel.

        Returns:
            Scores, shape [n]; higher = more out-of-distribution.

        Raises:
            InfluenceError: If the sentinel is not calibrated.
        """
        if not self.scale:
            raise InfluenceError("ShiftSentinel is not calibrated: call calibrate with held-back ID images")
        views = sum(name.startswith("leverage") for name in components)
        terms = []
        for name, values in components.items():
            mean, deviation, normaliser = self.scale[name]
            kind = name.split("_")[0]
            share = getattr(shares or self.config, kind) / (views if kind == "leverage" else 1)
            if share > 0:
                terms.append((values - mean) / deviation - normaliser + math.log(share))
        return torch.stack(terms).logsumexp(0)


def _log(values: Tensor) -> Tensor:
    return values.clamp(min=1e-12).log()
