"""What heads that have not seen an example say about its label, for all examples of a set of features.

It takes the place of what the trained head itself has said, which has learnt a part of the wrong labels by heart: the
log-odds, and with them the probabilities, the number of wrong labels and the ranking. Heads and noise matrix are fitted
to a random part of a large set (`MAX_FITTED`), and then asked about every example.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from sgoif.backend.linalg import margins_of
from sgoif.label_noise.class_mixture import noise_entropy
from sgoif.label_noise.copies import copy_groups
from sgoif.label_noise.held_out_classes import draw_folds, fit_held_out_classes, log_odds_of
from sgoif.label_noise.projection import MAX_DIRECTIONS, Projection, fit_projection

MAX_FITTED = 20_000  # examples that heads and noise matrix are fitted to
MAX_LOGITS = MAX_FITTED * 100 * MAX_DIRECTIONS  # examples times classes times features; a larger fit is too slow
MIN_FITTED_A_CLASS = 20  # examples; if so many are too slow, there is no fit
BLOCK_ROWS = 16_384  # rows that are asked about at a time


class ProjectedFeatures(Protocol):
    """Features of N examples, as they are and projected."""

    def blocks(self) -> Iterator[tuple[int, Tensor]]:
        """Yield the first position and the features [b, d] of every block, in order, on the host."""

    def project_rows(self, rows: np.ndarray) -> Tensor:
        """Return those of some examples, by their positions [n], shape [n, k], on the device."""

    def project_blocks(self) -> Iterator[tuple[int, Tensor]]:
        """Yield the first position and the projected features [b, k] of every block, in order, on the device."""


@dataclass(frozen=True)
class HeldOutEvidence:
    """What held-out heads say about the labels, on the host.

    Attributes:
        log_odds: Log-odds that the labels are wrong, shape [n].
        margin: Largest other logit minus the label's, shape [n].
        transition: Estimated noise matrix, shape [C, C].
        noise_entropy: How far the wrong labels of a class are spread over many labels.
    """

    log_odds: Tensor
    margin: Tensor
    transition: Tensor
    noise_entropy: float


class FeatureMatrix:
    """Features [n, d] in memory, projected when they are asked for."""

    def __init__(self, features: Tensor) -> None:
        """Fit the projection.

        Args:
            features: Shape [n, d], finite.

        Raises:
            InfluenceError: If all examples are alike, or there are too many features.
        """
        self._features = features
        self._projection: Projection = fit_projection(self).to(features.device)
        for note in self._projection.notes():
            warnings.warn(note, stacklevel=2)

    def __len__(self) -> int:
        return len(self._features)

    @property
    def dim(self) -> int:
        """Number of features d."""
        return self._features.shape[1]

    def blocks(self) -> Iterator[tuple[int, Tensor]]:
        """Yield the first position and the rows [b, d] of every block, in order, on the host."""
        for first in range(0, len(self), BLOCK_ROWS):
            yield first, self._features[first : first + BLOCK_ROWS].float().cpu()

    def project_rows(self, rows: np.ndarray) -> Tensor:
        """Return projected features by their positions [n], shape [n, k], on the device."""
        projected: Tensor = self._projection(self._features[torch.from_numpy(rows).to(self._features.device)])
        return projected

    def project_blocks(self) -> Iterator[tuple[int, Tensor]]:
        """Yield the first position and the projected features [b, k] of every block, in order, on the device."""
        for first in range(0, len(self), BLOCK_ROWS):
            yield first, self._projection(self._features[first : first + BLOCK_ROWS])


def fitted_examples(n: int, width: int, n_classes: int) -> int:
    """Return how many examples the heads are fitted to; 0 if there are too many classes.

    Args:
        n: Number of examples.
        width: Number of features; of more than `MAX_DIRECTIONS` so many directions count.
        n_classes: Number of classes C.
    """
    most = min(n, MAX_FITTED, MAX_LOGITS // (n_classes * min(width, MAX_DIRECTIONS)))
    return most if most == n or most >= MIN_FITTED_A_CLASS * n_classes else 0


@torch.no_grad()
def read_held_out_heads(features: ProjectedFeatures, labels: Tensor, n_classes: int, seed: int) -> HeldOutEvidence:
    """Fit heads that each leave out a fold of the examples, and ask them about it.

    Copies are in one fold: a head that has learnt the label of one knows the others'.

    Args:
        features: Features of the n examples.
        labels: Labels, on the host, shape [n].
        n_classes: Number of classes C, not too many (`fitted_examples`).
        seed: Seed of the folds.

    Returns:
        What they say about every label.
    """
    fold = torch.from_numpy(draw_folds(labels.numpy(), seed, copy_groups(features.blocks(), labels.numpy())))
    rows = np.arange(len(labels))
    width = features.project_rows(rows[:1]).shape[1]
    most = fitted_examples(len(rows), width, n_classes)
    if len(rows) > most:
        rows = np.sort(np.random.default_rng((seed, 1)).permutation(len(rows))[:most])
    fitted, part = features.project_rows(rows), torch.from_numpy(rows)
    device = fitted.device
    classes = fit_held_out_classes(fitted, labels[part].to(device), fold[part].to(device), n_classes)
    log_odds, margin = torch.zeros(len(labels)), torch.zeros(len(labels))
    sizes = torch.zeros(n_classes, dtype=torch.float64)
    for first, block in features.project_blocks():
        place = slice(first, first + len(block))
        own = labels[place].to(device)
        logits = classes.logits(block, fold[place].to(device))
        posterior = classes.posterior(logits, own)
        log_odds[place] = log_odds_of(posterior, own).float().cpu()
        margin[place] = margins_of(logits, own).float().cpu()
        sizes += posterior.sum(0).cpu()
    transition = classes.transition.cpu()
    return HeldOutEvidence(log_odds, margin, transition.float(), noise_entropy(transition, sizes))
