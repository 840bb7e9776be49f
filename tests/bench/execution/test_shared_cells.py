"""Cells that are finished in the whole run, or in another selection of it, are taken from there."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

from sgoif.bench.config import load_config
from sgoif.bench.data.noisy_labels import write_setting
from sgoif.bench.data.prepare import prepare
from sgoif.bench.execution import results, run_batch
from sgoif.bench.execution.integrity.run_files import noise_draws
from sgoif.bench.execution.plan import Cell, Plan
from sgoif.bench.execution.shared_cells import take_finished
from sgoif.bench.run_folder import folder_of
from sgoif.utils.files import atomic_write_bytes
from tests.helpers.project_copy import MINI_CONFIG

CELL = Cell("noisy", "digits", "n20_s0", 0, "plain")


@pytest.fixture
def whole(tmp_path) -> Path:
    """A whole run with one finished cell, which has a checkpoint and some saved state."""
    folder = tmp_path / "results" / "mini"
    write(folder, "key", 3.0)
    atomic_write_bytes(folder / CELL.folder / "checkpoints" / "5.pt", b"weights", seal=True)
    atomic_write_bytes(folder / CELL.folder / "work" / "state.pt", b"half done")
    return folder


def write(folder: Path, key: str, score: float) -> None:
    results.write(folder, CELL, key, "ok", arrays={"scores": np.full(4, score)})


def snapshot(folder: Path) -> dict:
    return {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in folder.rglob("*") if p.is_file()}


def test_a_selection_takes_what_the_whole_run_has_and_changes_nothing_there(whole):
    before = snapshot(whole)
    selection = whole / "selections" / "seeds-0"
    taken = take_finished(selection, CELL, "key")
    assert taken == results.finished(selection, CELL, "key") and taken is not None
    assert (selection / CELL.folder / "checkpoints" / "5.pt").read_bytes() == b"weights"
    assert not (selection / CELL.folder / "work").exists()
    write(selection, "other key", 4.0)  # written anew in the selection: the whole run keeps its own
    assert {path: value for path, value in snapshot(whole).items() if path in before} == before
    assert results.finished(whole, CELL, "key") is not None


def test_the_whole_run_and_other_selections_take_what_a_selection_has(whole):
    selection = whole / "selections" / "seeds-0"
    shutil.copytree(whole / CELL.folder, selection / CELL.folder)
    shutil.rmtree(whole / "cells")
    assert take_finished(whole, CELL, "key") is not None
    shutil.rmtree(whole / "cells")
    assert take_finished(whole / "selections" / "methods-aum", CELL, "key") is not None
    shutil.rmtree(selection)
    assert results.finished(whole / "selections" / "methods-aum", CELL, "key") is not None


def test_another_key_a_failure_and_damage_are_not_taken(whole):
    selection = whole / "selections" / "seeds-0"
    assert take_finished(selection, CELL, "another key") is None
    (whole / CELL.folder / "arrays.npz").write_bytes(b"damaged")
    assert take_finished(selection, CELL, "key") is None
    results.write(whole, CELL, "key", "failed", "no luck")
    assert take_finished(selection, CELL, "key") is None
    assert not (selection / "cells").exists()


def test_a_batch_takes_cells_before_it_computes_any(tmp_path, monkeypatch):
    raw = yaml.safe_load(MINI_CONFIG.read_text()) | {"data": {"root": str(tmp_path / "data")}}
    raw["methods"]["noisy"] = ["random"]
    (tmp_path / "mini.yaml").write_text(yaml.safe_dump(raw))
    monkeypatch.chdir(tmp_path)
    prepare("digits", tmp_path / "data")
    whole, part = (load_config("mini.yaml", select=select) for select in (None, {"settings": ["n20_s0"]}))
    run_dirs = [folder_of(config) for config in (whole, part)]
    for config, run_dir in zip((whole, part), run_dirs, strict=True):
        for draw in noise_draws(Plan(config)):
            if draw[0] == "digits":
                write_setting(tmp_path / "data", run_dir, *draw[:2], Plan(config).noise(*draw), draw[2])
        if config is part:  # the same labels in another folder give the same keys
            monkeypatch.setattr(run_batch, "compute", lambda *_: pytest.fail("a finished cell was computed again"))
        run_batch.run_batch(Plan(config), run_dir, "noisy", "digits", "random", 0, "cpu")
    cell = Cell("noisy", "digits", "n20_s0", 1, "random").folder / "arrays.npz"
    assert (run_dirs[0] / cell).stat().st_ino == (run_dirs[1] / cell).stat().st_ino


def test_where_there_are_no_links_files_are_copied(whole, monkeypatch):
    def refuse(*_):
        raise OSError("no links here")

    monkeypatch.setattr("os.link", refuse)
    assert take_finished(whole / "selections" / "seeds-0", CELL, "key") is not None


def test_what_was_there_under_another_key_is_replaced(whole):
    selection = whole / "selections" / "seeds-0"
    write(selection, "old key", 1.0)
    assert take_finished(selection, CELL, "key") is not None
    assert float(np.load(selection / CELL.folder / "arrays.npz")["scores"][0]) == 3.0
