"""`InfluenceResult`: one score per training example, with what says how far it can be trusted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from sgoif.backend.linalg import tf32_products
from sgoif.config import InfluenceConfig
from sgoif.errors import InfluenceError
from sgoif.label_noise.count import estimate_label_errors
from sgoif.label_noise.evidence import SignalWeights, TrustedPredictions, read_labels, root_mean_square
from sgoif.label_noise.issues import LabelIssues, check_labels, suggest_labels
from sgoif.scores.interval import visit_half_width
from sgoif.scores.predictions import PredictionStatistics
from sgoif.scores.visit_statistics import VisitStatistics

EXCESS_WEIGHT = 0.5  # of a label's excess, beside signals of root mean square 1


@dataclass(frozen=True)
class InfluenceResult:
    """Scores of all training examples. A higher score means more harmful, so more suspicious.

    All tensors are on the host, in data-set order. The fields from `mean_predictions` to `weights` describe what
    predictions and class influences say about the labels (see `sgoif.label_noise.evidence`); they are set if
    `config.memory` is. Means are over all visits, weighted as `sgoif.scores.predictions` says. Where only the head is
    trained, log-odds and margins are those of heads that have not seen the example (`config.keep_features`).

    Attributes:
        score: Mean over the visits in the score window of -<phibar, g_i>, shape [N]; 0 where never visited.
        confidence: Mean confidence of the anchors at those visits, in [0, 1], shape [N].
        residual: Mean estimated relative error of the scores at those visits, shape [N]; infinite where never visited.
        half_width: Half-width of the interval for the exact influence over the window, shape [N]; infinite where never
            visited, or if no example was visited twice.
        visits: Number of visits in the score window, shape [N].
        visited: Which examples had a visit in training, in the window or before it, bool, shape [N]. Nothing is known
            of the others: training left them out, or their outputs were never finite.
        anchor_age: Mean number of steps since the anchors had been checked, shape [N].
        epoch_scores: Mean score per epoch, shape [E, N].
        counters: Cost and events of the run, by name.
        scope: Layers in scope, parameters left out, curvature backend, dimension and number of anchors.
        config: Settings of the run.
        mean_predictions: Mean predicted probabilities, shape [N, C]; uniform where never visited.
        log_odds: Log-odds that the label is wrong, shape [N]; 0 where never visited.
        transition: Estimated noise matrix, shape [C, C]; row c says how often class c has each label.
        margin: Mean of the largest other logit minus the label's, shape [N].
        excess: How far the label is more frequent than its class, as a logarithm, shape [N]; 0 where never visited.
        watched_labels: Labels that training was watched with, shape [N]; -1 where never visited.
        noise_entropy: How far the wrong labels of a class are spread over many labels, in [0, 1]; of two classes, how
            far they go both ways, in [0, 1/2].
        weights: How far score, log-odds and margins count in `suspicion`.
    """

    score: Tensor
    confidence: Tensor
    residual: Tensor
    half_width: Tensor
    visits: Tensor
    visited: Tensor
    anchor_age: Tensor
    epoch_scores: Tensor
    counters: dict[str, float] = field(default_factory=dict)
    scope: dict[str, Any] = field(default_factory=dict)
    config: InfluenceConfig = field(default_factory=InfluenceConfig)
    mean_predictions: Tensor | None = None
    log_odds: Tensor | None = None
    transition: Tensor | None = None
    margin: Tensor | None = None
    excess: Tensor | None = None
    watched_labels: Tensor | None = None
    noise_entropy: float = 0.0
    weights: SignalWeights = field(default_factory=SignalWeights)

    @classmethod
    def from_statistics(
        cls,
        statistics: VisitStatistics,
        predictions: PredictionStatistics | None,
        config: InfluenceConfig,
        counters: dict[str, float],
        scope: dict[str, Any],
        trusted: TrustedPredictions | None = None,
    ) -> InfluenceResult:
        """Build the result from the statistics of a run.

        Args:
            statistics: Sums over the visits of every example.
            predictions: Weighted means over the visits of every example, if they were kept.
            config: Settings of the run.
            counters: Cost and events of the run, by name.
            scope: What was watched, by name.
            trusted: Predictions [m, C] and right labels [m] of examples outside the training set, if there are any.

        Returns:
            The result, on the host.
        """
        window = statistics.read()
        sums, visits = window.columns, window.columns["visits"]
        mean = {name: (column / visits.clamp(min=1)).float() for name, column in sums.items()}
        width = visit_half_width(sums["score"], sums["square"], visits, mean["residual"], config.alpha)
        return cls(
            score=mean["score"],
            confidence=mean["confidence"],
            residual=torch.where(visits > 0, mean["residual"], torch.inf),
            half_width=width.float(),
            visits=visits.long(),
            visited=window.visited,
            anchor_age=mean["age"],
            epoch_scores=window.epoch_scores.float(),
            counters=counters,
            scope=scope,
            config=config,
            **_evidence_fields(predictions, mean["score"], trusted),
        )

    @property
    def suspicion(self) -> Tensor:
        """How suspicious each label is, shape [N]; higher = more likely wrong. Only the order means something.

        It is the weighted sum of influence score s_i, log-odds o_i and margin m_i, each over its root mean square, and
        half of the label's excess:

            x_i = a s_i / rms(s) + b o_i / rms(o) + c m_i / rms(m),     x_i / rms(x) + excess_i / 2,

        with the weights a, b, c of `weights` (see `sgoif.label_noise.evidence`). With `config.memory = False` it is the
        influence score alone. Examples that were never `visited` share one value, just below that of all others.
        """
        suspicion, visited = self._sum_of_signals(), self.visited
        if visited.all() or not visited.any():
            return suspicion
        below = torch.nextafter(suspicion[visited].min(), suspicion.new_tensor(-torch.inf))
        return torch.where(visited, suspicion, below)

    def _sum_of_signals(self) -> Tensor:
        """The formula of `suspicion`, which means nothing where an example was never visited."""
        if self.log_odds is None or self.margin is None:
            return self.score
        weights = self.weights
        summed = (
            weights.influence * (self.score / root_mean_square(self.score))
            + weights.log_odds * (self.log_odds / root_mean_square(self.log_odds))
            + weights.margin * (self.margin / root_mean_square(self.margin))
        )
        return summed if self.excess is None else summed / root_mean_square(summed) + EXCESS_WEIGHT * self.excess

    def find_label_issues(self, labels: Tensor, probabilities: Tensor | None = None) -> LabelIssues:
        """Find the labels that are probably wrong, without knowing the truth.

        The labels with the highest `suspicion` are taken. Their number is the expected number of wrong labels by the
        log-odds. Without log-odds it is the number that the influence scores imply. Examples that were never visited
        are not counted and come last.

        Args:
            labels: The labels that were trained on, shape [N]; where an example was never visited, any integer.
            probabilities: Predicted probabilities for the suggestions, shape [N, C], for example out-of-fold ones; None
                takes `mean_predictions`. Without either, the suggested labels are the labels themselves.

        Returns:
            The labels that are probably wrong, the order for a review, and suggested labels.

        Raises:
            InfluenceError: If labels or probabilities do not fit the examples, the labels are others than those that
                were watched, all of them are the same, or the training diverged.
        """
        visited, suspicion = self.visited, self.suspicion
        if not suspicion.isfinite().all():
            raise InfluenceError(
                "label issues: the training diverged, so that its scores are not finite; train with a smaller learning "
                "rate, or leave out examples with infinite or huge inputs"
            )
        labels = check_labels(labels, visited)
        self._require_watched(labels)
        count, mask = 0, torch.zeros_like(visited)
        if visited.any():
            log_odds = None if self.log_odds is None else self.log_odds[visited]
            count, mask[visited] = estimate_label_errors(suspicion[visited], labels[visited], log_odds)
        if probabilities is None:
            probabilities = self.mean_predictions
        suggested = labels
        if probabilities is not None:
            suggested = suggest_labels(mask, labels, torch.as_tensor(probabilities).float().cpu(), visited)
        order = suspicion.argsort(descending=True, stable=True)
        return LabelIssues(mask, order, suggested, count)

    def _require_watched(self, labels: Tensor) -> None:
        """Refuse labels, shape [N], that are not those that training was watched with, or that name one class alone."""
        used = labels[self.visited].unique()
        if len(used) == 1 and self.visited.sum() > 1:
            raise InfluenceError(
                f"label issues: all labels are {int(used)}; a wrong label is told from examples of other classes"
            )
        if self.watched_labels is None:
            return
        others = (labels != self.watched_labels) & self.visited
        if others.any():
            first = int(others.nonzero()[0])
            raise InfluenceError(
                f"label issues: {int(others.sum())} of {int(self.visited.sum())} labels are others than those that "
                f"were watched, the first that of example {first} ({int(labels[first])}, watched: "
                f"{int(self.watched_labels[first])}); labels are in the order of `index`, the positions in the "
                "training set"
            )

    def numpy(self) -> dict[str, Any]:
        """Return the tensors as NumPy arrays, by field name."""
        return {name: value.numpy() for name, value in vars(self).items() if isinstance(value, torch.Tensor)}


def _evidence_fields(
    predictions: PredictionStatistics | None, score: Tensor, trusted: TrustedPredictions | None
) -> dict[str, Any]:
    """The fields of `InfluenceResult` that follow from the predictions, by name; none if no predictions were kept."""
    if predictions is None:
        return {}
    means = predictions.read()
    visited = means.labels >= 0
    log_odds, excess = torch.zeros_like(means.margin), torch.zeros_like(means.margin)
    tensors = {"mean_predictions": means.predictions, "log_odds": log_odds, "margin": means.margin, "excess": excess}
    values: dict[str, Any] = {}
    if visited.any():
        seen, labels, influence = means.predictions[visited], means.labels[visited], means.class_influence
        with tf32_products(enabled=False):
            score = score.to(seen.device)[visited]
            influence = None if influence is None else influence[visited]
            evidence = read_labels(seen, influence, labels, score, means.margin[visited], trusted)
        log_odds[visited] = evidence.log_odds.to(log_odds.dtype)
        excess[visited] = evidence.excess.to(excess.dtype)
        tensors["transition"] = evidence.transition
        values = {"noise_entropy": evidence.noise_entropy, "weights": evidence.weights}
    values["watched_labels"] = means.labels.cpu()
    return {**{name: value.float().cpu() for name, value in tensors.items()}, **values}
