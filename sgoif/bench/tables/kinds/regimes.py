"""Builds the table of regimes: class balance, noise, length, size, optimiser and start.

A row for each cell of the grid, under a heading for each regime: AUC-PR of all methods, with SG-OIF beside the best of
the scores that plain training gives for free; then the share of labels that each method calls wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sgoif.bench.evaluation.regime_words import describe_noise_briefly, without_shared_words
from sgoif.bench.evaluation.table_layout import Panel
from sgoif.bench.methods.registry import OURS
from sgoif.bench.tables import names
from sgoif.bench.tables.block import absent_field, make_block
from sgoif.bench.tables.captions import NOT_GIVEN, seeds_caption
from sgoif.bench.tables.kinds.noisy import TRUSTED
from sgoif.bench.tables.marks import mark_best
from sgoif.bench.tables.model import Block, Column, Entry, Row, Table
from sgoif.bench.tables.names import is_ranked
from sgoif.bench.tables.ranks import over_panels
from sgoif.bench.tables.source import Source

COUNT_ERROR = "removal_count_error"
# Scores of plain training, and of four further trainings on three quarters of the data each.
PLAIN_SCORES = ("aum", "aum@all", "loss", "margin", "cartography", "cartography@all", "oof_self_confidence")
CLOSE_ENOUGH = 0.003  # of AUC-PR: SG-OIF may be so far below the best of them
USUAL = "the dataset's own recipe"


@dataclass(frozen=True)
class _Cell:
    """A cell of the grid: its panel, the heading that it stands under, and its own words."""

    panel: Panel
    regime: str
    title: str


def regimes(source: Source) -> Table:
    """Build the table: mean and rank over all cells, AUC-PR of each cell, and estimated against true wrong labels."""
    rows = source.methods()
    ranked = [method for _, method in rows if is_ranked("noisy", method)]
    means, footer = over_panels(source, source.panels, "auc_pr", ranked)
    overall = make_block("All cells: AUC-PR (%)", means, rows, footer=footer)
    blocks = [overall] if overall.rows else []  # only a method that has all cells has a mean
    shared, cells = _cells(source.panels)
    methods = [method for _, method in rows]
    measured = [c for c in cells if any(source.entry(c.panel, m, "auc_pr").mean is not None for m in methods)]
    blocks += [_quality(source, cells, measured, methods), _called_wrong(source, measured, methods)]
    if source.layout.not_run:
        gaps = [absent_field(source, absent) for absent in source.layout.not_run]
        blocks.append(make_block("Not run", gaps, rows))
    caption = [
        f"All cells: {shared}." if shared else "",
        "Each row is one cell of the grid. Headings: class balance (largest to smallest class), images, and training "
        "where it is not the dataset's own recipe. Rows: the noise. sym.: to any other class; pair: to one other "
        "class; class-cond.: by a noise matrix; human: labels that people gave.",
        *(sentence.replace("best of the column", "best of the row") for sentence in seeds_caption(source)),
        "AUC-PR: average precision of the ranking of labels. Base rate: the share of wrong labels, which is also the "
        "AUC-PR of a random ranking.",
        "Best plain score: the best of AUM and mean probability of the label (each over all of training and over its "
        "last half), last-epoch loss and margin, and out-of-fold self-confidence, chosen for each cell with the truth.",
        "Labels called wrong: the share that the method's own rule removes, beside the true share.",
        TRUSTED,
        NOT_GIVEN,
    ]
    return source.table([block for block in blocks if block.rows or block.footer], caption)


def _cells(panels: Sequence[Panel]) -> tuple[str, list[_Cell]]:
    """Return the words that all cells share, and the cells, those of one regime together."""
    shared, rests = without_shared_words([panel.title for panel in panels])
    cells = []
    for panel, rest in zip(panels, rests, strict=True):
        noise = describe_noise_briefly({"kind": panel.kind, "rate": panel.noise, "column": panel.column})
        words = rest.split(", ")
        if noise in words:
            cells.append(_Cell(panel, ", ".join(word for word in words if word != noise) or USUAL, noise))
        else:  # the noise is what all cells share
            cells.append(_Cell(panel, "", rest))
    order = list(dict.fromkeys((cell.regime, cell.panel.kind) for cell in cells))
    regimes = list(dict.fromkeys(cell.regime for cell in cells))

    def place(cell: _Cell) -> tuple[int, int, float]:
        return regimes.index(cell.regime), order.index((cell.regime, cell.panel.kind)), cell.panel.noise or 0.0

    return shared, sorted(cells, key=place)


def _quality(source: Source, cells: Sequence[_Cell], measured: Sequence[_Cell], methods: Sequence[str]) -> Block:
    """Return the block of AUC-PR: SG-OIF, how far it is from the best plain score, all other methods, base rate."""
    plain = [m for m in PLAIN_SCORES if m in methods]
    first = [OURS] if OURS in methods else []
    others = [m for m in methods if m not in first and any(_mean(source, c, m) is not None for c in measured)]
    less = [Column("", "SG-OIF less the best plain score", "auc_pr:less_best_plain", "", "points")] if plain else []
    columns = [
        *(_column(m, "auc_pr") for m in first),
        *less,
        *(_column(m, "auc_pr") for m in others),
        Column("", "base rate", "base_rate", ""),
    ]
    rows, compared = [], []
    for cell in measured:
        entries = {m: source.entry(cell.panel, m, "auc_pr") for m in [*first, *others]}
        mark_best(entries, _column(OURS, "auc_pr"))
        found = {m: e.mean for m, e in entries.items() if m in plain and e.mean is not None}
        ours = entries[OURS].mean if first else None
        difference = Entry()
        # the best of some plain scores would flatter SG-OIF
        if found and ours is not None and set(found) >= {m for m in plain if m in cell.panel.methods}:
            difference = Entry(ours - max(found.values()))
            compared.append((ours - max(found.values()), {m: ours - value for m, value in found.items()}))
        base = source.entry(cell.panel, "", "base_rate")
        shown = [*(entries[m] for m in first), *([difference] if less else []), *(entries[m] for m in others), base]
        rows.append(Row(cell.regime, "", cell.title, shown))
    sentences = [_compared_in_words(compared, len(cells), plain)] if less else []
    footer = " ".join([*sentences, *_missing(cells, measured)])
    return Block("AUC-PR (%)", columns, rows, ("", "noise"), footer)


def _missing(cells: Sequence[_Cell], measured: Sequence[_Cell]) -> list[str]:
    """Return the sentence on the cells of which no method has a number."""
    by_regime: dict[str, list[str]] = {}
    for cell in cells:
        if cell not in measured:
            by_regime.setdefault(cell.regime, []).append(cell.title)
    if not by_regime:
        return []
    words = [f"{regime} ({', '.join(titles)})" if regime else ", ".join(titles) for regime, titles in by_regime.items()]
    return [f"Without a number, and not shown: {'; '.join(words)}."]


def _mean(source: Source, cell: _Cell, method: str) -> float | None:
    return source.entry(cell.panel, method, "auc_pr").mean


def _compared_in_words(compared: list[tuple[float, dict[str, float]]], n: int, shown: Sequence[str]) -> str:
    """Return the sentences below the block: in how many cells SG-OIF holds its own, and by how much it leads."""
    if not compared:
        return "No cell has numbers of both yet."
    less = [difference for difference, _ in compared]
    held = sum(difference >= -CLOSE_ENOUGH - 1e-9 for difference in less)
    leads = [
        sum(by[m] for _, by in compared) / len(compared) for m in shown if all(m in by for _, by in compared)
    ]  # over each single score that every cell has
    whole = "" if len(compared) == n else f" ({n - len(compared)} cells are not measured)"
    single = f" Ahead of each single plain score by {100 * min(leads):.1f} or more in the mean." if leads else ""
    mean, worst = 100 * sum(less) / len(less), 100 * min(less)
    return (
        f"SG-OIF is ahead of the best plain score, or at most {100 * CLOSE_ENOUGH:.1f} below it, in {held} of "
        f"{len(less)} cells{whole}; in the mean of cells {mean:+.1f}, at worst {worst:+.1f}.{single}"
    )


def _column(method: str, metric: str, better: str = "higher") -> Column:
    return Column("", names.title("noisy", method), metric, better)


def _called_wrong(source: Source, cells: Sequence[_Cell], methods: Sequence[str]) -> Block:
    """Return the block of the share of labels called wrong; methods without a rule of their own have no column."""
    shares = {m: [_share(source, cell.panel, m) for cell in cells] for m in methods}
    with_rule = [m for m in methods if any(entry.mean is not None for entry in shares[m])]
    columns = [Column("", "true share", "base_rate", "")]
    columns += [_column(m, "share_called_wrong", better="") for m in with_rule]
    rows = []
    for i, cell in enumerate(cells):
        true_share = source.entry(cell.panel, "", "base_rate")
        rows.append(Row(cell.regime, "", cell.title, [true_share, *(shares[m][i] for m in with_rule)]))
    return Block("Labels called wrong (%)", columns, rows if with_rule else [], ("", "noise"))


def _share(source: Source, panel: Panel, method: str) -> Entry:
    """Return the share of labels that a method calls wrong.

    It is recorded by its relative error, (called wrong - wrong) / wrong.
    """
    found = source.entry(panel, method, COUNT_ERROR)
    true_share = source.entry(panel, "", "base_rate").mean
    if found.mean is None or true_share is None:
        return found
    std = None if found.std is None else true_share * found.std
    return Entry(true_share * (1 + found.mean), std, found.n_seeds, found.status, found.note)
