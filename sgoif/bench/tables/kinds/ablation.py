"""Builds tables of variants of one method: the ablations, their stability and cost, the curvature backends.

The first row is the full method; every other row changes what its title says and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sgoif.bench.evaluation.table_layout import Panel
from sgoif.bench.tables.block import Field, absent_field, make_block, metric_field, pooled_field
from sgoif.bench.tables.captions import NOT_GIVEN, describe_noise, seeds_caption, top_caption
from sgoif.bench.tables.common_seeds import common_block
from sgoif.bench.tables.kinds.variants import (
    difference_block,
    difference_caption,
    entry_of_pairs,
    full_method_caption,
    row_title,
)
from sgoif.bench.tables.model import Block, Column, Entry, Table
from sgoif.bench.tables.source import Source

FOUND = (Column("", "AUC-PR", "auc_pr"), Column("", "P@1%", "p_at_1"))
RECALL = tuple(Column("Recall", f"@{k}%", f"recall_at_{k}") for k in (1, 5, 10))
OOD = (Column("OOD", "AUROC", "auroc:overall"), Column("OOD", "AUPR", "aupr_out_ap:overall"))
TAU = Column("", "τ top 1%", "tau_top1", "higher", "number2")
OVERHEAD = (
    Column("overhead", "wall", "overhead_standalone", "", "times"),
    Column("overhead", "CPU", "overhead_cpu", "", "times"),
)
TIME = Column("", "time × device (s)", "seconds_own", "", "seconds")
HVPS = Column("", "HVPs/step", "extra:hvps_per_step", "", "number1")
SHORT = (*FOUND, *OVERHEAD)
EXTENDED = (*FOUND, *RECALL, *OOD, TAU, TIME, HVPS)
BACKENDS = (
    *FOUND,
    TAU,
    Column("mean", "residual", "extra:mean_residual", "", "number2"),
    Column("mean", "confidence", "extra:mean_confidence", "", "number2"),
    TIME,
    *OVERHEAD,
    Column("memory", "peak MB", "peak_memory_mb", "", "megabytes"),
    HVPS,
)

COST_WORDS = (
    "Overhead (×): measured over plain training (same data, network, epochs, machine), by wall-clock and by CPU "
    "seconds, which do not grow when other jobs share the machine."
)
TIME_WORDS = (
    "time × device: wall-clock seconds of training and scoring on one device (the paper gives no unit). HVPs/step: "
    "curvature-vector products per training step."
)
TAU_WORDS = (
    "τ top 1%: Kendall's tau-b on the union of the top-1% sets of two adjacent epochs, mean over epochs; sets with "
    "little in common make it negative."
)
UNTOUCHED = (
    "the shift sentinel reads the network and the second moments of its layers; this variant only changes how training "
    "is watched, so it leaves both, and the figure, as they are"
)
NO_ID_SET = "the configuration names no ID set whose OOD figures this table could show"


def ablation(source: Source) -> Table:
    """Build the paper's ablation; with `extended` its extended columns."""
    extended = source.layout.extended
    words = [TAU_WORDS, TIME_WORDS, _ood_words(source)] if extended else [COST_WORDS]
    return _variants(source, EXTENDED if extended else SHORT, ["Each row changes one field of the method.", *words])


def backends(source: Source) -> Table:
    """Build the comparison of curvature backends: quality, time and memory."""
    words = [
        "Each row changes the curvature backend; all else is the full method.",
        "Residual, confidence: of the anchors' systems, mean over the visits in the score window; the residual of a "
        "backend is measured with its own damping, so compare it down a column with care.",
        "Peak MB: of the process on a CPU, libraries included; of the device on a GPU.",
    ]
    return _variants(source, BACKENDS, [*words, TAU_WORDS, COST_WORDS, TIME_WORDS])


def _variants(source: Source, columns: Sequence[Column], words: Iterable[str]) -> Table:
    rows = [("", r.method) for r in source.layout.rows]
    blocks = [block for panel in source.panels for block in _panel_blocks(source, panel, columns, rows)]
    for absent in source.layout.not_run:
        blocks.append(titled(source, make_block("", [absent_field(source, absent)], rows)))
    if source.panels:
        blocks.append(difference_block(source, [c for c in columns if c in FOUND]))
    caption = [
        *words,
        full_method_caption(source),
        *_data_words(source),
        difference_caption(source) if source.panels else "",
        NOT_GIVEN,
    ]
    return source.table(blocks, caption)


