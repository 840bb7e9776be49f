"""Compares methods over the seeds that all of them have, where some lack seeds.

Each seed draws its own noise, and some draws are far harder than others. A mean over other seeds is no fair rival.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from sgoif.bench.evaluation import significance
from sgoif.bench.tables.block import Field, make_block
from sgoif.bench.tables.model import Block, Entry, Row
from sgoif.bench.tables.names import is_ranked
from sgoif.bench.tables.ranks import mean_and_rank

OVER_COMMON_SEEDS = "Where rows lack seeds, all numbers are over the seeds that all rows have"


def common_block(
    title: str, fields: Sequence[Field], rows: Sequence[tuple[str, str]], corner: tuple[str, str], has_mean: bool
) -> list[Block]:
    """Return the block over the seeds that all rows have, if some lack seeds."""
    methods = [method for _, method in rows]
    if not _seeds_differ(fields, methods):
        return []
    common, words = _over_common_seeds(fields, methods)
    means = []
    if has_mean:
        found = {m: [field.entry(m) for field in common] for m in methods if is_ranked("noisy", m)}
        complete = {m: of for m, of in found.items() if all(e.mean is not None for e in of)}
        means = mean_and_rank(fields[0].column.metric, complete)
    return [make_block(f"{title}, {words}", [*common, *means], rows, corner=corner)]


def _seeds_differ(fields: Sequence[Field], methods: Sequence[str]) -> bool:
    """Tells whether in some column methods have different seeds."""
    return any(len({frozenset(e.pairs) for e in _measured(field, methods).values()}) > 1 for field in fields)


def _over_common_seeds(fields: Sequence[Field], methods: Sequence[str]) -> tuple[list[Field], str]:
    """Return columns whose numbers are over the seeds that all methods have in them, and which seeds these are.

    Args:
        fields: Columns that show one metric each.
        methods: Methods of the rows; one without a number in a column is not asked for its seeds there.

    Returns:
        The columns, and their seeds in words such as "seed 0, which all rows have".
    """
    found: list[Field] = []
    used: set[frozenset[Hashable]] = set()
    for field in fields:
        measured = _measured(field, methods)
        if not measured:
            continue
        common = frozenset.intersection(*(frozenset(e.pairs) for e in measured.values()))
        used.add(common)
        entries = {method: restricted(e, common) for method, e in measured.items()}
        found.append(replace(field, entry=partial(_find, field, entries), extra={}))
    if len(used) != 1:
        return found, "the seeds that all rows of a column have"
    (seeds,) = used
    named = ", ".join(str(seed) for seed in sorted(seeds, key=str))
    return found, f"seed{'s' * (len(seeds) > 1)} {named}, which all rows have"


def _measured(field: Field, methods: Sequence[str]) -> dict[str, Entry]:
    entries = {method: field.entry(method) for method in methods}
    return {method: entry for method, entry in entries.items() if entry.pairs}


def _find(field: Field, entries: Mapping[str, Entry], method: str) -> Entry:
    return entries[method] if method in entries else field.entry(method)


def put_over_common_seeds(rows: Sequence[Row], n_columns: int) -> None:
    """Put the numbers of the first columns over the settings and seeds that all rows have there.

    Args:
        rows: Their entries are replaced; one without a number is not asked for its seeds.
        n_columns: Number of columns.
    """
    for place in range(n_columns):
        pairs = [row.entries[place].pairs for row in rows if row.entries[place].pairs]
        common = set.intersection(*(set(found) for found in pairs)) if pairs else set()
        for row in rows:
            entry = row.entries[place]
            if entry.pairs and set(entry.pairs) != common:
                row.entries[place] = restricted(entry, common)


def restricted(entry: Entry, seeds: Collection[Hashable]) -> Entry:
    """Return the entry of these seeds alone; without a number if there are none."""
    pairs = {seed: value for seed, value in entry.pairs.items() if seed in seeds}
    if not pairs:
        return Entry()
    mean, std = significance.mean_std(list(pairs.values()))
    return Entry(mean, std, len(pairs), pairs=pairs, independent=entry.independent)
