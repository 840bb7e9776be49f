"""What the records of training say about the labels, and how far each signal counts.

Three signals rank the labels: the influence score, the log-odds of a class model, and the margins. The suspicion of a
label is their weighted sum, each over its root mean square, and the excess of the label: how far it is more frequent
than its class (`class_names`, `InfluenceResult.suspicion`).

**Labels alone.** The class model is a mixture that knows the labels (`class_mixture`), fitted once to the square roots
of the mean predictions and once to the mean class influences, so that there are four signals x_k. Which of them can be
trusted depends on the training, and the examples show it: where a signal is right, the suspected labels stand out in
it. With d_k the difference between the mean of x_k over the suspected fifth and over the rest, each x_k over its root
mean square,

    w_k = a_k d_k^2,     suspicion = sum_k w_k x_k.

a_k is 1 for the log-odds and 4 e^2 for influence and margins: the more the wrong labels of a class are all the same one
(noise entropy e near 0), the more the network has learnt them, and the less a signal without a class model tells them
apart. Suspected are the labels with the largest sum of influence and log-odds, at first of equal weight and then, once
more (`ROUNDS`), weighted by d_k^2. The margins have no part in it: they suffer most from learnt labels, and would
confirm themselves. The log-odds of the result are the mean of both, by their weights.

Which class a label names is uncertain where most labels of a class are wrong: `class_names`. The mixtures are fitted
twice. The first fit says how far the sizes of the classes follow the labels, as in a long tail, and as far as they do,
frequent classes count more in the second. With two classes both fits count. The second can empty a rare class, which
is right where it got labels of the frequent one, and wrong where it lost its own: then all its right labels look wrong.

**Trusted examples.** The mixtures start from them: every example is taken to be of the class whose trusted examples
have the nearest predictions in the mean. That names the classes even where most labels of one are wrong, which the
labels alone cannot do: every class keeps its name, and no label has an excess. The influence then is on right labels,
and stays right where wrong ones are all the same: its weight a_k is 2, that of the margins 4 e^4, or 4 if there are two
classes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sgoif.label_noise.class_mixture import CHUNK_ROWS, ClassMixture, fit_class_mixture
from sgoif.label_noise.class_names import label_excess, name_probabilities, size_agreement

SCATTERED_WEIGHT = 4.0  # of influence and margins at noise entropy 1
SCATTERED_POWER = 2
SUSPECTED = 0.2  # share of the labels that counts as suspected where signals are weighed
ROUNDS = 2  # of finding the suspected labels
OUTLYING = 10.0  # median lengths of class influences, beyond which an example would set the scale of all others
DRAWN_TO = 3.0  # median lengths that such an example is given
RUNAWAY = 4.0  # times its labels, or the mean of all classes: a larger class has gathered those of others
MIN_LOG_ODDS_WEIGHT = 1e-3  # of the weights of all signals, so that the others stay finite in units of it
TRUSTED_INFLUENCE_WEIGHT = 2.0  # of the influence on trusted examples
TRUSTED_MARGIN_POWER = 4  # of the noise entropy, in the weight of the margins with trusted examples

TrustedPredictions = tuple[Tensor, Tensor]
"""Predictions [m, C] and right labels [m] of examples outside the training set."""


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
        excess: How far each label is more frequent than its class, as a logarithm, shape [n].
        transition: Estimated noise matrix, shape [C, C]; row c says how often class c has each label.
        noise_entropy: How far the wrong labels of a class are spread over many labels, in [0, 1]; of two classes, how
            far they go both ways, in [0, 1/2].
        weights: How far each signal counts.
    """

    log_odds: Tensor
    excess: Tensor
    transition: Tensor
    noise_entropy: float
    weights: SignalWeights


def read_labels(
    predictions: Tensor,
    class_influence: Tensor | None,
    labels: Tensor,
    influence: Tensor,
    margin: Tensor,
    trusted: TrustedPredictions | None = None,
) -> LabelEvidence:
    """Return what the records of training say about the labels.

    Outputs that no label has, as of a head made for more classes, do not count.

    Args:
        predictions: Mean predictions, shape [n, C].
        class_influence: Mean class influences, shape [n, C], if there are any.
        labels: Labels, shape [n].
        influence: Influence scores, shape [n].
        margin: Mean margins, shape [n].
        trusted: Predictions [m, C] and right labels [m] of examples outside the training set, if there are any.
    """
    n_classes = predictions.shape[1]
    used = torch.unique(labels if trusted is None else torch.cat([labels, trusted[1].to(labels)]))
    if 1 < len(used) < n_classes:
        found = read_labels(
            _shares(predictions[:, used]),
            None if class_influence is None else class_influence[:, used],
            torch.searchsorted(used, labels),
            influence,
            margin,
            None if trusted is None else (_shares(trusted[0][:, used]), torch.searchsorted(used, trusted[1].to(used))),
        )
        return replace(found, transition=with_unused_classes(found.transition, used, n_classes))
    records = [predictions.clamp(min=0).sqrt()]
    if class_influence is not None:
        records.append(draw_in(class_influence - class_influence.mean(1, keepdim=True)))
    if trusted is None:
        labelled = torch.bincount(labels, minlength=predictions.shape[1]).double()
        models = without_runaway([fit_class_mixture(x, labels) for x in records], labelled)
        agreement = size_agreement(labelled, [model.class_sizes for model in models])
        if agreement > 0:
            second = [fit_class_mixture(x, labels, tail=agreement) for x in records[: len(models)]]
            second = without_runaway(second, labelled)
            models = [*models, *second] if predictions.shape[1] == 2 else second
        odds = [model.log_odds(name_probabilities(model.transition, agreement)) for model in models]
        excess = label_excess(labelled, agreement)[labels]
        scattered = SCATTERED_WEIGHT * models[0].noise_entropy ** SCATTERED_POWER
        factors = (scattered, scattered)
    else:  # trusted examples have named the classes
        models, guess = [], guess_classes(records[0], labels, trusted)
        for x in records:
            models.append(fit_class_mixture(x, labels, guess))
            guess = models[0].most_probable()
        models = without_runaway(models, torch.bincount(guess, minlength=predictions.shape[1]).double())
        odds = [model.log_odds() for model in models]
        excess = torch.zeros_like(odds[0])
        scattered = models[0].noise_entropy ** TRUSTED_MARGIN_POWER if predictions.shape[1] > 2 else 1.0
        factors = (TRUSTED_INFLUENCE_WEIGHT, SCATTERED_WEIGHT * scattered)
    log_odds, weights = weigh_signals(influence, margin, torch.stack(odds), factors)
    return LabelEvidence(log_odds, excess, models[0].transition, models[0].noise_entropy, weights)