def _panel_blocks(
    source: Source, panel: Panel, columns: Sequence[Column], rows: Sequence[tuple[str, str]]
) -> list[Block]:
    """Return the block of a setting, and where rows lack seeds another one over the seeds that all have."""
    title = f"{panel.title} {describe_noise(panel)}"
    fields = [_ood_field(source, c) if c in OOD else metric_field(source, panel, c) for c in columns]
    found = [field for field in fields if field.column in FOUND]
    common = common_block(title, found, rows, ("", "variant"), has_mean=False)
    return [titled(source, block) for block in (make_block(title, fields, rows), *common)]


def titled(source: Source, block: Block) -> Block:
    """Give the rows of a block the titles of variants."""
    block.corner = ("", "variant")
    for row in block.rows:
        row.title = row_title(source, row.method)
    return block


def _ood_field(source: Source, column: Column) -> Field:
    return Field(column, lambda method: _ood_entry(source, method, column), ranked=False)


def _ood_entry(source: Source, method: str, column: Column) -> Entry:
    """Return the full method's OOD metric; the other rows do not change it (tests/method/test_ablations.py)."""
    if not source.layout.ood_panels:
        return Entry(status="not run", note=source.note(NO_ID_SET))
    if method != source.layout.rows[0].method:
        return Entry(status="as Full", note=source.note(UNTOUCHED))
    return source.entry(source.layout.ood_panels[0], method, column.metric)


def _ood_words(source: Source) -> str:
    if not source.layout.ood_panels:
        return ""
    panel = source.layout.ood_panels[0]
    sets = ", ".join(panel.near + panel.far)
    return (
        f"OOD: the shift sentinel, ID {panel.title} (clean labels, {len(panel.seeds)} seed(s)) against {sets}; "
        "unweighted mean over these sets; AUPR: average precision with OOD as the positive class."
    )


def _data_words(source: Source) -> list[str]:
    if not source.panels:
        return []
    rates = []
    for panel in source.panels:
        rate = source.get(panel, "", "base_rate")
        if rate is not None:
            rates.append(f"{panel.title} {describe_noise(panel)} {100 * rate['mean']:.1f}%")
    base = f"Base rate (share of wrong labels): {', '.join(rates)}." if rates else ""
    return ["Quality in %.", *seeds_caption(source), top_caption(source), base]


def stability(source: Source) -> Table:
    """Build the ablation over several datasets at once: stability of the top 1% and cost."""
    rows = [("", r.method) for r in source.layout.rows]
    fields = []
    for panel in source.panels:
        place = f" (for {panel.stands_for})" if panel.stands_for else ""
        title = f"{panel.title} {describe_noise(panel)}{place}"
        fields.append(metric_field(source, panel, Column("τ top 1%", title, "tau_top1", "higher", "number2")))
    fields += [absent_field(source, gap) for gap in source.layout.not_run]
    if source.panels:
        fields += [
            pooled_field(source, source.panels, Column("mean", "τ", "tau_top1", "higher", "number2"), ranked=True),
            pooled_field(source, source.panels, Column("mean", TIME.title, TIME.metric, "", TIME.style)),
            Field(
                Column("mean", "cost / Full", "cost_of_full", "", "times"), lambda m: _share(source, m), ranked=False
            ),
            pooled_field(source, source.panels, Column("mean", HVPS.title, HVPS.metric, "", HVPS.style)),
        ]
    caption = [
        "Each row changes one field of the method. mean: over the datasets that were run and their seeds.",
        full_method_caption(source), *seeds_caption(source), TAU_WORDS, TIME_WORDS,
        "cost / Full: mean time over that of the first row, cell by cell.", NOT_GIVEN,
    ]  # fmt: skip
    return source.table([titled(source, make_block("", fields, rows))], caption)


def _mean_time(source: Source, method: str) -> Entry:
    return source.pooled(source.panels, method, TIME.metric)


def _share(source: Source, method: str) -> Entry:
    """Return the time of a variant over that of the full method with the same data and seed."""
    mine, full = _mean_time(source, method), _mean_time(source, source.layout.rows[0].method)
    pairs = {k: mine.pairs[k] / full.pairs[k] for k in mine.pairs if full.pairs.get(k)}
    return entry_of_pairs(pairs) if pairs else Entry(status=mine.status, note=mine.note)
