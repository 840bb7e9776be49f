"""A batch of cells: typed failures, what is computed again and what is not."""

import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml

from sgoif.bench.config import resolve_config
from sgoif.bench.data.holdout import hold_out
from sgoif.bench.data.noisy_labels import write_setting
from sgoif.bench.data.prepare import prepare
from sgoif.bench.execution import run_batch
from sgoif.bench.execution.inputs import Inputs
from sgoif.bench.execution.plan import Cell, Plan
from sgoif.bench.execution.run_batch import _retrain
from sgoif.training.learner import preload_compiler
from sgoif.training.recipe import Recipe
from sgoif.utils.interrupt import sigint_as_keyboard_interrupt
from tests.helpers import lost_interrupts as lost
from tests.helpers.digit_tasks import noisy_task
from tests.helpers.project_copy import MINI_CONFIG


def small_run(folder: Path, **recipe) -> tuple[Plan, Path]:
    """A run of one setting and one seed on the digits, with its data and labels in place."""
    raw = yaml.safe_load(MINI_CONFIG.read_text())
    raw["noisy"]["digits"] |= {"seeds": [0], "recipe": {"base": "digits", "epochs": 2, **recipe}}
    raw["noisy"]["digits"]["settings"].pop("n40_s6")
    raw["data"] = {"root": str(folder / "data")}
    plan, run_dir = Plan(resolve_config(raw)), folder / "results" / "mini"
    prepare("digits", folder / "data")
    for draw in plan.draws("noisy", "digits", "n20_s0"):
        write_setting(folder / "data", run_dir, "digits", "n20_s0", plan.noise("digits", "n20_s0", draw), draw)
    hold_out(folder / "data", run_dir, "digits", 100)
    return plan, run_dir


def run(plan: Plan, run_dir: Path, method: str) -> dict:
    torch.set_num_threads(1)
    path = run_batch.run_batch(plan, run_dir, "noisy", "digits", method, 0, "cpu")
    entry = json.loads(path.read_text())["cells"][0]
    return json.loads((run_dir / entry["path"] / "result.json").read_text()) | {"folder": run_dir / entry["path"]}


def test_divergence_is_a_typed_failure_and_so_is_what_reads_it(tmp_path):
    plan, run_dir = small_run(tmp_path, lr=1e20)
    plain = run(plan, run_dir, "plain")
    assert plain["status"] == "failed" and plain["reason"].startswith("Diverged: the training loss became")
    loss = run(plan, run_dir, "loss")
    assert loss["status"] == "failed" and "its plain run failed: Diverged" in loss["reason"]


def test_an_error_in_a_method_is_written_down_and_tried_again(tmp_path, monkeypatch):
    from baselines.noisy.random import Random

    plan, run_dir = small_run(tmp_path)
    with monkeypatch.context() as broken:
        broken.setattr(Random, "detect", lambda self, task: 1 / 0)
        assert run(plan, run_dir, "random")["reason"] == "ZeroDivisionError: division by zero"
    assert run(plan, run_dir, "random")["status"] == "ok"


@pytest.mark.parametrize(
    ("rest", "told"),
    [
        ({"test_logits": np.zeros((3, 10))}, "random: test_logits of shape (3, 10), where ("),
        ({"variants": {"q": np.zeros(3)}}, "random: variants['q'] of shape (3,), where ("),
        ({"remove": np.zeros(3, dtype=bool)}, "random: remove of shape (3,), where ("),
        ({"epoch_scores": np.zeros((2, 3))}, "random: epoch_scores of shape (2, 3), where (2, "),
        ({"curves": {"c": [1.0, np.inf]}}, "random: curves['c'] has numbers that are not finite"),
        ({"traces": {"t": [None, 1, "x"]}}, "random: traces['t'] has something that is no number"),
        ({"variants": {"": np.zeros(3)}}, "random: a variant is called ''"),
        ({"remove": np.full(3, 0.5)}, "random: remove is of float64, where bool is expected"),
    ],
)
def test_what_a_method_gives_beside_its_scores_fails_its_own_cell(tmp_path, monkeypatch, rest, told):
    from baselines.noisy.random import Random

    plan, run_dir = small_run(tmp_path)
    whole = Random.detect
    monkeypatch.setattr(Random, "detect", lambda self, task: replace(whole(self, task), **rest))
    found = run(plan, run_dir, "random")
    assert found["status"] == "failed" and told in found["reason"]


def test_curves_may_be_arrays(tmp_path, monkeypatch):
    from baselines.noisy.random import Random

    plan, run_dir = small_run(tmp_path)
    whole = Random.detect
    curves = {"c": np.array([1.0, 2.0], dtype=np.float32)}
    monkeypatch.setattr(Random, "detect", lambda self, task: replace(whole(self, task), curves=curves))
    found = run(plan, run_dir, "random")
    assert (found["status"], found["curves"]) == ("ok", {"c": [1.0, 2.0]})


