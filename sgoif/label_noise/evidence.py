"""What the records of training say about the labels, and how far each signal counts.

Three signals rank the labels: the influence score, the log-odds of a class model, and the margins. The suspicion of a
label is their weighted sum, each over its root mean square (`InfluenceResult.suspicion`).

**Labels alone.** The class model is a mixture that knows the labels (`class_mixture`), fitted once to the square roots
of the mean predictions and once to the mean class influences, so that there are four signals x_k. Which of them can be
trusted depends on the training, and the examples show it: where a signal is right, the labels that all signals
together suspect stand out in it. With d_k the difference between the mean of x_k over the suspected fifth and over the
rest, each x_k over its root mean square,

    w_k = a_k d_k^2,     suspicion = sum_k w_k x_k,

twice (`ROUNDS`), first with the weights a_k alone. a_k is 1 for the log-odds and 4 e^2 for influence and
margins: the more the wrong labels of a class are all the same one (noise entropy e near 0), the more the network has
learnt them, and the less a signal without a class model tells them apart. The log-odds of the result are the mean of
both, by their weights.

**Trusted examples.** They name the classes even where most labels of a class are wrong, which a mixture that starts
from the labels cannot do. The class model then is `latent_classes`, with its weight t and its noise scatter c:

    weights  1 for the influence,  t for the log-odds,  3 c t for the margins.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sgoif.label_noise.class_mixture import fit_class_mixture
from sgoif.label_noise.latent_classes import TrustedPredictions, fit_latent_classes

SCATTERED_WEIGHT = 4.0  # of influence and margins at noise entropy 1
SCATTERED_POWER = 2
SUSPECTED = 0.2  # share of the labels that counts as suspected where signals are weighed
MIN_LOG_ODDS_WEIGHT = 1e-3  # of the weights of all signals, so that the others stay finite in units of it
ROUNDS = 2  # of weighing the signals by the labels that they suspect together
TRUSTED_MARGIN_WEIGHT = 3.0  # of the margins at noise scatter 1, with trusted examples


@dataclass(frozen=True)
class SignalWeights:
    """How far each signal counts in the suspicion of a label.

    Attributes:
        influence: Weight of the influence score.
        log_odds: Weight of the log-odds of the class model.
        margin: Weight of the margins.
    """

    influence: float = 1.0
    log_odds: float = 0.0
    margin: float = 0.0


@dataclass(frozen=True)
class LabelEvidence:
    """What a class model says about the labels; tensors are on the device of the predictions.

    Attributes:
        log_odds: Log-odds that the labels are wrong, shape [n].
        transition: Estimated noise matrix, shape [C, C]; row c says how often class c has each label.
        noise_entropy: How far the wrong labels of a class are spread over many labels, in [0, 1]; with trusted examples
            the noise scatter of the latent classes.
        weights: How far each signal counts.
    """

    log_odds: Tensor
    transition: Tensor
    noise_entropy: float
    weights: SignalWeights


def read_labels(
    predictions: Tensor, class_influence: Tensor | None, labels: Tensor, influence: Tensor, margin: Tensor
) -> LabelEvidence:
    """Return what the records of training say about the labels, without any trusted example.

    Args:
        predictions: Mean predictions, shape [n, C].
        class_influence: Mean class influences, shape [n, C], if there are any.
        labels: Labels, shape [n].
        influence: Influence scores, shape [n].
        margin: Mean margins, shape [n].
    """
    by_predictions = fit_class_mixture(predictions.clamp(min=0).sqrt(), labels)
    odds = [by_predictions.log_odds]
    if class_influence is not None:
        centred = class_influence - class_influence.mean(1, keepdim=True)
        odds.append(fit_class_mixture(centred, labels).log_odds)
    entropy = by_predictions.noise_entropy
    log_odds, weights = weigh_signals(influence, margin, torch.stack(odds), entropy)
    return LabelEvidence(log_odds, by_predictions.transition, entropy, weights)


def root_mean_square(signals: Tensor) -> Tensor:
    """Return the root mean square of each signal [..., n], shape [..., 1]; above 0 even where all are 0."""
    return signals.square().mean(-1, keepdim=True).sqrt().clamp(min=torch.finfo(signals.dtype).tiny)


def weigh_signals(
    influence: Tensor, margin: Tensor, log_odds: Tensor, noise_entropy: float
) -> tuple[Tensor, SignalWeights]:
    """Weigh the signals by how far the labels that they suspect together stand out in each of them.

    Args:
        influence: Influence scores, shape [n].
        margin: Mean margins, shape [n].
        log_odds: Log-odds of one class model or of several, shape [k, n].
        noise_entropy: How far the wrong labels of a class are spread over many labels, in [0, 1].

    Returns:
        The mean of the log-odds by their weights, shape [n], and the weights, in units of that of the log-odds.
    """
    signals = torch.stack([influence.to(log_odds), margin.to(log_odds), *log_odds])
    size = root_mean_square(signals)
    signals = signals / size
    scattered = SCATTERED_WEIGHT * noise_entropy**SCATTERED_POWER
    start = signals.new_tensor([scattered, scattered, *[1.0] * len(log_odds)])
    weights = start / start.sum()
    for _ in range(ROUNDS):
        weights = start * _standing_out(signals, weights @ signals).clamp(min=0).square()
        weights = weights / weights.sum() if weights.sum() > 0 else start / start.sum()
    share = weights[2:] / size[2:, 0]
    mean = (share @ log_odds) / share.sum().clamp(min=torch.finfo(share.dtype).tiny)
    of_mean = (share.sum() * mean.square().mean().sqrt()).clamp(min=MIN_LOG_ODDS_WEIGHT)
    return mean, SignalWeights(float(weights[0] / of_mean), 1.0, float(weights[1] / of_mean))


def _standing_out(signals: Tensor, suspicion: Tensor) -> Tensor:
    """Mean of each signal [s, n] over the most suspicious labels less its mean over the others, shape [s]."""
    n = len(suspicion)
    top = suspicion.argsort(descending=True, stable=True)[: max(1, int(SUSPECTED * n))]
    suspected = signals[:, top].sum(1)
    return suspected / len(top) - (signals.sum(1) - suspected) / max(n - len(top), 1)


def read_labels_by_trusted(predictions: Tensor, labels: Tensor, trusted: TrustedPredictions) -> LabelEvidence:
    """Return what predictions say about the labels, with the classes named by trusted examples.

    Args:
        predictions: Mean predictions, shape [n, C].
        labels: Labels, shape [n].
        trusted: Predictions [m, C] and right labels [m] of examples outside the training set.
    """
    classes = fit_latent_classes(predictions, labels, trusted)
    weight, scatter = classes.latent_weight, classes.noise_scatter
    weights = SignalWeights(1.0, weight, TRUSTED_MARGIN_WEIGHT * scatter * weight)
    log_odds: Tensor = torch.as_tensor(classes.log_odds(predictions, labels))
    return LabelEvidence(log_odds, classes.transition, scatter, weights)
