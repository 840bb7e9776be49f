"""Builds the table of regimes: class balance, noise, length, size, optimiser and start.

First SG-OIF beside the best of the scores that plain training gives for free, a row for each cell of the grid; then
all methods, a column for each cell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sgoif.bench.evaluation.table_layout import Panel
from sgoif.bench.methods.registry import OURS
from sgoif.bench.tables import names
from sgoif.bench.tables.block import Field, absent_field, make_block, metric_field
from sgoif.bench.tables.captions import NOT_GIVEN, seeds_caption
from sgoif.bench.tables.model import Block, Column, Entry, Row, Table
from sgoif.bench.tables.names import is_ranked
from sgoif.bench.tables.noisy_table import TRUSTED, over_panels
from sgoif.bench.tables.source import Source

MAX_COLUMNS = 6  # of a block: their headings are long
COUNT_ERROR = "removal_count_error"
# Scores of plain training, and of four further trainings on three quarters of the data each.
PLAIN_SCORES = ("aum", "aum@all", "loss", "margin", "cartography", "cartography@all", "oof_self_confidence")
CLOSE_ENOUGH = 0.003  # of AUC-PR: SG-OIF may be so far below the best of them


def regimes(source: Source) -> Table:
    """Builds the table: mean and rank over all cells, AUC-PR of each cell, and estimated against true wrong labels."""
    rows = source.methods()
    ranked = [method for _, method in rows if is_ranked("noisy", method)]
    means, footer = over_panels(source, source.panels, "auc_pr", ranked)
    overall = make_block("All cells: AUC-PR (%)", means, rows, footer=footer)
    blocks = [overall] if overall.rows else []  # only a method that has all cells has a mean
    blocks += _beside_the_best(source)
    for number, panels in enumerate(_parts(source.panels), start=1):
        fields = [metric_field(source, panel, _column(panel, "auc_pr")) for panel in panels]
        for panel, field in zip(panels, fields, strict=True):
            field.extra["base rate"] = source.entry(panel, "", "base_rate")
        blocks.append(make_block(f"AUC-PR (%), part {number}", fields, rows))
    for number, panels in enumerate(_parts(source.panels), start=1):
        block = make_block(f"Labels called wrong (%), part {number}", _estimates(source, panels), rows)
        blocks.append(_measured_rows(block))
    if source.layout.not_run:
        gaps = [absent_field(source, absent) for absent in source.layout.not_run]
        blocks.append(make_block("Not run", gaps, rows))
    caption = [
        "Each column is one cell of the grid: class balance (largest to smallest class), noise, images, and training "
        "where it is not the dataset's own recipe.",
        *seeds_caption(source),
        "AUC-PR: average precision of the ranking of labels. Base rate: the share of wrong labels, which is also the "
        "AUC-PR of a random ranking.",
        "Best plain score: the best of AUM and mean probability of the label (each over all of training and over its "
        "last half), last-epoch loss and margin, and out-of-fold self-confidence, chosen for each cell with the truth.",
        "Labels called wrong: the share that the method's own rule removes, beside the true share.",
        TRUSTED,
        NOT_GIVEN,
    ]
    return source.table(blocks, caption)


def _beside_the_best(source: Source) -> list[Block]:
    """Returns the block of SG-OIF and the best plain score, a row for each cell; none without plain scores."""
    shown = [m for m in PLAIN_SCORES if any(m in panel.methods for panel in source.panels)]
    if not shown:
        return []
    columns = [
        Column("", "best plain score", "auc_pr:best_plain"),
        Column("", "SG-OIF", "auc_pr"),
        Column("", "SG-OIF less the best", "auc_pr:less_best_plain", style="points"),
    ]
    rows, compared = [], []
    for panel in source.panels:
        plain = {m: e for m in shown if (e := source.entry(panel, m, "auc_pr")).mean is not None}
        ours = source.entry(panel, OURS, "auc_pr")
        title, best, less = panel.title, Entry(), Entry()
        if plain and set(plain) >= {m for m in shown if m in panel.methods}:  # the best of some would flatter SG-OIF
            name = max(plain, key=lambda m: plain[m].mean or 0.0)
            title, best = f"{title} · {names.title('noisy', name)}", replace(plain[name], mark="", note=None)
        if best.mean is not None and ours.mean is not None:
            less = Entry(ours.mean - best.mean)
            compared.append((ours.mean - best.mean, {m: ours.mean - (e.mean or 0.0) for m, e in plain.items()}))
        rows.append(Row("", "", title, [best, replace(ours, mark=""), less]))
    footer = _compared_in_words(compared, len(source.panels), shown)
    return [
        Block(
            "SG-OIF beside the best plain score: AUC-PR (%)", columns, rows, ("", "cell · its best plain score"), footer
        )
    ]


def _compared_in_words(compared: list[tuple[float, dict[str, float]]], n: int, shown: Sequence[str]) -> str:
    """Returns the sentences below the block: in how many cells SG-OIF holds its own, and by how much it leads."""
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


def _parts(panels: Sequence[Panel]) -> list[Sequence[Panel]]:
    return [panels[start : start + MAX_COLUMNS] for start in range(0, len(panels), MAX_COLUMNS)]


def _column(panel: Panel, metric: str, better: str = "higher") -> Column:
    return Column("", panel.title, metric, better)


def _estimates(source: Source, panels: Sequence[Panel]) -> list[Field]:
    fields = []
    for panel in panels:
        true_share = source.entry(panel, "", "base_rate")
        column = _column(panel, "share_called_wrong", better="")
        fields.append(Field(column, _called_wrong(source, panel, true_share.mean), extra={"true share": true_share}))
    return fields


def _called_wrong(source: Source, panel: Panel, true_share: float | None) -> Callable[[str], Entry]:
    """Returns the function that finds the share of labels that a method calls wrong.

    It is recorded by its relative error, (called wrong - wrong) / wrong.
    """

    def entry(method: str) -> Entry:
        found = source.entry(panel, method, COUNT_ERROR)
        if found.mean is None or true_share is None:
            return found
        std = None if found.std is None else true_share * found.std
        return Entry(true_share * (1 + found.mean), std, found.n_seeds, found.status, found.note)

    return entry


def _measured_rows(block: Block) -> Block:
    """Leaves out methods that have no rule of their own."""
    block.rows = [row for row in block.rows if any(entry.mean is not None for entry in row.entries)]
    return block
