"""Hyper-parameters of OOD methods are searched on OOD validation images, as OpenOOD does."""

from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from sgoif.bench.config import load_config
from sgoif.bench.methods import registry
from sgoif.bench.methods.ood.search import fit_searched
from sgoif.errors import UserError
from sgoif.utils.paths import ROOT
from tests.helpers.digit_tasks import RECIPE, ood_task

SWEPT = [name for name in registry.available("ood") if registry.load("ood", name).sweep]
OPENOOD = {  # configs/postprocessors/*.yml of its repository, commit 3c35632: `postprocessor_sweep`
    "ash": {"percentile": [65, 70, 75, 80, 85, 90, 95]},
    "fdbd": {"centred": [True, False]},
    "gen": {"gamma": [0.01, 0.1, 0.5, 1, 2, 5, 10], "largest": [10, 50, 100, 200, 500, 1000]},
    "knn": {"k": [50, 100, 200, 500, 1000]},
    "odin": {"temperature": [1, 10, 100, 1000], "epsilon": [0.0014, 0.0028]},
    "react": {"percentile": [85, 90, 95, 99]},
    "relation": {"power": [1, 2, 4, 6, 8]},
    "scale": {"percentile": [65, 70, 75, 80, 85, 90, 95]},
}


def task_with_validation():
    task, images, ood = ood_task(recipe=replace(RECIPE, epochs=3), n_train=400)
    near = ood["near"]
    task.ood_val = near.subset(range(0, len(near), 2))
    return task, images, near.subset(range(1, len(near), 2))


def auroc(method, inside, outside) -> float:
    scores = torch.cat([method.score(inside), method.score(outside)]).double().numpy()
    return roc_auc_score(np.arange(len(scores)) >= len(inside), scores)


def test_the_values_are_those_that_openood_tries():
    found = {name: {key: list(v) for key, v in registry.load("ood", name).sweep.items()} for name in SWEPT}
    assert found == OPENOOD


@pytest.mark.parametrize("name", SWEPT)
def test_swept_fields_exist_and_the_searched_variant_has_a_row(name):
    kind = registry.load("ood", name)
    assert set(kind.sweep) <= {field.name for field in fields(kind.Params)}
    config = load_config(ROOT / "configs" / "openood.yaml", skip_missing=False)
    assert config["variants"][name]["searched"] == {"search": True}
    assert all(f"{name}@searched" in spec["methods"] for spec in config["ood"].values())
    row = registry.declaration("ood", name).row("searched")
    assert row.title == f"{kind.title}, searched" and (row.group, row.order) == (kind.group, kind.order)


@pytest.mark.parametrize("name", ["scale", "fdbd", "react"])
def test_the_combination_of_the_largest_auroc_on_validation_images_is_taken(name):
    task, _, _ = task_with_validation()
    kind = registry.load("ood", name)
    method = kind(search=True)
    found = fit_searched(method, task)
    (key, values), by_value = next(iter(kind.sweep.items())), {}
    for value in values:
        alone = kind(**{key: value})
        alone.fit(task)
        by_value[value] = auroc(alone, task.val, task.ood_val)
    assert len(set(by_value.values())) > 1  # else any choice would do
    assert getattr(found.params, key) == max(by_value, key=by_value.get)
    assert method.params == kind().params  # the method itself is not changed


def test_what_was_searched_scores_as_the_same_values_given_by_hand():
    task, images, _ = task_with_validation()
    kind = registry.load("ood", "scale")
    found = fit_searched(kind(search=True), task)
    by_hand = kind(percentile=found.params.percentile)
    by_hand.fit(task)
    assert torch.equal(found.score(images), by_hand.score(images))


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("scale", {"search": 1}, r"params.scale.search: true or false, not 1"),
        ("scale", {"search": True, "percentile": 90.0}, r"params.scale.percentile: it is searched for"),
        ("msp", {"search": True}, r"params.msp.search: no such hyper-parameter"),
    ],
)
def test_mistakes_are_told_by_key(name, params, message):
    with pytest.raises(UserError, match=message):
        registry.load("ood", name)(**params)


def test_without_validation_images_nothing_is_searched():
    task, _, _ = task_with_validation()
    task.ood_val = None
    with pytest.raises(UserError, match="give the dataset `validation`"):
        fit_searched(registry.load("ood", "scale")(search=True), task)
