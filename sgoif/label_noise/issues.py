"""`LabelIssues`: which labels are probably wrong, and what they should be.

The one rule by which the benchmark, `sgoif scan`, `triage` and users of the library find wrong labels is
`InfluenceResult.find_label_issues` (sgoif/result.py); it counts them with `estimate_label_errors` (count.py). Here are
its result and its suggestions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sgoif.backend.integers import as_integers, describe
from sgoif.errors import InfluenceError


@dataclass(frozen=True)
class LabelIssues:
    """Labels of a training set that are probably wrong. All tensors are on the host.

    Attributes:
        mask: Which labels are probably wrong, bool, shape [N].
        order: Positions of the examples, most suspicious first, shape [N]; the labels in `mask` come first.
        suggested: The most probable class other than the label where `mask` is set, else the label, shape [N].
        count: Estimated number of wrong labels, which is the number of labels in `mask`.
    """

    mask: Tensor
    order: Tensor
    suggested: Tensor
    count: int


def check_labels(labels: Any, visited: Tensor) -> Tensor:
    """Return the labels of a training set on the host, shape [N].

    Args:
        labels: The labels: a tensor, an array or a list.
        visited: Which examples training has visited, bool, shape [N]; the labels of others may be any integers.

    Raises:
        InfluenceError: If they are not N integers, from 0 on where an example was visited.
    """
    n_examples = len(visited)
    found = as_integers(labels)
    if found is None:
        raise InfluenceError(f"label issues: labels must be integers of shape [N], got {describe(labels)}")
    if found.shape != (n_examples,):
        raise InfluenceError(f"label issues: labels of shape {tuple(found.shape)} for {n_examples} examples")
    found = found.long().cpu()
    if visited.any() and int(found[visited].min()) < 0:
        raise InfluenceError(f"label issues: label {int(found[visited].min())}; classes count from 0")
    return found


def suggest_labels(mask: Tensor, labels: Tensor, probabilities: Tensor, visited: Tensor) -> Tensor:
    """Return the most probable other class of the labels that are probably wrong, and all other labels as they are.

    Args:
        mask: Which labels are probably wrong, bool, shape [N].
        labels: Labels, shape [N].
        probabilities: Predicted probabilities, shape [N, C].
        visited: Which examples training has visited, bool, shape [N].

    Returns:
        Suggested labels, shape [N].

    Raises:
        InfluenceError: If the probabilities are not finite numbers of shape [N, C], or do not fit the labels.
    """
    if probabilities.dim() != 2 or len(probabilities) != len(labels):
        raise InfluenceError(
            f"label issues: probabilities of shape {tuple(probabilities.shape)} for {len(labels)} labels; "
            "expected [N, C]"
        )
    if not torch.isfinite(probabilities).all():
        raise InfluenceError("label issues: probabilities must be finite")
    known = torch.where(visited, labels, 0)
    if int(known.max()) >= probabilities.shape[1]:
        raise InfluenceError(f"label issues: label {int(known.max())} of {probabilities.shape[1]} classes")
    others = probabilities.scatter(1, known.unsqueeze(1), -torch.inf)
    return torch.where(mask, others.argmax(1), labels)
