"""Builds tables of OOD detection."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from sgoif.bench.evaluation.table_layout import Panel
from sgoif.bench.methods import registry
from sgoif.bench.methods.declaration import SEARCHED
from sgoif.bench.paper.public_numbers import leaderboard, openood
from sgoif.bench.tables import names
from sgoif.bench.tables.block import Field, absent_field, make_block, metric_field
from sgoif.bench.tables.captions import NOT_GIVEN, seeds_caption
from sgoif.bench.tables.model import Block, Column, Entry, Row, Table
from sgoif.bench.tables.source import Source

TUNING = (
    "Choice of settings: SG-OIF's form, its temperature and its shares were chosen by AUROC on other pairs of ID and "
    "OOD sets (about 1,500 forms; Fashion-MNIST against SVHN, DTD and CIFAR-10, and halves of CIFAR-100 against each "
    "other), so some of the OOD sets it was chosen with are reported here too. The other methods have the settings of "
    "their papers or OpenOOD's defaults. Chosen was which of two scores ranks for ARPL, G-ODIN and CSI, on digits that "
    "no table reports. Declared scores: what methods with "
    "several were declared with; the first ranks."
)


SEARCHED_WORDS = (
    "Searched: the hyper-parameters are those of the largest AUROC on OOD validation images, chosen for each network "
    "among the values that OpenOOD tries. No image of these is tested on, but they may be of a set that is."
)

OVERVIEWS = (("auroc", "AUROC", "higher"), ("fpr95", "FPR@95", "lower"))


def ood(source: Source) -> Table:
    """Build the table: an overview over the ID sets if there are several, then one block for each ID set.

    With `extended` the numbers that OpenOOD publishes stand beside those measured here.
    """
    rows = source.methods()
    blocks, counts = [], []
    if len(source.panels) + len(source.layout.not_run) > 1:
        blocks += [_ood_overview(source, rows, *shown) for shown in OVERVIEWS]
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
        blocks.append(make_block(f"ID: {panel.title}", fields, rows, "ood"))
        others = declared_scores(source, panel, [m for _, m in rows])
        blocks += [others] if others else []
        blocks += [beside_openood(source, panel, rows)] if source.layout.extended else []
        counts.append(_ood_counts(source, panel, [m for _, m in rows]))
    caption = [
        "OOD detection, in % unless the column says otherwise; near, far and mean: unweighted means over the OOD sets.",
        *seeds_caption(source),
        "AUPR-OUT: average precision with OOD as the positive class, so it depends on the counts: "
        + "; ".join(c for c in counts if c)
        + "."
        if any(counts)
        else "",
        "FPR@95: share of ID images above the threshold that finds 95% of the OOD images (lower is better). "
        "The summary also has AUPR-IN, and both as trapezoids as other tables print them.",
        "Training: own seconds before the first score, and stand-alone over plain training (the shared network "
        "counted). No method is fitted with an image of an OOD test set.",
        _stand_in_words(source),
        _published_words() if source.layout.extended else "",
        SEARCHED_WORDS if any(_is_searched(method) for _, method in rows) else "",
        TUNING,
        NOT_GIVEN,
    ]
    return source.table(blocks, caption)


def _ood_overview(source: Source, rows: Sequence[tuple[str, str]], metric: str, title: str, better: str) -> Block:
    fields = []
    for panel in source.panels:
        for group in ("near", "far"):
            fields.append(metric_field(source, panel, Column(panel.title, group, f"{metric}:{group}", better)))
    for absent in source.layout.not_run:
        fields.append(absent_field(source, absent))

    if len(source.panels) > 1:
        column = Column("all", "mean", f"{metric}:average", better)
        fields.append(Field(column, lambda method: _average(source, method, metric)))
    return make_block(f"{title} by ID set", fields, rows, "ood")


def _average(source: Source, method: str, metric: str) -> Entry:
    """Return the unweighted mean over ID sets and their near and far sets; empty if one is missing.

    For tests an ID set counts once: its near and far sets are judged with the same networks.
    """
    pairs: dict[Hashable, float] = {}
    for panel in source.panels:
        near, far = (source.entry(panel, method, f"{metric}:{group}").mean for group in ("near", "far"))
        if near is None or far is None:
            return Entry()
        pairs[panel.dataset] = (near + far) / 2
    return Entry(sum(pairs.values()) / len(pairs), pairs=pairs)


def _ood_counts(source: Source, panel: Panel, methods: Sequence[str]) -> str:
    """Return the number of images in each set, taken from the first method that scored them."""
    for method in methods:
        inside = source.get(panel, method, "n_id")
        if inside is not None:
            counts = {s: source.get(panel, method, f"n_ood:{s}") for s in panel.near + panel.far}
            sets = [f"{names.set_title(s)} {count['mean']:,.0f}" for s, count in counts.items() if count is not None]
            return f"{panel.title} {inside['mean']:,.0f} ID images against {', '.join(sets)}"
    return ""


SCORE_COLUMNS = [
    Column(name, title, f"{metric}:{group}", better)
    for metric, name, better in (("auroc", "AUROC", "higher"), ("fpr95", "FPR@95", "lower"))
    for group, title in (("near", "near"), ("far", "far"), ("overall", "mean"))
]


def declared_scores(source: Source, panel: Panel, methods: Sequence[str]) -> Block | None:
    """Return the block of one ID set; None if no method has several scores."""
    rows: list[Row] = []
    for method in methods:
        name, _ = registry.split_variant(method)
        others = source.variants(method)
        if not others or name not in registry.available("ood"):
            continue
        declared = registry.declaration("ood", name)
        words, title = declared.candidates, names.title("ood", method)
        ranking = [source.entry(panel, method, column.metric) for column in SCORE_COLUMNS]
        rows.append(Row(title, method, f"{words.get(declared.ranked_by, 'the score above')} (ranks)", ranking))
        for variant in sorted(others, key=list(words).index if set(others) <= set(words) else str):
            entries = [source.variant_entry(panel, method, variant, column.metric) for column in SCORE_COLUMNS]
            rows.append(Row(title, method, words.get(variant, variant), entries))
    rows = [row for row in rows if any(entry.mean is not None for entry in row.entries)]
    return Block(f"Declared scores, ID: {panel.title}", SCORE_COLUMNS, rows, ("", "score"), "") if rows else None


def beside_openood(source: Source, panel: Panel, rows: Sequence[tuple[str, str]]) -> Block:
    """Return the block of one ID set with AUROC measured here, OpenOOD's, and what is between them."""
    fields = []
    for group in ("near", "far"):
        for kind in ("here", "OpenOOD", "difference"):
            column = Column(f"AUROC, {group}", kind, f"auroc:{group}", "")
            fields.append(Field(column, _beside(source, panel, group, kind), ranked=False))
    shown = [(heading, method) for heading, method in rows if _published(panel, method, "near") is not None]
    return make_block(f"Beside OpenOOD, ID: {panel.title}", fields, shown, "ood")


