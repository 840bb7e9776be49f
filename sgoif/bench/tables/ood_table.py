"""Tables of OOD detection: an overview over the ID sets, then one block per ID set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sgoif.bench.tables.render import Block, Column, Entry, Table
from sgoif.bench.tables.source import NOTHING, Field, Source, gap_field, make_block, metric_field, seed_words


def ood(source: Source) -> Table:
    """An overview over the ID sets (if several), then one block per ID set."""
    rows = source.methods()
    blocks, counts = [], []
    if len(source.panels) + len(source.layout["not_run"]) > 1:
        blocks.append(_ood_overview(source, rows))
    for panel in source.panels:
        fields = []
        for metric, name, better in (
            ("auroc", "AUROC", "higher"),
            ("aupr_out_ap", "AUPR-OUT", "higher"),
            ("fpr95", "FPR@95", "lower"),
        ):
            for group, title in (("near", "near"), ("far", "far"), ("overall", "mean")):
                fields.append(metric_field(source, panel, Column(name, title, f"{metric}:{group}", better)))
        fields.append(metric_field(source, panel, Column("ID", "acc.", "id_accuracy")))
        for column in (
            Column("test", "ms/image", "seconds_per_image", "lower", "milliseconds"),
            Column("training", "own s", "seconds_own", "lower", "seconds"),
            Column("training", "× stand-alone", "overhead_standalone", "lower", "times"),
        ):
            fields.append(metric_field(source, panel, column))
            fields[-1].ranked = False
        blocks.append(make_block(f"ID: {panel['title']}", fields, rows, "ood"))
        counts.append(_ood_counts(source, panel, [m for _, m in rows]))
    caption = [
        "OOD detection, in % unless the column says otherwise; near, far and mean: unweighted means over the OOD sets.",
        *seed_words(source),
        "AUPR-OUT: average precision with OOD as the positive class, so it depends on the counts: "
        + "; ".join(c for c in counts if c)
        + "."
        if any(counts)
        else "",
        "FPR@95: share of ID images above the threshold that finds 95% of the OOD images (lower is better). "
        "The summary also has AUPR-IN, and both as trapezoids as other tables print them.",
        "Training: own seconds before the first score, and stand-alone over plain training (the shared network "
        "counted). No OOD image was used to choose anything unless the row says so.",
        NOTHING,
    ]
    return source.table(blocks, caption)


def _ood_overview(source: Source, rows) -> Block:
    fields = []
    for panel in source.panels:
        for group in ("near", "far"):
            fields.append(metric_field(source, panel, Column(panel["title"], group, f"auroc:{group}")))
    for absent in source.layout["not_run"]:
        fields.append(gap_field(source, absent))

    def average(method: str) -> Entry:
        pairs = {}
        for panel in source.panels:
            for group in ("near", "far"):
                pairs[panel["dataset"], group] = source.entry(panel, method, f"auroc:{group}").mean
        if not pairs or None in pairs.values():
            return Entry()
        return Entry(sum(pairs.values()) / len(pairs), pairs=pairs)

    if len(source.panels) > 1:
        fields.append(Field(Column("all", "mean", "auroc:average"), average))
    return make_block("AUROC by ID set", fields, rows, "ood")


def _ood_counts(source: Source, panel: Mapping, methods: Sequence[str]) -> str:
    """Images per set, as the first method that scored them saw them."""
    for method in methods:
        inside = source.get(panel, method, "n_id")
        if inside is not None:
            sets = [f"{s} {source.get(panel, method, f'n_ood:{s}')['mean']:,.0f}" for s in panel["near"] + panel["far"]]
            return f"{panel['title']} {inside['mean']:,.0f} ID images against {', '.join(sets)}"
    return ""
