"""The ledger: a verdict for every printed number, nothing invented, gaps labelled."""

import re

import pytest

from sgoif import InfluenceConfig
from sgoif.bench.config import load_config
from sgoif.bench.evaluation.evaluate import evaluate
from sgoif.bench.evaluation.resolve_layout import resolve_layout
from sgoif.bench.evaluation.summary import summarise
from sgoif.bench.evaluation.summary_record import layout_record, summary_record
from sgoif.bench.evaluation.table_layout import Panel, TableLayout
from sgoif.bench.paper import comparison as ledgers
from sgoif.bench.paper.comparison import (
    DIFFERS,
    INCONCLUSIVE,
    NOT_DEFINED,
    NOT_RUN,
    ON_STAND_IN,
    REPRODUCED,
    VERDICTS,
    build_ledger,
    write_ledger,
)
from sgoif.bench.paper.comparison_page import page
from sgoif.bench.paper.measured_values import METRIC_TITLES, MeasuredValues
from sgoif.bench.paper.printed import load
from sgoif.utils.files import read_json
from sgoif.utils.paths import ROOT
from tests.helpers.fake_runs import Run, config

CONFIGS = ROOT / "configs"
PAPER = load()
KEYS = {"table", "row", "column", "printed", "printed_text", "unit", "sources", "measured", "measured_what",
        "measured_on", "interval", "seeds", "stand_in", "verdict", "reason", "also"}  # fmt: skip
GRID_20 = "Sparsity (Noise 20%) · 0.0"
REAL = {"dataset": "cifar10", "setting": "n20_s0", "title": "CIFAR-10"}
STAND_IN = {"dataset": "digits", "title": "Digits", "stands_for": "CIFAR-10"}


def summary(*numbers, panel=(), not_run=(), kind="noise_grid"):
    """Records of a summary with one panel (on CIFAR-10 unless told) and numbers (method, metric, mean, std, seeds)."""
    panel = {"task": "noisy", "setting": "n20_s0", "kind": "class_conditional", "noise": 0.2, "sparsity": 0.0,
             "stands_for": "", "near": [], "far": [], **REAL, **dict(panel)}  # fmt: skip
    layout = {"kind": kind, "task": panel["task"], "title": "t", "panels": [panel], "not_run": list(not_run)}
    records = [{"metric": "layout", "variant": "", "layout": layout}]
    for method, metric, mean, std, seeds in numbers:
        where = {"dataset": panel["dataset"], "setting": panel["setting"], "method": method, "variant": ""}
        records.append(
            {**where, "metric": metric, "mean": mean, "std": std, "n_seeds": seeds, "status": "ok", "reason": ""}
        )
    return records


def cell(records, row, column=GRID_20, table="Table 1", **more):
    found = build_ledger(records, {"run": "r", **more}, PAPER)
    (record,) = [c for c in found["cells"] if (c["table"], c["row"], c["column"]) == (table, row, column)]
    return record


# ------------------------------------------------------------------------------------------------ completeness


def test_without_any_measurement_every_number_has_a_verdict_and_none_a_value():
    found = build_ledger([], {"run": "empty"}, PAPER)
    assert len(found["cells"]) == 803 and all(set(c) == KEYS for c in found["cells"])
    for c in found["cells"]:
        assert c["verdict"] in (NOT_DEFINED, NOT_RUN) and c["reason"]
        assert (c["measured"], c["interval"], c["seeds"], c["also"]) == (None, None, 0, [])
    for table in found["tables"]:
        size = len(PAPER[table["name"]].numbers)
        assert sum(table[v.replace(" ", "_")] for v in VERDICTS) == size
    assert len({(c["table"], c["row"], c["column"]) for c in found["cells"]}) == 803


def test_a_whole_run_on_stand_ins_reproduces_nothing_and_invents_nothing(tmp_path):
    run = Run(tmp_path)
    run.fill_noisy()
    run.fill_ood()
    for task, dataset in (("noisy", "digits"), ("ood", "digits7")):
        evaluate(run.root, run.data, task, dataset, config())
    records = summarise(run.root, config())
    first = [p.read_bytes() for p in write_ledger(run.root, config())]
    assert [p.read_bytes() for p in write_ledger(run.root, config())] == first
    known = {v for r in records if r.get("mean") is not None for v in (r["mean"], 100.0 * r["mean"])}
    found = read_json(run.root / "ledger.json")
    shown = [c for c in found["cells"] if c["measured"] is not None]
    assert {c["verdict"] for c in found["cells"]} == {NOT_DEFINED, NOT_RUN, ON_STAND_IN}
    assert all(c["stand_in"] for c in found["cells"] if c["verdict"] == ON_STAND_IN)
    assert {c["table"] for c in shown} >= {"Table 1", "Table 3", "Table 4"}
    for c in shown:
        assert c["measured"] in known and all(a["value"] in known for a in c["also"])
        assert c["stand_in"] and "(STAND-IN: digits" in c["measured_what"] and c["seeds"] == 3
    failed = next(c for c in found["cells"] if (c["row"], c["column"]) == ("CutPaste", "MNIST · AUROC"))
    assert failed["measured"] is None and failed["reason"] == "failed: ran past its time limit of 60 s"
    missing = next(c for c in found["cells"] if (c["table"], c["row"]) == ("Table 1", "FASTIF"))
    assert missing["verdict"] == NOT_RUN and missing["reason"] == "this run measured no P@1% here"


