"""Variants that watch one training find, to the bit, what each finds alone."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from benchmarks.processes import Job, with_one_cell_a_job, write_labels
from sgoif.bench.config import load_config
from sgoif.bench.data.prepare import prepare
from sgoif.bench.execution import run_together as module
from sgoif.bench.execution.plan import Plan
from sgoif.bench.execution.results import finished
from sgoif.bench.execution.run_batch import run_batch
from sgoif.bench.execution.run_together import detector_of, run_together
from sgoif.bench.methods.registry import load
from sgoif.bench.methods.sgoif_detector import detect_together
from sgoif.utils.files import load_npz, read_json
from sgoif.utils.paths import ROOT
from tests.helpers.digit_tasks import noisy_task

MINI = ROOT / "tests" / "helpers" / "mini.yaml"
VARIANTS = ["sgoif", "sgoif@no_gate", "sgoif@paper", "sgoif@twice", "sgoif_trusted"]


def plan_of(root: Path, retrain: bool | list[str] = False, methods: tuple[str, ...] = ()) -> Plan:
    config = yaml.safe_load(MINI.read_text()) | {
        "methods": {"noisy": [*VARIANTS, *methods], "ood": []},
        "ood": {},
        "tables": {},
    }
    config["variants"] = yaml.safe_load((ROOT / "configs" / "base.yaml").read_text())["variants"]
    config["noisy"]["digits"] |= {"seeds": [0], "retrain": retrain}
    (root / "together.yaml").write_text(yaml.safe_dump(config))
    return with_one_cell_a_job(load_config(root / "together.yaml"))


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    prepare("digits", Path("data"), None, download=False)
    return tmp_path


def cells_of(plan: Plan) -> list:
    return [plan.batch("noisy", "digits", method, 0)[0] for method in VARIANTS]


def labelled(plan: Plan, run_dir: Path) -> Path:
    write_labels(plan, run_dir, [Job("digits", "sgoif", 0)])
    return run_dir


def test_each_cell_is_the_one_that_it_is_alone(folder):
    plan = plan_of(folder)
    alone, shared = (labelled(plan, folder / name) for name in ("alone", "shared"))
    run_together(plan, shared, cells_of(plan), "cpu")
    for cell in cells_of(plan):
        run_batch(plan, alone, "noisy", "digits", cell.method, 0, "cpu")
        a, b = (load_npz(run / cell.folder / "arrays.npz") for run in (alone, shared))
        assert set(a) == set(b) and {"scores", "remove", "epoch_scores"} <= set(a)
        for name in a:
            np.testing.assert_array_equal(a[name], b[name], err_msg=f"{cell.method} {name}")
        one, other = (read_json(run / cell.folder / "result.json") for run in (alone, shared))
        assert all(one[k] == other[k] for k in ("key", "status", "extras", "config", "seed", "network_passes"))
        assert one["seconds"] and not other["seconds"], "they would be those of five cells"
    before = (shared / cells_of(plan)[0].folder / "result.json").stat().st_mtime_ns
    run_batch(plan, shared, "noisy", "digits", "sgoif", 0, "cpu")
    assert (shared / cells_of(plan)[0].folder / "result.json").stat().st_mtime_ns == before, "it is found finished"


def test_a_score_that_is_not_finite_fails_its_own_cell(folder, monkeypatch):
    plan = plan_of(folder)
    run_dir = labelled(plan, folder / "run")
    find = module.detect_together

    def damaged(detectors, task):
        found = find(detectors, task)
        found[1].detection.scores[3] = np.nan
        return found

    monkeypatch.setattr(module, "detect_together", damaged)
    run_together(plan, run_dir, cells_of(plan), "cpu")
    told = [read_json(run_dir / cell.folder / "result.json") for cell in cells_of(plan)]
    assert [t["status"] for t in told] == ["ok", "failed", "ok", "ok", "ok"] and "not finite" in told[1]["reason"]


def test_a_training_that_fails_leaves_every_cell_to_itself(folder, monkeypatch):
    plan = plan_of(folder)
    run_dir = labelled(plan, folder / "run")

    def broken(*_):
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(module, "detect_together", broken)
    run_together(plan, run_dir, cells_of(plan), "cpu")
    assert not any((run_dir / cell.folder / "result.json").exists() for cell in cells_of(plan))
    run_batch(plan, run_dir, "noisy", "digits", "sgoif", 0, "cpu")
    assert (run_dir / cells_of(plan)[0].folder / "result.json").exists()


def test_finished_cells_are_left_alone(folder, monkeypatch):
    plan = plan_of(folder)
    run_dir = labelled(plan, folder / "run")
    for method in VARIANTS[:4]:
        run_batch(plan, run_dir, "noisy", "digits", method, 0, "cpu")
    monkeypatch.setattr(module, "detect_together", None)  # a call would raise
    run_together(plan, run_dir, cells_of(plan), "cpu")
    key = read_json(run_dir / cells_of(plan)[0].folder / "result.json")["key"]
    assert finished(run_dir, cells_of(plan)[0], key) and not (run_dir / cells_of(plan)[4].folder).exists()


def test_other_trainings_are_not_shared(folder):
    plan = plan_of(folder, methods=("sgoif@gce", "sgoif_glc", "aum"))
    cell = {m: plan.batch("noisy", "digits", m, 0)[0] for m in plan.methods("noisy", "digits")}
    own = detector_of(plan, cell["sgoif"])
    assert all(own.watches_alike(detector_of(plan, cell[m])) for m in VARIANTS)
    assert not own.watches_alike(detector_of(plan, cell["sgoif@gce"]))
    assert not own.watches_alike(load("noisy", "sgoif")(scope="all"))
    assert not own.watches_alike(load("noisy", "sgoif_glc")())
    assert detector_of(plan, cell["sgoif_glc"]) is None and detector_of(plan, cell["aum"]) is None
    assert detector_of(plan_of(folder, retrain=["sgoif"]), cell["sgoif"]) is None
    task, _ = noisy_task(plain=False)
    with pytest.raises(ValueError, match="different trainings"):
        detect_together([load("noisy", "sgoif")(), load("noisy", "sgoif")(loss="gce")], task)