def test_a_method_may_neither_end_the_process_nor_leave_its_folder(tmp_path, monkeypatch):
    from baselines.noisy.random import Random

    plan, run_dir = small_run(tmp_path)
    whole, here = Random.detect, os.getcwd()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with monkeypatch.context() as broken:
        broken.setattr(Random, "detect", lambda self, task: sys.exit(3))
        assert run(plan, run_dir, "random")["reason"] == "SystemExit: it ended the process (3)"
        broken.setattr(Random, "detect", lambda self, task: os.chdir(elsewhere) or whole(self, task))
        assert run(plan, run_dir, "random")["status"] == "ok" and os.getcwd() == here


def test_checkpoints_of_another_recipe_go(tmp_path):
    plan, run_dir = small_run(tmp_path, epochs=3, checkpoints=2)
    folder = run(plan, run_dir, "plain")["folder"] / "checkpoints"
    before = {path.name for path in folder.iterdir()}
    (folder / "epoch2.pt").unlink()  # its seal stays
    plan, _ = small_run(tmp_path, epochs=2, checkpoints=1)
    assert run(plan, run_dir, "plain")["status"] == "ok"
    assert ".epoch2.pt.sha256" in before and {path.name for path in folder.iterdir()} == {
        "epoch1.pt",
        ".epoch1.pt.sha256",
    }


@pytest.mark.parametrize("lose", [lost.dropped, lost.another_error])
def test_a_lost_interrupt_is_no_result_of_a_method(tmp_path, monkeypatch, lose):
    from baselines.noisy.random import Random

    plan, run_dir = small_run(tmp_path)
    detect = Random.detect
    with monkeypatch.context() as broken:
        broken.setattr(Random, "detect", lambda self, task: (lose(), detect(self, task))[1])
        with pytest.raises(KeyboardInterrupt), sigint_as_keyboard_interrupt():
            run(plan, run_dir, "random")
    assert not list(run_dir.rglob("result.json"))
    assert run(plan, run_dir, "random")["status"] == "ok"


def test_the_compiler_is_imported_before_a_cells_clock_starts(tmp_path, monkeypatch):
    order, timer = [], run_batch.Session.timer
    monkeypatch.setattr(run_batch.Session, "timer", lambda self, name: order.append(name) or timer(self, name))
    monkeypatch.setattr("sgoif.training.learner.importlib", SimpleNamespace(import_module=order.append))
    recipe = Recipe(compile=True)
    monkeypatch.setattr(run_batch, "preload_compiler", lambda *_: preload_compiler(recipe, torch.device("cuda")))
    plan, run_dir = small_run(tmp_path)
    assert run(plan, run_dir, "mixup")["status"] == "ok"
    assert order[:3] == ["torch._dynamo", "torch._inductor.compile_fx", "score"]
    order.clear()
    preload_compiler(recipe, torch.device("cpu"))
    preload_compiler(Recipe(), torch.device("cuda"))
    assert order == ["torch._dynamo"] * 2


def test_a_finished_cell_is_kept_and_a_damaged_one_computed_again(tmp_path):
    plan, run_dir = small_run(tmp_path)
    first = run(plan, run_dir, "plain")
    stamp = (first["folder"] / "result.json").stat().st_mtime_ns
    assert (run(plan, run_dir, "plain")["folder"] / "result.json").stat().st_mtime_ns == stamp
    (first["folder"] / "arrays.npz").write_bytes(b"broken")
    again = run(plan, run_dir, "plain")
    assert again["arrays_sha256"] == first["arrays_sha256"], "the same bits as before"
    assert {"train", "record"} <= set(again["seconds"]) and again["peak_memory_mb"] > 0
    assert not (first["folder"] / "work").exists()


def test_a_full_disk_is_told_and_loses_nothing(tmp_path, monkeypatch):
    plan, run_dir = small_run(tmp_path)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr("sgoif.bench.methods.plain_run.torch.save", full)
        with pytest.raises(run_batch.UserError, match="No space left on device; the cell is not lost"):
            run(plan, run_dir, "plain")
    assert run(plan, run_dir, "plain")["status"] == "ok"


def test_asking_for_a_gpu_where_there_is_none(tmp_path):
    if torch.cuda.is_available():
        pytest.skip("there is one here")
    with pytest.raises(run_batch.UserError, match="torch sees no GPU"):
        run_batch.run_batch(*small_run(tmp_path), "noisy", "digits", "plain", 0, "cuda")


