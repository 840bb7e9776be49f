"""Tables of variants: every kind, from cells to files, with gaps; and what a table's rows ask of the plan."""

import copy

import numpy as np
import pytest
import scipy.stats

from sgoif import InfluenceConfig
from sgoif.bench import tables
from sgoif.bench.config import load_config, resolve_config
from sgoif.bench.evaluation.evaluate import evaluate
from sgoif.bench.evaluation.summary import summarise
from sgoif.bench.execution.plan import Plan
from sgoif.bench.tables.formats.markdown import to_markdown
from sgoif.errors import UserError
from sgoif.utils.files import read_json
from tests.bench.config.test_resolve import CONFIGS, SMALL
from tests.helpers import table_checks
from tests.helpers.fake_runs import GRID, N, Run, config

VARIANTS = {
    "no_gate": {"gate": "none"},
    "trigger": {"trigger": True},
    "no_sketch": {"refiner": "cg"},
    "diagonal": {"curvature": "diagonal"},
    "hot": {"temperature": 8.0},
}
SETTINGS, SEEDS = {k: GRID[k] for k in ("n20s0", "n40s0")}, [0, 1]
SETS = [{"dataset": "digits", "setting": "n20s0"}, {"dataset": "digits", "setting": "n40s0", "stands_for": "ImageNet"}]
ABSENT = {"dataset": "webvision"}
ALL = ["sgoif", *(f"sgoif@{v}" for v in VARIANTS)]
TABLES = {
    "short": {"kind": "ablation", "sets": SETS, "methods": ALL[:4]},
    "extended": {"kind": "ablation", "sets": SETS[:1], "methods": ALL[:4], "extended": True, "ood": "digits7"},
    "absent": {"kind": "ablation", "sets": [ABSENT], "methods": ALL[:4], "extended": True},
    "lacking": {"kind": "ablation", "sets": SETS[:1], "methods": ["sgoif", "sgoif@hot"]},
    "stability": {"kind": "stability", "sets": [*SETS, ABSENT], "methods": ALL[:4]},
    "backends": {"kind": "backends", "sets": SETS, "methods": ["sgoif", "sgoif@diagonal"]},
    "sensitivity": {"kind": "sensitivity", "sets": [*SETS, ABSENT], "methods": ["sgoif", "sgoif@hot"]},
}
CONTROLS = {"kind": "scores", "sets": SETS[:1], "methods": ["sgoif", "sgoif@hot"]}


def described() -> dict:
    entry = {"title": "digits", "stands_for": "CIFAR-10", "settings": SETTINGS, "seeds": SEEDS, "methods": ALL}
    return config(noisy={"digits": entry}, tables={**TABLES, "controls": CONTROLS}, variants={"sgoif": VARIANTS})


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """`trigger` scores exactly as the full method, `no_sketch` was never run, `hot` lacks a seed."""
    run = Run(tmp_path_factory.mktemp("variants"))
    for setting, noise in SETTINGS.items():
        wrong, ids = run.truth("digits", setting, noise["noise"])
        run.test_labels("digits")
        for seed in SEEDS:
            run.cell("noisy", "digits", setting, seed, "plain", {}, seconds={"train": 2.0})
            found = {m: run.rng.normal(size=N) + s * wrong for m, s in (("", 2.0), ("no_gate", 0.5), ("diagonal", 1.8))}
            found |= {"trigger": found[""], "hot": found["diagonal"]}
            for i, (variant, scores) in enumerate(found.items()):
                if (variant, seed) == ("hot", 1):
                    continue
                arrays = {"scores": scores, "ids": ids, "epoch_scores": np.stack([scores] * 2)}
                extras = {"hvps_per_step": 2.0 + i, "mean_residual": 0.1, "mean_confidence": 0.8}
                method = f"sgoif@{variant}" if variant else "sgoif"
                run.cell("noisy", "digits", setting, seed, method, arrays, seconds={"train": 3.0 + i}, extras=extras)
    run.fill_ood()
    for task, dataset in (("noisy", "digits"), ("ood", "digits7")):
        evaluate(run.root, run.data, task, dataset, described())
    run.records = summarise(run.root, described())
    tables.write_tables(run.root, described())
    return run


