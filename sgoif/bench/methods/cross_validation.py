"""Computes out-of-fold probabilities: predictions for examples by a network that was not trained on them.

The training set is split into k folds, stratified on the noisy labels (the true ones would be a leak). For each fold
a fresh network is trained for the recipe's epochs on the other k-1 and predicts the fold. These are k trainings on
(k-1)/k of the data: k-1 times the cost of a plain run (3.0 for k = 4). A killed job loses at most one fold.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from sgoif.bench.methods.tasks import NoisyTask
from sgoif.errors import UserError
from sgoif.training.seeds import mix_seed, numpy_generator


def split(labels: np.ndarray, k: int, seed: int) -> np.ndarray:
    """Assign every example to a fold, stratified: sizes of folds, and their counts of each class, differ by at most 1.

    Args:
        labels: Noisy labels, shape [N].
        k: Number of folds.
        seed: Seed of the assignment.

    Returns:
        Fold of each example, shape [N].

    Raises:
        UserError: If there are fewer than 2 folds, or more folds than examples.
    """
    if not 2 <= k <= len(labels):
        raise UserError(f"folds: must be between 2 and the number of examples ({len(labels)}), not {k}")
    order = numpy_generator(seed, "folds").permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]  # class by class, in random order within a class
    fold = np.empty(len(labels), dtype=np.int64)
    fold[order] = np.arange(len(labels)) % k
    return fold


def fold_probabilities(task: NoisyTask, folds: int = 4) -> dict[str, np.ndarray]:
    """Train on all folds but one, for each fold, and predict the one that was left out.

    Args:
        task: Data and recipe.
        folds: Number of folds.

    Returns:
        `probabilities`, shape [N, K]: row i is predicted by the network that was not trained on example i.
    """
    fold = split(task.labels.cpu().numpy(), folds, task.seed)
    probabilities = np.empty((len(fold), task.n_classes), dtype=np.float32)
    for number in range(folds):
        held_out = np.flatnonzero(fold == number)
        rest = np.flatnonzero(fold != number)
        compute = partial(_one_fold, task, number, rest, held_out)
        probabilities[held_out] = task.session.cached(f"fold-{number}", compute)["probabilities"]
    return {"probabilities": probabilities}


def _one_fold(task: NoisyTask, number: int, rest: np.ndarray, held_out: np.ndarray) -> dict[str, np.ndarray]:
    """Train on `rest` and return `probabilities` of `held_out`."""
    seed = mix_seed(task.seed, "fold", number)
    batches = task.batches(rest, seed=seed)
    learner = task.learner(batches, seed=seed)
    step = learner.plain_stepper()
    for epoch in task.session.epochs(task.recipe.epochs, learner, phase=f"fold-{number}"):
        for batch in batches.epoch(epoch):
            step(batch)
    with task.session.timer("train"):
        logits, _ = task.predict(learner.net, indices=held_out)
    return {"probabilities": logits.softmax(1).cpu().numpy()}


def out_of_fold(task: NoisyTask) -> np.ndarray:
    """Return out-of-fold probabilities, float64, shape [N, K], whose rows sum to 1.

    They are those of the shared run (`task.folds`), or are computed here if the task has none.
    """
    probabilities = task.folds if task.folds is not None else fold_probabilities(task)["probabilities"]
    probabilities = np.asarray(probabilities, dtype=np.float64)
    return probabilities / probabilities.sum(axis=1, keepdims=True)
