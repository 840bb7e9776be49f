"""The paper's numbers as data, and the arithmetic on them: right on known answers, able to notice a change."""

from dataclasses import replace

import numpy as np
import pytest

from sgoif.bench.paper.checks import check_cost, check_detection, findings
from sgoif.bench.paper.checks import check_public_numbers as public_checks
from sgoif.bench.paper.checks import check_tables as table_checks
from sgoif.bench.paper.checks import check_text as text_checks
from sgoif.bench.paper.checks.finding import (
    CONSISTENT,
    INCONSISTENT,
    NOT_VERIFIED,
    NOTABLE,
    OUTCOMES,
)
from sgoif.bench.paper.printed import FOLDER, digest, load, read
from sgoif.bench.paper.public_numbers import DIFFERS, PROVED, same, sources
from sgoif.errors import UserError

PAPER = load()
SIZES = {"Table 1": (9, 12), "Table 2": (9, 9), "Table 3": (22, 11), "Table 4": (6, 3), "Table 5": (6, 3),
         **{f"Table {n}": (7, 10) for n in (7, 8, 9, 10)}, "Table 11": (7, 8)}  # fmt: skip


def altered(table, row, column, text):
    """The paper with one number changed."""
    numbers = dict(PAPER[table].numbers)
    numbers[row, column] = replace(PAPER[table].number(row, column), text=text)
    return {**PAPER, table: replace(PAPER[table], numbers=numbers)}


def finding(check, words, paper=PAPER):
    """The one finding of `check` whose statement has all the words."""
    (found,) = [f for f in check(paper) if all(w in f.statement for w in words)]
    return found


def outcome(check, words, paper=PAPER):
    return finding(check, words, paper).outcome


# ------------------------------------------------------------------------------------------------ numbers


def test_all_tables_with_numbers_are_there():
    assert {name: (len(t.rows), len(t.columns)) for name, t in PAPER.items()} == SIZES
    assert sum(len(t.numbers) for t in PAPER.values()) == 803


def test_a_cell_knows_its_digits():
    number = PAPER["Table 4"].number("SG-OIF (Full)", "Overhead")
    assert (number.text, number.value, number.half_digit) == ("1.24×", 1.24, 0.005)
    assert PAPER["Table 9"].number("MA Gate", "Recall@1/5/10% · 5%").half_digit == 0.05
    with pytest.raises(UserError, match=r"Table 4 of the paper has no number at row 'SG-OIF', column 'AUPR'"):
        PAPER["Table 4"].number("SG-OIF", "AUPR")


def test_a_row_with_a_number_too_few_is_refused(tmp_path):
    text = (FOLDER / "table04.yaml").read_text()
    (tmp_path / "table04.yaml").write_text(text.replace("91.1 90.2 1.24×", "91.1 90.2"))
    with pytest.raises(UserError, match=r"'SG-OIF \(Full\)' has 2 numbers for 3 columns"):
        load(tmp_path)
    assert digest(tmp_path) != digest()


def test_every_key_into_the_lists_of_reasons_exists():
    words = read("undefined.yaml")
    columns = [c for t in PAPER.values() for c in t.columns]
    assert {c.undefined for c in columns} - {""} == set(words["undefined"])
    assert {c.assumes for c in columns} - {""} == set(words["assumes"])
    assert all(c.metric or c.undefined or c.derived for c in columns)


def test_public_twins_are_proved_different_or_not_verified():
    (source,) = sources(PAPER["Table 1"].number("FASTIF", "Sparsity (Noise 70%) · 0.0"))
    assert source["status"] == PROVED and source["value"] == 28.45 and source["name"].endswith("S-Model")
    (source,) = sources(PAPER["Table 1"].number("INCV", "Sparsity (Noise 20%) · 0.0"))
    assert (source["value"], source["status"]) == (None, NOT_VERIFIED)
    first, second = sources(PAPER["Table 3"].number("KNN", "CIFAR-10 · AUROC"))
    assert (first["value"], first["status"], second["status"]) == (90.64, DIFFERS, NOT_VERIFIED)
    assert sources(PAPER["Table 3"].number("UDG", "ImageNet · AUROC")) == []
    assert not same(PAPER["Table 1"].number("FASTIF", "Sparsity (Noise 70%) · 0.0"), 28.46)


# ------------------------------------------------------------------------------------------------ known answers