def without_runaway(models: list[ClassMixture], sizes: Tensor) -> list[ClassMixture]:
    """Return the mixture of the predictions, and that of the class influences unless one of its classes ran away.

    With about a hundred well separated classes of few examples a class may gather the atypical examples of all others,
    more in every iteration. It then had 14 to 59 times its labels; where none did, at most twice.

    Args:
        models: Mixture of the predictions, and that of the class influences if there is one.
        sizes: Number of labels, or of guessed examples, of each class, shape [C].
    """
    largest = RUNAWAY * sizes.clamp(min=float(sizes.mean()))
    first, *others = models
    return [first, *(model for model in others if not (model.class_sizes > largest).any())]


def draw_in(records: Tensor) -> Tensor:
    """Return class influences [n, C] without outliers: those of `OUTLYING` median lengths are drawn in to `DRAWN_TO`.

    A gradient is as long as the input is large. A few inputs a hundred times as large as the others would set the scale
    of the mixture. Without such an example nothing is changed: in some 200 trainings the longest had at most six median
    lengths.
    """
    length = torch.linalg.vector_norm(records, dim=1, keepdim=True)
    median = length.median()
    outlying = (length > OUTLYING * median) & (median > 0)
    return torch.where(outlying, records * (DRAWN_TO * median / length), records) if outlying.any() else records


def with_unused_classes(transition: Tensor, used: Tensor, n_classes: int) -> Tensor:
    """Return the noise matrix [C, C] of all classes from that of the used ones; labels of the others are right.

    Args:
        transition: Noise matrix of the used classes, shape [u, u].
        used: These classes, in ascending order, shape [u].
        n_classes: Number of classes C.
    """
    whole = torch.eye(n_classes).to(transition)
    whole[used.unsqueeze(1), used] = transition
    return whole


def _shares(predictions: Tensor) -> Tensor:
    """Return probabilities [n, C] that sum to 1."""
    return predictions / predictions.sum(1, keepdim=True).clamp(min=torch.finfo(predictions.dtype).tiny)


def guess_classes(roots: Tensor, labels: Tensor, trusted: TrustedPredictions) -> Tensor:
    """Return the class whose trusted examples have the nearest mean root of the predictions.

    Args:
        roots: Square roots of the mean predictions, shape [n, C].
        labels: Labels, shape [n].
        trusted: Predictions [m, C] and right labels [m] of examples outside the training set.

    Returns:
        Classes, shape [n]. The mean of the examples with the label counts as one more trusted example of its class.
        Trusted examples whose predictions are not finite do not count.
    """
    n_classes = roots.shape[1]

    def sums(points: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
        count = torch.bincount(classes, minlength=n_classes).unsqueeze(1).to(points)
        return points.new_zeros(n_classes, n_classes).index_add_(0, classes, points), count

    labelled, label_count = sums(roots, labels)
    finite = trusted[0].isfinite().all(1)
    right, right_count = sums(trusted[0][finite].clamp(min=0).sqrt().to(roots), trusted[1][finite])
    centres = (right + labelled / label_count.clamp(min=1)) / (right_count + 1)
    return torch.cat([torch.cdist(part, centres).argmin(1) for part in torch.split(roots, CHUNK_ROWS)])


def root_mean_square(signals: Tensor) -> Tensor:
    """Return the root mean square of each signal [..., n], shape [..., 1]; above 0 even where all are 0."""
    return signals.square().mean(-1, keepdim=True).sqrt().clamp(min=torch.finfo(signals.dtype).tiny)


def weigh_signals(
    influence: Tensor, margin: Tensor, log_odds: Tensor, factors: tuple[float, float]
) -> tuple[Tensor, SignalWeights]:
    """Weigh the signals by how far the labels that influence and log-odds suspect stand out in each of them.

    Args:
        influence: Influence scores, shape [n].
        margin: Mean margins, shape [n].
        log_odds: Log-odds of one class model or of several, shape [k, n].
        factors: Weights a_k of influence and margins beside 1 for the log-odds.

    Returns:
        The mean of the log-odds by their weights, shape [n], and the weights, in units of that of the log-odds.
    """
    signals = torch.stack([influence.to(log_odds), margin.to(log_odds), *log_odds])
    size = root_mean_square(signals)
    signals = signals / size
    factor = signals.new_tensor([*factors, *[1.0] * len(log_odds)])
    without_margin = torch.ones_like(factor)
    without_margin[1] = 0
    separation = without_margin  # d_k^2; at first all others count alike
    for _ in range(ROUNDS):
        suspicion = (without_margin * separation) @ signals
        separation = _standing_out(signals, suspicion).clamp(min=0).square()
    weights = factor * separation
    weights = weights / weights.sum() if weights.sum() > 0 else factor / factor.sum()
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
