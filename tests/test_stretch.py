"""benchmarks/stretch.py: which jobs, in which order, and that a second stretch goes on where the first was."""

import math
import time
from pathlib import Path

import pytest
import yaml

from benchmarks import stretch
from benchmarks.processes import Job, Processes, _compute, jobs_in_order, reads, watching_together, write_labels
from sgoif.bench.config import load_config
from sgoif.bench.data.prepare import prepare
from sgoif.bench.execution.plan import Cell, Plan
from sgoif.bench.execution.run_batch import run_batch
from sgoif.bench.sharing.export import export_records
from sgoif.bench.sharing.records_file import read_parts
from sgoif.errors import UserError
from sgoif.utils.paths import ROOT

MINI = ROOT / "tests" / "helpers" / "mini.yaml"


@pytest.fixture(scope="module")
def plan() -> Plan:
    return stretch.open_plan(MINI, workers=2, device=None)


def test_shared_runs_come_before_what_reads_them_and_nothing_twice(plan):
    order = [{"dataset": "digits", "seeds": [1], "methods": ["mixup", "aum", "loss"]}, {"seeds": [0, 1]}]
    jobs = jobs_in_order(plan, order, have=())
    of_seed_1 = (2, 3)  # batches: seeds, then settings
    first = [Job("digits", method, n) for n in of_seed_1 for method in ("mixup",)]
    assert jobs[:2] == first and len(jobs) == len(set(jobs)) == 4 * (5 + 2)
    assert all(jobs.index(Job(j.dataset, run, j.number)) < jobs.index(j) for j in jobs for run in reads(j.method))


def test_what_is_published_is_left_out_and_its_shared_run_with_it(plan):
    order = [{"dataset": "digits", "seeds": [0], "methods": ["loss", "mixup"]}]
    have = {Cell("noisy", "digits", setting, 0, "loss") for setting in ("n20_s0", "n40_s6")}
    assert jobs_in_order(plan, order, have) == [Job("digits", "mixup", 0), Job("digits", "mixup", 1)]
    some = jobs_in_order(plan, order, {Cell("noisy", "digits", "n20_s0", 0, "loss")})
    assert some == [Job("digits", m, n) for m, n in (("plain", 1), ("loss", 1), ("mixup", 0), ("mixup", 1))]
    with pytest.raises(UserError, match="no method of noisy/digits 'sgoif'"):
        jobs_in_order(plan, [{"seeds": [0], "methods": ["sgoif"]}], ())


def test_an_entry_may_name_settings(plan):
    entry = {"dataset": "digits", "seeds": [0, 1], "methods": ["loss"], "settings": ["n40_s6"]}
    jobs = jobs_in_order(plan, [entry], ())
    assert jobs == [Job("digits", method, number) for number in (1, 3) for method in ("plain", "loss")]
    with pytest.raises(UserError, match="n99_s0"):
        jobs_in_order(plan, [{**entry, "settings": ["n99_s0"]}], ())


@pytest.mark.parametrize(("config", "file"), [("measurement", "order"), ("measurement-long", "order-long")])
def test_the_order_of_a_measurement_names_what_its_configuration_has(config, file):
    plan = Plan(load_config(ROOT / "configs" / f"{config}.yaml", skip_missing=False))
    for spec in plan.config["noisy"].values():
        spec["cells_per_job"] = 1
    order = yaml.safe_load((ROOT / "benchmarks" / f"{file}.yaml").read_text())
    jobs = jobs_in_order(plan, order, ())
    wanted = {
        Job(dataset, method, number)
        for dataset in plan.datasets("noisy")
        for method in plan.methods("noisy", dataset)
        for number in range(plan.n_batches("noisy", dataset))
        if plan.batch("noisy", dataset, method, number)
    }
    assert wanted <= set(jobs)