def _beside(source: Source, panel: Panel, group: str, kind: str) -> Callable[[str], Entry]:
    """Return the function that gives the entry of a method: "here", "OpenOOD" or "difference"."""

    def entry(method: str) -> Entry:
        here, published = source.entry(panel, method, f"auroc:{group}"), _published(panel, method, group)
        if kind == "here" or published is None:
            return here
        if kind == "OpenOOD":
            return published
        return Entry() if here.mean is None or published.mean is None else Entry(here.mean - published.mean)

    return entry


def _is_searched(method: str) -> bool:
    return registry.split_variant(method)[1] == SEARCHED


def _published(panel: Panel, method: str, group: str) -> Entry | None:
    """Return OpenOOD's AUROC of a method, None if it publishes none."""
    name = registry.split_variant(method)[0] if _is_searched(method) else method
    found = leaderboard().get(names.title("ood", name).lower(), {}).get(f"{panel.title} {group}")
    return None if found is None else Entry(found.mean, found.std)


def _published_words() -> str:
    public = openood()
    return (
        f"OpenOOD: {public['name']}, mean and standard deviation of three trainings of the same network, on its own "
        f"OOD sets. It chooses parameters on OOD validation images for {', '.join(public['searched'])}."
    )


def _stand_in_words(source: Source) -> str:
    """Return the sentence on OOD sets that replace official ones; may be empty."""
    sets = dict.fromkeys(names.set_title(s) for panel in source.panels for s in panel.near + panel.far)
    found = [name for name in sets if name.endswith(names.STAND_IN_MARK)]
    if not found:
        return ""
    network = "the network is OpenOOD's" if source.layout.extended else "network and training are this benchmark's own"
    return (
        f"Not OpenOOD's protocol: {', '.join(found)} stand in for the official sets (a part of them, or other crops), "
        f"and {network}."
    )
