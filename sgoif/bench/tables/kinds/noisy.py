"""Builds tables of wrong labels found: the grid of noise and sparsity (Table 1), and other noisy sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sgoif.bench.evaluation.draws import MIN_DRAWS
from sgoif.bench.evaluation.table_layout import Panel
from sgoif.bench.methods import registry
from sgoif.bench.methods.registry import PLAIN
from sgoif.bench.tables import names
from sgoif.bench.tables.block import Field, absent_field, make_block, metric_field
from sgoif.bench.tables.captions import NOT_GIVEN, OVERHEAD, describe_noise, seeds_caption, top_caption
from sgoif.bench.tables.common_seeds import OVER_COMMON_SEEDS, common_block, put_over_common_seeds
from sgoif.bench.tables.model import BEST, Block, Column, Entry, Row, Table
from sgoif.bench.tables.names import REFERENCE, is_ranked
from sgoif.bench.tables.ranks import over_panels
from sgoif.bench.tables.source import Source

MAX_COLUMNS = 12  # of a block
SET_METRICS = (  # metric, title of its block, what is better, style
    ("auc_pr", "AUC-PR (%)", "higher", "percent"),
    ("p_at_1", "P@1% (%)", "higher", "percent"),
    ("test_accuracy", "Test accuracy of the model the method yields (%)", "higher", "percent"),
    ("overhead_marginal", "Overhead, marginal (×)", "lower", "times"),
    ("overhead_standalone", "Overhead, stand-alone (×)", "lower", "times"),
    ("overhead_passes", "Overhead in passes through a network, stand-alone (×)", "lower", "times"),
)
OWN_SCORE = "the method's score"
TRUSTED = (
    "†: is given test images with clean labels, set aside from the test set (FastIF: a sample of them); the other rows "
    "see no clean label. Rows that are given all of them stand beside the others and are neither marked nor ranked."
)

OWN, SAME, TRUE = "own number", "same number", "true number"
CLEANING_COLUMNS = (
    Column(OWN, "precision", "removal_precision"),
    Column(OWN, "recall", "removal_recall"),
    Column(OWN, "F1", "removal_f1"),
    Column(OWN, "too many", "removal_count_error", ""),
    Column(OWN, "test acc.", "test_accuracy"),
    Column(OWN, "trainings", "overhead_passes", "lower", "number1"),
    Column(SAME, "precision", "same_precision"),
    Column(SAME, "recall", "same_recall"),
    Column(SAME, "test acc.", "test_accuracy_same"),
    Column(TRUE, "precision = recall", "r_precision"),
)
CLEANING = (
    "What each method removes: by its own rule (own number), as many as confident learning counts, the most suspicious "
    "ones (same number), and as many as there are wrong labels (true number, where precision and recall are one).",
    "too many: how many more than there are wrong labels the rule removes, relative to them. test acc.: of the model "
    "that a detector yields by training again without what is removed; robust trainers yield that of their own. With "
    "the same number all are trained again alike, without the class weights of confident learning. All in %.",
    "trainings: passes of images through networks until the model of the own number is there, in plain trainings: "
    "finding, the runs that it reads, and training again. A detector that reads one plain run costs two trainings, a "
    "robust trainer one. With the same number everyone trains again, and the number is counted from four folds.",
)


def noise_grid(source: Source) -> Table:
    """Build the grid of noise and sparsity, one block each for AUC-PR, P@1%, AUROC and test accuracy."""
    rows = source.methods()
    panels = sorted(source.panels, key=lambda p: (p.noise, p.sparsity))
    blocks = []
    for metric, title in (
        ("auc_pr", "AUC-PR (%)"),
        ("p_at_1", "P@1% (%)"),
        ("auroc", "AUROC (%)"),
        ("test_accuracy", "Test accuracy of the model the method yields (%)"),
    ):
        fields = []
        for panel in panels:
            column = Column(f"{100 * (panel.noise or 0):.0f}%", f"{panel.sparsity:.1f}", metric)
            fields.append(metric_field(source, panel, column))
            if metric in ("p_at_1", "auc_pr"):
                fields[-1].extra["base rate"] = source.entry(panel, "", "base_rate")
        means, footer = over_panels(source, panels, metric, [m for _, m in rows if is_ranked("noisy", m)])
        corner = ("noise", "sparsity")
        blocks.append(make_block(title, [*fields, *means], rows, corner=corner, footer=footer))
        blocks += common_block(title, fields, rows, corner, has_mean=len(panels) > 1)
    caption = [
        f"Wrong labels in {panels[0].title}: class-conditional noise by noise rate and sparsity." if panels else "",
        *seeds_caption(source),
        top_caption(source) if panels else "",
        "Base rate: the share of wrong labels, which is also the P@1% and AUC-PR of a random ranking.",
        "mean, rank: over the columns (rank 1 = best). Columns of one draw of noise are not independent: a test counts "
        f"each draw once, and below {MIN_DRAWS} draws there is none.",
        "Robust trainers yield their own model; detectors yield one by removing what they suspect (by their own rule, "
        "or where the scores split into two Gaussians) and training again.",
        TRUSTED,
        NOT_GIVEN,
    ]
    return source.table(blocks, caption)


def noise_sets(source: Source) -> Table:
    """Build the table of noisy sets: a block for each metric, a column for each dataset and kind of noise."""
    rows = source.methods()
    blocks = []
    has_room = len(source.panels) + len(source.layout.not_run) <= MAX_COLUMNS
    for metric, words, better, style in SET_METRICS:
        fields = [_set_field(source, panel, Column("", "", metric, better, style)) for panel in source.panels]
        if metric == SET_METRICS[0][0] and has_room:
            fields += [absent_field(source, absent) for absent in source.layout.not_run]
        parts = _split(fields)
        for i, part in enumerate(parts):
            of = f", part {i + 1} of {len(parts)}" if len(parts) > 1 else ""
            blocks.append(make_block(words + of, part, rows))
            if style != "times":
                blocks += common_block(words + of, part, rows, ("", "method"), has_mean=False)
    caption = [
        "Wrong labels found (AUC-PR, P@1%), test accuracy of the model the method yields (all in %), and cost.",
        *seeds_caption(source),
        top_caption(source) if source.panels else "",
        *_partly_known(source),
        "" if has_room else _without_a_column(source),
        "Base rate: the share of wrong labels, which is also the P@1% and AUC-PR of a random ranking.",
        TRUSTED,
        OVERHEAD,
        NOT_GIVEN,
    ]
    return source.table(blocks, caption)


def cleaning(source: Source) -> Table:
    """Build the table: a block for each dataset and setting; columns without a number are left out."""
    rows = [(group, method) for group, method in source.methods() if method != PLAIN]
    blocks = []
    for panel in source.panels:
        removes = [(g, m) for g, m in rows if _has(source, panel, m, "removal_precision", "same_precision")]
        plain = [(REFERENCE, PLAIN)] if _has(source, panel, PLAIN, "test_accuracy") else []
        fields = [_cleaning_field(source, panel, replace(column)) for column in CLEANING_COLUMNS]
        shown = [f for f in fields if any(f.entry(m).mean is not None for _, m in removes)]
        name = f"{panel.title} {describe_noise(panel)}".strip()
        blocks.append(make_block(name, shown, [*removes, *plain], corner=("removed", "method")))
    caption = [CLEANING[0], *seeds_caption(source), *CLEANING[1:], NOT_GIVEN]
    return source.table(blocks, caption)


def _has(source: Source, panel: Panel, method: str, *metrics: str) -> bool:
    """Says whether a method has one of the metrics."""
    return any(source.get(panel, method, metric) is not None for metric in metrics)


def _cleaning_field(source: Source, panel: Panel, column: Column) -> Field:
    if column.metric != "overhead_passes":
        return metric_field(source, panel, column)
    return Field(column, lambda method: _trainings(source, panel, method), ranked=False)


def _trainings(source: Source, panel: Panel, method: str) -> Entry:
    """Return the trainings behind the model of a row; nothing for a row that has no model."""
    if not _has(source, panel, method, "test_accuracy"):
        return Entry()
    found = source.entry(panel, method, "overhead_passes")
    if found.mean is None:
        return Entry()
    return Entry(found.mean + _has(source, panel, method, "seconds_retrain"))


def _set_field(source: Source, panel: Panel, column: Column) -> Field:
    """Return the column of one dataset and kind of noise in the block of one metric."""
    column.group, column.title = panel.title, describe_noise(panel)
    is_cost = column.style == "times"  # the cheapest row is `random`; a mark there would be of no use
    field = metric_field(source, panel, column, ranked=not is_cost)
    if column.metric in ("p_at_1", "auc_pr"):
        field.extra["base rate"] = source.entry(panel, "", "base_rate")
    return field


def _split(fields: Sequence[Field]) -> list[list[Field]]:
    """Spreads columns evenly over as few blocks as possible, at most `MAX_COLUMNS` in each."""
    n_blocks = max(1, -(-len(fields) // MAX_COLUMNS))
    size = max(1, -(-len(fields) // n_blocks))
    return [list(fields[i : i + size]) for i in range(0, len(fields), size)] or [[]]


def _partly_known(source: Source) -> list[str]:
    """Return sentences on the datasets whose true labels are known for some training examples alone."""
    words = []
    for panel in source.panels:
        whole, judged = source.get(panel, "", "n_train"), source.get(panel, "", "n_examples")
        if whole is not None:
            n = int(judged["mean"]) if judged is not None else 0
            among = ", which are ranked among themselves" if n else ": detection is not defined"
            words.append(f"{panel.title}: of {int(whole['mean']):,} training labels {n:,} can be checked{among}.")
    return words


def _without_a_column(source: Source) -> str:
    """Return the sentence on datasets that were not run, where there is no room for columns that say so."""
    by_reason: dict[str, list[str]] = {}
    for absent in source.layout.not_run:
        by_reason.setdefault(absent.reason, []).append(absent.title)
    words = [f"{', '.join(titles)} ({reason})" for reason, titles in by_reason.items()]
    return f"Without a column: {'; '.join(words)}."


def noisy_scores(source: Source) -> Table:
    """Build the table of all declared scores of noisy-label methods: AUC-PR by dataset and setting."""
    columns = [Column(p.title, describe_noise(p), "auc_pr") for p in source.panels]
    rows: list[Row] = []
    for _, method in source.methods():
        name, _ = registry.split_variant(method)
        if name not in registry.available("noisy"):
            continue
        declared, title = registry.declaration("noisy", name), names.title("noisy", method)
        if not declared.candidates and not declared.parts:
            continue
        for score, words in {**(declared.candidates or {"": OWN_SCORE}), **declared.parts}.items():
            if score == declared.ranked_by:
                entries = [source.entry(panel, method, "auc_pr") for panel in source.panels]
                rows.append(Row(title, method, f"{words} (ranks)", entries))
            else:
                entries = [source.variant_entry(panel, method, score, "auc_pr") for panel in source.panels]
                rows.append(Row(title, method, words, entries))
    of_one_method = len({registry.split_variant(row.method)[0] for row in rows}) == 1  # its variants are compared
    if of_one_method:
        put_over_common_seeds(rows, len(columns))
    _mark_best_of_methods(rows)
    block = Block("AUC-PR (%)", columns, [r for r in rows if any(e.mean is not None for e in r.entries)], ("", "score"))
    caption = [
        "Every score that a method was declared with before it was evaluated. One of them ranks in the other tables; "
        "it was chosen on tuning noise, which is in no table. {best}: best of the method's scores in the column.",
        "SG-OIF ranks by several parts together, which stand beneath it as controls and are no choice."
        if any(registry.declaration("noisy", registry.split_variant(r.method)[0]).parts for r in rows)
        else "",
        "window: the last half of training, the same for all methods. Scores of the training steps themselves cost "
        "nothing.",
        f"{OVER_COMMON_SEEDS}." if of_one_method else "",
    ]
    return source.table([block], caption)


def _mark_best_of_methods(rows: Sequence[Row]) -> None:
    """Mark the best score of each method in each column."""
    by_method: dict[str, list[Row]] = {}
    for row in rows:
        by_method.setdefault(row.method, []).append(row)
    for group in by_method.values():
        for entries in zip(*(row.entries for row in group), strict=True):
            measured: list[Entry] = [e for e in entries if e.mean is not None]
            if len(measured) > 1:
                max(measured, key=lambda e: e.mean or 0.0).mark = BEST