# ------------------------------------------------------------------------------------------------ verdicts


@pytest.mark.parametrize(
    "mean,std,seeds,verdict,why",  # printed: 91.1
    [
        (0.93, 0.001, 3, REPRODUCED, "tolerance is 2"),
        (0.935, 0.001, 3, DIFFERS, "tolerance is 2"),
        (0.935, 0.0079, 3, INCONCLUSIVE, "tolerance is 2"),  # the mean is outside, its interval reaches into it
        (0.915, 0.02, 3, INCONCLUSIVE, "larger than the tolerance"),  # near, but the seeds are 5 points apart
        (0.623, 0.3, 3, INCONCLUSIVE, "larger than the tolerance"),
        (0.623, 0.02, 3, DIFFERS, "tolerance is 2"),  # a wide interval does not reach as far
        (0.8906, None, 1, INCONCLUSIVE, "one seed"),
        (0.88, None, 1, DIFFERS, "tolerance is 2"),
    ],
)
def test_the_tolerance_and_the_interval_decide(mean, std, seeds, verdict, why):
    found = cell(summary(("sgoif", "p_at_1", mean, std, seeds)), "SG-OIF (ours)")
    assert (found["verdict"], found["seeds"], found["stand_in"]) == (verdict, seeds, False)
    assert found["measured"] == pytest.approx(100 * mean) and (found["interval"] is None) == (seeds == 1)
    assert why in found["reason"]


def test_an_interval_that_is_cut_at_its_limits_is_still_wide():
    found = cell(summary(("coteaching", "p_at_1", 0.98, 0.03, 2)), "Co-Teaching")
    assert found["interval"][1] == 100.0 and found["verdict"] == INCONCLUSIVE


@pytest.mark.parametrize(
    "metric,column", [("auroc:overall", "CIFAR-10 · AUROC"), ("aupr_out_ap:overall", "CIFAR-10 · AUPR")]
)
@pytest.mark.parametrize("far,stand_in", [("svhn", False), ("svhn10k_recropped", True)])
def test_a_stand_in_among_the_ood_sets_is_no_reproduction(metric, column, far, stand_in):
    panel = {"task": "ood", "setting": "clean", "kind": "", "noise": None, "near": ["cifar100"], "far": [far]}
    printed = PAPER["Table 3"].value("KNN", column) / 100
    found = cell(summary(("knn", metric, printed, 0.0001, 3), panel=panel), "KNN", column, "Table 3")
    assert (found["verdict"], found["stand_in"]) == ((ON_STAND_IN, True) if stand_in else (REPRODUCED, False))
    assert (far in found["reason"]) == (far in found["measured_what"]) == stand_in


def test_a_reading_without_the_stand_in_keeps_its_verdict():
    panel = {"task": "ood", "setting": "clean", "kind": "", "noise": None, "near": ["cifar100"], "far": ["dtd10"]}
    printed = PAPER["Table 3"].value("KNN", "CIFAR-10 · AUROC") / 100
    numbers = [("knn", f"auroc:{group}", printed, 0.0001, 3) for group in ("overall", "near")]
    found = cell(summary(*numbers, panel=panel), "KNN", "CIFAR-10 · AUROC", "Table 3")
    assert found["verdict"] == ON_STAND_IN and [o["verdict"] for o in found["also"]] == [REPRODUCED]


def test_a_number_is_judged_under_its_own_name_and_under_the_other_reading():
    numbers = ("sgoif", "p_at_1", 1.0, 0.0, 3), ("sgoif", "test_accuracy", 0.912, 0.001, 3)
    found = cell(summary(*numbers), "SG-OIF (ours)")
    assert (found["verdict"], found["measured_what"], found["measured_on"]) == (DIFFERS, "P@1%", "CIFAR-10 n20_s0")
    (other,) = found["also"]
    assert (other["verdict"], other["value"]) == (REPRODUCED, pytest.approx(91.2))
    assert other["what"] == "test accuracy after cleaning"


