"""Rebuilds results/published/<run> from its records, results/published/records/<run>.json.gz (`make published`)."""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
import zlib
from pathlib import Path
from typing import Any

from sgoif.bench.config import load_config
from sgoif.bench.execution.environment import DIRTY
from sgoif.bench.sharing.merge import merge_records
from sgoif.bench.sharing.publish import publish
from sgoif.bench.sharing.records_file import records_of_run
from sgoif.errors import UserError
from sgoif.utils.files import read_json

PROVENANCE = "provenance.json"
PAGE = "report.html"
OF_THIS_TIME = ("published", "published_by_commit")  # of the provenance: when and with what it was made


def republish(config_file: Path, results: Path) -> tuple[Path, list[str]]:
    """Rebuild what is published of a run from its records: tables, figures that need no curves, ledger, page, summary.

    Nothing is computed, and results/<run> is not touched. Where everything else is as it was, the provenance keeps the
    date and commit of before, so that no file changes.

    Args:
        config_file: The configuration that the records were measured with.
        results: Folder of all runs.

    Returns:
        The folder, and the names of the files in it that are new, changed or gone.

    Raises:
        UserError: If there are no records of this run, or they do not fit the configuration.
    """
    run = load_config(config_file)["run"]
    records, target = records_of_run(results, run), results / "published" / run
    if not records.is_file():
        raise UserError(f"there are no records of run {run!r} in {records}; `pack-records` writes them")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{run}-") as folder:
        run_dir = merge_records([records], config_file, Path(folder))
        made = publish(run_dir, Path(folder) / "published", read_json(run_dir / "config.json"))
        _keep_date(made, target)
        changed = _differences(made, target)
        if changed:
            shutil.rmtree(target, ignore_errors=True)
            os.replace(made, target)
    return target, changed


def _keep_date(made: Path, target: Path) -> None:
    """Keep the old provenance and page if they differ in today's date and commit alone, as everything else does not.

    An old one of changed files ("-dirty") gives way to one of a commit.
    """
    if not (target / PROVENANCE).is_file() or not set(_differences(made, target)) <= {PROVENANCE, PAGE}:
        return
    new, old = (read_json(folder / PROVENANCE) for folder in (made, target))
    if {**new, **_of_that_time(old)} != old or _is_dirty(old) > _is_dirty(new):
        return
    page = _bytes(made / PAGE)
    for key, value in _of_that_time(new).items():
        page = page and page.replace(str(value).encode(), str(old[key]).encode())
    if page == _bytes(target / PAGE):
        for name in (PROVENANCE, PAGE):
            if (target / name).is_file():
                shutil.copyfile(target / name, made / name)


def _is_dirty(provenance: dict[str, Any]) -> bool:
    return str(provenance.get("published_by_commit", "")).endswith(DIRTY)


def _of_that_time(provenance: dict[str, Any]) -> dict[str, Any]:
    return {key: provenance.get(key, "") for key in OF_THIS_TIME}


def _differences(made: Path, target: Path) -> list[str]:
    """Names of the files that differ between two folders or are in one of them only."""
    names = {path.name for folder in (made, target) if folder.is_dir() for path in folder.iterdir()}
    return sorted(name for name in names if _bytes(made / name) != _bytes(target / name))


def _bytes(path: Path) -> bytes | None:
    """The content of a file, None without one; of a compressed file what is in it, since zlib differs by machine."""
    if not path.is_file():
        return None
    found = path.read_bytes()
    if path.suffix != ".gz":
        return found
    try:
        return gzip.decompress(found)
    except (OSError, EOFError, zlib.error):  # damaged: it is not what the records make
        return found
