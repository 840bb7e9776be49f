"""Tables of a run in which some cells failed and some are missing."""

import csv
import io
import re
import shutil
from dataclasses import replace

import pytest

from sgoif.bench import tables
from sgoif.bench.evaluation.overhead import SHARED_GPU
from sgoif.bench.evaluation.summary import summarise
from sgoif.bench.methods import registry
from sgoif.utils.files import atomic_write_json, read_json
from tests.helpers import table_checks
from tests.helpers.fake_runs import config
from tests.helpers.table_checks import NAMES, find, text

COMMON = "all rows"  # in the title of a block of the seeds that all rows have


def test_all_formats_are_written_and_writing_again_changes_nothing(finished):
    expected = {f"{n}.{e}" for n in NAMES for e in ("md", "tex", "csv", "json")}
    assert {p.name for p in finished.paths} == expected
    before = {p: p.read_bytes() for p in finished.paths}
    tables.write_tables(finished.root)
    assert {p: p.read_bytes() for p in finished.paths} == before


def test_tables_are_a_function_of_the_summary_alone(finished, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    shutil.copy(finished.root / "summary.json", tmp_path / "elsewhere")
    for path in tables.write_tables(tmp_path / "elsewhere"):
        assert path.read_bytes() == (finished.root / "tables" / path.name).read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_markdown_reads_as_plain_text(finished, name):
    table_checks.check_markdown(text(finished, name))


@pytest.mark.parametrize("name", NAMES)
def test_readers_see_that_the_data_is_a_stand_in(finished, name):
    place = "digits 0-6 in place of MNIST" if name == "table3" else "digits in place of CIFAR-10"
    assert place in text(finished, name).splitlines()[0] and f"STAND-IN DATA: {place}." in text(finished, name)
    assert "STAND-IN DATA" in text(finished, name, "tex") and "STAND-IN DATA" in text(finished, name, "json")


@pytest.mark.parametrize("name", NAMES)
def test_every_note_is_used_and_every_reference_has_a_note(finished, name):
    table_checks.check_notes(text(finished, name))


@pytest.mark.parametrize("name", NAMES)
def test_latex_is_balanced_and_escaped(finished, name):
    table_checks.check_latex(text(finished, name, "tex"))


@pytest.mark.parametrize("name", NAMES)
def test_csv_has_a_line_per_cell_and_agrees_with_the_summary(finished, name):
    lines = list(csv.DictReader(io.StringIO(text(finished, name, "csv"))))
    table = read_json(finished.root / "tables" / f"{name}.json")
    assert len(lines) == sum(len(row["entries"]) for b in table["blocks"] for row in b["rows"])
    known = {r["mean"] for r in finished.records if r["table"] == name}
    made = ("all", "Δ AUC-PR", "Δ P@1%")  # from several numbers of the summary
    whole = [line for line in lines if COMMON not in line["block"]]
    direct = [line for line in whole if line["mean"] and line["column_group"] not in made and line["metric"] != "pairs"]
    if name != "cost":  # which pools settings
        assert direct and all(float(line["mean"]) in known for line in direct)


def rows_of(run, name, block=0):
    """The header and rows of a block; blocks of the seeds that all rows have are not counted."""
    return table_checks.grid(text(run, name), [i for i, t in enumerate(titles_of(run, name)) if COMMON not in t][block])


def titles_of(run, name):
    return [b["title"] for b in read_json(run.root / "tables" / f"{name}.json")["blocks"]]


def test_the_grid_has_the_papers_order_a_base_rate_and_failures_as_such(finished):
    header, rows = rows_of(finished, "table1")
    assert header[:5] == ["noise · sparsity", "20% · 0.0", "20% · 0.4", "40% · 0.0", "40% · 0.4"]
    assert header[5:] == ["all · mean", "all · rank", "seeds"]
    order = [name for name in rows if not name.startswith("*")]
    assert order == ["INCV", "Mixup", "CL", "SG-OIF", "random", "last-epoch loss", "mean margin (AUM)", "newcomer",
                     "base rate"]  # fmt: skip
    assert [c.split(" [")[0] for c in rows["newcomer"][2:4]] == ["failed", "not run"]
    assert rows["newcomer"][4:6] == ["–", "–"]  # no mean over columns it does not have
    assert rows["newcomer"][6].startswith("1 [") and rows["SG-OIF"][6] == "3" and rows["base rate"][6] == "–"
    assert "seeds: how many are behind the numbers of a row" in " ".join(text(finished, "table1").split())
    rate = find(finished, table="table1", setting="n20s0", metric="base_rate")[0]["mean"]
    assert rows["base rate"][0] == f"{100 * rate:.1f}±0.0"  # over the draws of the seeds, which are alike here
    titles = [t for t in titles_of(finished, "table1") if COMMON not in t]
    assert [t.split(" (")[0].split(" of the")[0] for t in titles] == ["AUC-PR", "P@1%", "AUROC", "Test accuracy"]
    assert "plain training" in rows_of(finished, "table1", 3)[1]  # the accuracy to compare with


def test_a_method_that_lacks_seeds_does_not_compete(finished):
    for block in read_json(finished.root / "tables/table1.json")["blocks"]:
        for row in block["rows"] if COMMON not in block["title"] else []:
            assert row["method"] != "newcomer" or not any(e["mark"] for e in row["entries"])


def test_where_methods_lack_seeds_a_second_block_is_of_those_that_all_rows_have(finished):
    titles = titles_of(finished, "table1")
    assert [t.split(" (")[0] for t in titles[:2]] == ["AUC-PR", "AUC-PR"] and COMMON in titles[1]
    blocks = read_json(finished.root / "tables/table1.json")["blocks"]
    first, second = ({row["method"]: row["entries"] for row in block["rows"]} for block in blocks[:2])
    assert first["newcomer"][0]["n_seeds"] == second["newcomer"][0]["n_seeds"] == second["sgoif"][0]["n_seeds"] == 1
    assert first["sgoif"][0]["n_seeds"] == 3 and first["sgoif"][0]["mean"] != second["sgoif"][0]["mean"]


def test_table_2_has_a_column_for_data_that_was_not_run(finished):
    header, rows = rows_of(finished, "table2")
    assert header[-2] == "WebVision" and rows["SG-OIF"][-2] == "not run [1]"
    assert "[1] data not found: 16 GB" in text(finished, "table2")
    assert header[1:] == ["digits · 20%", "WebVision", "seeds"]
    titles = [t.split(" (")[0] for t in titles_of(finished, "table2") if COMMON not in t]
    assert titles[:3] == ["AUC-PR", "P@1%", "Test accuracy of the model the method yields"] and len(titles) == 6
    marginal, standalone = (rows_of(finished, "table2", block)[1]["mean margin (AUM)"] for block in (3, 4))
    assert (marginal, standalone) == (["0.05±0.00×", "3"], ["1.30±0.00×", "3"])
    assert [rows_of(finished, "table2", block)[1]["Mixup"][0] for block in (3, 4)] == ["1.85±0.00×"] * 2


def test_table_3_has_the_groups_the_counts_and_separate_costs(finished):
    overview, _ = rows_of(finished, "table3")
    assert overview == ["method", "digits 0-6 · near", "digits 0-6 · far", "ImageNet"]
    false_alarms, found = rows_of(finished, "table3", 1)
    assert false_alarms == overview and found["KNN"] != rows_of(finished, "table3")[1]["KNN"]
    header, rows = rows_of(finished, "table3", 2)
    groups = [name for name in rows if name.startswith("*")]
    assert groups == ["*Anomaly detection*", "*Energy and gradient*", "*Features*", "*Augmentation (so called)*",
                      "*Ours*", "*Free baseline*", "*Reference*"]  # fmt: skip
    assert set(rows["CutPaste"]) == {"failed [1]"}
    assert header[-3:] == ["test · ms/image", "training · own s", "training · × stand-alone"]
    assert rows["KNN"][-2:] == ["0.3", "1.32±0.00×"]
    assert "60 ID images against digits789 40, photos 60, noise 80" in " ".join(text(finished, "table3").split())


def test_table_3_shows_every_declared_score_and_how_the_sentinel_was_chosen(finished):
    """The stand-in run has one score that does not rank, the ranking one in reverse."""
    header, rows = rows_of(finished, "table3", 3)
    assert header[1:] == [f"{m} · {g}" for m in ("AUROC", "FPR@95") for g in ("near", "far", "mean")]
    ranking, part = rows
    first, other = rows.values()
    assert ranking.endswith("(ranks)") and part.startswith("kinship alone")
    near, reverse = (float(row[0].strip("*≈ ").split("±")[0]) for row in (first, other))
    assert near + reverse == pytest.approx(100, abs=0.2)
    words = " ".join(text(finished, "table3").split())
    assert "chosen by AUROC on other pairs of ID and OOD sets" in words
    assert "No OOD image was used to choose anything" not in words


def test_the_ablation_shows_variants_and_nothing_else(finished):
    header, rows = rows_of(finished, "ablation")
    assert list(rows) == ["SG-OIF (full)", "w/o Stability Gate"]
    assert header[-1] == "HVPs/step" and rows["w/o Stability Gate"][-1] == "2.5"
    assert "Base rate (share of wrong labels): digits 20% " in text(finished, "ablation")


def test_the_cost_table_marks_nothing_and_leaves_out_empty_columns(finished):
    header, rows = rows_of(finished, "cost")
    assert "seconds · fit" not in header and "seconds · retrain" in header
    assert not any("**" in cell or "≈" in cell for row in rows.values() for cell in row)
    assert rows["plain training"][header.index("overhead · marginal") - 1] == "1.00±0.00×"
    assert rows["newcomer"][header.index("seconds · retrain") - 1] == "–"


@pytest.mark.parametrize("every", [True, False], ids=["every seed", "one seed"])
def test_seconds_on_a_shared_gpu_are_shown_with_that_said(finished, tmp_path, every):
    crowded = config()
    first = crowded["noisy"]["digits"]["seeds"][0]
    assert len(crowded["noisy"]["digits"]["seeds"]) > 1
    crowded["tables"] = {"cost": crowded["tables"]["cost"]}
    shutil.copytree(finished.root / "metrics", tmp_path / "metrics")
    raw = read_json(tmp_path / "metrics/noisy/digits.json")
    for record in raw:
        ours = (record["method"], record["metric"]) == ("aum", "overhead_marginal")
        if ours and (every or record["seed"] == first):
            record |= {"value": None, "status": "undefined", "reason": SHARED_GPU}
    atomic_write_json(tmp_path / "metrics/noisy/digits.json", raw)
    summarise(tmp_path, crowded)
    tables.write_tables(tmp_path, crowded)
    said = (tmp_path / "tables" / "cost.md").read_text()
    number = re.search(r"^\[(\d+)\] several jobs shared the GPU", said, re.M)[1]
    row = next(line for line in said.splitlines() if line.startswith("| mean margin (AUM)"))
    other = next(line for line in said.splitlines() if line.startswith("| last-epoch loss"))
    assert f"[{number}]" in row and f"[{number}]" not in other


def test_a_quantity_of_fewer_seeds_than_its_method_says_so_and_does_not_compete(finished, tmp_path):
    some = config()
    some["tables"] = {"table1": some["tables"]["table1"]}
    shutil.copytree(finished.root / "metrics", tmp_path / "metrics")
    raw = read_json(tmp_path / "metrics/noisy/digits.json")
    gone = [r for r in raw if (r["method"], r["metric"]) == ("sgoif", "test_accuracy") and r["seed"] > 0]
    atomic_write_json(tmp_path / "metrics/noisy/digits.json", [r for r in raw if r not in gone])
    told = [r for r in summarise(tmp_path, some) if r["method"] == "sgoif" and r["metric"] == "test_accuracy"]
    reason = "1 of 3 seeds; no more are configured for it"
    assert told and {(r["status"], r["reason"], r["n_seeds"]) for r in told} == {("partial", reason, 1)}
    tables.write_tables(tmp_path, some)
    accuracy = (tmp_path / "tables" / "table1.md").read_text().split("## Test accuracy", 1)[1]
    row = next(line for line in accuracy.splitlines() if line.startswith("| SG-OIF"))
    assert "**" not in row and row.count(" – |") == 2 and f"] {reason}" in accuracy


def test_seconds_of_fewer_seeds_than_were_run_are_not_said_to_lack_a_configuration(finished, tmp_path):
    some = config()
    shutil.copytree(finished.root / "metrics", tmp_path / "metrics")
    raw = read_json(tmp_path / "metrics/noisy/digits.json")
    gone = [r for r in raw if r["method"] == "sgoif" and r["metric"] == "seconds_total" and r["seed"] > 0]
    atomic_write_json(tmp_path / "metrics/noisy/digits.json", [r for r in raw if r not in gone])
    told = [r for r in summarise(tmp_path, some) if r["method"] == "sgoif" and r["metric"] == "seconds_total"]
    assert {r["reason"] for r in told if r["table"] == "cost"} == {"1 of 3 seeds; the others have no cost of their own"}


def test_one_seed_has_no_spread_and_no_second_mark(finished, tmp_path):
    one = config()
    one["noisy"]["digits"]["seeds"] = [1]
    one["tables"] = {"table1": one["tables"]["table1"]}
    root = tmp_path / "one"
    shutil.copytree(finished.root / "metrics", root / "metrics")
    raw = read_json(root / "metrics/noisy/digits.json")
    atomic_write_json(root / "metrics/noisy/digits.json", [r for r in raw if r["seed"] in (1, None)])
    summarise(root, one)
    tables.write_tables(root)
    markdown = (root / "tables/table1.md").read_text()
    assert "One seed: no spread" in markdown and "±" not in markdown and "**" in markdown
    first = markdown.split("## AUC-PR")[0]
    assert all("≈" not in c for line in first.splitlines() if line.startswith("|") for c in line.split("|")[2:6])


def built(run, tmp_path, table: dict):
    shutil.copytree(run.root / "metrics", tmp_path / "metrics")
    (found,) = tables.build_tables(summarise(tmp_path, config(tables={"t": table})))
    return found


def test_declared_scores_of_a_method_stand_together_and_the_best_is_marked(finished, tmp_path, monkeypatch):
    """The one that ranks has the method's own number, the other that of its variant."""
    aum = registry.declaration("noisy", "aum")
    few = replace(aum, candidates={"early": "an early score", "late": "a late score"}, ranked_by="late")
    declaration = registry.declaration
    monkeypatch.setattr(registry, "declaration", lambda task, name: few if name == "aum" else declaration(task, name))
    sets = [{"dataset": "digits", "setting": s} for s in ("n20s0", "n40s4")]
    (block,) = built(finished, tmp_path, {"kind": "scores", "sets": sets, "methods": ["aum", "random"]}).blocks
    early, late = block.rows
    assert (early.title, late.title) == ("an early score", "a late score (ranks)")
    for entry, variant, column in zip([*early.entries, *late.entries], 2 * ["early"] + 2 * [""], 2 * sets, strict=True):
        wanted = {"method": "aum", "variant": variant, "metric": "auc_pr", "setting": column["setting"]}
        (record,) = find(finished, table="table1", **wanted)
        assert entry.mean == record["mean"]
    assert [e.mark for e in late.entries] == ["best", "best"] and not any(e.mark for e in early.entries)


def test_what_is_removed_has_precision_and_recall_by_own_rule_and_by_the_same_number(finished, tmp_path):
    table = built(finished, tmp_path, {"kind": "cleaning", "sets": [{"dataset": "digits", "setting": "n20s0"}]})
    (block,) = table.blocks
    rows = {row.method: row.entries for row in block.rows}
    assert {"aum", "sgoif", "plain"} <= set(rows) and "newcomer" not in rows  # which has no rule
    wanted = [
        "removal_precision",
        "removal_recall",
        "removal_f1",
        "removal_count_error",
        "test_accuracy",
        "overhead_passes",
        "r_precision",
    ]
    assert [column.metric for column in block.columns] == wanted
    for metric, entry in zip(wanted, rows["aum"], strict=True):
        if metric == "overhead_passes":
            continue
        records = find(finished, table="table1", method="aum", variant="", metric=metric, setting="n20s0")
        assert [entry.mean] == [r["mean"] for r in records], metric
    assert rows["plain"][4].mean is not None and rows["plain"][0].mean is None
    trainings = {method: entries[5].mean for method, entries in rows.items()}
    assert trainings["plain"] == 1 and trainings["aum"] == 2 and trainings["mixup"] == 3  # its own three
