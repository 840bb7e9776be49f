"""Damage of a finished run: every file is checked, what is wrong is named with its cure, and the cure is enough."""

import os
import sqlite3
from pathlib import Path

import pytest

from sgoif.bench import cli
from sgoif.bench.execution.integrity import verify
from sgoif.bench.execution.integrity.damage import delete
from sgoif.bench.execution.integrity.quick_check import quick_check
from sgoif.bench.execution.integrity.run_files import missing_sources
from tests.helpers.finished_runs import FIGURES

CELL = "results/mini/cells/noisy/digits/n20_s0/seed0"


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def flip(path: Path) -> None:
    """Change one bit in the middle, and the time with it, as a program that writes does."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def overwrite_pages(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:4096] + b"x" * 8192 + data[3 * 4096 :])


def lose_runs(path: Path) -> None:
    database = sqlite3.connect(path)
    database.execute("DELETE FROM runs WHERE rowid < 100")
    database.commit()
    database.close()


@pytest.fixture
def plan(finished_plan):
    return finished_plan


RUN_DIR = Path("results/mini")


def damages(plan) -> list[verify.Damage]:
    return verify.verify_run(plan, RUN_DIR, FIGURES, RUN_DIR / "mlflow" / "mlflow.db").damages


def test_an_intact_run_is_intact_and_nothing_is_made_again(plan):
    found = verify.verify_run(plan, RUN_DIR, FIGURES, RUN_DIR / "mlflow" / "mlflow.db")
    assert (found.damages, found.unsealed) == ([], []) and found.checked > 50
    assert quick_check(plan, RUN_DIR) == [] and missing_sources(plan, RUN_DIR) == []


@pytest.mark.parametrize("harm", [cut, flip, Path.unlink])
@pytest.mark.parametrize(
    "name",
    [
        f"{CELL}/random/arrays.npz",
        f"{CELL}/random/result.json",
        f"{CELL}/plain/checkpoints/5.pt",
        "results/mini/batches/noisy/digits/random/0.json",
        "results/mini/labels/digits/n20_s0.npz",
        "results/mini/labels/digits/val.npz",
        "results/mini/truth/digits/n40_s6.npz",
        "results/mini/metrics/noisy/digits.json",
        "results/mini/curves/noisy/digits_gallery.npz",
        "results/mini/summary.json",
        "results/mini/records.csv",
        "results/mini/records.parquet",
        "results/mini/tables/table1.csv",
        "results/mini/figures/table1_detection.png",
        "results/mini/ledger.md",
        "results/mini/report.html",
        "data/digits/train_images.npy",
        "data/digits/test_labels.npy",
    ],
)
def test_damage_is_found_by_both_checks_and_cured_by_deleting_what_is_named(plan, name, harm):
    path = Path(name)
    before = missing_sources(plan, RUN_DIR)
    harm(path)
    found = damages(plan)
    assert len(found) == 1 and path.is_relative_to(found[0].path), found
    assert "`make tables` makes it again" in str(found[0]) and "\n" not in str(found[0])
    if path.exists():
        assert quick_check(plan, RUN_DIR)[0].delete == found[0].delete
    verify.repair(verify.Findings(damages=found))
    assert quick_check(plan, RUN_DIR) == []
    if path.parent.name != "figures" and path.name != "summary.json":  # these are asked for by name
        assert missing_sources(plan, RUN_DIR) != before, "Snakemake is told to make it"


def test_a_run_without_pyarrow_lacks_no_file(plan):
    delete(RUN_DIR / "records.parquet")
    assert damages(plan) == [] and quick_check(plan, RUN_DIR) == []


def test_where_names_the_parquet_file_if_it_is_there(plan, capsys):
    command = ["where", "--config", "results/mini/config.json"]
    assert cli.main(command) == 0 and "results/mini/records.csv (.parquet)\n" in capsys.readouterr().out
    delete(RUN_DIR / "records.parquet")
    assert cli.main(command) == 0 and "results/mini/records.csv\n" in capsys.readouterr().out


@pytest.mark.parametrize("harm", [cut, overwrite_pages, Path.unlink, lose_runs])
def test_a_damaged_store_is_imported_again(plan, harm):
    harm(RUN_DIR / "mlflow" / "mlflow.db")
    [damage] = damages(plan)
    assert RUN_DIR / "mlflow" / "imported.json" in damage.delete
    if harm is not lose_runs:  # SQLite itself sees nothing wrong there
        assert [d.delete for d in quick_check(plan, RUN_DIR)] == [damage.delete]


def test_a_store_that_is_shared_with_other_runs_is_left_alone(plan, monkeypatch):
    monkeypatch.setenv("SGOIF_TRACKING", "sqlite:///elsewhere.db")
    cut(RUN_DIR / "mlflow" / "mlflow.db")
    assert quick_check(plan, RUN_DIR) == []


def test_rot_that_changes_no_time_is_found_by_reading_everything(plan):
    path = Path(f"{CELL}/random/arrays.npz")
    before = path.stat()
    flip(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert quick_check(plan, RUN_DIR) == [] and len(damages(plan)) == 1


def test_a_short_file_is_found_whatever_its_time(plan):
    path = Path("data/digits/train_images.npy")
    before = path.stat()
    path.write_bytes(path.read_bytes()[:-1])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert len(quick_check(plan, RUN_DIR)) == 1


def test_the_command_says_so_in_its_exit_status_and_repairs_when_asked(plan, capsys):
    arrays = Path(f"{CELL}/random/arrays.npz")
    for name in (p for p in _figures(plan) if not p.exists()):
        name.write_text("drawn")
    command = ["verify", "--config", "results/mini/config.json"]
    assert cli.main(command) == 0 and capsys.readouterr().out.endswith(": all intact\n")
    cut(arrays)
    assert cli.main(command) == 1
    assert "delete results/mini/cells" in capsys.readouterr().out and arrays.with_name("result.json").exists()
    assert cli.main([*command, "--repair"]) == 1
    assert not arrays.with_name("result.json").exists()
    assert not Path("results/mini/batches/noisy/digits/random/0.json").exists()


def _figures(plan) -> list[Path]:
    from sgoif.bench.figures import planned

    return [RUN_DIR / "figures" / name for figure in planned(plan.config) for name in figure.files]
