"""OOD validation images: drawn from an OOD set, the same ones for all, and never tested on."""

from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from benchmarks.processes import Job, with_one_cell_a_job, write_labels
from sgoif.bench.config import load_config
from sgoif.bench.data.prepare import prepare
from sgoif.bench.execution.inputs import Inputs
from sgoif.bench.execution.run_batch import run_batch
from sgoif.errors import UserError
from sgoif.utils.files import load_npz, read_json
from sgoif.utils.paths import ROOT

MINI = ROOT / "tests" / "helpers" / "mini.yaml"
OTHERS = ("digits_id", "digits_near", "photo_patches", "digits_aux")


def plan_of(root: Path, methods: tuple[str, ...] = ("scale", "scale@searched"), **spec):
    config = yaml.safe_load(MINI.read_text()) | {"noisy": {}, "tables": {"table3": {"kind": "ood"}}}
    config["variants"] = {"scale": {"searched": {"search": True}}}
    config["methods"] = {"noisy": [], "ood": list(methods)}
    config["ood"]["digits_id"] |= spec
    (root / "validation.yaml").write_text(yaml.safe_dump(config))
    return with_one_cell_a_job(load_config(root / "validation.yaml"))


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in OTHERS:
        prepare(name, Path("data"), None, download=False)
    return tmp_path


def inputs_of(plan, folder: Path) -> Inputs:
    return Inputs(plan, folder, "ood", "digits_id", torch.device("cpu"))


def test_images_for_validation_and_for_testing_share_none(folder):
    whole = inputs_of(plan_of(folder, ("scale",)), folder).ood_sets()
    inputs = inputs_of(plan_of(folder, validation={"set": "digits_near", "images": 100}), folder)
    sets, val = inputs.ood_sets(), inputs._ood_val()
    assert len(val) == 100 and len(sets["ood:digits_near"]) == len(whole["ood:digits_near"]) - 100
    together = torch.cat([val.pixels, sets["ood:digits_near"].pixels]).flatten(1)
    expected = whole["ood:digits_near"].pixels.flatten(1)
    assert sorted(map(tuple, together.tolist())) == sorted(map(tuple, expected.tolist()))
    assert len(sets["ood:photo_patches"]) == len(whole["ood:photo_patches"])
    assert torch.equal(inputs._ood_val().pixels, val.pixels)


def test_a_set_of_its_own_leaves_the_tested_ones_whole(folder):
    plain, own = plan_of(folder, ("scale",)), plan_of(folder, validation={"set": "digits_aux", "images": 50})
    assert len(inputs_of(own, folder)._ood_val()) == 50
    sizes = [{name: len(s) for name, s in inputs_of(plan, folder).ood_sets().items()} for plan in (plain, own)]
    assert sizes[0] == sizes[1]


def test_a_searched_cell_has_its_own_result_and_says_what_was_chosen(folder):
    plan, run_dir = plan_of(folder, validation={"set": "digits_near", "images": 100}), folder / "run"
    write_labels(plan, run_dir, [Job("digits_id", "scale", 0, "ood")])
    found = {}
    for method in ("plain", "scale", "scale@searched"):
        run_batch(plan, run_dir, "ood", "digits_id", method, 0, "cpu")
        cell = run_dir / plan.batch("ood", "digits_id", method, 0)[0].folder
        found[method] = read_json(cell / "result.json"), load_npz(cell / "arrays.npz")
    chosen = found["scale@searched"][0]["extras"]["searched_percentile"]
    assert chosen in (65, 70, 75, 80, 85, 90, 95) and "searched_percentile" not in found["scale"][0]["extras"]
    same = np.array_equal(*(found[method][1]["ood:digits_near"] for method in ("scale", "scale@searched")))
    assert same == (chosen == 85)


def test_a_change_of_the_validation_images_is_a_change_of_the_cell(folder):
    plans = [plan_of(folder, validation={"set": "digits_near", "images": n}) for n in (50, 60)]
    assert len({plan.fingerprint("ood", "digits_id", "scale", 0) for plan in plans}) == 2


@pytest.mark.parametrize(
    ("validation", "message"),
    [
        ({"set": "digits_naer", "images": 10}, r"ood\.digits_id\.validation\.set: no dataset 'digits_naer'"),
        ({"set": "digits_id", "images": 10}, r"ood\.digits_id\.validation\.set: digits_id is the ID dataset itself"),
        ({"set": "digits_near", "images": 0}, r"ood\.digits_id\.validation\.images"),
        ({"set": "digits_near"}, r"ood\.digits_id\.validation.*images"),
    ],
)
def test_mistakes_are_told_before_the_run(folder, validation, message):
    with pytest.raises(UserError, match=message):
        plan_of(folder, validation=validation)


def test_a_method_that_searches_needs_images_to_search_on(folder):
    with pytest.raises(
        UserError, match=r"ood\.digits_id\.methods: scale@searched searches .* ood\.digits_id\.validation"
    ):
        plan_of(folder)


def test_validation_must_leave_images_to_test_on(folder):
    inputs = inputs_of(plan_of(folder, validation={"set": "digits_near", "images": 100_000}), folder)
    with pytest.raises(UserError, match="leave none to test on"):
        inputs.ood_sets()
