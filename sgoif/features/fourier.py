"""Random Fourier features, where a linear head cannot separate the classes.

A class of a table often lies in several clusters, or around another class. A linear head cannot draw such boundaries,
and takes what it cannot separate for wrong labels. With random Fourier features (Rahimi & Recht, NeurIPS 2007) beside
the projected features p it can:

    [p, s sqrt(2) cos(p W / (r m) + b)],

W normal, b uniform in [0, 2 pi], m the median distance between two examples, s the root mean square of the entries of
p. The labels say whether they are of use, and with which width r of `WIDTHS`. Heads and noise matrix are fitted to a
sample (`label_noise.held_out_classes`). Fourier features are taken if they make the labels that a head has not seen
more likely: if the mean difference is more than `SURE` standard errors above 0. Where there are `MAX_DIRECTIONS`
features or more, as in most embeddings, a linear head separates the classes as well, and they are not asked.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from sgoif.features.arrays import FeatureArray
from sgoif.label_noise.copies import copy_groups
from sgoif.label_noise.held_out_classes import draw_folds, fit_held_out_classes
from sgoif.label_noise.projection import MAX_DIRECTIONS, Projection

FOURIER_FEATURES = 256
WIDTHS = (1.0, 0.5)  # of the kernel, over the median distance between two examples; tried while they are of use
MAX_CLASSES = 100  # with more of them a sample has too few of each
SAMPLE = 2_000  # examples that say whether Fourier features are of use
DISTANCE_SAMPLE = 1_000  # examples whose distances are measured
TRIAL_ROUNDS = 3  # turns of heads and noise matrix
SURE = 2.0  # standard errors of the mean gain of log-likelihood, above which it counts


class FourierProjection(Projection):
    """Maps features [n, d] to their projection and `FOURIER_FEATURES` random Fourier features of it, [n, k + F].

    Attributes:
        frequencies: Frequencies W / (r m), shape [k, F].
        phases: Phases b, shape [F].
        amplitude: Amplitude s sqrt(2).
    """

    frequencies: Tensor
    phases: Tensor

    def __init__(self, linear: Projection, frequencies: Tensor, phases: Tensor, amplitude: float) -> None:
        mean_square = linear.mean_square + amplitude**2 / 2 * len(phases)
        super().__init__(linear.mean, linear.basis, mean_square)
        self.far, self.limit, self.amplitude = linear.far, linear.limit, amplitude
        self.register_buffer("frequencies", frequencies)
        self.register_buffer("phases", phases)

    @property
    def width(self) -> int:
        return super().width + len(self.phases)

    def forward(self, x: Tensor) -> Tensor:
        """Return the projected features and their Fourier features, shape [n, k + F]."""
        projected = super().forward(x)
        waves = torch.addmm(self.phases, projected, self.frequencies).cos_()
        return torch.cat([projected, self.amplitude * waves], 1)


def choose_projection(
    features: FeatureArray, labels: np.ndarray, n_classes: int, linear: Projection, seed: int
) -> Projection:
    """Return a projection with Fourier features if the labels become more likely by them, else the linear one.

    It stays linear with more than `MAX_CLASSES` classes, or `MAX_DIRECTIONS` features or more.

    Args:
        features: Features of the N examples.
        labels: Their classes, shape [N].
        n_classes: Number of classes C.
        linear: The projection without Fourier features.
        seed: Seed of sample, frequencies and folds.
    """
    if n_classes > MAX_CLASSES or linear.width >= MAX_DIRECTIONS:
        return linear
    rng = np.random.default_rng((seed, 2))
    rows = np.sort(rng.permutation(len(labels))[:SAMPLE])
    sample, own = features.rows(rows), labels[rows]
    known = torch.from_numpy(own)
    fold = torch.from_numpy(draw_folds(own, seed, copy_groups([(0, sample)], own)))
    best, before = linear, _likelihoods(linear, sample, known, fold, n_classes)
    kept = before
    for width in WIDTHS:
        tried = fourier_projection(linear, sample, width, seed)
        likelihoods = _likelihoods(tried, sample, known, fold, n_classes)
        gain = likelihoods - before
        if gain.mean() <= SURE * gain.std() / math.sqrt(len(gain)):
            break
        if likelihoods.mean() > kept.mean():
            best, kept = tried, likelihoods
    return best


def fourier_projection(linear: Projection, sample: Tensor, width: float, seed: int) -> FourierProjection:
    """Draw Fourier features.

    Args:
        linear: The projection whose output they are of.
        sample: Features of some examples, shape [n, d].
        width: Width r of the kernel.
        seed: Seed of frequencies and phases.
    """
    projected = linear(sample)
    generator = torch.Generator().manual_seed(seed)
    part = projected[torch.randperm(len(projected), generator=generator)[:DISTANCE_SAMPLE]]
    distance = float(torch.pdist(part).median()) if len(part) > 1 else 1.0
    kind = projected.dtype
    frequencies = torch.randn(projected.shape[1], FOURIER_FEATURES, generator=generator, dtype=kind)
    phases = 2 * math.pi * torch.rand(FOURIER_FEATURES, generator=generator, dtype=kind)
    amplitude = math.sqrt(2) * float(projected.square().mean().sqrt())
    return FourierProjection(linear, frequencies / (width * max(distance, 1e-12)), phases, amplitude)


@torch.no_grad()
def _likelihoods(projection: Projection, sample: Tensor, labels: Tensor, fold: Tensor, n_classes: int) -> Tensor:
    """Return the log-likelihood of every label by a head that has not seen it, shape [n]."""
    projected = projection(sample)
    classes = fit_held_out_classes(projected, labels, fold, n_classes, TRIAL_ROUNDS)
    return classes.log_likelihoods(classes.logits(projected, fold), labels)