def text(run, name, ending="md"):
    return (run.root / "tables" / f"{name}.{ending}").read_text()


def grid(run, name, block=0):
    return table_checks.grid(text(run, name), block)


@pytest.mark.parametrize("name", TABLES)
def test_every_file_is_well_formed(finished, name):
    table_checks.check_markdown(text(finished, name))
    table_checks.check_notes(text(finished, name))
    table_checks.check_latex(text(finished, name, "tex"))


@pytest.mark.parametrize("name", [n for n in TABLES if n != "absent"])
def test_every_caption_says_seeds_selection_and_full(finished, name):
    words = " ".join(text(finished, name).split())
    assert "Mean ± standard deviation over 2 seeds" in words and "No epoch is selected" in words
    assert "Full: curvature kfac" in words and "scores over the last 50% of training" in words


def test_rows_are_named_by_what_they_change_and_the_full_method_is_first(finished):
    header, rows = grid(finished, "short")
    assert header[1:] == ["AUC-PR", "P@1%", "overhead · wall", "overhead · CPU"]
    assert list(rows) == ["SG-OIF (full)", "w/o Stability Gate", "with Refinement Trigger", "w/o Sketch PCG"]
    assert set(rows["w/o Sketch PCG"]) == {"not run [1]"}
    words = " ".join(text(finished, "short").split())
    assert "w/o Stability Gate: gate = none (full: stability)" in words and "digits 20% " in words
    assert rows["SG-OIF (full)"][2] == "1.50±0.00×"


def test_the_difference_is_paired_by_setting_and_seed_and_counted_by_draw(finished):
    header, rows = grid(finished, "short", 2)
    assert header[1:] == ["draws", "Δ AUC-PR · points", "Δ AUC-PR · 95% ±", "Δ P@1% · points", "Δ P@1% · 95% ±"]
    values = {
        method: np.array([r["values"] for r in finished.records if (r["table"], r["method"], r["metric"])
                          == ("short", method, "auc_pr")])
        for method in ("sgoif", "sgoif@no_gate")
    }  # fmt: skip
    lost = (values["sgoif@no_gate"] - values["sgoif"]).mean(0)  # [settings, seeds] -> each seed draws noise once
    assert rows["w/o Stability Gate"][0] == "2"
    assert rows["w/o Stability Gate"][1] == f"{100 * lost.mean():.2f}±{100 * lost.std(ddof=1):.2f}"
    interval = scipy.stats.t.interval(0.95, 1, lost.mean(), lost.std(ddof=1) / np.sqrt(2))
    assert rows["w/o Stability Gate"][2] == f"{100 * (interval[1] - interval[0]) / 2:.2f}"
    assert "fewer than 5 draws allow no test" in " ".join(text(finished, "short").split())
    assert rows["with Refinement Trigger"][1:3] == ["0.00±0.00", "0.00"]
    assert "No difference in any pair: with Refinement Trigger." in text(finished, "short")
    assert rows["w/o Sketch PCG"][1] == "not run [1]"


def test_ood_figures_are_the_full_methods_and_the_other_rows_say_so(finished):
    header, rows = grid(finished, "extended")
    at = header.index("OOD · AUROC") - 1
    expected = [r for r in finished.records if (r["table"], r["dataset"], r["method"], r["metric"])
                == ("extended", "digits7", "sgoif", "auroc:overall")]  # fmt: skip
    assert rows["SG-OIF (full)"][at].startswith(f"{100 * expected[0]['mean']:.1f}")
    assert rows["w/o Stability Gate"][at].startswith("as Full [")
    assert "ID digits 0-6 (clean labels, 3 seed(s)) against digits789, photos, noise" in " ".join(
        text(finished, "extended").split()
    )
    assert header[-3:] == ["τ top 1%", "time × device (s)", "HVPs/step"]
    assert [c for c in header if c.startswith("Recall")] == ["Recall · @1%", "Recall · @5%", "Recall · @10%"]


