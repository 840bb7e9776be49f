"""`make plan` against numbers computed by hand."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from sgoif.bench.config import resolve_config
from sgoif.bench.cost_model.estimate import estimate, plan_report, stored_bytes
from sgoif.bench.cost_model.measured_costs import (
    MeasuredCosts,
    MeasuredTraining,
    MethodCost,
    NetworkShape,
    load_costs,
    method_costs,
    published_panels,
)
from sgoif.bench.cost_model.schedule import Job, schedule_hours
from sgoif.bench.evaluation.overhead import SHARED_GPU
from sgoif.bench.execution.plan import Plan
from sgoif.errors import UserError
from sgoif.training import models
from sgoif.utils.packed_json import write_packed_json
from sgoif.utils.paths import ROOT
from tests.helpers.project_copy import MINI_CONFIG

SMALL = yaml.safe_load(MINI_CONFIG.read_text())
SMALL["recipes"]["digits"] |= {"model": "small_cnn", "epochs": 6}
DIGITS = NetworkShape("small_cnn", 8, 1, 10)
network = models.build_network
RATIOS = {
    ("noisy", "loss"): MethodCost(0.1, 1.0, 0.0, "GPU"),
    ("noisy", "mixup"): MethodCost(1.5, 0.0, 0.0, "CPU"),
    ("ood", "msp"): MethodCost(0.0, 0.0, 0.5, "GPU"),
    ("ood", "ebo"): MethodCost(0.2, 0.0, 1.0, "GPU"),
}


def costs(seconds: float = 10.0, shape: NetworkShape = DIGITS, ratios=RATIOS) -> MeasuredCosts:
    return MeasuredCosts([MeasuredTraining(shape, 1000, 5, seconds, "a GPU", "here")], ratios, decoding=100.0)


def plan(**changes) -> Plan:
    noisy = {**SMALL["noisy"]["digits"], "methods": ["loss", "mixup"]}
    return Plan(resolve_config({**SMALL, "noisy": {"digits": noisy}, **changes}))


def test_flops_parameters_and_width_are_those_of_the_network():
    """small_cnn on 8 x 8: three convolutions (64, 64 and 16 places) and the head, two FLOPs a product."""
    products = 1 * 16 * 9 * 64 + 16 * 32 * 9 * 64 + 32 * 64 * 9 * 16 + 64 * 10
    assert (DIGITS.flops, DIGITS.width) == (2 * products, 64)
    assert DIGITS.parameters == 9 * (16 + 16 * 32 + 32 * 64) + 650 + sum(4 * c + 1 for c in (16, 32, 64))


def test_a_network_is_built_once_for_all_trainings_of_its_shape(monkeypatch):
    built = []
    monkeypatch.setattr(models, "build_network", lambda *shape: built.append(shape) or network(*shape))
    shapes = [NetworkShape("small_cnn", 12, 1, 10) for _ in range(3)]
    assert len({(s.flops, s.parameters, s.width) for s in shapes}) == 1 and len(built) == 1


def test_training_scales_with_images_epochs_and_flops():
    seconds, basis, same = costs().training(DIGITS, images=500, epochs=20)
    assert seconds == pytest.approx(10.0 * (500 * 20) / (1000 * 5)) and same and basis.hardware == "a GPU"
    wide = NetworkShape("lenet5", 28, 1, 10)
    seconds, _, same = costs().training(wide, 1000, 5)
    assert seconds == pytest.approx(10.0 * wide.flops / DIGITS.flops) and not same
    two = MeasuredCosts([*costs().trainings, MeasuredTraining(wide, 1000, 5, 77.0, "a GPU", "there")], {}, 1.0)
    assert two.training(wide, 1000, 5)[0] == pytest.approx(77.0), "the same network is scaled from itself"
    with pytest.raises(UserError, match="no measured training"):
        MeasuredCosts([], {}, 1.0)


def test_seconds_of_jobs_that_shared_a_gpu_make_no_ratio():
    crowded = MeasuredTraining(DIGITS, 1000, 5, 99.0, "a GPU", "crowd", shared=True)
    assert MeasuredCosts([crowded, *costs().trainings], {}, 1.0).training(DIGITS, 1000, 5)[0] == pytest.approx(10.0)
    assert MeasuredCosts([crowded], {}, 1.0).training(DIGITS, 1000, 5)[0] == pytest.approx(99.0), "better than nothing"
    less = replace(crowded, seconds=50.0)
    assert MeasuredCosts([crowded, less], {}, 1.0).training(DIGITS, 1000, 5)[1] is less, "it had fewer jobs beside it"
    about = {"table": "t", "dataset": "digits", "setting": "n20_s0"}
    seconds = {"plain": {"seconds_train": 2.0}, "aum": {"seconds_own": 1.0}, "mixup": {"seconds_own": 8.0}}
    records = [{**about, "metric": "layout", "layout": {"task": "noisy"}, "method": ""}]
    records += [{**about, "method": m, "metric": k, "mean": v} for m, s in seconds.items() for k, v in s.items()]
    records.append({**about, "method": "mixup", "metric": "overhead_marginal", "reason": SHARED_GPU})
    (panel,) = published_panels(records, plan().config)
    ratios = method_costs([panel], "GPU")
    assert set(ratios) == {("noisy", "aum")} and ratios["noisy", "aum"].own == pytest.approx(0.5)
    assert not panel.training("a GPU", Path("x/summary.json")).shared


def test_jobs_and_seconds_of_a_small_run():
    """1,438 digits, 6 epochs: a plain training of 10 s * 1438 * 6 / 5000; 2 settings x 2 seeds; 359 test images."""
    noisy, ood = estimate(plan(), costs())
    train = 10.0 * 1438 * 6 / 5000
    seconds = {job.name[2]: job.seconds for job in noisy.jobs}
    assert noisy.plain_seconds == pytest.approx(train) and set(seconds) == {"plain", "loss", "mixup"}
    passes = (1438 + 359) / (3 * 1438 * 6)  # once at the end, and the test images
    assert seconds["plain"] == pytest.approx(4 * train * (1 + passes))
    assert seconds["loss"] == pytest.approx(4 * train * 1.1) and seconds["mixup"] == pytest.approx(4 * train * 1.5)
    train = 10.0 * 867 * 6 / 5000 * NetworkShape("small_cnn", 8, 1, 6).flops / DIGITS.flops  # its head has six outputs
    seconds = {job.name[2]: job.seconds for job in ood.jobs}
    tested = 216 + 354 + 1000
    assert seconds["msp"] == pytest.approx(0.5 * tested * train / (867 * 6))
    assert seconds["ebo"] == pytest.approx(0.2 * train + tested * train / (867 * 6))
    assert [job.after for job in ood.jobs] == [(), *[(("ood", "digits_id", "plain", 0),)] * 2]


def test_batches_retraining_and_unknown_methods():
    few = plan(execution={"device": "cpu", "cells_per_job": 3})
    noisy, _ = estimate(few, costs())
    assert [(job.name[2:], job.cells) for job in noisy.jobs][:2] == [(("plain", 0), 3), (("plain", 1), 1)]
    off = {**SMALL["noisy"]["digits"], "methods": ["loss", "aum"], "retrain": False}
    noisy, _ = estimate(plan(noisy={"digits": off}), costs())
    train = 10.0 * 1438 * 6 / 5000
    seconds = {job.name[2]: job.seconds for job in noisy.jobs}
    assert seconds["loss"] == pytest.approx(4 * train * 0.1) and seconds["aum"] == 0 and noisy.unknown == {"aum"}


def test_streamed_images_are_bound_by_decoding():
    raw = {
        **SMALL, "execution": {"device": "cpu", "threads": 4}, "ood": {}, "tables": {},
        "noisy": {"clothing1m": {"recipe": {"model": "small_cnn", "epochs": 2}, "seeds": [0], "methods": ["loss"],
                                 "settings": {"web": {"kind": "collected"}}}},
    }  # fmt: skip
    (block,) = estimate(Plan(resolve_config(raw)), costs(1e-9))
    read = 1_000_000 * 2 / (100.0 * 4)
    assert block.decoding and block.plain_seconds == pytest.approx(read)
    assert block.training(4.4) == block.training(1.0) == pytest.approx(read), "two networks read an image once"
    assert block.training(0.1) == pytest.approx(0.1 * read)
    (block,) = estimate(Plan(resolve_config(raw)), costs(1e3))
    assert not block.decoding and block.training(4.4) == pytest.approx(4.4 * block.plain_seconds)


@pytest.mark.parametrize(("gpus", "expected"), [(1, 10), (2, 5), (64, 5)])
def test_the_schedule(gpus, expected):
    """plain 2, then a 3 and b 1; another plain 4. On two GPUs: plain and a until 5, the other plain and b until 5."""
    first, second = ("t", "d", "plain", 0), ("t", "e", "plain", 0)
    jobs = [
        Job(first, 2 * 3600.0),
        Job(second, 4 * 3600.0),
        Job(("t", "d", "a", 0), 3 * 3600.0, after=(first,)),
        Job(("t", "d", "b", 0), 1 * 3600.0, after=(first,)),
    ]
    assert schedule_hours(jobs, gpus) == expected
    for job in jobs:
        job.processes = 4
    assert schedule_hours(jobs, 1) == 10, "with one GPU nothing is shared out"
    assert schedule_hours(jobs, 4) == pytest.approx(2.5)
    assert schedule_hours(jobs, 3) == pytest.approx(5), "four processes on three GPUs are two"


def test_storage_is_that_of_the_arrays():
    p = plan()
    noisy, ood = estimate(p, costs())
    cell = {job.name[2]: p.batch(*job.name)[0] for job in noisy.jobs}
    n, m, k, e, d = 1438, 359, 10, 6, 64
    checkpoints = 2 * 4 * DIGITS.parameters
    assert stored_bytes(p, noisy, cell["plain"]) == 2 * n * (k + d) + 2 * e * n + 4 * m * k + 8 * (n + e) + checkpoints
    assert stored_bytes(p, noisy, cell["loss"]) == 17 * n + 4 * e * n + 4 * m * k
    assert noisy.bytes == 4 * (stored_bytes(p, noisy, cell["plain"]) + 2 * stored_bytes(p, noisy, cell["loss"]))
    n, m, k, e = ood.images, 216, 6, ood.recipe.epochs
    plain = 4 * n * (k + d) + 2 * e * n + 4 * m * k + 8 * (n + e)  # float32, where noisy labels have float16
    plain += 4 * ood.shape.parameters * len(ood.recipe.checkpoint_epochs())
    assert stored_bytes(p, ood, p.batch("ood", "digits_id", "plain", 0)[0]) == plain
    assert stored_bytes(p, ood, p.batch("ood", "digits_id", "msp", 0)[0]) == 8 * (216 + 354 + 1000) + 4 * 216 * 6


def test_costs_are_read_from_published_runs(tmp_path):
    """A run on a GPU gives trainings and ratios; its ratios count before costs.json, and that before a CPU."""
    decoding, alone = (
        {"images_per_core_second": 7.0},
        {m: {"own": 9.0, "again": 1.0} for m in ("sgoif", "incv", "loss")},
    )
    (tmp_path / "costs.json").write_text(
        json.dumps({"training": [], "methods": {"source": "here", "noisy": alone}, "decoding": decoding}),
    )
    for name, gpu, own in (("embedded", False, 8.0), ("cifar", True, 3.0)):
        folder = tmp_path / name
        folder.mkdir()
        dataset, setting = ("digits", "n20_s0") if name == "embedded" else ("cifar10", "n20_s0")
        about = {"table": "t", "dataset": dataset, "setting": setting}
        records = [
            {"table": "t", "metric": "layout", "layout": {"task": "noisy"}},
            {**about, "method": "plain", "metric": "seconds_train", "mean": 4.0},
            {**about, "method": "sgoif", "metric": "seconds_own", "mean": own},
            {**about, "method": "sgoif", "metric": "seconds_retrain", "mean": 2.0},
        ]
        records += [{**about, "method": "loss", "metric": "seconds_own", "mean": own}] if not gpu else []
        write_packed_json(folder / "summary.json.gz", records)
        hardware = ["cpus 2, gpu NVIDIA H200"] if gpu else ["cpus 2"]
        (folder / "provenance.json").write_text(json.dumps({"hardware": hardware}))
    found = load_costs(tmp_path)
    assert found.method("noisy", "sgoif") == MethodCost(0.75, 0.5, 0.0, "GPU") == found.method("noisy", "sgoif@no_gate")
    assert found.method("noisy", "incv") == found.method("noisy", "loss") == MethodCost(9.0, 1.0, 0.0, "GPU")
    (training,) = found.trainings
    assert (training.shape.model, training.images, training.epochs, training.seconds) == ("resnet9", 50000, 16, 4.0)
    assert found.decoding == 7.0 and found.method("noisy", "aum") is None


def test_the_papers_plan_names_what_is_extrapolated():
    text = plan_report(ROOT / "configs" / "paper.yaml")
    hours = {int(n): float(h) for n, h in re.findall(r"(\d+) GPUs?: ([\d.]+) h", text)}
    assert hours[64] < hours[8] / 5 < hours[1] / 35, "many GPUs share the long trainings"
    assert "1 GPU: " in text and "8 GPUs: " in text and "64 GPUs: " in text and "Storage: " in text
    for name in ("noisy webvision ", "noisy clothing1m ", "ood imagenet1k ", "noisy cifar10 "):
        assert name in text
    for words in ("an extrapolation", "median of 15 cells", "every dataset counted as present"):
        assert words in text
