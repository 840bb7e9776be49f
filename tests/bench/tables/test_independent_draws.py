"""Tests in tables count independent draws of noise: neither columns of one draw, nor seeds that share their labels."""

from dataclasses import replace

import numpy as np
import pytest

from sgoif.bench.evaluation.summary_record import summary_record
from sgoif.bench.evaluation.table_layout import Panel, TableLayout, VariantRow
from sgoif.bench.tables.kinds.noisy import noise_grid
from sgoif.bench.tables.kinds.variants import certainty_column, differences
from sgoif.bench.tables.marks import has_power
from sgoif.bench.tables.model import BEST, CLOSE, Column, Entry
from sgoif.bench.tables.source import Source


def test_seeds_that_share_their_labels_are_no_independent_draws():
    pairs = {i: 0.5 for i in range(12)}
    own, shared = Entry(0.5, pairs=pairs), Entry(0.5, pairs=pairs, independent=False)
    assert has_power(own, own, 1) and not has_power(own, shared, 1) and not has_power(shared, own, 1)


def many_seeds(labels_of, n_seeds: int) -> Source:
    """Three methods on a grid of two settings: `a` and `b` alike, `c` far worse; `labels_of` seed -> seed of labels."""
    rng = np.random.default_rng(0)
    seeds = list(range(n_seeds))
    methods = ["loss", "aum", "sgoif"]
    panels = [
        Panel("noisy", "digits", f"n{n}", "Digits", kind="class_conditional", noise=n / 100, sparsity=0.0,
              methods=methods, seeds=seeds) for n in (20, 40)
    ]  # fmt: skip
    records = []
    for panel in panels:
        known = sorted({labels_of(s) for s in seeds}, key=str)
        found = {("", "base_rate"): (known, [0.2] * len(known))}
        levels = zip(methods, (0.9, 0.9, 0.5), strict=True)
        found |= {(m, "auc_pr"): (seeds, list(level + 0.01 * rng.normal(size=n_seeds))) for m, level in levels}
        for (method, metric), (of, values) in found.items():
            numbers = {"mean": float(np.mean(values)), "std": 0.01, "n_seeds": len(of), "seeds": of, "values": values}
            named = {"dataset": "digits", "setting": panel.setting, "method": method, "metric": metric}
            records.append(summary_record("t", **named, **numbers))
    return Source("t", TableLayout("noise_grid", "noisy", "Grid", panels=panels), records)


def test_ranks_are_tested_over_draws_of_noise_and_not_over_columns():
    block = noise_grid(many_seeds(lambda seed: seed, 12)).blocks[0]
    assert "ranked in each of 12 independent draws" in block.footer and "last-epoch loss" in block.footer
    marks = {row.method: [e.mark for e in row.entries] for row in block.rows if row.method}
    assert sorted([marks["loss"][2], marks["aum"][2]]) == [BEST, CLOSE] and marks["sgoif"][2] == ""
    assert CLOSE in marks["loss"] + marks["aum"]


FEW = [(lambda s: s, 4, "4 independent draws"), (lambda s: None, 12, "one independent draw")]


@pytest.mark.parametrize(("labels_of", "n", "told"), FEW)
def test_few_draws_are_not_tested_however_many_columns_and_seeds_there_are(labels_of, n, told):
    table = noise_grid(many_seeds(labels_of, n))
    assert f"No test of the ranks: the columns are of {told}, and fewer than 5" in table.blocks[0].footer
    assert not any(e.mark == CLOSE for block in table.blocks for row in block.rows for e in row.entries)
    assert any("fewer than 5 independent draws cannot show" in sentence for sentence in table.caption)


@pytest.mark.parametrize(("labels_of", "n", "title"), [(lambda s: s, 12, "p"), (lambda s: None, 12, "95% ±")])
def test_a_difference_has_a_p_value_where_there_are_enough_draws_and_else_an_interval(labels_of, n, title):
    source = many_seeds(labels_of, n)
    rows = [VariantRow(m, {}, "") for m in ("loss", "aum", "sgoif")]
    source.layout = replace(source.layout, kind="ablation", rows=rows)
    assert certainty_column(source, "", "auc_pr").title == title
    found = differences(source, Column("", "AUC-PR", "auc_pr"))
    draws, alike, certainty = found["aum"]
    assert draws.mean == (12 if title == "p" else 1) and abs(alike.mean) < 0.01
    if title == "p":  # signed ranks over 12 draws, of which all speak against `sgoif`; Holm over two rows
        assert certainty.mean > 0.05 and found["sgoif"][2].mean == pytest.approx(2 * 2 * 0.5**12)
    else:
        assert certainty.mean is None, "one draw has no interval"


def by_title(block):
    """The entries of the methods by title of their column."""
    titles = [column.title for column in block.columns]
    return {row.method: dict(zip(titles, row.entries, strict=True)) for row in block.rows if row.method}


def test_a_row_that_lacks_seeds_competes_only_where_all_rows_have_the_same_seeds():
    """`margin` has the good seed alone: its mean is the highest, and on that seed it is the last."""
    methods, panels, records = ["loss", "aum", "margin"], [], []
    values = {"loss": {0: 0.9, 1: 0.3}, "aum": {0: 0.8, 1: 0.2}, "margin": {0: 0.7}}
    for setting in ("n20", "n40"):
        panels.append(
            Panel("noisy", "digits", setting, "Digits", kind="class_conditional", noise=0.2, sparsity=0.0,
                  methods=methods, seeds=[0, 1])
        )  # fmt: skip
        for method, of in values.items():
            numbers = {"mean": float(np.mean(list(of.values()))), "n_seeds": len(of), "seeds": list(of)}
            named = {"dataset": "digits", "setting": setting, "method": method, "metric": "auc_pr"}
            told = {"status": "partial", "reason": "1 of 2 seeds; seed 1 not run: not run yet"} if len(of) < 2 else {}
            records.append(summary_record("t", **named, **numbers, values=list(of.values()), **told))
    table = noise_grid(Source("t", TableLayout("noise_grid", "noisy", "Grid", panels=panels), records))
    every, common = [b for b in table.blocks if b.title.startswith("AUC-PR")]
    rows = by_title(every)
    assert {m: row["rank"].mean for m, row in rows.items()} == {"loss": 1.0, "aum": 2.0, "margin": None}
    assert {m: row["mean"].mean for m, row in rows.items()} == {"loss": 0.6, "aum": 0.5, "margin": None}
    assert {m: row["seeds"].mean for m, row in rows.items()} == {"loss": 2, "aum": 2, "margin": 1}
    assert not any(row["0.0"].mark for row in rows.values()), "the highest mean is of the good seed alone"
    assert common.title == "AUC-PR (%), seed 0, which all rows have"
    rows = by_title(common)
    assert {m: row["rank"].mean for m, row in rows.items()} == {"loss": 1.0, "aum": 2.0, "margin": 3.0}
    assert {m: row["mean"].mean for m, row in rows.items()} == pytest.approx({"loss": 0.9, "aum": 0.8, "margin": 0.7})
    assert [m for m, row in rows.items() if row["mean"].mark and row["0.0"].mark == BEST] == ["loss"]


def test_there_is_no_second_block_where_all_rows_have_the_same_seeds():
    titles = [block.title for block in noise_grid(many_seeds(lambda seed: seed, 3)).blocks]
    assert [title for title in titles if title.startswith("AUC-PR")] == ["AUC-PR (%)"]
