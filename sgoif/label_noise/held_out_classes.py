"""True classes and the noise matrix from features, by heads that have not seen the example.

The class c of an example with features x has the probabilities of a linear head, and its label y is drawn from row c of
the noise matrix T:

    P(y | x) = sum_c softmax(x W + b)_c T_cy.

`FOLDS` heads are fitted by maximum likelihood, each without one fold of the examples (forward correction: Patrini et
al., CVPR 2017). The logits z_i of example i come from the head that has not seen it. T and a temperature t of these
logits are fitted to them by expectation-maximisation, and the heads anew with this T, in turns. The penalty on W is the
one of `PENALTIES` under which the labels are most likely. If that is the smallest, smaller ones are tried
(`SMALLER_PENALTIES`), until one is worse: many classes in few features need large weights. The log-odds that label y_i
is wrong follow by Bayes' rule:

    J_ic = log softmax(z_i / t)_c + log T_{c y_i},
    o_i = log sum_{c != y_i} exp J_ic - J_{i y_i}.

A head that had seen the label would have learnt a part of the wrong ones by heart; and without T it would learn where
wrong labels are frequent. What the model cannot tell from a hard example is a wrong label that follows from the
features, as where people take one class for another: such labels are undercounted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sgoif.errors import InfluenceError

FOLDS = 5
PENALTIES = (0.1, 0.03, 0.01)  # times the squared norm of W, beside the mean loss; features have mean square 1
SMALLER_PENALTIES = (0.003, 0.001, 0.0003, 0.0001)  # one after the other, while the smallest so far is the best
TRIAL_ROUNDS = 3  # turns of heads and noise matrix under every penalty
ROUNDS = 8  # the same, under the best penalty
RIGHT_AT_START = 0.8  # diagonal of T before anything is known
FIRST_STEPS = 25  # of L-BFGS, from zero
LATER_STEPS = 12  # of L-BFGS, from the heads of the turn before
MATRIX_STEPS = 30  # of expectation-maximisation in a turn
PSEUDO_LABELS = 0.5  # added to every row of the counts behind T
TEMPERATURE_FACTORS = (0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.25)  # tried at every third step
ONE_THREAD = 2**18  # predictions of all heads; fewer are computed by one thread
MAX_LOG_ODDS = 8.0  # either way, so that a few certain examples do not outweigh the other signals


@dataclass(frozen=True)
class HeldOutClasses:
    """Heads and noise matrix.

    Attributes:
        center: Mean of the features, shape [d].
        scale: Root mean square of the centred features.
        weight: Weights of the heads, shape [d, FOLDS * C].
        bias: Their biases, shape [FOLDS * C].
        transition: Noise matrix T, shape [C, C]; row c says how often class c has each label.
        temperature: Temperature t of the logits.
        penalty: Penalty that was chosen.
        log_likelihood: Mean log-likelihood of the labels by heads that have not seen them.
    """

    center: Tensor
    scale: float
    weight: Tensor
    bias: Tensor
    transition: Tensor
    temperature: float
    penalty: float
    log_likelihood: float

    def logits(self, features: Tensor, fold: Tensor) -> Tensor:
        """Return the logits of the heads that have not seen the examples.

        Args:
            features: Shape [n, d].
            fold: Folds of the examples, shape [n]; the head of a fold has not seen it.

        Returns:
            Logits, shape [n, C].
        """
        return _held_out_logits((features - self.center) / self.scale, self.weight, self.bias, fold)

    def posterior(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the probabilities of the true classes, given features and label.

        Args:
            logits: What `logits` returned, shape [n, C].
            labels: Labels, shape [n].

        Returns:
            Probabilities in double precision, shape [n, C].
        """
        return _joint(logits, labels, self.transition, self.temperature).softmax(1)

    def log_likelihoods(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the log-likelihood of each label, given the features, in double precision, shape [n].

        Args:
            logits: What `logits` returned, shape [n, C].
            labels: Labels, shape [n].
        """
        return _joint(logits, labels, self.transition, self.temperature).logsumexp(1)


def draw_folds(labels: np.ndarray, seed: int, group: np.ndarray | None = None) -> np.ndarray:
    """Draw folds at random, all labels spread evenly over them.

    Args:
        labels: Shape [n].
        seed: Seed of the draw.
        group: Number of the group of every example, counted in the order in which they first occur, shape [n]. A group
            is in one fold and counts as one example, of the first one's label. None: each is a group of its own.

    Returns:
        A fold in 0 ... FOLDS - 1 for every example, shape [n].
    """
    if group is not None:
        _, first = np.unique(group, return_index=True)
        shared: np.ndarray = draw_folds(labels[first], seed)[group]
        return shared
    order = np.lexsort((np.random.default_rng(seed).random(len(labels)), labels))
    fold = np.empty(len(labels), dtype=np.int64)
    fold[order] = np.arange(len(labels)) % FOLDS
    return fold


def log_odds_of(posterior: Tensor, labels: Tensor) -> Tensor:
    """Return the log-odds that labels are wrong, at most `MAX_LOG_ODDS` either way, shape [n].

    Args:
        posterior: Probabilities of the true classes, shape [n, C].
        labels: Labels, shape [n].
    """
    own = posterior.gather(1, labels.unsqueeze(1))[:, 0]
    others = posterior.scatter(1, labels.unsqueeze(1), 0).sum(1)
    return (others.clamp(min=1e-30).log() - own.clamp(min=1e-30).log()).clamp(-MAX_LOG_ODDS, MAX_LOG_ODDS)


def fit_held_out_classes(
    features: Tensor, labels: Tensor, fold: Tensor, n_classes: int, rounds: int = ROUNDS
) -> HeldOutClasses:
    """Fit heads and noise matrix.

    Args:
        features: Shape [n, d].
        labels: Labels, shape [n].
        fold: Folds of the examples, shape [n].
        n_classes: Number of classes C.
        rounds: Turns of heads and noise matrix under the best penalty, at least `TRIAL_ROUNDS`.

    Returns:
        The model under the best penalty.

    Raises:
        InfluenceError: If shapes do not match, or a fold holds every example.
    """
    n = len(features)
    if features.dim() != 2 or labels.shape != (n,) or fold.shape != (n,) or n == 0:
        raise InfluenceError(
            f"held-out classes: features {tuple(features.shape)}, labels {tuple(labels.shape)}, "
            f"folds {tuple(fold.shape)}; expected [n, d], [n], [n]"
        )
    if int(torch.bincount(fold, minlength=FOLDS).max()) == n:
        raise InfluenceError("held-out classes: all examples are in one fold")
    with _few_threads(n * FOLDS * n_classes):
        return _fit_best(features, labels, fold, n_classes, rounds)


@contextmanager
def _few_threads(numbers: int) -> Iterator[None]:
    """Lets one thread compute a small fit: several wait for each other at every step, for long if a core is busy."""
    threads = torch.get_num_threads()
    if numbers >= ONE_THREAD or threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _fit_best(features: Tensor, labels: Tensor, fold: Tensor, n_classes: int, rounds: int) -> HeldOutClasses:
    center = features.mean(0)
    scale = float((features - center).square().mean().sqrt().clamp(min=1e-12))
    x = (features - center) / scale

    def trial(penalty: float) -> _Fit:
        fit = _Fit.start(x, labels, fold, n_classes, penalty)
        fit.turns(TRIAL_ROUNDS)
        return fit

    trials = [trial(penalty) for penalty in PENALTIES]
    best = max(trials, key=lambda fit: fit.log_likelihood)
    for penalty in SMALLER_PENALTIES:
        if best is not trials[-1]:
            break
        trials.append(trial(penalty))
        best = max(trials, key=lambda fit: fit.log_likelihood)
    best.turns(rounds - TRIAL_ROUNDS)
    return HeldOutClasses(
        center, scale, *best.heads(), best.transition, best.temperature, best.penalty, best.log_likelihood
    )


@dataclass
class _Fit:
    """A fit under one penalty, on its way. Classes come first, so that sums over them run along whole rows."""

    x: Tensor  # [n, d]
    labels: Tensor  # [n]
    fold: Tensor  # [n]
    penalty: float
    weight: Tensor  # [C * FOLDS, d]
    bias: Tensor  # [C * FOLDS]
    transition: Tensor  # [C, C]
    temperature: float = 1.0
    log_likelihood: float = -np.inf
    started: bool = False

    @classmethod
    def start(cls, x: Tensor, labels: Tensor, fold: Tensor, n_classes: int, penalty: float) -> _Fit:
        """All heads at zero, every label right with probability `RIGHT_AT_START`."""
        width = FOLDS * n_classes
        other = (1 - RIGHT_AT_START) / max(n_classes - 1, 1)
        transition = x.new_full((n_classes, n_classes), other, dtype=torch.float64).fill_diagonal_(RIGHT_AT_START)
        return cls(x, labels, fold, penalty, x.new_zeros(width, x.shape[1]), x.new_zeros(width), transition)

    def turns(self, count: int) -> None:
        """Fit heads, then noise matrix and temperature, `count` times."""
        for _ in range(count):
            self._fit_heads(LATER_STEPS if self.started else FIRST_STEPS)
            self.started = True
            logits = self._logits(self.weight, self.bias)[:, self.fold, torch.arange(len(self.x)).to(self.fold)]
            scaled = _ScaledLogits(logits)
            for step in range(MATRIX_STEPS):
                self._fit_matrix(scaled)
                if step % 3 == 2:
                    self._fit_temperature(scaled)
            self.log_likelihood = self._likelihoods(scaled, [self.temperature])[0]

    def heads(self) -> tuple[Tensor, Tensor]:
        """Weights [d, FOLDS * C] and biases [FOLDS * C] of the heads."""
        n_classes = len(self.transition)
        weight = self.weight.view(n_classes, FOLDS, -1).permute(2, 1, 0).flatten(1)
        return weight, self.bias.view(n_classes, FOLDS).T.flatten()

    def _logits(self, weight: Tensor, bias: Tensor) -> Tensor:
        """Logits of every head, shape [C, FOLDS, n]."""
        return torch.addmm(bias.unsqueeze(1), weight, self.x.T).view(len(self.transition), FOLDS, -1)

    def _fit_heads(self, steps: int) -> None:
        """Maximise the likelihood of the labels that a head sees, given the noise matrix."""
        folds = torch.arange(FOLDS, device=self.fold.device)
        seen = (self.fold != folds.unsqueeze(1)).to(self.x)
        seen = seen / seen.sum(1, keepdim=True)
        of_label = self._of_labels().to(self.x).unsqueeze(1)  # [C, 1, n]
        weight, bias = self.weight.clone(), self.bias.clone()
        optimizer = torch.optim.LBFGS(
            [weight, bias], max_iter=steps, history_size=10, line_search_fn="strong_wolfe", tolerance_grad=1e-6
        )

        def closure() -> Tensor:
            predicted = self._logits(weight, bias).softmax(0)
            joint = predicted * of_label
            likelihood = joint.sum(0).clamp_(min=1e-12)
            loss = self.penalty * weight.square().sum() - (likelihood.log() * seen).sum()
            slope = predicted.sub_(joint.div_(likelihood)).mul_(seen).flatten(0, 1)  # of the loss, by the logits
            weight.grad, bias.grad = torch.addmm(2 * self.penalty * weight, slope, self.x), slope.sum(1)
            return loss

        optimizer.step(closure)
        self.weight, self.bias = weight, bias

    def _fit_matrix(self, scaled: _ScaledLogits) -> None:
        joint = scaled.at([self.temperature])[0] * self._of_labels()
        member, n_classes = joint.div_(joint.sum(0)), len(self.transition)
        counts = torch.zeros_like(self.transition).index_add_(0, self.labels, member.T).T + PSEUDO_LABELS / n_classes
        self.transition = counts / counts.sum(1, keepdim=True)

    def _fit_temperature(self, scaled: _ScaledLogits) -> None:
        tried = [self.temperature * factor for factor in TEMPERATURE_FACTORS]
        likelihoods = self._likelihoods(scaled, tried)
        self.temperature = tried[likelihoods.index(max(likelihoods))]

    def _likelihoods(self, scaled: _ScaledLogits, temperatures: list[float]) -> list[float]:
        """Mean log-likelihood of the labels under each temperature."""
        of_labels = self._of_labels()
        found = [(of_class * of_labels).sum(0).log().mean() for of_class in scaled.at(temperatures)]
        return [float(value) for value in found]

    def _of_labels(self) -> Tensor:
        """T_cy of every class and the example's label, shape [C, n]; all are above 0."""
        return self.transition.index_select(1, self.labels)


class _ScaledLogits:
    """softmax(z / t) of logits z [C, n], kept for the temperatures that were asked for last."""

    def __init__(self, logits: Tensor) -> None:
        self._logits = logits.double()
        self._kept: dict[float, Tensor] = {}

    def at(self, temperatures: list[float]) -> list[Tensor]:
        """Return softmax(z / t) for every temperature, each of shape [C, n]."""
        missing = [t for t in temperatures if t not in self._kept]
        if missing:
            kept = {t: self._kept[t] for t in temperatures if t in self._kept}
            self._kept = kept | {t: (self._logits / t).softmax(0) for t in missing}
        return [self._kept[t] for t in temperatures]


def _held_out_logits(x: Tensor, weight: Tensor, bias: Tensor, fold: Tensor) -> Tensor:
    """Return the logits [n, C] of the head that has not seen the example's fold."""
    logits = torch.addmm(bias, x, weight).view(len(x), FOLDS, -1)
    return logits[torch.arange(len(x), device=x.device), fold]


def _joint(logits: Tensor, labels: Tensor, transition: Tensor, temperature: float) -> Tensor:
    """Return log P(c, y_i | x_i) of every class, shape [n, C]."""
    return (logits.double() / temperature).log_softmax(1) + transition.log().T[labels]
