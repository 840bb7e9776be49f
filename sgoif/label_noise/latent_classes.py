"""Estimates true classes and the noise matrix from predictions, without assuming that the most common label is correct.

**Step 1: find the classes.** A network that is trained on noisy labels predicts, for an image of class c, row c of the
noise matrix: how often that class has each label. The square roots u_i of the mean predictions lie on the unit sphere,
where the chord between two of them is their Hellinger distance. So they form one cluster per class, whether or not the
most common label there is the right one. The clusters are found by expectation-maximisation of a mixture of von
Mises-Fisher distributions with one concentration kappa,

    P(c | x_i) ~ pi_c exp(kappa <mu_c, u_i>),

where mu_c starts at the mean of u over the examples with label c.

**Step 2: match labels to classes.** Each label y is matched to a class c(y), one to one, so that the most examples
agree. If a label is rarer in its matched class than in the data overall (lift < 1), it is matched to its most frequent
class instead.

**Step 3: log-odds.** With T_cy = P(label y | class c), the log-odds that a label is wrong are

    o_i = log sum_{c != c(y_i)} P(c | x_i) T_{c y_i} - log P(c(y_i) | x_i) T_{c(y_i) y_i}.

**Trusted examples.** If the labels of a class are mostly wrong in the same way, no method that sees only the labels can
notice, and neither can this one. A few examples whose labels are known to be right resolve it. Then mu_c starts at the
mean of u over the trusted examples of class c. A label moves to the class that most of its trusted examples fall in, if
these outnumber the ones in its matched class by a standard deviation of their difference, which is the square root of
both counts together.

**Weight of the latent classes.** Where the network has hardly learnt, its predictions form no clusters. With few labels
that shows in the mean entropy h of P(c | x_i), divided by log C. With many labels any cloud of points splits into
well-separated clusters, but into different ones for every sample. So two more mixtures are fitted, one to each half of
the examples; s is the mean probability that both put an example into the same class. The weight is

    t = min(1, 2 (1 - h / 0.06)) min(1, (s - 0.3) / 0.2),  each factor at least 0.

**Noise scatter.** If every class has only a few wrong labels, the network learns them. If the wrong labels of a class
are spread over many, there is little to learn, and how long the network resisted a label says more than any class.
With w_c the share of wrong labels in row c of T and H_c their entropy, the wrong labels are spread over r labels, and
the noise scatter c follows from r:

    r = sum_c w_c exp(H_c) / sum_c w_c,        c = (r - 10) / 20 within [0, 1].
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from sgoif.errors import InfluenceError
from sgoif.label_noise.assignment import linear_assignment
from sgoif.label_noise.vmf_mixture import CHUNK_ROWS, PSEUDO_COUNT, VMFMixtures, on_sphere

START_LENGTHS = (0.5, 0.8, 0.9, 0.95)  # mean lengths whose concentrations EM starts from
EM_SUBSAMPLE = 10_000  # examples that choose among the starts, or EM_SUBSAMPLE_PER_CLASS per class if that is more
EM_SUBSAMPLE_PER_CLASS = 100
MAX_CLASS_ENTROPY = 0.06  # h at which the weight is 0; it is 1 up to half of that
STABILITY_RANGE = (0.3, 0.5)  # values of s at which the weight is 0 and 1
SCATTER_RANGE = (10, 30)  # values of r at which the noise scatter is 0 and 1

TrustedPredictions = tuple[Tensor, Tensor]
"""Predictions [m, C] and right labels [m] of examples outside the training set."""


@dataclass(frozen=True)
class LatentClasses:
    """Latent classes and their relation to the labels; all tensors are on the device of the predictions.

    Attributes:
        centres: Mean directions mu_c, shape [C, C].
        concentration: kappa.
        class_weights: Shares pi_c of the classes, shape [C].
        label_probabilities: T, shape [C, C]; row c says how often latent class c has each label.
        class_of_label: c(y), the latent class of each label, shape [C].
        class_entropy: h, the mean entropy of P(c | x_i) divided by log C.
        stability: s, the mean probability that both halves of the examples give the same class.
    """

    centres: Tensor
    concentration: float
    class_weights: Tensor
    label_probabilities: Tensor
    class_of_label: Tensor
    class_entropy: float
    stability: float

    @property
    def latent_weight(self) -> float:
        """The weight t of what the latent classes say, in [0, 1]."""
        lowest, highest = STABILITY_RANGE
        by_entropy = 2 * (1 - self.class_entropy / MAX_CLASS_ENTROPY)
        by_stability = (self.stability - lowest) / (highest - lowest)
        return min(1.0, max(0.0, by_entropy)) * min(1.0, max(0.0, by_stability))

    @property
    def effective_error_classes(self) -> float:
        """The effective number r of labels that the wrong labels of a class are spread over."""
        wrong = self.transition.double().fill_diagonal_(0)
        mass = wrong.sum(1, keepdim=True)
        share = wrong / mass.clamp(min=1e-12)
        labels = (-torch.xlogy(share, share).sum(1, keepdim=True)).exp()
        return float((mass * labels).sum() / mass.sum().clamp(min=1e-12))

    @property
    def noise_scatter(self) -> float:
        """How far the wrong labels of a class are spread over many, in [0, 1]."""
        lowest, highest = SCATTER_RANGE
        return min(1.0, max(0.0, (self.effective_error_classes - lowest) / (highest - lowest)))

    @property
    def transition(self) -> Tensor:
        """The estimated noise matrix, shape [C, C]; row y says how often the class of label y has each label."""
        return self.label_probabilities[self.class_of_label]

    def log_odds(self, predictions: Tensor, labels: Tensor) -> Tensor:
        """Return the log-odds o_i that the labels are wrong.

        Args:
            predictions: Mean predictions, shape [n, C].
            labels: Labels, shape [n].

        Returns:
            Log-odds, shape [n]; above zero where a label is more likely wrong than right.
        """
        found = []
        for part, part_labels in zip(
            torch.split(predictions, CHUNK_ROWS), torch.split(labels, CHUNK_ROWS), strict=True
        ):
            joint = self._log_joint(part, part_labels)
            own_class = self.class_of_label[part_labels].unsqueeze(1)
            others = joint.scatter(1, own_class, -torch.inf).logsumexp(1)
            found.append(others - joint.gather(1, own_class)[:, 0])
        return torch.cat(found)

    def _log_joint(self, predictions: Tensor, labels: Tensor) -> Tensor:
        """log P(c, y_i | x_i) up to a constant per example, shape [n, C]."""
        joint = self.concentration * on_sphere(predictions) @ self.centres.T + self.class_weights.log()
        return joint + self.label_probabilities.log().T[labels]


def fit_latent_classes(predictions: Tensor, labels: Tensor, trusted: TrustedPredictions | None = None) -> LatentClasses:
    """Fit the latent classes of mean predictions and match the labels to them.

    Args:
        predictions: Mean predictions of the training examples, shape [n, C].
        labels: Their (possibly noisy) labels, shape [n].
        trusted: Predictions [m, C] and right labels [m] of further examples, if there are any.

    Returns:
        The latent classes.

    Raises:
        InfluenceError: If there are no examples, or not one label per prediction.
    """
    n, n_classes = predictions.shape
    if labels.shape != (n,) or n == 0:
        raise InfluenceError(
            f"latent classes: predictions {tuple(predictions.shape)} and labels {tuple(labels.shape)} do not match"
        )
    u = on_sphere(predictions)
    if trusted is not None:
        trusted = on_sphere(trusted[0]).to(u), trusted[1].to(labels)
    mixture = _fit_mixture(u, labels, trusted)
    joint, entropy, same = _posterior_sums(u, labels, mixture, _fit_halves(u, labels, trusted, mixture))
    class_of_label = _match_labels(joint, n)
    if trusted is not None:
        class_of_label = _match_trusted(class_of_label, joint, mixture, trusted)
    counts = joint.T + PSEUDO_COUNT / n_classes
    return LatentClasses(
        centres=mixture.centres[0],
        concentration=float(mixture.kappa[0]),
        class_weights=mixture.weights[0] / mixture.weights[0].sum(),
        label_probabilities=counts / counts.sum(1, keepdim=True),
        class_of_label=class_of_label,
        class_entropy=float(entropy) / n / math.log(max(n_classes, 2)),
        stability=float(same) / n,
    )


def _fit_mixture(u: Tensor, labels: Tensor, trusted: TrustedPredictions | None) -> VMFMixtures:
    """Fit a mixture to points `[n, C]`: several starts on a subsample, then the tightest one on all points.

    The class of a label starts at the mean of its trusted points, else of its points, else in its corner.
    """
    n, n_classes = u.shape
    centres = torch.eye(n_classes, device=u.device, dtype=u.dtype)
    for points, point_labels in ((u, labels), trusted or (u[:0], labels[:0])):
        sums = torch.zeros_like(centres).index_add_(0, point_labels, points)
        has_points = sums.norm(dim=1, keepdim=True) > 0
        centres = torch.where(has_points, torch.nn.functional.normalize(sums, dim=1), centres)
    subsample = u[:: max(1, n // max(EM_SUBSAMPLE, EM_SUBSAMPLE_PER_CLASS * n_classes))]
    return VMFMixtures.from_centres(centres, START_LENGTHS).fit(subsample).tightest.fit(u)


def _fit_halves(
    u: Tensor, labels: Tensor, trusted: TrustedPredictions | None, whole: VMFMixtures
) -> tuple[VMFMixtures, VMFMixtures]:
    """Fit one mixture to every second point and one to the rest; a single point has only the mixture of the whole."""
    if len(u) == 1:
        return whole, whole
    halves = []
    for start in (0, 1):
        half = None if trusted is None else (trusted[0][start::2], trusted[1][start::2])
        halves.append(_fit_mixture(u[start::2], labels[start::2], half))
    return halves[0], halves[1]


def _posterior_sums(
    u: Tensor, labels: Tensor, mixture: VMFMixtures, halves: tuple[VMFMixtures, VMFMixtures]
) -> tuple[Tensor, Tensor, Tensor]:
    """Sums over the points: P(c | x_i) by label `[label, class]`, entropy of P(c | x_i), agreement of the halves."""
    n_classes = u.shape[1]
    joint = u.new_zeros(n_classes, n_classes)
    entropy = u.new_zeros(())
    same = u.new_zeros(())
    for part, part_labels in zip(torch.split(u, CHUNK_ROWS), torch.split(labels, CHUNK_ROWS), strict=True):
        member = mixture.posterior(part)[:, 0]
        joint.index_add_(0, part_labels, member)
        entropy -= torch.xlogy(member, member).sum()  # torch.special.entr would be compiled at its first use on a GPU
        same += (halves[0].posterior(part) * halves[1].posterior(part)).sum()
    return joint, entropy, same


def _match_labels(joint: Tensor, n: int) -> Tensor:
    """The class of each label `[C]`: one to one, or its most frequent class where the lift is below 1."""
    matched = linear_assignment(joint)
    lift = joint.gather(1, matched.unsqueeze(1))[:, 0] * n / (joint.sum(1) * joint.sum(0)[matched])
    return torch.where(lift < 1, joint.argmax(1), matched)


def _match_trusted(class_of_label: Tensor, joint: Tensor, mixture: VMFMixtures, trusted: TrustedPredictions) -> Tensor:
    """Move labels to the class of most of their trusted examples, where that is more than chance."""
    votes = torch.zeros_like(joint).index_add_(0, trusted[1], mixture.posterior(trusted[0])[:, 0])
    own, most = votes.gather(1, class_of_label.unsqueeze(1))[:, 0], votes.amax(1)
    return torch.where(most - own > (most + own).sqrt(), votes.argmax(1), class_of_label)
