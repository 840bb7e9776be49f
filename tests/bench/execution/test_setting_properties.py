"""A setting that keeps a part of the images and changes the recipe, from labels to metrics; others do not notice it."""

from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from sgoif.bench.config import load_config
from sgoif.bench.config.checks import check_recipes
from sgoif.bench.data.holdout import hold_out
from sgoif.bench.data.noisy_labels import write_setting
from sgoif.bench.data.prepare import prepare
from sgoif.bench.evaluation.detection_curves import write_curves
from sgoif.bench.evaluation.evaluate import evaluate
from sgoif.bench.execution.inputs import Inputs
from sgoif.bench.execution.plan import Cell, Plan
from sgoif.bench.execution.results import finished
from sgoif.bench.execution.run_batch import run_batch
from sgoif.errors import UserError
from sgoif.utils.files import atomic_write_json, load_npz, read_json
from tests.helpers.project_copy import MINI_CONFIG

TAIL = {"kind": "symmetric", "rate": 0.2, "balance": 10, "profile": "step", "size": 400}
CHANGES = {"epochs": 2, "optimizer": "adamw", "lr": 0.01, "schedule": "constant"}


def configuration(folder: Path, **changes) -> dict:
    raw = yaml.safe_load(MINI_CONFIG.read_text()) | {"data": {"root": str(folder / "data")}, "ood": {}}
    raw["methods"]["noisy"] = ["loss"]
    raw["recipes"]["digits"]["epochs"] = 1
    raw["recipes"]["short"] = {"epochs": 3, "lr": 0.05}
    settings = {"sym": {"kind": "symmetric", "rate": 0.2}, "tail": {**TAIL, "recipe": CHANGES}}
    raw["noisy"]["digits"] |= {"seeds": [0], "settings": settings, "retrain": False}
    raw["noisy"]["digits"]["settings"]["tail"] |= changes
    raw["tables"] = {"table2": {"kind": "noise_sets"}}
    (folder / "mini.yaml").write_text(yaml.safe_dump(raw))
    return load_config(folder / "mini.yaml")


@pytest.fixture(scope="module")
def computed(tmp_path_factory) -> tuple[Plan, Path]:
    folder = tmp_path_factory.mktemp("run")
    plan, run_dir = Plan(configuration(folder)), folder / "results"
    prepare("digits", folder / "data")
    hold_out(folder / "data", run_dir, "digits", 100)
    for setting in ("sym", "tail"):
        for draw in plan.draws("noisy", "digits", setting):
            write_setting(folder / "data", run_dir, "digits", setting, plan.noise("digits", setting, draw), draw)
    for method in ("plain", "loss"):
        run_batch(plan, run_dir, "noisy", "digits", method, 0, "cpu")
    return plan, run_dir


def test_methods_train_on_the_kept_images_with_the_recipe_of_the_setting(computed):
    _, run_dir = computed
    for setting, n, epochs in (("sym", 1438, 1), ("tail", 400, 2)):
        for method in ("plain", "loss"):
            cell = Cell("noisy", "digits", setting, 0, method)
            arrays = load_npz(run_dir / cell.folder / "arrays.npz")
            truth = load_npz(run_dir / "truth" / "digits" / f"{setting}.npz")
            assert len(truth["ids"]) == n and np.array_equal(arrays["ids"], truth["ids"])
            result = read_json(run_dir / cell.folder / "result.json")
            assert result["config"]["recipe"]["epochs"] == epochs and result["status"] == "ok"
            assert finished(run_dir, cell, result["key"]) is not None
    plain = read_json(run_dir / "cells/noisy/digits/tail/seed0/plain/result.json")
    assert plain["network_passes"]["train"] == 3 * 2 * 384  # whole batches of 128
    assert plain["config"]["recipe"]["optimizer"] == "adamw" and "recipe" not in plain["config"]["noise"]


def test_the_evaluation_and_the_gallery_take_the_kept_images(computed):
    plan, run_dir = computed
    root = Path(plan.config["data"]["root"])
    records = evaluate(run_dir, root, "noisy", "digits", plan.config)
    sizes = {r["setting"]: r["value"] for r in records if r["metric"] == "n_examples"}
    assert sizes == {"sym": 1438, "tail": 400}
    found = {r["setting"]: r["value"] for r in records if r["metric"] == "auc_pr" and r["method"] == "loss"}
    assert found["tail"] > 0.2
    tests = {r["setting"] for r in records if r["metric"] == "test_accuracy" and r["method"] == "plain"}
    assert tests == {"sym", "tail"}  # on all test images
    write_curves(run_dir, root, "digits", plan.config)


