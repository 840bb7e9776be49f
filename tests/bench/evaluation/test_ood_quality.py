"""Metrics of an OOD cell from its arrays: the score that ranks, and other candidates, each once."""

import numpy as np
import pytest

from sgoif.bench.evaluation.ood_quality import ood_quality
from sgoif.errors import UserError

SPEC = {"near": ["a"], "far": ["b"]}


def arrays() -> dict[str, np.ndarray]:
    """The ranking score tells set a half and set b wholly from the ID images; the candidate x the other way round."""
    low, mixed, high = np.array([0.0, 1.0, 2.0, 3.0]), np.array([-1.0, 9.0, -2.0, 8.0]), np.array([5.0, 6.0, 7.0, 8.0])
    own = {"id_test": low, "ood:a": mixed, "ood:b": high}
    other = {"variant:x:id_test": low, "variant:x:ood:a": high, "variant:x:ood:b": mixed}
    return {**own, **other, "id_logits": np.eye(2)[[0, 1, 1, 0]]}


def test_every_metric_is_there_once():
    found = list(ood_quality(arrays(), np.array([0, 1, 0, 0]), SPEC))
    names = [(variant, metric) for variant, metric, _ in found]
    assert len(set(names)) == len(names)
    values = dict(zip(names, (value for *_, value in found), strict=True))
    assert values["", "n_id"] == values["", "n_ood:a"] == 4 and values["", "id_accuracy"] == 0.75
    assert values["", "auroc:a"] == values["", "auroc:near"] == values["x", "auroc:far"] == 0.5
    assert values["", "auroc:b"] == values["", "auroc:far"] == values["x", "auroc:near"] == 1.0
    assert values["", "auroc:overall"] == values["x", "auroc:overall"] == 0.75
    assert {variant for variant, _ in names} == {"", "x"}
    assert {metric.split(":")[1] for variant, metric in names if variant == "x"} == {"near", "far", "overall"}


def test_a_set_without_scores_is_named():
    lacking = {name: value for name, value in arrays().items() if name != "ood:b"}
    with pytest.raises(UserError, match="no scores for the OOD set b"):
        list(ood_quality(lacking, np.array([0, 1, 0, 0]), SPEC))
