"""Tables of wrong labels found: the grid of noise and sparsity, other noisy sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sgoif.bench.evaluation import significance
from sgoif.bench.tables.names import is_ranked
from sgoif.bench.tables.render import Column, Entry, Table
from sgoif.bench.tables.source import (
    NOTHING,
    OVERHEAD,
    Field,
    Source,
    gap_field,
    make_block,
    metric_field,
    seed_words,
)

WIDEST = 12  # columns beside each other before a block is split
TRUSTED = (
    "†: is given test images with clean labels, set aside from the test set (FastIF: a sample of them); the other rows "
    "see no clean label. Rows that are given all of them stand beside the others and are neither marked nor ranked."
)


def noise_grid(source: Source) -> Table:
    """Noise x sparsity; one block each for P@1%, AUC-PR, AUROC and test accuracy."""
    rows = source.methods()
    panels = sorted(source.panels, key=lambda p: (p["noise"], p["sparsity"]))
    blocks = []
    for metric, title in (
        ("p_at_1", "P@1% (%)"),
        ("auc_pr", "AUC-PR (%)"),
        ("auroc", "AUROC (%)"),
        ("test_accuracy", "Test accuracy of the model the method yields (%)"),
    ):
        fields = []
        for panel in panels:
            column = Column(f"{100 * panel['noise']:.0f}%", f"{panel['sparsity']:.1f}", metric)
            fields.append(metric_field(source, panel, column))
            if metric in ("p_at_1", "auc_pr"):
                fields[-1].extra["base rate"] = source.entry(panel, "", "base_rate")
        means, footer = _over_panels(source, panels, metric, [m for _, m in rows if is_ranked("noisy", m)])
        blocks.append(make_block(title, [*fields, *means], rows, corner=("noise", "sparsity"), footer=footer))
    caption = [
        f"Wrong labels in {panels[0]['title']}: class-conditional noise by noise rate and sparsity." if panels else "",
        *seed_words(source),
        top_words(source) if panels else "",
        "Base rate: the share of wrong labels, which is also the P@1% and AUC-PR of a random ranking.",
        "mean, rank: over the columns (rank 1 = best; the mean is marked by the same kind of test over the columns).",
        "Robust trainers yield their own model; detectors yield one by removing what they suspect (by their own rule, "
        "or where the scores split into two Gaussians) and training again.",
        TRUSTED,
        NOTHING,
    ]
    return source.table(blocks, caption)


def _over_panels(source: Source, panels, metric, methods) -> tuple[list[Field], str]:
    """Mean and average rank over the panels, for methods that have all of them; and the critical difference."""
    if len(panels) < 2:
        return [], ""
    full = {}
    for method in methods:
        entries = [source.entry(p, method, metric) for p in panels]
        if all(e.mean is not None for e in entries):
            full[method] = {i: e.mean for i, e in enumerate(entries)}
    ranked = {m: list(v.values()) for m, v in full.items()}
    ranks = significance.average_ranks(ranked) if len(ranked) > 1 else {}

    def mean(method: str) -> Entry:
        if method not in full:
            return Entry()
        return Entry(significance.mean_std(list(full[method].values()))[0], pairs=full[method])

    fields = [
        Field(Column("all", "mean", f"{metric}:mean"), mean),
        Field(Column("all", "rank", f"{metric}:rank", "", "number1"), lambda m: Entry(ranks.get(m)), ranked=False),
    ]
    if len(ranked) < 3:
        return fields, ""
    difference = significance.critical_difference(len(ranked), len(panels))
    p = significance.friedman_p(ranked)
    p_words = "< 0.001" if p < 0.001 else f"= {p:.3f}"
    return fields, (
        f"Ranks of {len(ranked)} methods over {len(panels)} columns: Friedman p {p_words}; "
        f"ranks further apart than {difference:.1f} differ (Nemenyi, α = {significance.ALPHA})."
    )


def noise_sets(source: Source) -> Table:
    """Datasets x (P@1%, AUC-PR, test accuracy, overhead both ways)."""
    rows = source.methods()
    groups = []
    for panel in source.panels:
        name = f"{panel['title']} {noise_words(panel)}".strip()
        columns = [
            Column(name, "P@1%", "p_at_1"),
            Column(name, "AUC-PR", "auc_pr"),
            Column(name, "test acc.", "test_accuracy"),
            Column(name, "× marginal", "overhead_marginal", "lower", "times"),
            Column(name, "× stand-alone", "overhead_standalone", "lower", "times"),
        ]
        fields = [metric_field(source, panel, c) for c in columns]
        for f in fields[:2]:
            f.extra["base rate"] = source.entry(panel, "", "base_rate")
        for f in fields[3:]:
            f.ranked = False  # the cheapest row is `random`; a mark there would tell nothing
        groups.append(fields)
    for absent in source.layout["not_run"]:
        groups.append([gap_field(source, absent)])
    blocks = [make_block("", fields, rows) for fields in _split(groups)]
    for i, block in enumerate(blocks):
        block.title = f"Part {i + 1} of {len(blocks)}" if len(blocks) > 1 else ""
    caption = [
        "Wrong labels found (P@1%, AUC-PR), test accuracy of the model the method yields (all in %), and cost.",
        *seed_words(source),
        top_words(source) if source.panels else "",
        *_partly_known(source),
        "Base rate: the share of wrong labels, which is also the P@1% and AUC-PR of a random ranking.",
        TRUSTED,
        OVERHEAD,
        NOTHING,
    ]
    return source.table(blocks, caption)


def _split(groups: Sequence[list[Field]]) -> list[list[Field]]:
    """Groups of columns side by side, at most `WIDEST` columns in a block, no group torn apart."""
    blocks: list[list[Field]] = []
    for group in groups:
        if not blocks or len(blocks[-1]) + len(group) > WIDEST:
            blocks.append([])
        blocks[-1] += group
    return blocks


def noise_words(panel: Mapping) -> str:
    if panel["noise"] is None:
        words = {"human": f"human labels, {panel['setting']}", "collected": "as collected"}
        return words.get(panel["kind"], panel["setting"])
    kind = {"class_conditional": "", "superclass": "superclass "}.get(panel["kind"], f"{panel['kind']} ")
    sparsity = f", sparsity {panel['sparsity']:.1f}" if panel["sparsity"] else ""
    return f"{kind}{100 * panel['noise']:.0f}%{sparsity}"


def _partly_known(source: Source) -> list[str]:
    """For which of a dataset's training labels the truth is known, where it is not known for all."""
    words = []
    for panel in source.panels:
        whole, judged = source.get(panel, "", "n_train"), source.get(panel, "", "n_examples")
        if whole is not None:
            n = int(judged["mean"]) if judged is not None else 0
            among = ", which are ranked among themselves" if n else ": detection is not defined"
            words.append(f"{panel['title']}: of {int(whole['mean']):,} training labels {n:,} can be checked{among}.")
    return words


def top_words(source: Source) -> str:
    """How many examples the top 1% is, and the base rates."""
    sizes = sorted({int(v) for v in source.values("n_examples")})
    counts = ", ".join(f"{-(-n // 100)} of {n:,}" for n in sizes)
    return (
        f"P@1%: share of wrong labels among the most suspicious 1% ({counts or 'none'}), expected over ties; "
        "AUC-PR: average precision."
    )
