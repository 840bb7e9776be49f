"""Latent classes: what the network's predictions say about a label without taking the labels' word for it.

A network that is trained on noisy labels predicts, for an image of class c, row c of the noise matrix: how often that
class is given each label. So the square roots u_i of its mean predictions, which lie on the unit sphere (the chord
between two is their Hellinger distance), gather around one direction per class, whether or not the commonest label
there is the right one. These directions are found by expectation-maximisation of a mixture of von Mises-Fisher
distributions with one concentration kappa,

    P(c | x_i) ~ pi_c exp(kappa <mu_c, u_i>),      mu_c started at the mean of u over the examples given label c,

and each label y is matched to a class c(y): one to one, so that the most examples agree. A class that is given its
label less often than the average example is cannot be it; such a label goes to the class of most of its examples
instead. With T_cy = P(given y | class c), the log-odds that the given label is wrong are

    o_i = log sum_{c != c(y_i)} P(c | x_i) T_{c y_i} - log P(c(y_i) | x_i) T_{c(y_i) y_i}.

Where the labels of a class are mostly wrong in one and the same way, no method that sees the labels alone can tell, and
this one is wrong with them. A few examples whose labels are known to be right can: mu_c then starts at the mean of u
over those of class c, and a label goes to the class that most of its own fall in, if these are more than the ones in
its matched class by a standard deviation of their difference, the square root of both counts together.

Where the network has hardly learnt, its predictions do not gather anywhere, and the classes are not trusted. With few
labels that shows as doubt, the mean entropy of P(c | x_i) over log C; with many labels any cloud of points falls apart
into clear-cut classes, but into others when it is drawn again: two mixtures, each of one half of the examples, put an
example into the same class with the mean probability s. The trust is

    t = min(1, 2 (1 - doubt / 0.06)) min(1, (s - 0.3) / 0.2),  each factor at least 0.

Of noise that gives every class its own few wrong labels the network learns these. Where the wrong labels of a class are
scattered over many there is little to learn, and how long the network resisted a label tells more than any class. With
w_c the share of wrong labels in row c of T and H_c their entropy, they are scattered over r labels, by

    r = sum_c w_c exp(H_c) / sum_c w_c,        e = (r - 10) / 20 within [0, 1].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sgoif.backend.cuda import Replayed
from sgoif.backend.linalg import down
from sgoif.errors import InfluenceError

ITERATIONS = 60
SETTLED = 1e-5  # relative change of kappa at which EM ends
ASK = 4  # iterations between two questions whether it has, each of which waits for the device
ROWS = 65_536  # examples in memory at once, times the number of classes
SMOOTHING = 1.0  # examples added to every class, spread over its labels
STARTS = (0.5, 0.8, 0.9, 0.95)  # mean lengths whose concentrations EM starts from
DOUBT = 0.06  # where trust ends; it is full up to half of that
STABLE = (0.3, 0.5)  # between these trust grows from none to full
MANY = (10, 30)  # between so many labels noise is taken to become scattered
SOME = 10_000  # examples, or a hundred a class, that choose among the starts

Known = tuple[Tensor, Tensor]  # predictions [m, C] and right labels [m] of examples outside the training set


@dataclass(frozen=True)
class LatentClasses:
    """All tensors on the device of the predictions they came from; `given`: row c = how often class c is given each
    label."""

    centres: Tensor  # [C, C] mu_c
    concentration: float  # kappa
    share: Tensor  # [C] pi_c
    given: Tensor  # [C, C] T
    named: Tensor  # [C] c(y): the class of each label
    doubt: float  # mean entropy of P(c | x_i) over log C
    stability: float  # s: mean probability of the same class by either half of the examples

    @property
    def trust(self) -> float:
        """How far the classes are to be believed, in [0, 1]."""
        least, full = STABLE
        sure, stable = 2 * (1 - self.doubt / DOUBT), (self.stability - least) / (full - least)
        return min(1.0, max(0.0, sure)) * min(1.0, max(0.0, stable))

    @property
    def spread(self) -> float:
        """r: over how many labels the wrong ones of a class are scattered."""
        wrong = self.transition.double().fill_diagonal_(0)
        mass = wrong.sum(1, keepdim=True)
        share = wrong / mass.clamp(min=1e-12)
        labels = (-torch.xlogy(share, share).sum(1, keepdim=True)).exp()
        return float((mass * labels).sum() / mass.sum().clamp(min=1e-12))

    @property
    def scatter(self) -> float:
        """e: how far the wrong labels are scattered, in [0, 1]."""
        few, many = MANY
        return min(1.0, max(0.0, (self.spread - few) / (many - few)))

    def posterior(self, beliefs: Tensor, given: Tensor | None = None) -> Tensor:
        """P(c | x_i), or P(c | x_i, y_i) with the given labels `[n]`; beliefs `[n, C]` -> `[n, C]`."""
        return self._log_joint(beliefs, given).softmax(1)

    @property
    def transition(self) -> Tensor:
        """`[C, C]`, an estimate of the noise matrix: row y = how often the class of label y is given each label."""
        return self.given[self.named]

    def log_odds(self, beliefs: Tensor, given: Tensor) -> Tensor:
        """o_i `[n]`: above zero where the label is more likely wrong than right."""
        found = []
        for part, labels in zip(beliefs.split(ROWS), given.split(ROWS), strict=True):
            joint, own = self._log_joint(part, labels), self.named[labels].unsqueeze(1)
            others = joint.scatter(1, own, -torch.inf).logsumexp(1)
            found.append(others - joint.gather(1, own)[:, 0])
        return torch.cat(found)

    def _log_joint(self, beliefs: Tensor, given: Tensor | None) -> Tensor:
        joint = self.concentration * on_sphere(beliefs) @ self.centres.T + self.share.log()
        return joint if given is None else joint + self.given.log().T[given]


def on_sphere(beliefs: Tensor) -> Tensor:
    """Square roots of probabilities `[n, C]`, of unit length."""
    return torch.nn.functional.normalize(beliefs.clamp(min=0).sqrt(), dim=1)


def concentration(length: Tensor, dimension: int) -> Tensor:
    """kappa of von Mises-Fisher distributions whose mean vectors have these lengths (Banerjee et al., JMLR 2005)."""
    length = length.clamp(1e-6, 1 - 1e-6)
    return length * (dimension - length**2) / (1 - length**2)


class _Mixtures:
    """Expectation-maximisation of several mixtures on the same points u `[n, C]`, a part of the rows at a time. `share`
    need not add up to one."""

    def __init__(self, centres: Tensor, kappa: Tensor, share: Tensor) -> None:
        self.centres, self.kappa, self.share = centres, kappa, share  # [S, C, C], [S] in double precision, [S, C]

    @classmethod
    def started(cls, centres: Tensor, lengths: Sequence[float]) -> _Mixtures:
        """All at the centres `[C, C]`, each with the concentration of one mean length."""
        starts, classes = len(lengths), len(centres)
        kappa = concentration(torch.tensor(lengths, dtype=torch.float64, device=centres.device), classes)
        return cls(centres.repeat(starts, 1, 1), kappa, centres.new_full((starts, classes), 1 / classes))

    def member(self, u: Tensor) -> Tensor:
        """P(c | x_i) by each mixture, `[n, S, C]`."""
        towards = self.kappa.to(u.dtype)[:, None, None] * self.centres
        joint = torch.addmm(self.share.log().flatten(), u, towards.flatten(0, 1).T)
        return joint.unflatten(1, self.share.shape).softmax(2)

    def fit(self, u: Tensor) -> _Mixtures:
        """Each until its concentration settles."""
        moving = torch.ones_like(self.kappa, dtype=torch.bool)
        iterate = Replayed(lambda: self._iterate(u, moving), u.device)
        for number in range(ITERATIONS):
            iterate()
            if number % ASK == 0 and not moving.any():
                break
        return self

    def _iterate(self, u: Tensor, moving: Tensor) -> None:
        """Once, in place, for those that are still moving `[S]`."""
        sums, mass = torch.zeros_like(self.centres), torch.zeros_like(self.share)
        for part in u.split(max(1, ROWS // len(self.kappa))):
            member = self.member(part)
            sums += down(member.flatten(1), part).view_as(sums)
            mass += member.sum(0)
        lengths = sums.norm(dim=2, keepdim=True)
        centres = torch.where(lengths > 0, sums / lengths.clamp(min=1e-12), self.centres)
        kappa = concentration(lengths.double().sum((1, 2)) / len(u), u.shape[1])
        settled = (kappa - self.kappa).abs() <= SETTLED * torch.maximum(kappa, self.kappa)
        self.centres.copy_(torch.where(moving[:, None, None], centres, self.centres))
        self.share.copy_(torch.where(moving[:, None], mass + SMOOTHING, self.share))
        self.kappa.copy_(torch.where(moving, kappa, self.kappa))
        moving &= ~settled

    @property
    def tightest(self) -> _Mixtures:
        best = self.kappa.argmax().unsqueeze(0)
        return _Mixtures(self.centres[best], self.kappa[best], self.share[best])


def find(beliefs: Tensor, given: Tensor, known: Known | None = None) -> LatentClasses:
    """The latent classes of mean predictions `[n, C]` and their given labels `[n]`."""
    n, classes = beliefs.shape
    if given.shape != (n,) or n == 0:
        raise InfluenceError(f"latent classes: beliefs {tuple(beliefs.shape)} and labels {tuple(given.shape)}")
    u = on_sphere(beliefs)
    if known is not None:
        known = on_sphere(known[0]).to(u), known[1].to(given)
    mixture = _fitted(u, given, known)
    halves = [mixture, mixture]
    if n > 1:
        halves = [_fitted(u[k::2], given[k::2], known and (known[0][k::2], known[1][k::2])) for k in (0, 1)]
    joint, entropy, same = u.new_zeros(classes, classes), u.new_zeros(()), u.new_zeros(())  # joint: [given, class]
    for part, labels in zip(u.split(ROWS), given.split(ROWS), strict=True):
        member = mixture.member(part)[:, 0]
        joint.index_add_(0, labels, member)
        entropy -= torch.xlogy(member, member).sum()  # torch.special.entr would be compiled at its first use on a GPU
        same += (halves[0].member(part) * halves[1].member(part)).sum()
    doubt = float(entropy) / n / math.log(max(classes, 2))
    named = match(joint)
    lift = joint.gather(1, named.unsqueeze(1))[:, 0] * n / (joint.sum(1) * joint.sum(0)[named])
    named = torch.where(lift < 1, joint.argmax(1), named)
    if known is not None:
        votes = torch.zeros_like(joint).index_add_(0, known[1], mixture.member(known[0])[:, 0])
        here, most = votes.gather(1, named.unsqueeze(1))[:, 0], votes.amax(1)
        named = torch.where(most - here > (most + here).sqrt(), votes.argmax(1), named)
    counts = joint.T + SMOOTHING / classes
    given_label = counts / counts.sum(1, keepdim=True)
    kappa, stability = float(mixture.kappa[0]), float(same) / n
    share = mixture.share[0] / mixture.share[0].sum()
    return LatentClasses(mixture.centres[0], kappa, share, given_label, named, doubt, stability)


def _fitted(u: Tensor, given: Tensor, known: Known | None) -> _Mixtures:
    """The mixture of points `[n, C]`, started at several concentrations on some of them; the tightest goes on with all.

    The class of each label starts at the mean of its known points, else of its given ones, else in its corner."""
    n, classes = u.shape
    centres = torch.eye(classes, device=u.device, dtype=u.dtype)
    for points, labels in ((u, given), known or (u[:0], given[:0])):
        sums = torch.zeros_like(centres).index_add_(0, labels, points)
        centres = torch.where(sums.norm(dim=1, keepdim=True) > 0, torch.nn.functional.normalize(sums, dim=1), centres)
    some = u[:: max(1, n // max(SOME, 100 * classes))]
    return _Mixtures.started(centres, STARTS).fit(some).tightest.fit(u)


def match(joint: Tensor) -> Tensor:
    """The class of each label `[C]` in the one-to-one matching of labels (rows) to classes (columns) of largest sum.

    Shortest augmenting paths with potentials (Jonker & Volgenant, Computing 1987), one vector operation per edge of a
    path.
    """
    cost = (joint.max() - joint).double().cpu().numpy()
    n = len(cost)
    row_potential, potential = np.zeros(n), np.zeros(n + 1)
    taken = np.full(n + 1, -1)  # row of each column; column n is the start of a path
    for row in range(n):
        taken[n], column = row, n
        least, previous = np.full(n, np.inf), np.full(n, n)
        done = np.zeros(n + 1, dtype=bool)
        while taken[column] != -1:
            done[column] = True
            at = taken[column]
            reduced = cost[at] - row_potential[at] - potential[:n]
            better = ~done[:n] & (reduced < least)
            least[better], previous[better] = reduced[better], column
            column = int(np.where(done[:n], np.inf, least).argmin())
            step = least[column]
            row_potential[taken[done]] += step
            potential[done] -= step
            least[~done[:n]] -= step
        while column != n:
            taken[column], column = taken[previous[column]], int(previous[column])
    found = torch.empty(n, dtype=torch.long)
    found[torch.from_numpy(taken[:n])] = torch.arange(n)
    return found.to(joint.device)
