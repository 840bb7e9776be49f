"""Tables of a run: reads results/<run>/summary.json, writes results/<run>/tables/<name>.md, .tex, .csv and .json.

Way in: `write_tables`, or `build_tables` for the tables as objects. Every kind of table has a builder in `kinds`,
which takes its records from `source`. Which entry is bold (best of a column) is decided in `marks.mark_best`;
the formats are in `formats`. A table is a function of the summary alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sgoif.bench.evaluation.summary_record import layouts, read_summary
from sgoif.bench.tables.formats.table_files import write_table
from sgoif.bench.tables.kinds.ablation import ablation, backends, stability
from sgoif.bench.tables.kinds.cost import cost
from sgoif.bench.tables.kinds.noisy import cleaning, noise_grid, noise_sets, noisy_scores
from sgoif.bench.tables.kinds.ood import ood
from sgoif.bench.tables.kinds.regimes import regimes
from sgoif.bench.tables.kinds.sensitivity import sensitivity
from sgoif.bench.tables.model import Table
from sgoif.bench.tables.source import Source
from sgoif.errors import UserError

BUILDERS = {
    "noise_grid": noise_grid,
    "noise_sets": noise_sets,
    "regimes": regimes,
    "ood": ood,
    "ablation": ablation,
    "stability": stability,
    "backends": backends,
    "sensitivity": sensitivity,
    "scores": noisy_scores,
    "cleaning": cleaning,
    "cost": cost,
}


def write_tables(run_dir: Path | str, config: Mapping[str, Any] | None = None) -> list[Path]:
    """Write every table of a run's summary as Markdown, LaTeX, CSV and JSON.

    Args:
        run_dir: Folder of the run.
        config: If not None, a summary that lacks a table of this configuration is refused, because it is older.

    Returns:
        The files that were written.

    Raises:
        UserError: If the summary lacks a table of `config`.
    """
    tables = build_tables(read_summary(run_dir))
    missing = set((config or {}).get("tables", {})) - {table.name for table in tables}
    if missing:
        raise UserError(f"{run_dir}/summary.json does not know the table {min(missing)}; summarise again")
    return [path for table in tables for path in write_table(table, Path(run_dir) / "tables")]


def build_tables(records: Sequence[Mapping[str, Any]]) -> list[Table]:
    """Build one table for each layout in the records of a summary, in their order."""
    return [BUILDERS[layout.kind](Source(name, layout, records)) for name, layout in layouts(records).items()]
