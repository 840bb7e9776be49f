"""What is marked as best, and how numbers and words are printed."""

import re

import pytest

from sgoif.bench.evaluation.overhead import SHARED_GPU
from sgoif.bench.evaluation.table_layout import Panel, TableLayout
from sgoif.bench.tables.formats.latex import escape_latex, to_latex
from sgoif.bench.tables.formats.markdown import to_markdown
from sgoif.bench.tables.marks import has_power, mark_best
from sgoif.bench.tables.model import BEST, CLOSE, Block, Column, Entry, Row, Table, format_number
from sgoif.bench.tables.source import Source


def test_time_on_a_shared_gpu_competes_in_no_table():
    """What is said of the overhead, which is undefined then, holds for every figure of time, and for no other."""

    def record(method, metric, mean, reason=""):
        seeds = [] if mean is None else [0, 1]
        about = {"table": "t", "dataset": "d", "setting": "s", "variant": "", "method": method, "metric": metric}
        status = "ok" if mean is not None else "undefined"
        return about | {"mean": mean, "std": 0.0, "n_seeds": 2, "status": status, "reason": reason,
                        "seeds": seeds, "values": [mean] * len(seeds)}  # fmt: skip

    told = f"1 of 2 seeds; {SHARED_GPU}"
    times = ("seconds_own", "seconds_per_image", "cpu_seconds_total", "overhead_cpu")
    records = [record(m, metric, 2.0) for m in ("shared", "alone") for metric in (*times, "auc_pr")]
    records += [record("shared", "overhead_marginal", None, told), record("alone", "overhead_marginal", 1.0)]
    panel = Panel("noisy", "d", "s", "d")
    source = Source("t", TableLayout("noise_grid", "noisy", "t", panels=[panel]), records)
    for metric in times:
        entry = source.entry(panel, "shared", metric)
        assert (entry.status, entry.mean, source.notes[entry.note - 1]) == ("partial", 2.0, SHARED_GPU)
        assert source.entry(panel, "alone", metric).status == "ok"
    assert source.entry(panel, "shared", "auc_pr").status == "ok"


def test_the_only_one_that_competes_is_not_the_best():
    column = Column("", "", "auc_pr", "higher", "percent")
    alone, short = Entry(0.4, 0.0, 2, pairs={0: 0.4, 1: 0.4}), Entry(0.9, None, 1, status="partial", pairs={0: 0.9})
    mark_best({"plain": alone, "sgoif": short}, column)
    assert alone.mark == short.mark == ""
    mark_best({"plain": alone}, column)
    assert alone.mark == BEST


@pytest.mark.parametrize(("better", "mean", "marks"), [("higher", 0.9, ""), ("higher", 0.4, BEST), ("lower", 0.4, "")])
def test_where_one_that_lacks_seeds_is_ahead_nothing_is_the_best(better, mean, marks):
    level = 0.6 if better == "higher" else 0.5
    full = {m: Entry(v, 0.0, 2, pairs={0: v, 1: v}) for m, v in (("loss", 0.5), ("aum", 0.6))}
    short = Entry(mean, None, 1, status="partial", pairs={0: mean})
    mark_best({**full, "fastif": short}, Column("", "", "auc_pr", better, "percent"))
    assert [e.mark for e in full.values() if e.mean == level] == [marks] and short.mark == ""
    mark_best({**full, "sgoif_trusted": short}, Column("", "", "auc_pr", better, "percent"))  # it stands apart
    assert [e.mark for e in full.values() if e.mean == level] == [BEST]


@pytest.mark.parametrize(
    ("draws", "comparisons", "power"),
    [(3, 1, False), (4, 1, False), (5, 1, True), (6, 1, True), (6, 22, False), (12, 22, True)],
)
def test_nothing_is_called_as_good_where_no_test_could_tell(draws, comparisons, power):
    pairs = {i: 0.5 for i in range(draws)}
    assert has_power(Entry(0.5, pairs=pairs), Entry(0.5, pairs=pairs), comparisons) is power


def test_random_is_not_as_good_as_the_best_because_there_are_three_seeds():
    noisy = {0: 0.1, 1: 0.9, 2: 0.1}
    entries = {"aum": Entry(0.99, 0.0, 3, pairs=dict.fromkeys(noisy, 0.99)), "random": Entry(0.37, 0.5, 3, pairs=noisy)}
    mark_best(entries, Column("", "", "auc_pr"))
    assert [e.mark for e in entries.values()] == [BEST, ""]


def table(*entries, style="percent", better="higher"):
    rows = [Row("", f"m{i}", f"m{i}", [e]) for i, e in enumerate(entries)]
    block = Block("", [Column("", "c|d", "m", better, style)], rows)
    return Table("t", "cost", "A & B_c", ["{best} {close} 50% {x}"], [block], ["a | b"])


@pytest.mark.parametrize(
    "value,style,shown",
    [(0.91149, "percent", "91.1"), (0.9115001, "percent", "91.2"), (1.0, "percent", "100.0"),
     (-0.0001, "percent", "0.0"), (1.2345, "times", "1.23"), (12345.6, "seconds", "12,345.6"),
     (0.00012, "milliseconds", "0.120")],
)  # fmt: skip
def test_rounding(value, style, shown):
    assert format_number(value, style) == shown


def test_decimal_points_stand_beneath_each_other():
    entries = Entry(1.0, 0.1, 3, mark=BEST), Entry(0.091, 0.002, 3, mark=CLOSE), Entry(0.5)
    cells = re.findall(r"^\| m\d.*$", to_markdown(table(*entries)), re.M)
    assert [c.index(".") for c in cells] == [cells[0].index(".")] * 3
    assert "**100.0±10.0**" in cells[0] and "9.1± 0.2≈" in cells[1]


def test_braces_bars_and_signs_in_words_do_no_harm():
    odd = table(Entry(0.5, note=1), Entry(status="failed", note=1))
    assert "**bold** ≈ 50% {x}" in to_markdown(odd) and "c\\|d" in to_markdown(odd)
    tex = to_latex(odd)
    assert r"A \& B\_c" in tex and r"50\% \{x\}" in tex and r"failed [1]" in tex
    assert escape_latex("a\nb ± 中 é") == r"a b $\pm$ ? é"


def test_equal_as_printed_is_equally_best():
    entries = {m: Entry(v, pairs={0: v}) for m, v in (("a", 0.91111), ("b", 0.91112), ("c", 0.9))}
    mark_best(entries, Column("", "", "m"))
    assert [e.mark for e in entries.values()] == [BEST, BEST, ""]
    mark_best(entries, Column("", "", "m", "lower"))
    assert entries["c"].mark == BEST
