"""Tables of the summary: one builder for each kind.

A table is a function of the records of summary.json alone. What stands in which row and column is the business of
the `table_*` modules; how it is written down that of `render`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sgoif.bench.tables import render
from sgoif.bench.tables.ablation_table import ablation, backends, stability
from sgoif.bench.tables.cost_table import cost
from sgoif.bench.tables.noisy_table import noise_grid, noise_sets
from sgoif.bench.tables.ood_table import ood
from sgoif.bench.tables.render import Table
from sgoif.bench.tables.sensitivity_table import sensitivity
from sgoif.bench.tables.source import Source
from sgoif.errors import UserError
from sgoif.utils.files import read_json

BUILD = {
    "noise_grid": noise_grid,
    "noise_sets": noise_sets,
    "ood": ood,
    "ablation": ablation,
    "stability": stability,
    "backends": backends,
    "sensitivity": sensitivity,
    "cost": cost,
}


def write_tables(run_dir: Path | str, config: Mapping | None = None) -> list[Path]:
    """Renders every table of results/<run>/summary.json as Markdown, LaTeX, CSV and JSON; returns the files.

    With `config`, a summary that lacks one of its tables is refused: it is older than the configuration.
    """
    run_dir = Path(run_dir)
    tables = build_tables(read_json(run_dir / "summary.json"))
    missing = set((config or {}).get("tables", {})) - {t.name for t in tables}
    if missing:
        raise UserError(f"{run_dir}/summary.json does not know the table {min(missing)}; summarise again")
    return [path for table in tables for path in render.write(table, run_dir / "tables")]


def build_tables(records: Sequence[Mapping[str, Any]]) -> list[Table]:
    """One `Table` per layout record of the summary."""
    tables = []
    for about in records:
        if about["metric"] == "layout":
            source = Source(about["table"], about["layout"], records)
            tables.append(BUILD[about["layout"]["kind"]](source))
    return tables
