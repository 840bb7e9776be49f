"""Tables of variants of one method: the ablations, their stability and cost, the curvature backends.

The first row is the full method; every other row changes what its title says and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sgoif.bench.tables.noisy_table import noise_words, top_words
from sgoif.bench.tables.render import Block, Column, Entry, Table
from sgoif.bench.tables.source import NOTHING, Field, Source, gap_field, make_block, metric_field, pooled, seed_words
from sgoif.bench.tables.variants_table import DIFFERENCE, difference_block, full_words, row_title, shown

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
    """The paper's ablation; with `extended` its extended columns."""
    extended = source.layout["extended"]
    words = [TAU_WORDS, TIME_WORDS, _ood_words(source)] if extended else [COST_WORDS]
    return _variants(source, EXTENDED if extended else SHORT, ["Each row changes one field of the method.", *words])


def backends(source: Source) -> Table:
    """What H_t is made of: quality, time and memory."""
    words = [
        "Each row changes the curvature backend; all else is the full method.",
        "Residual, confidence: of the anchors' systems, mean over the visits in the score window; the residual of a "
        "backend is measured with its own damping, so compare it down a column with care.",
        "Peak MB: of the process on a CPU, libraries included; of the device on a GPU.",
    ]
    return _variants(source, BACKENDS, [*words, TAU_WORDS, COST_WORDS, TIME_WORDS])


def _variants(source: Source, columns: Sequence[Column], words: Iterable[str]) -> Table:
    rows = [("", r["method"]) for r in source.layout["rows"]]
    blocks = [_panel_block(source, panel, columns, rows) for panel in source.panels]
    blocks += [titled(source, make_block("", [gap_field(source, gap)], rows)) for gap in source.layout["not_run"]]
    if source.panels:
        blocks.append(difference_block(source, [c for c in columns if c in FOUND]))
    caption = [*words, full_words(source), *_data_words(source), DIFFERENCE if source.panels else "", NOTHING]
    return source.table(blocks, caption)


def _panel_block(source: Source, panel: Mapping, columns: Sequence[Column], rows) -> Block:
    fields = [
        Field(c, lambda m, c=c: _ood_entry(source, m, c), ranked=False) if c in OOD else metric_field(source, panel, c)
        for c in columns
    ]
    return titled(source, make_block(f"{panel['title']} {noise_words(panel)}", fields, rows))


def titled(source: Source, block: Block) -> Block:
    """The block with the rows' own titles."""
    block.corner = ("", "variant")
    for row in block.rows:
        row.title = row_title(source, row.method)
    return block


def _ood_entry(source: Source, method: str, column: Column) -> Entry:
    """The full method's figure; the other rows do not touch it (tests/method/test_ablations.py)."""
    if not source.layout["ood"]:
        return Entry(status="not run", note=source.note(NO_ID_SET))
    if method != source.layout["rows"][0]["method"]:
        return Entry(status="as Full", note=source.note(UNTOUCHED))
    return source.entry(source.layout["ood"][0], method, column.metric)


def _ood_words(source: Source) -> str:
    if not source.layout["ood"]:
        return ""
    panel = source.layout["ood"][0]
    sets = ", ".join(panel["near"] + panel["far"])
    return (
        f"OOD: the shift sentinel, ID {panel['title']} (clean labels, {len(panel['seeds'])} seed(s)) against {sets}; "
        "unweighted mean over these sets; AUPR: average precision with OOD as the positive class."
    )


def _data_words(source: Source) -> list[str]:
    if not source.panels:
        return []
    rates = []
    for panel in source.panels:
        rate = source.get(panel, "", "base_rate")
        if rate is not None:
            rates.append(f"{panel['title']} {noise_words(panel)} {100 * rate['mean']:.1f}%")
    base = f"Base rate (share of wrong labels): {', '.join(rates)}." if rates else ""
    return ["Quality in %.", *seed_words(source), top_words(source), base]


def stability(source: Source) -> Table:
    """The ablation over several datasets at once: stability of the top 1% and cost."""
    rows = [("", r["method"]) for r in source.layout["rows"]]
    fields = []
    for panel in source.panels:
        place = f" (for {panel['stands_for']})" if panel["stands_for"] else ""
        title = f"{panel['title']} {noise_words(panel)}{place}"
        fields.append(metric_field(source, panel, Column("τ top 1%", title, "tau_top1", "higher", "number2")))
    fields += [gap_field(source, gap) for gap in source.layout["not_run"]]
    if source.panels:
        fields += [
            Field(
                Column("mean", "τ", "tau_top1", "higher", "number2"),
                lambda m: pooled(source, source.panels, m, "tau_top1"),
            ),
            Field(
                Column("mean", TIME.title, TIME.metric, "", TIME.style), lambda m: _mean_time(source, m), ranked=False
            ),
            Field(
                Column("mean", "cost / Full", "cost_of_full", "", "times"), lambda m: _share(source, m), ranked=False
            ),
            Field(
                Column("mean", HVPS.title, HVPS.metric, "", HVPS.style),
                lambda m: pooled(source, source.panels, m, HVPS.metric),
                ranked=False,
            ),
        ]
    caption = [
        "Each row changes one field of the method. mean: over the datasets that were run and their seeds.",
        full_words(source), *seed_words(source), TAU_WORDS, TIME_WORDS,
        "cost / Full: mean time over that of the first row, cell by cell.", NOTHING,
    ]  # fmt: skip
    return source.table([titled(source, make_block("", fields, rows))], caption)


def _mean_time(source: Source, method: str) -> Entry:
    return pooled(source, source.panels, method, TIME.metric)


def _share(source: Source, method: str) -> Entry:
    """Time of a variant over that of the full method with the same data and seed."""
    mine, full = _mean_time(source, method), _mean_time(source, source.layout["rows"][0]["method"])
    pairs = {k: mine.pairs[k] / full.pairs[k] for k in mine.pairs if full.pairs.get(k)}
    return shown(pairs) if pairs else Entry(status=mine.status, note=mine.note)
