"""The column that says how many seeds are behind the rows of a block, where they differ."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable, Sequence

from sgoif.bench.tables.model import Block, Column, Entry, Row

SEEDS = "seeds"  # title and metric of the column
DRAWS = "draws"  # metric of a column that says it already
COST_STYLES = (
    "times",
    "seconds",
    "milliseconds",
    "megabytes",
)  # times are known of fewer seeds, where GPUs were shared
CAPTION = (
    "seeds: how many are behind the numbers of a row, the fewest where its columns differ; times and memory count only "
    "where nothing else is shown."
)
ON_SEEDS = re.compile(r"\d+ of \d+ seeds")  # how a note on missing seeds begins


def add_seeds_columns(blocks: Sequence[Block], notes: Sequence[str]) -> bool:
    """Add the column to every block whose methods do not all have the same number of seeds.

    A note on missing seeds moves from the numbers of a row to the new column, if it holds for all of them.

    Args:
        blocks: The blocks of a table; they are changed.
        notes: The reasons that entries refer to.

    Returns:
        Whether some block has the column.
    """
    found = False
    for block in blocks:
        counted = [_counted(block, row) for row in block.rows]
        counts = [min(map(_seeds_of, entries), default=0) for entries in counted]
        if len({n for n in counts if n}) < 2 or any(c.metric == DRAWS for c in block.columns):
            continue
        found = True
        for row, entries, n in zip(block.rows, counted, counts, strict=True):
            row.entries.append(Entry(n, note=_take_note(entries, notes)) if n else Entry())
        block.columns.append(Column("", SEEDS, SEEDS, better="", style="count"))
    return found


def _counted(block: Block, row: Row) -> list[Entry]:
    """Return the numbers of a method whose seeds count: those that are no cost, unless all columns are of cost."""
    is_cost = [column.style in COST_STYLES for column in block.columns]
    entries = [e for e, cost in zip(row.entries, is_cost, strict=True) if all(is_cost) or not cost]
    return [e for e in entries if row.method and _seeds_of(e)]


def _seeds_of(entry: Entry) -> int:
    """Return how many seeds are behind a number; of one over several panels, the fewest of a panel."""
    if entry.mean is None or not entry.n_seeds:
        return 0
    by_panel: dict[Hashable, int] = defaultdict(int)
    for key in entry.pairs:
        by_panel[key[0] if isinstance(key, tuple) else None] += 1
    return min(by_panel.values(), default=entry.n_seeds)


def _take_note(entries: Sequence[Entry], notes: Sequence[str]) -> int | None:
    """Take the note on missing seeds away from entries, if it is the only one and all have as many seeds."""
    shared = {e.note for e in entries if e.note}
    if len(shared) != 1 or len({_seeds_of(e) for e in entries}) > 1:
        return None
    (note,) = shared
    if not ON_SEEDS.match(notes[note - 1]):
        return None
    for entry in entries:
        entry.note = None
    return note
