"""The table of what is removed: columns of the number that all methods remove alike."""

import numpy as np
import pytest

from sgoif.bench import tables
from sgoif.bench.evaluation.evaluate import evaluate
from sgoif.bench.evaluation.summary import summarise
from tests.helpers.fake_runs import GRID, N, Run, config


def test_what_all_remove_alike_has_columns_of_its_own(tmp_path):
    """A row without a rule of its own is there too, and it has the accuracies of its two models."""
    run, cfg = Run(tmp_path), config(tables={"t": {"kind": "cleaning", "dataset": "digits"}})
    cfg["noisy"]["digits"] |= {"settings": {"n20s0": GRID["n20s0"]}, "methods": ["aum", "gce"], "seeds": [0]}
    run.fill_noisy(settings={"n20s0": GRID["n20s0"]}, seeds=[0], methods={"aum": 1.0})
    wrong, ids = run.truth("digits", "n20s0", 0.2)
    same = np.arange(N) < 50
    arrays = {"scores": run.rng.normal(size=N), "ids": ids, "remove_same": same}
    for key, right in (("test_logits", 1.0), ("test_logits_same", 0.5)):
        arrays[key] = run.logits("digits", right)
    run.cell("noisy", "digits", "n20s0", 0, "gce", arrays, network_passes={"train": 10**6})
    evaluate(run.root, run.data, "noisy", "digits", cfg)
    (table,) = tables.build_tables(summarise(run.root, cfg))
    (block,) = table.blocks
    rows = {row.method: row.entries for row in block.rows}
    columns = [(column.group, column.title) for column in block.columns]
    gce, aum = ({c: e.mean for c, e in zip(columns, rows[m], strict=True)} for m in ("gce", "aum"))
    assert gce["own number", "precision"] is None and gce["own number", "trainings"] == 1
    assert aum["own number", "precision"] is not None and aum["same number", "precision"] is None
    assert gce["same number", "precision"] == pytest.approx(wrong[same].mean())
    assert gce["same number", "recall"] == pytest.approx(wrong[same].sum() / wrong.sum())
    assert gce["own number", "test acc."] == 1 > gce["same number", "test acc."]