def test_a_table_may_leave_out_what_the_run_has_and_name_what_it_has_not(finished):
    changed = described()
    sets = [{"dataset": "digits", "setting": "n20s0", "gap": "too costly"}, {"dataset": "cifar100"}]
    changed["tables"] = {"t": {"kind": "stability", "methods": ["sgoif"], "sets": sets}}
    summarise(finished.root, changed)
    header, rows = table_checks.grid(to_markdown(tables.build_tables(read_json(finished.root / "summary.json"))[0]))
    summarise(finished.root, described())
    assert header[1:] == ["digits", "cifar100"] and rows["SG-OIF (full)"] == ["not run [1]", "not run [2]"]


def test_data_that_was_not_run_is_a_labelled_gap(finished):
    header, rows = grid(finished, "absent")
    assert header == ["variant", "WebVision"] and set(map(tuple, rows.values())) == {("not run [1]",)}
    assert len(rows) == 4 and "[1] data not found: 16 GB" in text(finished, "absent")


def test_the_summary_has_a_column_a_set_and_the_means_of_what_was_run(finished):
    header, rows = grid(finished, "stability")
    assert header[1:4] == ["τ top 1% · digits 20% (for CIFAR-10)", "τ top 1% · digits 40% (for ImageNet)", "WebVision"]
    assert header[4:] == ["mean · τ", "mean · time × device (s)", "mean · cost / Full", "mean · HVPs/step"]
    assert rows["w/o Stability Gate"][-3:] == ["4.0", "1.33±0.00×", "3.0"]
    assert rows["SG-OIF (full)"][2] == "not run [1]" and rows["SG-OIF (full)"][-2] == "1.00±0.00×"


def test_backends_are_compared_by_quality_time_and_memory(finished):
    header, rows = grid(finished, "backends")
    assert list(rows) == ["kfac (full)", "diagonal"]
    assert {"mean · residual", "time × device (s)", "memory · peak MB", "HVPs/step"} <= set(header)
    assert rows["diagonal"][header.index("memory · peak MB") - 1] == "300"


def test_the_sheet_has_the_values_in_order_with_the_default_among_them(finished):
    header, rows = grid(finished, "sensitivity")
    default = InfluenceConfig().temperature
    assert [r for r in rows if not r.startswith("*")] == [f"{default:g} (default)", "8"]
    assert header[-2:] == ["Δ AUC-PR · points", "Δ AUC-PR · 95% ±"]
    assert rows[f"{default:g} (default)"][-1] == "–" and "[1] 1 of 2 seeds" in text(finished, "sensitivity")
    assert grid(finished, "sensitivity", 1)[0][-1] == "WebVision"


def test_where_rows_lack_seeds_all_are_compared_over_the_seeds_that_all_have(finished):
    records = evaluate(finished.root, finished.data, "noisy", "digits", described())
    auc = {
        r["setting"]: 100 * r["value"]
        for r in records
        if (r["method"], r["seed"], r["metric"], r["variant"], r["epoch"]) == ("sgoif", 0, "auc_pr", "", None)
    }
    assert " 20%, seed 0, which all rows have" in text(finished, "lacking")
    of_all, of_common = (grid(finished, "lacking", n)[1]["SG-OIF (full)"][0] for n in (0, 1))
    assert of_common.strip("*") == f"{auc['n20s0']:.1f}" and "±" in of_all
    default = f"{InfluenceConfig().temperature:g} (default)"
    assert grid(finished, "sensitivity")[1][default][0].startswith(f"{np.mean(list(auc.values())):.1f}")
    own = next(line for line in text(finished, "controls").splitlines() if line.startswith("| the method's score"))
    assert f" {auc['n20s0']:.1f}" in own and "±" not in own
    assert "over the seeds that all rows have." in " ".join(text(finished, "controls").split())


# ------------------------------------------------------------------------------------------------ the plan