def test_only_the_cells_of_a_changed_setting_change(computed, tmp_path):
    plan, _ = computed
    other = Plan(configuration(tmp_path, size=300, recipe={"base": "short", "epochs": 4}))
    cells = {cell.setting: cell for cell in plan.cells("noisy", "digits", "loss")}
    assert other.cell_config(cells["sym"]) == plan.cell_config(cells["sym"])
    assert other.cell_config(cells["tail"])["noise"]["size"] == 300
    recipe = other.recipe("noisy", "digits", "tail")
    assert (recipe["epochs"], recipe["lr"], recipe["model"]) == (4, 0.05, "tiny_cnn")
    assert other.fingerprint("noisy", "digits", "loss", 0) != plan.fingerprint("noisy", "digits", "loss", 0)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"recipe": {"epoch": 3}}, r"settings\.tail\.recipe\.epoch: no such key; .*epochs"),
        ({"recipe": {"base": "shrt"}}, r"settings\.tail\.recipe\.base: no recipe 'shrt'; .*short"),
        ({"recipe": {"optimizer": "lion"}}, r"recipe\.optimizer: 'lion' is not one of sgd, adam, adamw"),
        ({"epochs": 3}, r"settings\.tail\.epochs: unknown for symmetric noise"),
    ],
)
def test_mistakes_are_told_by_their_key(tmp_path, changes, told):
    with pytest.raises(UserError, match=told):
        configuration(tmp_path, **changes)


def test_weights_that_a_setting_starts_from_are_read_frozen_and_part_of_its_key(tmp_path):
    start = {"weights": "digits_start", "frozen": True}
    changes = {"images": {"from": 700}, "balance": 1, "recipe": {**CHANGES, "start": start}}
    plan, run_dir = Plan(configuration(tmp_path, **changes)), tmp_path / "results"
    root = tmp_path / "data"
    assert plan.starts("noisy", "digits") == ["digits_start"] and "digits_start" in plan.needed_datasets()
    for name in ("digits", "digits_start"):
        prepare(name, root)
    for setting in ("sym", "tail"):
        write_setting(root, run_dir, "digits", setting, plan.noise("digits", setting))
    inputs = Inputs(plan, run_dir, "noisy", "digits", torch.device("cpu"))
    scratch, cell = (Cell("noisy", "digits", setting, 0, "plain") for setting in ("sym", "tail"))
    keys = inputs.key(scratch, "x"), inputs.key(cell, "x")
    run_batch(plan, run_dir, "noisy", "digits", "plain", 0, "cpu")
    file = root / "digits_start/weights.npz"
    net = torch.load(run_dir / cell.folder / "checkpoints/epoch1.pt", weights_only=True)
    for (name, array), kept in zip(sorted(load_npz(file).items()), net.items(), strict=False):
        assert name.split()[1] == kept[0].removeprefix("backbone.") and np.array_equal(array, kept[1].numpy())
    meta = read_json(root / "digits_start/meta.json")
    atomic_write_json(root / "digits_start/meta.json", {**meta, "content_hash": "other"})
    assert inputs.key(scratch, "x") == keys[0] and inputs.key(cell, "x") != keys[1]


@pytest.mark.parametrize(
    ("recipe", "told"),
    [
        ({"start": {"weights": "digits_strat"}}, r"recipe\.start\.weights: no weights 'digits_strat'; .*digits_start"),
        ({"start": {"weights": "digits"}}, r"tail\.recipe\.start\.weights: no weights 'digits'"),
        ({"start": {"weights": "efficientnet_lite0"}}, "belongs to the model timm:tf_efficientnet_lite0, not"),
        ({"start": {"frozen": True}}, r"tail\.recipe\.start: the key 'weights' is missing"),
    ],
)  # fmt: skip
def test_a_start_that_does_not_fit_is_refused(tmp_path, recipe, told):
    with pytest.raises(UserError, match=told):
        configuration(tmp_path, recipe=recipe)


def test_ood_detection_starts_from_scratch():
    config = {"ood": {"digits_id": {"recipe": {"start": {"weights": "digits_start"}}}}, "noisy": {}}
    with pytest.raises(UserError, match=r"ood\.digits_id\.recipe\.start: some OOD methods build networks"):
        check_recipes(config)


def test_images_are_shifted_by_less_than_their_size(tmp_path):
    assert configuration(tmp_path, recipe={"shift": 7})
    with pytest.raises(UserError, match=r"settings\.\w+\.recipe\.shift: 8 pixels, where images of digits have 8"):
        configuration(tmp_path, recipe={"shift": 8})
    config = {"ood": {"digits_id": {"recipe": {"shift": 1000}}}, "noisy": {}}
    with pytest.raises(UserError, match=r"ood\.digits_id\.recipe\.shift: 1000 pixels"):
        check_recipes(config)
