"""`find_label_issues`: wrong labels in features, in one call.

issues = sgoif.find_label_issues(embeddings, labels)
issues.order[:20]        # positions of the most suspicious labels
issues.rows(20)          # the same as records; pandas.DataFrame(issues.rows(20)) makes a table
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from sgoif.errors import InfluenceError
from sgoif.features.arrays import FeatureArray
from sgoif.features.fourier import choose_projection
from sgoif.features.head import HeadRecipe, HeadTraining
from sgoif.features.held_out import read_held_out
from sgoif.features.labels import ClassLabels, encode_labels, require_judgeable
from sgoif.label_noise.projection import fit_projection
from sgoif.result import InfluenceResult


@dataclass(frozen=True)
class FeatureIssues:
    """Labels of features, ranked. Arrays are in the order of the data, shape [N], except `order`.

    Attributes:
        order: Positions of the examples, most suspicious first, shape [N].
        suspicion: How suspicious each label is; higher = more likely wrong. Only the order means something.
        flagged: Which labels are probably wrong, bool.
        labels: The labels that were given.
        suggested: The most probable other label where `flagged` is set, else the label.
        probability: Probability that the label is wrong, by the class model.
        classes: The distinct labels, shape [C].
        result: Scores and evidence behind the ranking.
    """

    order: np.ndarray
    suspicion: np.ndarray
    flagged: np.ndarray
    labels: np.ndarray
    suggested: np.ndarray
    probability: np.ndarray
    classes: np.ndarray
    result: InfluenceResult

    @property
    def count(self) -> int:
        """Estimated number of wrong labels."""
        return int(self.flagged.sum())

    def rows(self, top: int | None = None) -> list[dict[str, Any]]:
        """Return examples as records, most suspicious first.

        Args:
            top: How many; None for the flagged ones.

        Returns:
            One dictionary for each example: index, suspicion, probability, flagged, label, suggested.
        """
        shown = self.order[: self.count if top is None else top]
        names = ("suspicion", "probability", "flagged", "labels", "suggested")
        columns = [shown.tolist(), *(getattr(self, name)[shown].tolist() for name in names)]
        keys = ("index", "suspicion", "probability", "flagged", "label", "suggested")
        return [dict(zip(keys, values, strict=True)) for values in zip(*columns, strict=True)]


def find_label_issues(
    features: Any,
    labels: Any,
    *,
    checked: tuple[Any, Any] | None = None,
    recipe: HeadRecipe | None = None,
    seed: int = 0,
    device: str = "cpu",
) -> FeatureIssues:
    """Find labels that are probably wrong, by features of any kind: embeddings, measurements, texts as vectors.

    A linear head is trained on the standardised features while `OnlineInfluence` watches. To fewer than 256 features,
    as of a table, random Fourier features are added where held-out labels are then predicted better
    (`sgoif.features.fourier`); with more than 100 classes or with `checked` examples they are not tried. Five more
    heads, each without a fifth of the examples, say how probably each label is wrong
    (`sgoif.label_noise.held_out_classes`); the number of flagged labels is the sum of these probabilities. With
    `checked` examples, or with so many classes that five heads are too slow (it warns), the probabilities come from
    the trained head alone and are less reliable. Features are read in blocks: a file mapped
    with `numpy.load(..., mmap_mode="r")`, or named by its path, is never in memory as a whole.

    Args:
        features: Shape [N, d]: a NumPy array, a torch tensor, a pandas frame of numbers, a sequence of rows, or the
            path of a .npy file.
        labels: One class for each example, shape [N]: whole numbers, texts or truth values. With a pandas frame also
            the name of its label column.
        checked: Features and right labels of further examples that somebody has checked; they name the classes.
        recipe: How the head is trained; None for the recipe that fits the number of examples.
        seed: Seed of the order of training, where `recipe` is None.
        device: "cpu", or "cuda" for a GPU.

    Returns:
        The ranked labels.

    Raises:
        InfluenceError: If features or labels cannot be used; the message says why and what to do.
    """
    where = _device(device)
    if recipe is not None and not isinstance(recipe, HeadRecipe):
        raise InfluenceError(f"recipe must be an sgoif.HeadRecipe, not a {type(recipe).__name__}")
    with (  # features are often computed where gradients are off
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autocast(where.type, enabled=False),
        torch.random.fork_rng(devices=[]),
    ):
        return _find(features, labels, checked, recipe, seed, where)


def _device(device: str | torch.device) -> torch.device:
    try:
        found = torch.device(device)
    except RuntimeError:
        raise InfluenceError(f'device = {device!r}: it must be "cpu", or "cuda" for a GPU') from None
    if found.type == "cuda" and not torch.cuda.is_available():
        raise InfluenceError(f"device = {device!r}: torch sees no GPU here")
    return found


def _find(
    features: Any, labels: Any, checked: Any, recipe: HeadRecipe | None, seed: int, device: torch.device
) -> FeatureIssues:
    if isinstance(labels, str):
        features, labels = _split_frame(features, labels)
    array = FeatureArray(features)
    known = encode_labels(labels, len(array))
    require_judgeable(known)
    trusted = None if checked is None else _encode_checked(checked, known, array.dim)
    projection = fit_projection(array)
    for note in projection.notes():
        warnings.warn(note, stacklevel=3)
    recipe = recipe or HeadRecipe.for_examples(len(array), seed)
    if trusted is None:
        projection = choose_projection(array, known.codes, len(known.classes), projection, recipe.seed)
    training = HeadTraining(
        array,
        known.codes,
        len(known.classes),
        projection,
        recipe,
        device,
        trusted,
    )
    for epoch in range(training.recipe.epochs):
        training.epoch(epoch)
    return rank_labels(read_held_out(training, training.influence.scores()), known)


def rank_labels(result: InfluenceResult, known: ClassLabels) -> FeatureIssues:
    """Rank the labels of a finished training.

    Args:
        result: Scores of the N examples.
        known: Their labels.
    """
    assert result.log_odds is not None
    issues = result.find_label_issues(torch.from_numpy(known.codes))
    return FeatureIssues(
        order=issues.order.numpy(),
        suspicion=result.suspicion.numpy(),
        flagged=issues.mask.numpy(),
        labels=known.classes[known.codes],
        suggested=known.classes[issues.suggested.numpy()],
        probability=result.log_odds.sigmoid().numpy(),
        classes=known.classes,
        result=result,
    )


def _split_frame(frame: Any, column: str) -> tuple[Any, Any]:
    if not hasattr(frame, "columns"):
        raise InfluenceError(f"labels = {column!r}: a column's name needs a pandas frame as features")
    if column not in frame.columns:
        raise InfluenceError(f"labels = {column!r}: the frame has no such column")
    return frame.drop(columns=[column]), frame[column]


def _encode_checked(checked: Any, known: ClassLabels, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return features [m, d] and classes [m] of checked examples."""
    if not isinstance(checked, tuple | list) or len(checked) != 2:
        raise InfluenceError("checked must be a pair: features and right labels of further examples")
    array = FeatureArray(checked[0])
    if array.dim != dim:
        raise InfluenceError(f"checked: {array.dim} features for each example; the others have {dim}")
    if len(checked[1]) != len(array):
        raise InfluenceError(f"checked: {len(array)} rows of features and {len(checked[1])} labels")
    number = {str(c): i for i, c in enumerate(known.classes)}
    right = encode_labels(checked[1], len(array))
    names = [str(right.classes[code]) for code in right.codes]
    unknown = sorted(set(names) - set(number))
    if unknown:
        raise InfluenceError(f"checked: label {unknown[0]!r} is none of the {len(number)} classes of the labels")
    rows = torch.cat([block for _, block in array.blocks()])
    return rows, torch.tensor([number[name] for name in names])
