"""`InfluenceResult`: one score per training example, with what says how far it can be trusted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from sgoif.backend.linalg import tf32_products
from sgoif.config import InfluenceConfig
from sgoif.label_noise.count import estimate_label_errors
from sgoif.label_noise.issues import LabelIssues, suggest_labels
from sgoif.label_noise.latent_classes import TrustedPredictions, fit_latent_classes
from sgoif.scores.bernstein import half_width
from sgoif.scores.visit_statistics import PredictionSums, VisitStatistics

MARGIN_WEIGHT = 3  # weight of the margins at noise entropy 1


def scale_to_unit_rms(values: Tensor) -> Tensor:
    """Divide values by their root mean square; zero stays zero.

    Args:
        values: Shape [N].

    Returns:
        Scaled values, shape [N].
    """
    return values / values.square().mean().sqrt().clamp(min=torch.finfo(values.dtype).tiny)


@dataclass(frozen=True)
class InfluenceResult:
    """Scores of all training examples. A higher score means more harmful, so more suspicious.

    All tensors are on the host, in data-set order. The fields from `mean_predictions` to `noise_entropy` describe what
    the predictions say about the labels (see `sgoif.label_noise.latent_classes`); they are set if `config.memory` is.

    Attributes:
        score: Mean over the visits in the score window of -<phibar, g_i>, shape [N]; 0 where never visited.
        confidence: Mean confidence of the anchors at those visits, in [0, 1], shape [N].
        residual: Mean estimated relative error of the scores at those visits, shape [N]; infinite where never visited.
        half_width: Empirical-Bernstein half-width of the score, shape [N]; infinite where never visited.
        visits: Number of visits in the score window, shape [N].
        anchor_age: Mean number of steps since the anchors had been checked, shape [N].
        epoch_scores: Mean score per epoch, shape [E, N].
        counters: Cost and events of the run, by name.
        scope: Layers in scope, parameters left out, curvature backend, dimension and number of anchors.
        config: Settings of the run.
        mean_predictions: Mean predicted probabilities, shape [N, C]; uniform where never visited.
        log_odds: Log-odds that the label is wrong, shape [N]; 0 where never visited.
        transition: Estimated noise matrix, shape [C, C]; row c says how often class c has each label.
        margin: Mean over all visits of the largest other logit minus the label's, shape [N].
        latent_weight: Weight of the latent classes in `suspicion`, in [0, 1].
        noise_entropy: How far the wrong labels of a class are spread over many labels, in [0, 1].
    """

    score: Tensor
    confidence: Tensor
    residual: Tensor
    half_width: Tensor
    visits: Tensor
    anchor_age: Tensor
    epoch_scores: Tensor
    counters: dict[str, float] = field(default_factory=dict)
    scope: dict[str, Any] = field(default_factory=dict)
    config: InfluenceConfig = field(default_factory=InfluenceConfig)
    mean_predictions: Tensor | None = None
    log_odds: Tensor | None = None
    transition: Tensor | None = None
    margin: Tensor | None = None
    latent_weight: float = 0.0
    noise_entropy: float = 0.0

    @classmethod
    def from_statistics(
        cls,
        statistics: VisitStatistics,
        config: InfluenceConfig,
        counters: dict[str, float],
        scope: dict[str, Any],
        trusted: TrustedPredictions | None = None,
    ) -> InfluenceResult:
        """Build the result from the statistics of a run.

        Args:
            statistics: Sums over the visits of every example.
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
        width = half_width(sums["score"], sums["square"], visits, window.score_range, config.alpha)
        return cls(
            score=mean["score"],
            confidence=mean["confidence"],
            residual=torch.where(visits > 0, mean["residual"], torch.inf),
            half_width=width.float(),
            visits=visits.long(),
            anchor_age=mean["age"],
            epoch_scores=window.epoch_scores.float(),
            counters=counters,
            scope=scope,
            config=config,
            **_latent_fields(statistics.read_predictions(), trusted),
        )

    @property
    def suspicion(self) -> Tensor:
        """How suspicious each label is, shape [N]: the influence score plus the evidence of the latent classes,

            s_i / rms(s) + t (o_i / rms(o) + 3 e m_i / rms(m)),

        where s_i is `score`, o_i `log_odds`, m_i `margin`, t `latent_weight` and e `noise_entropy`.

        The terms complement each other. Anchors are built from the labels of the last fraction of an epoch, so they are
        wrong for a class whose labels are mostly wrong. The predictions of the whole window form clusters by what the
        examples look like, whatever their labels. Where wrong labels are spread over many classes, neither helps much,
        and the margins tell how long the network resisted a label.

        With `config.memory = False` this is the influence score alone.
        """
        prediction_score = self.prediction_score
        if prediction_score is None:
            return self.score
        return scale_to_unit_rms(self.score) + self.latent_weight * prediction_score

    @property
    def prediction_score(self) -> Tensor | None:
        """The predictions' evidence against each label, shape [N]: o_i / rms(o) + 3 e m_i / rms(m), see `suspicion`.

        None with `config.memory = False`.
        """
        if self.log_odds is None or self.margin is None:
            return None
        return scale_to_unit_rms(self.log_odds) + MARGIN_WEIGHT * self.noise_entropy * scale_to_unit_rms(self.margin)

    def find_label_issues(self, labels: Tensor, probabilities: Tensor | None = None) -> LabelIssues:
        """Find the labels that are probably wrong, without knowing the truth.

        If the latent classes have full weight (`latent_weight` = 1), the number of wrong labels follows from
        `log_odds`, and the labels with the highest `prediction_score` are taken. Otherwise both follow from
        `suspicion`.

        Args:
            labels: The labels that were trained on, shape [N].
            probabilities: Predicted probabilities for the suggestions, shape [N, C], for example out-of-fold ones; None
                takes `mean_predictions`. Without either, the suggested labels are the labels themselves.

        Returns:
            The labels that are probably wrong, the order for a review, and suggested labels.

        Raises:
            InfluenceError: If labels or probabilities do not fit the examples.
        """
        labels = torch.as_tensor(labels).long().cpu()
        prediction_score = self.prediction_score
        if self.latent_weight == 1 and prediction_score is not None:
            count, mask = estimate_label_errors(prediction_score, labels, self.log_odds)
        else:
            count, mask = estimate_label_errors(self.suspicion, labels)
        if probabilities is None:
            probabilities = self.mean_predictions
        suggested = labels
        if probabilities is not None:
            suggested = suggest_labels(mask, labels, torch.as_tensor(probabilities).float().cpu())
        order = self.suspicion.argsort(descending=True, stable=True)
        return LabelIssues(mask, order, suggested, count)

    def numpy(self) -> dict[str, Any]:
        """Return the tensors as NumPy arrays, by field name."""
        return {name: value.numpy() for name, value in vars(self).items() if isinstance(value, torch.Tensor)}


def _latent_fields(sums: PredictionSums | None, trusted: TrustedPredictions | None) -> dict[str, Any]:
    """The fields of `InfluenceResult` that follow from the predictions, by name; none if no predictions were kept."""
    if sums is None:
        return {}
    visited = sums.predictions.sum(1) > 0
    uniform = 1 / sums.predictions.shape[1]
    mean = torch.where(visited.unsqueeze(1), sums.predictions / sums.predictions.sum(1, keepdim=True), uniform)
    log_odds = torch.zeros_like(mean[:, 0])
    tensors = {"mean_predictions": mean, "log_odds": log_odds, "margin": sums.margin}
    numbers: dict[str, float] = {}
    if visited.any():
        seen, labels = mean[visited], sums.labels[visited]
        with tf32_products(enabled=False):
            classes = fit_latent_classes(seen, labels, trusted)
            log_odds[visited] = classes.log_odds(seen, labels)
        tensors["transition"] = classes.transition
        numbers = {"latent_weight": classes.latent_weight, "noise_entropy": classes.noise_entropy}
    return {**{name: value.float().cpu() for name, value in tensors.items()}, **numbers}