def test_the_largest_average_precision_is_reached_and_never_passed():
    from sklearn.metrics import average_precision_score, precision_recall_curve

    n, rng = 50_000, np.random.default_rng(0)
    ends, hits = [0, 500, 2500, 5000, n], [400, 900, 500, 700]  # wrong labels in each stretch of the ranking
    noise = sum(hits) / n
    recalls = [float(r) for r in np.cumsum(hits)[:3] / sum(hits)]
    bound = check_detection._largest_average(hits[0] / ends[1], recalls)
    envelope = check_detection._largest_interpolated(hits[0] / ends[1], recalls)
    assert hits[0] / ends[1] * 0.01 / recalls[0] == pytest.approx(noise)

    def area(first):
        wrong = np.zeros(n, dtype=bool)
        for start, end, count in zip(ends, ends[1:], hits, strict=False):
            at = np.arange(start, start + count) if first else rng.choice(np.arange(start, end), count, replace=False)
            wrong[at] = True
        precision, recall, _ = precision_recall_curve(wrong, -np.arange(n))
        interpolated = np.maximum.accumulate(precision)  # the curve runs from high recall to low
        return average_precision_score(wrong, -np.arange(n)), -np.trapezoid(interpolated, recall)

    average, interpolated = area(first=True)
    assert average == pytest.approx(bound, abs=1e-3)
    assert interpolated == pytest.approx(envelope, abs=2e-3) and interpolated <= envelope + 1e-3
    for _ in range(5):
        average, interpolated = area(first=False)
        assert average < bound and interpolated < envelope


def test_the_papers_points_give_the_known_bounds_and_rates():
    full = {
        t: [PAPER[t].value("Full (SG-OIF)", c) / 100 for c in ("P@1%", *_RECALLS)] for t in check_detection.EXTENDED
    }
    bounds = [100 * check_detection._largest_average(p, r) for p, *r in full.values()]
    assert [round(b, 1) for b in bounds] == [65.4, 64.6, 91.6, 90.2]
    spans = [f.numbers for f in check_detection.implied_noise(PAPER) if len(f.tables) == 1]
    assert [(round(s["lowest"], 2), round(s["highest"], 2)) for s in spans] == [
        (5.09, 7.55), (5.40, 8.33), (5.41, 7.91), (5.53, 8.27)]  # fmt: skip


_RECALLS = [f"Recall@1/5/10% · {k}%" for k in (1, 5, 10)]


def test_recall_cannot_exceed_depth_over_noise():
    numbers = {f.tables[0]: f.numbers for f in check_detection.recall_bound(PAPER)}
    assert numbers["Table 7"]["largest_recall_at_20"] == pytest.approx([5, 25, 50])
    assert numbers["Table 7"]["largest_noise"] == pytest.approx(100 / 12.75)


def test_public_rows_are_counted():
    assert finding(public_checks.table1_rows, ["of 108"]).numbers == {"equal": 84, "of": 108}
    near, far, accuracy = public_checks.ood_pairs(PAPER)
    assert (near.numbers["within_1"], round(near.numbers["median"], 2)) == (22, 0.57)
    assert (far.numbers["within_1"], round(far.numbers["median"], 2)) == (17, 1.04)
    assert (accuracy.numbers["within_1"], accuracy.numbers["of"]) == (15, 18)


# ------------------------------------------------------------------------------------------------ sensitivity