def test_training_free_scores_have_the_narrow_tolerance():
    panel = {"task": "ood", "setting": "clean", "kind": "", "noise": None, "near": ["cifar100"], "far": ["svhn"]}
    for method, row in (("knn", "KNN"), ("pixmix", "PixMix")):
        printed = PAPER["Table 3"].value(row, "CIFAR-10 · AUROC") / 100
        records = summary((method, "auroc:overall", printed + 0.015, 0.0001, 3), panel=panel)
        found = cell(records, row, "CIFAR-10 · AUROC", "Table 3")
        assert found["verdict"] == (DIFFERS if method == "knn" else REPRODUCED)
        assert "the paper names no OOD sets" in found["reason"]
        assert found["measured_on"] == "CIFAR-10 against cifar100, svhn"


def test_undefined_quantities_stay_so_with_the_nearest_measurement_beside_them():
    panel = {"dataset": "MNIST", "title": "MNIST"}
    records = summary(("sgoif", "auc_pr", 0.998, 0.0, 3), ("sgoif", "tau_top1", 0.93, 0.0, 3), panel=panel)
    found = cell(records, "Full (SG-OIF)", "AUPR", "Table 9")
    assert found["verdict"] == NOT_DEFINED and found["measured"] == pytest.approx(99.8)
    assert "neither the kind nor the rate" in found["reason"]
    stability = cell(records, "Full (SG-OIF)", "τ@Top1%", "Table 9")
    assert stability["verdict"] == REPRODUCED and "the paper names no noise" in stability["reason"]


def test_variants_are_found_by_what_they_change():
    records = summary(("sgoif@open", "auc_pr", 0.598, 0.0, 3))
    variants = {"sgoif": {"open": InfluenceConfig.ablations()["w/o Stability Gate"]}}
    assert cell(records, "w/o Stability Gate", "AUPR", "Table 4", variants=variants)["verdict"] == REPRODUCED
    assert cell(records, "w/o Stability Gate", "AUPR", "Table 4")["reason"].startswith("this run has no variant")
    named = {r.variant for t in PAPER.values() for r in t.rows} - {""}
    assert named == set(InfluenceConfig.ablations()) - {"with Refinement Trigger"}  # the full method has none


# ------------------------------------------------------------------------------------------------ provenance


@pytest.mark.parametrize("place,taken", [("CIFAR-10", True), ("CIFAR-10 with 20% noise", True), ("CIFAR-100", False),
                                         ("CIFAR-10N", False), ("", False)])  # fmt: skip
def test_a_stand_in_is_taken_for_its_dataset_alone_and_labelled(place, taken):
    found = cell(summary(("sgoif", "p_at_1", 0.911, 0.0, 3), panel={**STAND_IN, "stands_for": place}), "SG-OIF (ours)")
    assert found["verdict"] == (ON_STAND_IN if taken else NOT_RUN)
    assert (found["measured"] is not None) == found["stand_in"] == taken
    assert ("STAND-IN" in found["measured_what"]) == taken
    assert (
        "stand-in" in found["reason"]
        if taken
        else found["reason"] == "no table of this run has CIFAR-10 with 20% noise"
    )


def test_a_stand_in_of_an_ablation_stands_in_no_table_of_methods():
    panel = {**STAND_IN, "stands_for": "WebVision", "kind": "symmetric", "sparsity": None, "setting": "sym20"}
    numbers = [("sgoif", m, 0.5, 0.1, 2) for m in ("overhead_standalone", "tau_top1", "auc_pr")]
    for kind, taken in (("ablation", False), ("noise_sets", True)):
        records = summary(*numbers, panel=panel, kind=kind)
        in_table_2 = cell(records, "SG-OIF (ours)", "WebVision · Overhead", "Table 2")
        assert (in_table_2["measured"] is not None) == taken
        stability = cell(records, "Full (SG-OIF)", "τ@Top1%", "Table 7")  # the paper names no noise: any is taken
        assert (stability["verdict"], stability["measured_on"]) == (ON_STAND_IN, "Digits sym20") and stability[
            "stand_in"
        ]
        assert cell(records, "Full (SG-OIF)", "AUPR", "Table 7")["verdict"] == NOT_DEFINED


def test_an_interval_ends_where_the_quantity_does():
    found = cell(summary(("sgoif", "p_at_1", 0.99, 0.05, 2), ("sgoif", "test_accuracy", 0.1, 0.1, 2)), "SG-OIF (ours)")
    assert found["interval"][1] == 100.0 and found["also"][0]["interval"][0] == 0.0


def test_other_noise_is_another_quantity():
    for other in ({"noise": 0.4}, {"sparsity": 0.2}, {"kind": "symmetric"}):
        records = summary(("sgoif", "p_at_1", 0.911, 0.0, 3), panel=other)
        assert cell(records, "SG-OIF (ours)")["measured"] is None
    panel = {"dataset": "cifar100", "title": "CIFAR-100", "kind": "superclass", "sparsity": None}
    records = summary(("sgoif", "p_at_1", 0.885, 0.0, 3), panel=panel)
    assert cell(records, "SG-OIF (ours)", "CIFAR-100 · P@1%", "Table 2")["verdict"] == REPRODUCED