def test_an_entry_may_name_out_of_distribution_detection(plan, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("digits_id", "digits_near", "photo_patches", "digits_aux"):
        prepare(name, Path("data"), None, download=False)
    Path("order.yaml").write_text("- {task: ood, dataset: digits_id, seeds: [0], methods: [msp]}")
    call = ["--config", str(MINI), "--order", "order.yaml", "--workers", "1", "--seconds", "200"]
    stretch.main([*call, "--out", "out.json.gz"])
    ((_, part),) = read_parts([Path("out.json.gz")])
    assert [(c["cell"]["task"], c["cell"]["method"], c["status"]) for c in part["cells"]] == [
        ("ood", "plain", "ok"),
        ("ood", "msp", "ok"),
    ]
    assert {"auroc:digits_near", "auroc:photo_patches"} <= {r["metric"] for r in part["records"]}
    have = stretch.published_cells([Path("out.json.gz")])
    assert jobs_in_order(plan, yaml.safe_load(Path("order.yaml").read_text()), have) == []


def test_ablations_of_one_setting_watch_one_training():
    plan = stretch.open_plan(ROOT / "configs" / "measurement.yaml", workers=2, device="cpu")
    parts = ["sgoif@no_gate", "sgoif@fisher", "sgoif", "sgoif@twice"]
    order = [{"dataset": "cifar10", "seeds": [0], "methods": parts, "settings": ["n20_s0", "n20_s6"]}]
    jobs = watching_together(plan, jobs_in_order(plan, order))
    assert {(j.method, j.number, j.together) for j in jobs} >= {
        ("sgoif@no_gate", 0, ("sgoif@twice",)),
        ("sgoif@no_gate", 3, ("sgoif@fisher", "sgoif@twice")),
        ("sgoif", 3, ()),  # is trained again without what it removes
    }
    assert sum(1 + len(j.together) for j in jobs) == len(jobs_in_order(plan, order))


def test_a_process_computes_all_that_watch_together(tmp_path, monkeypatch):
    called = []
    monkeypatch.setattr("benchmarks.processes.run_together", lambda *a: called.append([c.method for c in a[2]]))
    monkeypatch.setattr("benchmarks.processes.run_batch", lambda *a: called.append(a[4]))
    plan = stretch.open_plan(ROOT / "configs" / "measurement.yaml", workers=2, device="cpu")
    _compute(plan, tmp_path, Job("cifar10", "sgoif@no_gate", 3, together=("sgoif@fisher",)))
    _compute(plan, tmp_path, Job("cifar10", "sgoif@no_gate", 3))
    assert called == [["sgoif@no_gate", "sgoif@fisher"], "sgoif@no_gate", "sgoif@fisher", "sgoif@no_gate"]


def test_a_method_that_trains_is_not_begun_where_plain_training_would_not_end(plan, tmp_path):
    trained, scored = Job("digits", "mixup", 0), Job("digits", "loss", 0)
    stretch = Processes("stretch", plan, tmp_path, [trained, scored], until=time.monotonic() + 300)
    assert stretch._ready() == [scored, trained], "what reads a training comes first: that is on this machine alone"
    stretch.seconds["plain"] = [280.0]
    assert stretch._ready() == [scored], "it reads a training that is there"
    stretch.seconds["mixup"] = [20.0]
    assert stretch._ready() == [scored, trained]


def test_a_stretch_goes_on_where_another_was(plan, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    prepare("digits", Path("data"), None, download=False)
    done, run_dir = Job("digits", "random", 0), Path("results") / "mini"
    write_labels(plan, run_dir, [done])
    run_batch(plan, run_dir, "noisy", "digits", "random", 0, "cpu")
    soon = stretch.RecordsWriter(
        plan, run_dir, Path("meanwhile.json.gz"), "abc", "", set(), until=time.monotonic() + 100
    )
    soon.begin()
    soon.wait()
    assert not Path("meanwhile.json.gz").exists(), "near the end it would only be waited for"
    records = stretch.RecordsWriter(plan, run_dir, Path("meanwhile.json.gz"), "abc", "", set(), until=math.inf)
    records.begin()
    records.wait()
    ((_, before),) = read_parts([Path("meanwhile.json.gz")])  # what a machine leaves that is taken away
    assert [c["cell"]["setting"] for c in before["cells"]] == ["n20_s0"]
    assert records.last_seconds == stretch.LAST_WRITING and records._took.value > 0
    records._took.value = 60.0
    assert records.last_seconds == 90.0, "so long the jobs end earlier"
    Path("order.yaml").write_text("- {seeds: [0], methods: [random]}")
    call = ["--config", str(MINI), "--order", "order.yaml", "--workers", "1", "--out", "out.json.gz"]
    stretch.main([*call, "--seconds", "200", "--commit", "abc", "--note", "On a CPU."])
    said = capsys.readouterr().out
    assert "1 jobs; " in said and "random: 1 cells" in said and "0 jobs are left" in said
    assert [log.name for log in run_dir.glob("*.log")] == ["stretch-0.log"]
    ((_, part),) = read_parts([Path("out.json.gz")])
    assert sorted(c["cell"]["setting"] for c in part["cells"]) == ["n20_s0", "n40_s6"]
    assert all(c["status"] == "ok" for c in part["cells"]) and part["note"] == "On a CPU."
    published = stretch.published_cells([Path("meanwhile.json.gz")])
    new, _ = export_records(plan, run_dir, Path("new.json.gz"), published=published)
    assert [c["cell"]["setting"] for c in new["cells"]] == ["n40_s6"], "what is published stays as it is"
    assert {r["setting"] for r in new["records"]} == {"n40_s6"}
    published = stretch.published_cells([Path("out.json.gz")], again=["loss"])
    assert not stretch.published_cells([Path("out.json.gz")], again=["loss", "random"])
    kept = stretch.published_cells([Path("out.json.gz")], again=["random"], kept=[Path("meanwhile.json.gz")])
    assert {cell.setting for cell in kept} == {"n20_s0"}, "of what is computed again a part is there"
    with pytest.raises(UserError, match="no finished cell to export that is not published"):
        export_records(plan, run_dir, Path("new.json.gz"), published=published)