def planned(methods=("sgoif", "sgoif@hot"), **changes) -> dict:
    small = copy.deepcopy(SMALL)
    small["variants"] = {"sgoif": {"hot": {"temperature": 8.0}}}
    sets = [{"dataset": "digits", "setting": "n40_s6"}]
    small["tables"]["sheet"] = {"kind": "sensitivity", "methods": list(methods), "sets": sets, **changes}
    return small


def test_rows_of_a_table_are_run_in_its_settings_only_and_not_retrained():
    plan = Plan(resolve_config(planned()))
    hot, mixup = (plan.batch("noisy", "digits", method, 0) for method in ("sgoif@hot", "mixup"))
    assert [c.setting for c in hot] == ["n40_s6"] * 2 and not any(plan.retrains(c) for c in hot)
    assert len(mixup) == 4 and all(plan.retrains(c) for c in mixup)
    again = resolve_config(plan.config)
    assert again["noisy"] == plan.config["noisy"]


def test_batches_of_all_methods_cover_the_same_settings_and_seeds():
    small = planned()
    small["execution"]["cells_per_job"] = 1
    plan = Plan(resolve_config(small))
    batches = [plan.batch("noisy", "digits", "sgoif@hot", n) for n in range(plan.n_batches("noisy", "digits"))]
    assert [[(c.setting, c.seed) for c in b] for b in batches] == [[], [("n40_s6", 0)], [], [("n40_s6", 1)]]


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (planned(["sgoif@warm"]), "tables.sheet.methods .variants.sgoif.: no variant 'warm'"),
        (planned(sets=[{"dataset": "digits", "setting": "n99"}]), "tables.sheet .noisy.digits.settings.: no setting"),
        (planned(sets=[{"setting": "n99"}]), "tables.sheet.sets.0: the key 'dataset' is missing"),
    ],
)
def test_mistakes_in_a_table_are_told_before_any_job(config, told):
    with pytest.raises(UserError, match=told):
        resolve_config(config)


def test_a_table_of_variants_needs_an_id_set_that_is_there(finished):
    wrong = described()
    wrong["tables"] = {"t": {**TABLES["extended"], "ood": "mnist"}}
    with pytest.raises(UserError, match=r"tables.t.ood: no ood dataset 'mnist'; there are: digits7"):
        summarise(finished.root, wrong)
    assert read_json(finished.root / "summary.json") == finished.records


# ------------------------------------------------------------------------------------------------ what is shipped


@pytest.mark.parametrize("name", ["embedded", "cifar", "paper"])
def test_shipped_tables_change_one_field_a_row_and_cover_the_papers_ablations(name):
    shipped = load_config(CONFIGS / f"{name}.yaml")
    named = {t: spec for t, spec in shipped["tables"].items() if "methods" in spec}
    of_variants = {t: spec for t, spec in named.items() if spec["kind"] not in ("noise_grid", "noise_sets", "scores")}
    assert {"ablation_cifar10", "ablation_cifar100", "ablation_webvision", "ablation_clothing1m", "ablation_mnist",
            "ablation_imagenet", "ablation_summary", "backends", "sensitivity"} == set(of_variants)  # fmt: skip
    full = InfluenceConfig(**shipped["params"].get("sgoif", {})).to_dict()
    fields = {}
    for table, spec in of_variants.items():
        assert spec["methods"][0] == "sgoif"
        changes = [shipped["variants"]["sgoif"][m.partition("@")[2]] for m in spec["methods"][1:]]
        fields[table] = [next(iter(change)) for change in changes]
        assert all(len(change) == 1 for change in changes)
        assert all(full[field] != value for change in changes for field, value in change.items()), table
        if table.startswith("ablation"):
            known = list(InfluenceConfig.ablations().values())
            assert all(change in known for change in changes)
            assert len(spec["methods"]) == (6 if "cifar" in table else len(known))
    assert set(fields["sensitivity"]) == {"anchors", "rank", "solve_every", "coverage_every", "kappa", "temperature",
                                          "damping", "window"}  # fmt: skip
    assert set(fields["backends"]) == {"curvature"}
