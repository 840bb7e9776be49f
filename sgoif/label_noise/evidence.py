"""What the records of training say about the labels, and how far each signal counts.

Three signals rank the labels: the influence score, the log-odds of a class model, and the margins. The suspicion of a
label is their weighted sum, each over its root mean square (`InfluenceResult.suspicion`).

**Labels alone.** The class model is a mixture that knows the labels (`class_mixture`), fitted once to the square roots
of the mean predictions and once to the mean class influences; the log-odds are the mean of both. Where every class has
few kinds of wrong labels, the network learns them, and only the class model tells them apart. Where wrong labels are
spread over all classes, there is little to learn, and influence and margins, which need no model, are the better
signals. The noise entropy e of the mixture says which is the case:

    weights  1 for the log-odds,  2 e^3 for influence and margins.

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

SCATTERED_WEIGHT = 2.0  # of influence and margins at noise entropy 1
SCATTERED_POWER = 3
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


def read_labels(predictions: Tensor, class_influence: Tensor | None, labels: Tensor) -> LabelEvidence:
    """Return what predictions and class influences say about the labels, without any trusted example.

    Args:
        predictions: Mean predictions, shape [n, C].
        class_influence: Mean class influences, shape [n, C], if there are any.
        labels: Labels, shape [n].
    """
    by_predictions = fit_class_mixture(predictions.clamp(min=0).sqrt(), labels)
    log_odds = by_predictions.log_odds
    if class_influence is not None:
        centred = class_influence - class_influence.mean(1, keepdim=True)
        log_odds = (log_odds + fit_class_mixture(centred, labels).log_odds) / 2
    entropy = by_predictions.noise_entropy
    return LabelEvidence(log_odds, by_predictions.transition, entropy, scattered_weights(entropy))


def scattered_weights(noise_entropy: float) -> SignalWeights:
    """Return the weights of the signals without trusted examples.

    Args:
        noise_entropy: How far the wrong labels of a class are spread over many labels, in [0, 1].
    """
    scattered = SCATTERED_WEIGHT * noise_entropy**SCATTERED_POWER
    return SignalWeights(scattered, 1.0, scattered)


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
