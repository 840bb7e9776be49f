"""True classes and the noise matrix from records of the training examples, by a mixture that knows the labels.

A record x_i is what training has said of example i: the square roots of its mean predictions, or its mean class
influences. The records of one true class c scatter around a mean mu_c with a covariance S_c. Its label is drawn from
row c of the noise matrix T:

    P(x_i, y_i) = sum_c pi_c N(x_i; mu_c, S_c) T_{c y_i},     S_c = S^(1/2) diag(v_c) S^(1/2).

S is the covariance that all classes share. v_c are the variances of class c along the whitened coordinates S^(-1/2) x,
drawn towards 1 by `SHARED_CLASSES` times as many examples as a class has in the mean. Without them a rare class would
be judged by how frequent ones scatter: few examples have a high probability of a rare class, so its coordinate hardly
varies among the others, and even a weak prediction of it would prove its label right. With many classes the shared
variances count more (`SHARED_PER_COORDINATE`): the records have a coordinate for every class, and a class that scatters
a little more along each of a hundred coordinates would claim every atypical example.

The mixture is fitted by expectation-maximisation. It starts from the labels, each taken to be right with probability
`RIGHT_AT_START`, so that every class keeps its name. A class of the mixture may not become much larger than its label
(`MAX_GROWTH`): otherwise the class of a rare label collects the atypical examples of frequent ones. In a long tail that
is not enough, because most examples with a rare label are wrong there. So with `tail` t the weight of a class also has
the factor m_c^(2 t), with m_c the number of its labels (`LABEL_POWER`).

Where most labels of a class are wrong in the same way, a start from the labels cannot notice. With a first guess of the
classes, such as trusted examples allow, it starts from that instead. A class then may not become much larger than in
the guess.

The log-odds that example i is not of class k follow from Bayes' rule, and with the label's own class k = y_i those that
the label is wrong:

    J_ic = log pi_c + log N(x_i; mu_c, S_c) + log T_{c y_i},
    o_ik = log sum_{c != k} exp J_ic - J_ik,     o_i = o_{i y_i}.

Where it is not certain which class of the mixture a label names (`class_names`), the log-odds are the mean
o_i = sum_k Q_{k y_i} o_ik by the probabilities Q of the names.

**Noise entropy.** e says how far the wrong labels of a class are spread over the other labels: 0 if they all are the
same one, 1 if all others are equally frequent. With w_c the number of wrong labels of class c and H_c their entropy,

    e = sum_c w_c H_c / (log(C - 1) sum_c w_c).

With two classes a class has one wrong label only. There e is the share of the rarer way in the rates of both,
e = min(T_01, T_10) / (T_01 + T_10): 0 if all wrong labels go one way, 1/2 if both ways are as frequent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from sgoif.errors import InfluenceError

ITERATIONS = 12
RIGHT_AT_START = 0.8  # probability that a label is right, before anything is known
MAX_GROWTH = 1.2  # of a class, over the number of its labels, or of its examples in the guess
LABEL_POWER = 2  # of the number of labels, in the weight of a class, in a long tail
RIDGE = 0.02  # added to the covariance, relative to its mean variance
SHARED_CLASSES = 2.0  # weight of the shared variances, in classes of mean size
SHARED_PER_COORDINATE = 0.1  # the same for every coordinate of a record; it counts with more than twenty
CHUNK_ROWS = 65_536  # examples in memory at once, times the number of classes


@dataclass(frozen=True)
class ClassMixture:
    """What the mixture says of the training set; tensors are on the device of the records, in double precision.

    Attributes:
        transition: Estimated noise matrix T, shape [C, C]; row c says how often class c has each label.
        class_sizes: Expected number of examples of each true class, shape [C].
    """

    transition: Tensor
    class_sizes: Tensor
    _records: Tensor  # [n, C], standardised
    _labels: Tensor  # [n]
    _parameters: _Parameters

    def log_odds(self, names: Tensor | None = None) -> Tensor:
        """Return the log-odds that the labels are wrong, shape [n].

        Args:
            names: Probability Q_kc that class k of the mixture is the one that label c names, shape [C, C]; None if
                every class has its own name.
        """
        if names is None:
            return torch.cat([_own_log_odds(joint, labels) for joint, labels in self._joints()])
        return torch.cat([(_class_log_odds(joint) * names.T[labels]).sum(1) for joint, labels in self._joints()])

    def most_probable(self) -> Tensor:
        """Return the most probable class of each example, shape [n]."""
        return torch.cat([joint.argmax(1) for joint, _ in self._joints()])

    def _joints(self) -> Iterator[tuple[Tensor, Tensor]]:
        """J_ic of a chunk of examples, and their labels, chunk by chunk."""
        parts = zip(torch.split(self._records, CHUNK_ROWS), torch.split(self._labels, CHUNK_ROWS), strict=True)
        for part, labels in parts:
            yield _joint(part @ self._parameters.whitening, labels, self._parameters), labels

    @property
    def noise_entropy(self) -> float:
        """How far the wrong labels of a class are spread over the other labels, e in [0, 1], or [0, 1/2] of two."""
        return noise_entropy(self.transition, self.class_sizes)


def noise_entropy(transition: Tensor, class_sizes: Tensor) -> float:
    """Return how far the wrong labels of a class are spread over the other labels, e in [0, 1], or [0, 1/2] of two.

    Args:
        transition: Noise matrix, shape [C, C].
        class_sizes: Number of examples of each true class, shape [C].
    """
    n_classes = len(class_sizes)
    wrong = transition.clone().fill_diagonal_(0)
    if n_classes < 3:
        rates = wrong.sum(1)
        return float(rates.min() / rates.sum()) if rates.sum() > 0 else 0.5
    share = wrong / wrong.sum(1, keepdim=True).clamp(min=1e-12)
    entropy = -torch.xlogy(share, share).sum(1) / math.log(n_classes - 1)
    mass = wrong.sum(1) * class_sizes
    return float((mass * entropy).sum() / mass.sum().clamp(min=1e-12))


def fit_class_mixture(records: Tensor, labels: Tensor, guess: Tensor | None = None, tail: float = 0.0) -> ClassMixture:
    """Fit the mixture.

    Args:
        records: One record per example, with one column per class, shape [n, C].
        labels: Labels, shape [n].
        guess: Classes to start from, shape [n]; None starts from the labels, each right with `RIGHT_AT_START`.
        tail: How far a class counts more, the more frequent its label is, in [0, 1].

    Returns:
        The mixture, with noise matrix and class sizes.

    Raises:
        InfluenceError: If there are no examples, or not one label per record.
    """
    n, n_classes = records.shape
    if labels.shape != (n,) or n == 0:
        raise InfluenceError(f"class mixture: records {tuple(records.shape)} and labels {tuple(labels.shape)}")
    x = records.double()
    x = (x - x.mean(0)) / x.std(unbiased=False).clamp(min=1e-12)
    labelled = torch.bincount(labels, minlength=n_classes).double()
    sums, whitening = _Sums.of_labels(x, labels, labelled) if guess is None else _Sums.of_guess(x, labels, guess), None
    largest = MAX_GROWTH * (labelled if guess is None else sums.sizes) + 1
    preference = (largest / largest.mean()) ** (LABEL_POWER * tail)
    moment = x.T @ x
    for _ in range(ITERATIONS):
        parameters = _maximise(sums, whitening, moment, largest, preference, n)
        whitening = parameters.whitening
        sums = _expect(x, labels, parameters)
    return ClassMixture(parameters.log_transition.exp(), sums.sizes, x, labels, parameters)


@dataclass(frozen=True)
class _Sums:
    """Sums over the examples, weighted by the probabilities of the classes."""

    sizes: Tensor  # [C]
    records: Tensor  # [C, d]
    labels: Tensor  # [C, C] class by label
    squares: Tensor | None  # [C, d] of whitened records; None before the first fit

    @classmethod
    def of_labels(cls, x: Tensor, labels: Tensor, labelled: Tensor) -> _Sums:
        """Sums with every label right with probability `RIGHT_AT_START`, else any other class."""
        n_classes = len(labelled)
        other = (1 - RIGHT_AT_START) / max(n_classes - 1, 1)
        by_label = x.new_zeros(n_classes, x.shape[1]).index_add_(0, labels, x)
        mixing = x.new_full((n_classes, n_classes), other).fill_diagonal_(RIGHT_AT_START)
        return cls(mixing @ labelled, mixing @ by_label, mixing * labelled, None)

    @classmethod
    def of_guess(cls, x: Tensor, labels: Tensor, guess: Tensor) -> _Sums:
        """Sums with every example in the class that is guessed."""
        n_classes = x.shape[1]
        pairs = torch.bincount(guess * n_classes + labels, minlength=n_classes**2).view(n_classes, n_classes).to(x)
        return cls(pairs.sum(1), torch.zeros_like(pairs).index_add_(0, guess, x), pairs, None)


@dataclass(frozen=True)
class _Parameters:
    """log P(c, x, y) = z' slope_c - (z^2)' curvature_c + offset_c + log T_cy with z = x W, up to a term of x."""

    whitening: Tensor  # W, [d, d]
    slope: Tensor  # [d, C]
    curvature: Tensor  # [d, C]
    offset: Tensor  # [C]
    log_transition: Tensor  # [C, C]


def _maximise(
    sums: _Sums, whitening: Tensor | None, moment: Tensor, largest: Tensor, preference: Tensor, n: int
) -> _Parameters:
    """Return the parameters that the sums imply.

    Args:
        sums: Sums over the examples.
        whitening: The map [d, d] that the sums of squares were whitened with.
        moment: x'x, shape [d, d].
        largest: How large each class may be, in examples, shape [C].
        preference: Factor of the weight of each class, shape [C].
        n: Number of examples.
    """
    sizes = sums.sizes + 1e-6
    means = sums.records / sizes.unsqueeze(1)
    covariance = (moment - (means.T * sizes) @ means) / n
    ridge = RIDGE * covariance.diagonal().mean() + 1e-6
    values, vectors = torch.linalg.eigh((covariance + covariance.T) / 2)
    whiten = vectors @ ((values.clamp(min=0) + ridge).rsqrt().unsqueeze(1) * vectors.T)
    variances = _own_variances(sums, whitening, means, n)
    centres = means @ whiten
    weights = torch.minimum(sizes, largest) * preference
    offset = weights.log() - (centres.square() / variances + variances.log()).sum(1) / 2
    transition = sums.labels + 1 / len(sizes)
    log_transition = (transition / transition.sum(1, keepdim=True)).log()
    return _Parameters(whiten, (centres / variances).T, 0.5 / variances.T, offset, log_transition)


def _own_variances(sums: _Sums, whitening: Tensor | None, means: Tensor, n: int) -> Tensor:
    """Variances [C, d] of each class along the whitened coordinates, drawn towards 1."""
    if sums.squares is None or whitening is None:
        return torch.ones_like(means)
    n_classes, coordinates = means.shape
    shared = max(SHARED_CLASSES, SHARED_PER_COORDINATE * coordinates) * n / n_classes
    sizes = sums.sizes.unsqueeze(1) + 1e-6
    scatter = (sums.squares - sizes * (means @ whitening).square()).clamp(min=0)
    return (scatter + shared) / (sizes + shared)


def _joint(white: Tensor, labels: Tensor, parameters: _Parameters) -> Tensor:
    """J_ic of each whitened record and class, shape [n, C], up to a term of the example."""
    joint = white @ parameters.slope - white.square() @ parameters.curvature + parameters.offset
    return joint + parameters.log_transition.T[labels]


def _own_log_odds(joint: Tensor, labels: Tensor) -> Tensor:
    """Log-odds that the examples are not of the classes `labels`, shape [n]."""
    own = labels.unsqueeze(1)
    return joint.scatter(1, own, -torch.inf).logsumexp(1) - joint.gather(1, own)[:, 0]


def _class_log_odds(joint: Tensor) -> Tensor:
    """Log-odds o_ik that the examples are not of each class, shape [n, C].

    For the most probable class log(1 - p) would lose its digits, so that one is summed without it.
    """
    log_p = joint.log_softmax(1)
    first = log_p.argmax(1, keepdim=True)
    odds = torch.log1p(-log_p.exp().clamp(max=0.75)) - log_p  # of classes but the first, p is at most 1/2
    return odds.scatter(1, first, _own_log_odds(joint, first[:, 0]).unsqueeze(1))


def _expect(x: Tensor, labels: Tensor, parameters: _Parameters) -> _Sums:
    """Return the sums under the classes' probabilities."""
    n_classes, dimension = len(parameters.offset), x.shape[1]
    sizes, by_label = x.new_zeros(n_classes), x.new_zeros(n_classes, n_classes)
    records, squares = x.new_zeros(n_classes, dimension), x.new_zeros(n_classes, dimension)
    for part, part_labels in zip(torch.split(x, CHUNK_ROWS), torch.split(labels, CHUNK_ROWS), strict=True):
        white = part @ parameters.whitening
        member = _joint(white, part_labels, parameters).softmax(1)
        sizes += member.sum(0)
        records += member.T @ part
        squares += member.T @ white.square()
        by_label.index_add_(0, part_labels, member)
    return _Sums(sizes, records, by_label.T, squares)
