"""What heads that have not seen an example say about its label, for all examples of a training on features.

`read_held_out` puts it in the place of what the trained head itself has said: the log-odds, and with them the
probabilities, the number of wrong labels and the ranking. Heads and noise matrix are fitted to a random part of a large
set (`MAX_FITTED`), and then asked about every example.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from sgoif.features.head import HeadTraining
from sgoif.label_noise.class_mixture import noise_entropy
from sgoif.label_noise.evidence import SignalWeights
from sgoif.label_noise.held_out_classes import draw_folds, fit_held_out_classes, log_odds_of
from sgoif.result import InfluenceResult

SCATTERED_WEIGHT = 2.0  # of influence and margins at noise entropy 1; the log-odds have weight 1
SCATTERED_POWER = 3
MAX_FITTED = 20_000  # examples that heads and noise matrix are fitted to
MAX_CLASSES = 100  # with more of them the fit is too slow, and the trained head's own log-odds stay


def read_held_out(training: HeadTraining, result: InfluenceResult) -> InfluenceResult:
    """Return a result whose log-odds come from heads that have not seen the example.

    With more than `MAX_CLASSES` classes, or with trusted examples, the result is returned as it is.

    Args:
        training: The training of a head, at its end.
        result: Its scores of the N examples.

    Returns:
        The result with other log-odds, noise matrix, noise entropy and weights of the signals.
    """
    n_classes = training.head.out_features
    if n_classes > MAX_CLASSES or result.config.source == "trusted":
        return result
    labels, seed = training.labels, training.recipe.seed
    fold = torch.from_numpy(draw_folds(labels.numpy(), seed))
    rows = np.arange(len(labels))
    if len(rows) > MAX_FITTED:
        rows = np.sort(np.random.default_rng((seed, 1)).permutation(len(rows))[:MAX_FITTED])
    device, part = training.device, torch.from_numpy(rows)
    classes = fit_held_out_classes(
        training.project_rows(rows), labels[part].to(device), fold[part].to(device), n_classes
    )
    log_odds = torch.zeros(len(labels))
    sizes = torch.zeros(n_classes, dtype=torch.float64)
    for first, block in training.project_blocks():
        place = slice(first, first + len(block))
        own = labels[place].to(device)
        posterior = classes.posterior(block, own, fold[place].to(device))
        log_odds[place] = log_odds_of(posterior, own).float().cpu()
        sizes += posterior.sum(0).cpu()
    transition = classes.transition.cpu()
    entropy = noise_entropy(transition, sizes)
    scattered = SCATTERED_WEIGHT * entropy**SCATTERED_POWER
    return replace(
        result,
        log_odds=log_odds,
        transition=transition.float(),
        noise_entropy=entropy,
        weights=SignalWeights(scattered, 1.0, scattered),
    )