def test_declared_ood_scores_are_written_beside_the_one_that_ranks():
    from baselines.ood.msp import MSP
    from tests.helpers.digit_tasks import ood_task

    task, images, ood = ood_task()
    inputs = SimpleNamespace(test=images, ood_sets=lambda: {f"ood:{name}": found for name, found in ood.items()})
    for ranks, other in (("published", "softened"), ("softened", "published")):
        arrays = run_batch._score_ood(MSP(score=ranks), task, inputs).arrays
        names = {"id_test", "ood:near", "ood:far"}
        assert set(arrays) == names | {f"variant:{other}:{name}" for name in names} | {"id_logits"}
        logits = torch.from_numpy(arrays["id_logits"])
        expected = MSP.from_logits(logits, 1.0 if ranks == "published" else 4.0).numpy()
        assert arrays["id_test"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("names", [["softened"], ["new", "published"]])
def test_an_ood_method_must_give_the_scores_it_declares(names):
    from baselines.ood.msp import MSP
    from tests.helpers.digit_tasks import ood_task

    class Wrong(MSP):
        def scores(self, images):
            found = super().scores(images)
            return {name: found.get(name, found["published"]) for name in names}

    task, images, ood = ood_task()
    inputs = SimpleNamespace(test=images, ood_sets=lambda: ood)
    with pytest.raises(ValueError, match=re.escape(f"msp: scores {names} for candidates ['published', 'softened']")):
        run_batch._score_ood(Wrong(), task, inputs)


def test_only_methods_that_ask_are_told_the_noise(tmp_path):
    """By the specification of the setting: no label is compared with the truth for it."""
    plan, run_dir = small_run(tmp_path)
    setting, noise = next(iter(plan.settings("noisy", "digits").items()))
    told = {}
    for method in ("coteaching", "loss", "plain"):
        cell = Cell("noisy", "digits", setting, 0, method)
        told[method] = Inputs(plan, run_dir, "noisy", "digits", torch.device("cpu"))._noise(cell)
    assert told["coteaching"].rate == pytest.approx(noise.get("noise", noise.get("rate")))
    assert told["coteaching"].pattern in ("symmetric", "asymmetric") and told["loss"] is told["plain"] is None


def test_retraining_weighs_the_classes_as_the_method_says():
    """Weights that leave one class out give a network that never predicts it."""
    task, _ = noisy_task(plain=False, n_train=256)
    weights = np.ones(10)
    weights[3] = 0.0
    logits = _retrain(task, np.zeros(256, dtype=bool), weights)
    assert not (logits.argmax(1) == 3).any()
    task, _ = noisy_task(plain=False, n_train=256)
    assert (_retrain(task, np.zeros(256, dtype=bool)).argmax(1) == 3).any()


def test_every_method_is_also_retrained_without_the_same_number(tmp_path):
    """The number is confident learning's, from the folds; the examples are the most suspicious ones of each method."""
    from baselines.noisy.confident_learning import ConfidentLearning

    plan, run_dir = small_run(tmp_path)
    spec = plan.config["noisy"]["digits"]
    spec |= {"retrain": False, "retrain_same": {"random": {}, "confident_learning": {}}, "val": 100}
    for shared in ("plain", "folds"):
        run(plan, run_dir, shared)
    found = {method: run(plan, run_dir, method) for method in ("random", "confident_learning", "loss")}
    arrays = {method: np.load(result["folder"] / "arrays.npz") for method, result in found.items()}
    folds = np.load(run_dir / "cells/noisy/digits/n20_s0/seed0/folds/arrays.npz")["probabilities"]
    labels = np.load(run_dir / "labels/digits/n20_s0.npz")["labels"]
    task, _ = noisy_task(plain=False, n_train=256)
    task.labels, task.folds = torch.from_numpy(labels), folds
    count = round(ConfidentLearning().detect(task).extras["noise_rate"] * len(labels))
    assert 0 < count < len(labels) / 2
    for method in ("random", "confident_learning"):
        removed, scores = arrays[method]["remove_same"], arrays[method]["scores"]
        assert removed.sum() == count and scores[removed].min() >= scores[~removed].max()
        assert arrays[method]["test_logits_same"].shape == (len(np.load(tmp_path / "data/digits/test_labels.npy")), 10)
        assert "retrain_same" in found[method]["seconds"] and "test_logits" not in arrays[method]
    assert not np.array_equal(arrays["random"]["test_logits_same"], arrays["confident_learning"]["test_logits_same"])
    assert "remove_same" not in arrays["loss"]


def test_without_folds_to_count_by_a_cell_is_computed_and_says_so(tmp_path, capsys):
    plan, run_dir = small_run(tmp_path)
    plan.config["noisy"]["digits"] |= {"retrain": False, "retrain_same": ["random"]}
    found = run(plan, run_dir, "random")
    assert found["status"] == "ok" and "remove_same" not in np.load(found["folder"] / "arrays.npz")
    assert "no folds to count by" in capsys.readouterr().err
