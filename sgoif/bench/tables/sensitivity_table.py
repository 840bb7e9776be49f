"""The sensitivity sheet: one setting of the method changed at a time, its values in order, the default among them."""

from __future__ import annotations

from sgoif.bench.tables.noisy_table import noise_words, top_words
from sgoif.bench.tables.render import Block, Column, Entry, Row, Table
from sgoif.bench.tables.source import NOTHING, Source, gap_field, make_block, pooled, seed_words
from sgoif.bench.tables.variants_table import DIFFERENCE, differences, full_words, same_words

NAMES = {  # field -> the paper's symbol and words
    "anchors": "K: anchors",
    "rank": "r: rank of the subspace",
    "solve_every": "T_r: steps between two checks, at most",
    "coverage_every": "T_a: checks between two looks at coverage",
    "kappa": "κ: stability scale",
    "temperature": "T: temperature",
    "damping": "λ: damping, relative",
    "window": "window: last share of training that is scored",
}
AUC, TOP = Column("", "AUC-PR", "auc_pr"), Column("", "P@1%", "p_at_1")
COLUMNS = (
    AUC,
    TOP,
    Column("", "τ top 1%", "tau_top1", "", "number2"),
    Column("overhead", "CPU", "overhead_cpu", "", "times"),
    Column("", "HVPs/step", "extra:hvps_per_step", "", "number1"),
)
HEADS = (
    *COLUMNS,
    Column("Δ AUC-PR", "points", "auc_pr:difference", "", "points"),
    Column("Δ AUC-PR", "p", "auc_pr:difference_p", "", "p"),
)


def sensitivity(source: Source) -> Table:
    """Rows: field by field, its values in order."""
    blocks = []
    if source.panels:
        found = differences(source, AUC)
        rows = [_row(source, found, *at) for at in _values(source)]
        blocks.append(Block("", list(HEADS), rows, ("", "value"), same_words(source, {AUC.metric: found})))
    plain_rows = [("", r["method"]) for r in source.layout["rows"]]
    blocks += [make_block("", [gap_field(source, gap)], plain_rows) for gap in source.layout["not_run"]]
    where = ", ".join(f"{p['title']} {noise_words(p)}" for p in source.panels)
    caption = [
        f"One field changed at a time, all else the full method; mean over {where or 'nothing'} and the seeds. "
        "AUC-PR and P@1% in %.",
        full_words(source),
        *(words.split(" {best}")[0] for words in seed_words(source)),
        top_words(source) if source.panels else "",
        DIFFERENCE,
        "K = 0: one anchor per class. A check also updates the subspace; coverage is the anchors'. Overhead: CPU "
        "seconds over those of plain training.",
        NOTHING,
    ]
    return source.table(blocks, caption)


def _values(source: Source) -> list[tuple[str, str, str]]:
    """(group, value, method) in the order of the sheet; the default stands among the values of every field."""
    full, by_field = source.layout["full"], {}
    for row in source.layout["rows"][1:]:
        for field, value in row["change"].items():
            by_field.setdefault(field, {})[value] = row["method"]
    first, out = source.layout["rows"][0]["method"], []
    for field in sorted(by_field, key=lambda f: list(NAMES).index(f) if f in NAMES else len(NAMES)):
        values = {**by_field[field], full[field]: first}
        for value in sorted(values):
            default = " (default)" if values[value] == first else ""
            out.append((NAMES.get(field, field), f"{value:g}{default}", values[value]))
    return out


def _row(source: Source, found, group: str, value: str, method: str) -> Row:
    entries = [pooled(source, source.panels, method, c.metric) for c in COLUMNS]
    entries += found[method][1:] if method in found else [Entry(), Entry()]
    return Row(group, method, value, entries)
