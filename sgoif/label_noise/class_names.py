"""Which class of a mixture a label names, and which labels are more frequent than their class.

A mixture finds the classes, but only the labels can name them. Where most labels of a class are wrong, several ways to
name the classes fit: the class with 60% of label a and 20% of label b may be a or b, if another class would make a good
a. Two estimates follow from the noise matrix T and the class sizes n_c of the mixture; neither needs clean labels.

**Names.** The probabilities Q_kc that class k is the one that label c names are the cubes of T, with rows and columns
scaled until each sums to 1 (Sinkhorn's iteration): every class has one name, and every name one class.

**Excess.** With m_c the number of labels c, in units of their mean, and n_c in the same units,

    b = sum_c (m_c - 1) (n_c - 1) / sum_c (m_c - 1)^2,     bounded to [0, 1],     a = b^2 / (b^2 + (1 - b)^2)

say how far the sizes of the classes follow the numbers of the labels. In a long tail they do (a = 1). Where classes
are of one size and noise alone makes labels frequent or rare, they do not (a = 0). 1 - b is the distance of the sizes
from the one and b that from the other, and the odds of a are those of the squares: a mixture whose rare classes are
somewhat too large still says that there is a long tail. Of several mixtures b is the geometric mean, so that a tail is
one only if all of them see it. Where there is none, a label that is more frequent than its class is suspicious. Its
excess is

    log(m_c / (1 - a + a m_c)).

Where the sizes follow the labels, every class keeps its own name: the names are a I + (1 - a) Q.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

NAME_POWER = 3
NAME_ROUNDS = 100  # of Sinkhorn's iteration
MIN_NAME_WEIGHT = 1e-12


def name_probabilities(transition: Tensor, agreement: float = 0.0) -> Tensor:
    """Return the probability that class k is the one that label c names, a I + (1 - a) Q, shape [C, C].

    Args:
        transition: Noise matrix, shape [C, C]; row k says how often class k has each label.
        agreement: How far class sizes follow the numbers of labels, a in [0, 1].
    """
    names = transition.clamp(min=MIN_NAME_WEIGHT) ** NAME_POWER
    for _ in range(NAME_ROUNDS):
        names = names / names.sum(0, keepdim=True)
        names = names / names.sum(1, keepdim=True)
    own = torch.eye(len(names), dtype=names.dtype, device=names.device)
    return agreement * own + (1 - agreement) * names


def size_agreement(labelled: Tensor, class_sizes: Sequence[Tensor]) -> float:
    """Return how far class sizes follow the numbers of labels, a in [0, 1]; 1 if all labels are equally frequent.

    Args:
        labelled: Number of each label, shape [C].
        class_sizes: Class sizes of one mixture or of several, each of shape [C].
    """
    spread = labelled / labelled.mean() - 1
    if not spread.any():
        return 1.0
    sizes = torch.stack([found / found.mean() - 1 for found in class_sizes])
    slopes = (sizes @ spread / spread.square().sum()).clamp(0, 1)
    slope: float = float(slopes.prod()) ** (1 / len(slopes))
    return slope**2 / (slope**2 + (1 - slope) ** 2)


def label_excess(labelled: Tensor, agreement: float) -> Tensor:
    """Return how far each label is more frequent than its class, as a logarithm, shape [C]; 0 without any label.

    Args:
        labelled: Number of each label, shape [C].
        agreement: How far class sizes follow the numbers of labels, a in [0, 1].
    """
    share = labelled / labelled.mean()
    excess = share.log() - (1 - agreement + agreement * share).log()
    return torch.where(labelled > 0, excess, 0)