CHANGES = [  # check, words of its finding, outcome as printed, changed number, outcome then
    (check_detection.recall_bound, ["WebVision"], NOTABLE, ("Table 7", "Full (SG-OIF)", _RECALLS[0], "2.0"), NOTABLE),
    (check_detection.largest_aupr, ["MNIST, Full"], INCONSISTENT,
     ("Table 9", "Full (SG-OIF)", "AUPR", "91.0"), CONSISTENT),
    (check_detection.largest_aupr, ["WebVision, Full"], NOTABLE,
     ("Table 7", "Full (SG-OIF)", "AUPR", "71.0"), INCONSISTENT),
    (check_detection.below_random, ["At 20%"], CONSISTENT,
     ("Table 1", "CL", "Sparsity (Noise 20%) · 0.0", "19.9"), NOTABLE),
    (table_checks.same_quantity, ["CIFAR-10, ", "P@1%"], INCONSISTENT,
     ("Table 4", "SG-OIF (Full)", "P@1%", "91.1"), CONSISTENT),
    (table_checks.same_quantity, ["CIFAR-100", "AUPR"], CONSISTENT,
     ("Table 5", "SG-OIF (Full)", "AUPR", "69.5"), INCONSISTENT),
    (table_checks.noise_and_ood, ["MNIST"], NOTABLE, ("Table 9", "MA Gate", "OOD AUPR", "75.0"), CONSISTENT),
    (table_checks.averages, ["Avg. AUROC"], CONSISTENT, ("Table 3", "KNN", "Avg. · AUROC", "87.1"), INCONSISTENT),
    (table_checks.averages, ["Mean τ"], CONSISTENT, ("Table 11", "MA Gate", "Mean · τ", "0.62"), INCONSISTENT),
    (table_checks.averages, ["Mean CHVP"], CONSISTENT, ("Table 9", "w/o Gate", "CHVP/step", "2.7"), INCONSISTENT),
    (table_checks.averages, ["Norm. Cost"], CONSISTENT,
     ("Table 11", "w/o LowRank", "Norm. Cost", "1.25"), INCONSISTENT),
    (check_cost.overhead, ["same overhead"], NOTABLE, ("Table 2", "CL", "WebVision · Overhead", "1.01×"), CONSISTENT),
    (check_cost.overhead, ["Co-Teaching"], NOTABLE,
     ("Table 2", "Co-Teaching", "WebVision · Overhead", "1.95×"), CONSISTENT),
    (check_cost.overhead, ["CIFAR-10:"], NOTABLE, ("Table 4", "w/o Temperature", "Overhead", "1.23×"), CONSISTENT),
    (table_checks.outlier, ["Clothing1M"], NOTABLE, ("Table 2", "TrancIn", "Clothing1M · P@1%", "53.2"), CONSISTENT),
    (text_checks.stated_numbers, ["CIFAR-10: AUPR lost without the gate"], CONSISTENT,
     ("Table 4", "w/o Stability Gate", "AUPR", "59.7"), INCONSISTENT),
    (text_checks.margins, ["second best"], INCONSISTENT,
     ("Table 1", "INCV", "Sparsity (Noise 20%) · 0.6", "88.2"), CONSISTENT),
    (text_checks.margins, ["grow with noise"], CONSISTENT,
     ("Table 1", "INCV", "Sparsity (Noise 70%) · 0.4", "39.0"), INCONSISTENT),
    (text_checks.best_everywhere, ["Table 2"], CONSISTENT,
     ("Table 2", "TrancIn", "Clothing1M · P@1%", "63.9"), INCONSISTENT),
    (text_checks.best_everywhere, ["Table 3"], NOTABLE, ("Table 3", "KNN", "CIFAR-100 · AUPR", "99.0"), NOTABLE),
    (text_checks.ablated_cost, ["HVPs are the largest"], CONSISTENT,
     ("Table 8", "MA Gate", "Time×GPU", "40.0"), INCONSISTENT),
    (public_checks.table1_rows, ["Row MentorNet"], NOTABLE,
     ("Table 1", "MentorNet", "Sparsity (Noise 20%) · 0.0", "84.8"), CONSISTENT),
]  # fmt: skip


@pytest.mark.parametrize("check,words,before,change,after", CHANGES, ids=lambda v: getattr(v, "__name__", None))
def test_a_changed_number_changes_the_finding(check, words, before, change, after):
    printed, changed = finding(check, words), finding(check, words, altered(*change))
    assert (printed.outcome, changed.outcome) == (before, after)
    assert printed.numbers != changed.numbers


def test_one_noise_rate_for_all_variants_would_be_consistent():
    paper = PAPER
    for row in PAPER["Table 7"].rows:
        recall = PAPER["Table 7"].value(row.name, "P@1%") / 5.0
        numbers = dict(paper["Table 7"].numbers)
        numbers[row.name, _RECALLS[0]] = replace(numbers[row.name, _RECALLS[0]], text=f"{recall:.1f}")
        paper = {**paper, "Table 7": replace(paper["Table 7"], numbers=numbers)}
    assert outcome(check_detection.implied_noise, ["WebVision:"], paper) == CONSISTENT
    assert outcome(check_detection.implied_noise, ["WebVision:"]) == INCONSISTENT


def test_methods_that_all_lose_with_sparsity_would_be_consistent():
    paper = PAPER
    for row, noise in (("INCV", 20), ("INCV", 70), ("TrancIn", 20)):
        numbers = dict(paper["Table 1"].numbers)
        key = (row, f"Sparsity (Noise {noise}%) · 0.6")
        numbers[key] = replace(numbers[key], text="20.0")
        paper = {**paper, "Table 1": replace(paper["Table 1"], numbers=numbers)}
    assert outcome(text_checks.sparsity, ["sparsity"], paper) == CONSISTENT
    assert outcome(text_checks.sparsity, ["sparsity"]) == INCONSISTENT


def test_findings_are_typed_and_say_numbers():
    found = findings(PAPER)
    assert {f.outcome for f in found} == set(OUTCOMES)
    for f in found:
        assert f.numbers and set(f.tables) <= set(PAPER) and any(c.isdigit() for c in f.statement), f
        assert f.record()["statement"].endswith(".")
