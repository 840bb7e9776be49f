"""Metrics of the scores of an OOD cell: of the one that ranks, and of the others that its method declares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from sgoif.bench.evaluation import metrics
from sgoif.errors import UserError

Quality = Iterator[tuple[str, str, float | None]]  # variant, metric, value
GROUPS, VARIANT_METRICS = ("near", "far", "overall"), ("auroc", "fpr95")  # what is told of scores that do not rank


def ood_quality(arrays: Mapping[str, np.ndarray], test_labels: np.ndarray, spec: Mapping[str, Any]) -> Quality:
    """Yield the metrics of an OOD cell.

    Args:
        arrays: The arrays of the cell: `id_test`, `ood:<set>`, the same as `variant:<candidate>:id_test` and so on for
            scores that do not rank, and logits.
        test_labels: Labels of the ID test images, shape [n].
        spec: The configuration of the dataset, with its near and far sets.

    Yields:
        Candidate ("" is the one that ranks), metric and value: of each set, near, far and overall means, and the ID
        accuracy; of other candidates the means of AUROC and FPR@95 alone.

    Raises:
        UserError: If the scores of a set are missing.
    """
    if "id_test" in arrays:
        yield "", "n_id", float(arrays["id_test"].size)
        yield from (("", f"n_ood:{s}", float(_scores(arrays, s).size)) for s in [*spec["near"], *spec["far"]])
        yield from (("", f"{metric}:{group}", value) for group, metric, value in _by_group(arrays, spec))
    for variant in sorted(k.split(":")[1] for k in arrays if k.startswith("variant:") and k.endswith(":id_test")):
        prefix = f"variant:{variant}:"
        its_own = {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
        for group, metric, value in _by_group(its_own, spec):
            if group in GROUPS and metric in VARIANT_METRICS:
                yield variant, f"{metric}:{group}", value
    logits = "id_logits" if "id_logits" in arrays else "test_logits"
    if logits in arrays:
        yield "", "id_accuracy", metrics.accuracy(arrays[logits], test_labels, logits)


def _by_group(arrays: Mapping[str, np.ndarray], spec: Mapping[str, Any]) -> Iterator[tuple[str, str, float]]:
    """Yield (OOD set or group of sets, metric, value) of one score."""
    per_set = {}
    for ood_set in [*spec["near"], *spec["far"]]:
        per_set[ood_set] = metrics.ood(arrays["id_test"], _scores(arrays, ood_set), f"ood:{ood_set}")
    for group, values in (per_set | metrics.ood_means(per_set, spec["near"], spec["far"])).items():
        yield from ((group, metric, value) for metric, value in values.items())


def _scores(arrays: Mapping[str, np.ndarray], ood_set: str) -> np.ndarray:
    if f"ood:{ood_set}" not in arrays:
        raise UserError(f"no scores for the OOD set {ood_set}")
    return arrays[f"ood:{ood_set}"]