@pytest.mark.parametrize("name,own", [("cifar", ("CIFAR-10", "CIFAR-100", "MNIST")), ("embedded", ())])
def test_the_shipped_configurations_have_a_place_for_the_numbers_they_can_measure(name, own):
    """cifar.yaml measures the paper's own datasets; in embedded.yaml the digits stand for CIFAR-10."""
    shipped = load_config(CONFIGS / f"{name}.yaml")
    layouts = [resolve_layout(table, spec, shipped).to_json() for table, spec in shipped["tables"].items()]
    measured = MeasuredValues([{"metric": "layout", "variant": "", "layout": layout} for layout in layouts], shipped)
    for table in ("Table 1", "Table 2", "Table 3", "Table 4"):
        for c in (c for c in PAPER[table] if c.column.metric):
            panel, stand_in = measured.panel(c)
            if c.column.dataset in own or c.column.dataset == "CIFAR-10":
                assert panel and stand_in == (not own), c.name
                assert measured.of(c, c.column.metric).reason.startswith(("this run measured no", "this run has no v"))


def test_the_configurations_reason_is_told_for_data_that_is_not_there():
    records = summary(not_run=[{"dataset": "webvision", "title": "WebVision", "reason": "gated: ask its authors"}])
    found = cell(records, "INCV", "WebVision · Overhead", "Table 2")
    assert (found["verdict"], found["reason"]) == (NOT_RUN, "gated: ask its authors")


def test_what_a_part_of_a_run_has_not_measured_yet_is_told():
    gap = {"task": "ood", "dataset": "cifar10", "title": "CIFAR-10", "reason": "not run yet"}
    table = {"title": "Ablation: CIFAR-10", "reason": "not run yet"}
    config = {"not_run": [gap], "tables_not_run": [table], "variants": {"sgoif": {"no_gate": {"gate": "none"}}}}
    found = [c for c in build_ledger(summary(), {"run": "r", **config}, PAPER)["cells"] if c["verdict"] == NOT_RUN]
    reasons = {(c["table"], c["row"], c["column"]): c["reason"] for c in found}
    assert {r for (table, _, column), r in reasons.items() if table == "Table 3" and "CIFAR-10 " in column} == {
        "not run yet"
    }
    assert reasons["Table 4", "w/o Stability Gate", "AUPR"] == "not run yet"
    assert reasons["Table 1", "INCV", GRID_20].startswith("this run measured no P@1%"), "it has a table"


def test_every_metric_of_the_tables_has_words():
    columns = [c for t in PAPER.values() for c in t.columns]
    assert {m for c in columns for m in (c.metric, *c.also)} - {""} == set(METRIC_TITLES)


# ------------------------------------------------------------------------------------------------ the page


def test_the_page_shows_every_number_and_resolves_every_note():
    text = page(build_ledger(summary(("sgoif", "p_at_1", 0.935, 0.001, 3)), {"run": "r"}, PAPER))
    for name in PAPER:
        section = text.split(f"## {name}: ")[1].split("\n## ")[0]
        rows = [line for line in section.splitlines() if line.startswith("|")]
        assert len(rows) == len(PAPER[name].numbers) + 2 and len({len(r) for r in rows}) == 1
        notes = re.findall(r"^\[(\d+)\] ", section, re.M)
        assert {int(n) for r in rows for n in re.findall(r"\[(\d+)\]", r)} == set(range(1, len(notes) + 1))
    assert "93.50 [93.25, 93.75] n=3" in text and "None" not in text and "nan" not in text
    for rule in ledgers.RULES.values():
        assert rule in text


def test_the_ledger_says_what_its_intervals_are_over():
    def of(seeds_of_labels):
        panel = Panel(
            "noisy", "cifar10", "n20", "CIFAR-10", kind="symmetric", noise=0.2, methods=["sgoif"], seeds=[0, 1]
        )
        layout = TableLayout("noise_grid", "noisy", "Grid", panels=[panel])
        named = {"dataset": "cifar10", "setting": "n20", "method": "", "metric": "base_rate"}
        numbers = {"mean": 0.2, "n_seeds": len(seeds_of_labels), "seeds": seeds_of_labels, "values": [0.2]}
        return ledgers.interval_words([layout_record("t", layout), summary_record("t", **named, **numbers)])

    assert "in 1 of 1 noisy settings all seeds read the same labels" in of([None])
    assert "each of which draws its own noise" in of([0, 1])
    assert (
        ledgers.build_ledger([], {"run": "r", "variants": {}}, load())["rules"]["intervals"]
        == "over the seeds of this run"
    )
