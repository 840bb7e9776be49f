"""Tables of the summary: what stands in which row and column, which cell is best, and why a cell is empty.

A table is a function of the records of summary.json alone. How it is written down is the business of `render`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sgoif.bench import render, statistics
from sgoif.bench.errors import UserError
from sgoif.bench.evaluate import PLAIN
from sgoif.bench.files import read_json
from sgoif.bench.render import BEST, CLOSE, Block, Column, Entry, Row, Table

NOISY_GROUPS = {  # the paper's order
    "Methods of the paper": ("incv", "mixup", "sce", "mentornet", "coteaching", "fastif", "tracin",
                             "confident_learning", "sgoif"),
    "Free detectors": ("random", "loss", "aum", "oof_self_confidence"),
}  # fmt: skip
OOD_GROUPS = {  # the paper's five groups; two of its names are wrong for most of their methods
    "Anomaly detection": ("cutpaste", "draem", "patchcore", "gram"),
    "Energy and gradient": ("ebo", "gradnorm", "react", "mls", "klm", "dice"),
    "Features": ("vim", "knn"),
    "Generative (so called)": ("godin", "csi", "arpl", "mos", "opengan", "vos"),
    "Augmentation (so called)": ("logitnorm", "udg", "pixmix"),
    "Ours": ("sgoif",),
    "Free baseline": ("msp",),
}
OTHERS, REFERENCE = "Others", "Reference"
TITLES = {
    "incv": "INCV", "mixup": "Mixup", "sce": "SCE-loss", "mentornet": "MentorNet", "coteaching": "Co-Teaching",
    "fastif": "FastIF †", "tracin": "TracIn", "confident_learning": "CL", "sgoif": "SG-OIF",
    "random": "random", "loss": "last-epoch loss", "aum": "mean margin (AUM)",
    "oof_self_confidence": "out-of-fold self-confidence", "plain": "plain training",
    "cutpaste": "CutPaste", "draem": "DRAEM", "patchcore": "PatchCore", "gram": "Gram", "ebo": "EBO",
    "gradnorm": "GradNorm", "react": "ReAct", "mls": "MLS", "klm": "KLM", "dice": "DICE", "vim": "ViM", "knn": "KNN",
    "godin": "G-ODIN", "csi": "CSI", "arpl": "ARPL", "mos": "MOS", "opengan": "OpenGAN", "vos": "VOS",
    "logitnorm": "LogitNorm", "udg": "UDG", "pixmix": "PixMix", "msp": "MSP",
}  # fmt: skip
WIDEST = 12  # columns beside each other before a block is split

OVERHEAD = (
    "Overhead (×): measured wall-clock over that of plain training (same data, network, epochs, machine), folds and "
    "peer networks included, retraining on cleaned labels not. Marginal: a plain run that the method reads is there "
    "anyway; stand-alone: it is counted."
)
OVERHEAD_OOD = (
    "Overhead (×): wall-clock before the first score over that of plain training. Marginal: a plain run that the "
    "method reads is there anyway; stand-alone: it is counted."
)
NOTHING = "–: the method does not give this quantity."
TRUSTED = "†: is given test images with clean labels, set aside from the test set; the other rows see no clean label."


def write_tables(run_dir: Path | str, config: Mapping | None = None) -> list[Path]:
    """Renders every table of results/<run>/summary.json as Markdown, LaTeX, CSV and JSON; returns the files.

    With `config`, a summary that lacks one of its tables is refused: it is older than the configuration.
    """
    run_dir = Path(run_dir)
    tables = build_tables(read_json(run_dir / "summary.json"))
    missing = set((config or {}).get("tables", {})) - {t.name for t in tables}
    if missing:
        raise UserError(f"{run_dir}/summary.json does not know the table {min(missing)}; summarise again")
    return [path for table in tables for path in render.write(table, run_dir / "tables")]


def build_tables(records: Sequence[Mapping[str, Any]]) -> list[Table]:
    """One `Table` per layout record of the summary."""
    build = {"noise_grid": _noise_grid, "noise_sets": _noise_sets, "ood": _ood, "ablation": _ablation, "cost": _cost}
    tables = []
    for about in records:
        if about["metric"] == "layout":
            source = _Source(about["table"], about["layout"], records)
            tables.append(build[about["layout"]["kind"]](source))
    return tables


class _Source:
    """The records of one table, found by panel (dataset and setting), method and metric."""

    def __init__(self, name: str, layout: Mapping[str, Any], records: Iterable[Mapping[str, Any]]):
        self.name, self.layout, self.panels = name, layout, layout["panels"]
        self.index = {
            (r["dataset"], r["setting"], r["method"], r["metric"]): r
            for r in records
            if r["table"] == name and r["variant"] == "" and r["metric"] != "layout"
        }
        self.notes: list[str] = []

    def get(self, panel: Mapping, method: str, metric: str) -> Mapping[str, Any] | None:
        return self.index.get((panel["dataset"], panel["setting"], method, metric))

    def values(self, metric: str, method: str = "") -> list[float]:
        found = [self.get(p, method, metric) for p in self.panels]
        return [r["mean"] for r in found if r is not None and r["mean"] is not None]

    def entry(self, panel: Mapping, method: str, metric: str) -> Entry:
        """The cell of a table for one method: a number, what befell it instead, or nothing."""
        record, fate = self.get(panel, method, metric), self.get(panel, method, "status")
        if record is not None and record["mean"] is not None:
            return Entry(
                record["mean"], record["std"], record["n_seeds"], status=record["status"],
                note=self.note(record["reason"]), pairs=dict(zip(record["seeds"], record["values"], strict=True)),
            )  # fmt: skip
        told = fate if fate is not None and fate["status"] != "partial" else record
        if told is None:
            return Entry()
        return Entry(status=told["status"], note=self.note(told["reason"]))

    def note(self, reason: str) -> int | None:
        """The number of a reason beneath the table; the same words get the same number."""
        if not reason:
            return None
        if reason not in self.notes:
            self.notes.append(reason)
        return self.notes.index(reason) + 1

    def methods(self, groups: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
        """(group, method) of the rows: the known ones in their order, then new ones, then plain training."""
        there = list(dict.fromkeys(m for p in self.panels for m in p["methods"]))
        rows = [(group, m) for group, names in groups.items() for m in names if m in there]
        known = {m for _, m in rows}
        rows += [(OTHERS, m) for m in there if m not in known and m != PLAIN]
        return rows + [(REFERENCE, PLAIN)] * (PLAIN in there)

    def table(self, blocks: list[Block], caption: Iterable[str]) -> Table:
        layout = self.layout
        stand_ins = dict.fromkeys(f"{p['title']} in place of {p['stands_for']}" for p in self.panels if p["stands_for"])
        words = [f"STAND-IN DATA: {', '.join(stand_ins)}."] if stand_ins else []
        words += [*caption, layout["selection"]]
        tuning = dict.fromkeys(t for p in self.panels for t in p["tuning"])
        if tuning:
            words.append(f"Choices were made on data that is not in this table: {', '.join(tuning)}.")
        title = f"{layout['title']} ({', '.join(stand_ins)})" if stand_ins else layout["title"]
        return Table(self.name, layout["kind"], title, [w for w in words if w], blocks, self._used_notes(blocks))

    def _used_notes(self, blocks: list[Block]) -> list[str]:
        """The reasons that a cell refers to, numbered in the order in which a reader meets them."""
        entries = {id(e): e for b in blocks for row in b.rows for e in row.entries if e.note}.values()
        order = list(dict.fromkeys(e.note for e in entries))
        for entry in entries:
            entry.note = order.index(entry.note) + 1
        return [self.notes[n - 1] for n in order]


@dataclass
class _Field:
    """A column and how the cell of a method is found."""

    column: Column
    entry: Callable[[str], Entry]
    ranked: bool = True  # takes part in best and not-significantly-worse
    extra: dict[str, Entry] = field(default_factory=dict)  # rows that are not methods, such as the base rate


def _block(title: str, fields: Sequence[_Field], rows: Sequence[tuple[str, str]], **words) -> Block:
    """Rows x fields; marks the best; leaves out rows that have nothing to say."""
    columns = [{m: f.entry(m) for _, m in rows} for f in fields]
    for f, entries in zip(fields, columns, strict=True):
        if f.ranked and f.column.better:
            _mark(entries, f.column)
    out = []
    for group, method in rows:
        entries = [c[method] for c in columns]
        measured = any(e.mean is not None for e in entries)
        if measured or (method != PLAIN and any(e.status != "ok" for e in entries)):
            out.append(Row(group, method, TITLES.get(method, method), entries))
    for name in dict.fromkeys(n for f in fields for n in f.extra):
        out.append(Row(REFERENCE, "", name, [f.extra.get(name, Entry()) for f in fields]))
    return Block(title, [f.column for f in fields], out, **words)


def _mark(entries: Mapping[str, Entry], column: Column) -> None:
    """Marks the best (and what looks the same as printed), and what is not significantly worse than it.

    A method that lacks seeds does not compete: its mean may be good because the hard seed failed.
    """
    measured = {m: e for m, e in entries.items() if e.mean is not None and e.status == "ok"}
    best, close = statistics.not_worse({m: e.pairs for m, e in measured.items()}, column.better == "higher")
    if best is None:
        return
    for method, entry in measured.items():
        if render.number(entry.mean, column.style) == render.number(measured[best].mean, column.style):
            entry.mark = BEST
        elif method in close:
            entry.mark = CLOSE


def _cells(source: _Source, panel: Mapping, column: Column) -> _Field:
    return _Field(column, lambda method: source.entry(panel, method, column.metric))


def _marks(source: _Source) -> list[str]:
    """The sentence about seeds and marks, from what was measured."""
    counts = sorted({len(p["seeds"]) for p in source.panels})
    if not counts or counts[-1] == 1:
        return ["One seed: no spread and no test can be given. {best}: best of the column."]
    seeds = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    test = "t-test" if counts[-1] < statistics.SMALLEST_WILCOXON else "signed-rank test"
    return [
        f"Mean ± standard deviation over {seeds} seeds. {{best}}: best of the column; {{close}}: not significantly "
        f"worse than the best (one-sided paired {test} over seeds, Holm-corrected over the column, "
        f"α = {statistics.ALPHA}). A method that lacks seeds is shown but does not compete."
    ]


def _top_words(source: _Source) -> str:
    """How many examples the top 1% is, and the base rates."""
    sizes = sorted({int(v) for v in source.values("n_examples")})
    counts = ", ".join(f"{-(-n // 100)} of {n:,}" for n in sizes)
    return (
        f"P@1%: share of wrong labels among the most suspicious 1% ({counts}), expected over ties; "
        "AUC-PR: average precision."
    )


def _rate(value: float) -> str:
    return f"{100 * value:.1f}%"


# ------------------------------------------------------------------------------------------------ Table 1


def _noise_grid(source: _Source) -> Table:
    """Noise x sparsity; one block each for P@1%, AUC-PR, AUROC and test accuracy."""
    rows = source.methods(NOISY_GROUPS)
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
            fields.append(_cells(source, panel, column))
            if metric in ("p_at_1", "auc_pr"):
                fields[-1].extra["base rate"] = source.entry(panel, "", "base_rate")
        means, footer = _over_panels(source, panels, metric, [m for _, m in rows])
        blocks.append(_block(title, [*fields, *means], rows, corner=("noise", "sparsity"), footer=footer))
    caption = [
        f"Wrong labels in {panels[0]['title']}: class-conditional noise by noise rate and sparsity." if panels else "",
        *_marks(source),
        _top_words(source) if panels else "",
        "Base rate: the share of wrong labels, which is also the P@1% and AUC-PR of a random ranking.",
        "mean, rank: over the columns (rank 1 = best; the mean is marked by the same kind of test over the columns).",
        "Robust trainers yield their own model; detectors yield one by removing what they suspect (by their own rule, "
        "or where the scores split into two Gaussians) and training again.",
        TRUSTED,
        NOTHING,
    ]
    return source.table(blocks, caption)


def _over_panels(source: _Source, panels, metric, methods) -> tuple[list[_Field], str]:
    """Mean and average rank over the panels, for methods that have all of them; and the critical difference."""
    if len(panels) < 2:
        return [], ""
    full = {}
    for method in methods:
        entries = [source.entry(p, method, metric) for p in panels]
        if all(e.mean is not None for e in entries):
            full[method] = {i: e.mean for i, e in enumerate(entries)}
    ranked = {m: list(v.values()) for m, v in full.items()}
    ranks = statistics.average_ranks(ranked) if len(ranked) > 1 else {}

    def mean(method: str) -> Entry:
        if method not in full:
            return Entry()
        return Entry(statistics.mean_std(list(full[method].values()))[0], pairs=full[method])

    fields = [
        _Field(Column("all", "mean", f"{metric}:mean"), mean),
        _Field(Column("all", "rank", f"{metric}:rank", "", "number1"), lambda m: Entry(ranks.get(m)), ranked=False),
    ]
    if len(ranked) < 3:
        return fields, ""
    difference = statistics.critical_difference(len(ranked), len(panels))
    p = statistics.friedman_p(ranked)
    p_words = "< 0.001" if p < 0.001 else f"= {p:.3f}"
    return fields, (
        f"Ranks of {len(ranked)} methods over {len(panels)} columns: Friedman p {p_words}; "
        f"ranks further apart than {difference:.1f} differ (Nemenyi, α = {statistics.ALPHA})."
    )


# ------------------------------------------------------------------------------------------------ Table 2


def _noise_sets(source: _Source) -> Table:
    """Datasets x (P@1%, AUC-PR, test accuracy, overhead both ways)."""
    rows = source.methods(NOISY_GROUPS)
    groups = []
    for panel in source.panels:
        name = f"{panel['title']} {_noise_words(panel)}".strip()
        columns = [
            Column(name, "P@1%", "p_at_1"),
            Column(name, "AUC-PR", "auc_pr"),
            Column(name, "test acc.", "test_accuracy"),
            Column(name, "× marginal", "overhead_marginal", "lower", "times"),
            Column(name, "× stand-alone", "overhead_standalone", "lower", "times"),
        ]
        fields = [_cells(source, panel, c) for c in columns]
        for f in fields[:2]:
            f.extra["base rate"] = source.entry(panel, "", "base_rate")
        for f in fields[3:]:
            f.ranked = False  # the cheapest row is `random`; a mark there would tell nothing
        groups.append(fields)
    for absent in source.layout["not_run"]:
        entry = Entry(status="not run", note=source.note(absent["reason"]))
        groups.append([_Field(Column(absent["title"], "", "status"), lambda method, e=entry: e, ranked=False)])
    blocks = [_block("", fields, rows) for fields in _split(groups)]
    for i, block in enumerate(blocks):
        block.title = f"Part {i + 1} of {len(blocks)}" if len(blocks) > 1 else ""
    caption = [
        "Wrong labels found (P@1%, AUC-PR), test accuracy of the model the method yields (all in %), and cost.",
        *_marks(source),
        _top_words(source) if source.panels else "",
        "Base rate: the share of wrong labels, which is also the P@1% and AUC-PR of a random ranking.",
        TRUSTED,
        OVERHEAD,
        NOTHING,
    ]
    return source.table(blocks, caption)


def _noise_words(panel: Mapping) -> str:
    if panel["noise"] is None:
        return {"human": "human labels"}.get(panel["kind"], panel["setting"])
    kind = {"class_conditional": "", "superclass": "superclass "}.get(panel["kind"], f"{panel['kind']} ")
    sparsity = f", sparsity {panel['sparsity']:.1f}" if panel["sparsity"] else ""
    return f"{kind}{100 * panel['noise']:.0f}%{sparsity}"


def _split(groups: Sequence[list[_Field]]) -> list[list[_Field]]:
    """Groups of columns side by side, at most `WIDEST` columns in a block, no group torn apart."""
    blocks: list[list[_Field]] = []
    for group in groups:
        if not blocks or len(blocks[-1]) + len(group) > WIDEST:
            blocks.append([])
        blocks[-1] += group
    return blocks


# ------------------------------------------------------------------------------------------------ Table 3


def _ood(source: _Source) -> Table:
    """An overview over the ID sets (if several), then one block per ID set."""
    rows = source.methods(OOD_GROUPS)
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
                fields.append(_cells(source, panel, Column(name, title, f"{metric}:{group}", better)))
        fields.append(_cells(source, panel, Column("ID", "acc.", "id_accuracy")))
        for column in (
            Column("test", "ms/image", "seconds_per_image", "lower", "milliseconds"),
            Column("training", "own s", "seconds_own", "lower", "seconds"),
            Column("training", "× stand-alone", "overhead_standalone", "lower", "times"),
        ):
            fields.append(_cells(source, panel, column))
            fields[-1].ranked = False
        blocks.append(_block(f"ID: {panel['title']}", fields, rows))
        counts.append(_ood_counts(source, panel, [m for _, m in rows]))
    caption = [
        "OOD detection, in % unless the column says otherwise; near, far and mean: unweighted means over the OOD sets.",
        *_marks(source),
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


def _ood_overview(source: _Source, rows) -> Block:
    fields = []
    for panel in source.panels:
        for group in ("near", "far"):
            fields.append(_cells(source, panel, Column(panel["title"], group, f"auroc:{group}")))
    for absent in source.layout["not_run"]:
        entry = Entry(status="not run", note=source.note(absent["reason"]))
        fields.append(_Field(Column(absent["title"], "", "status"), lambda method, e=entry: e, ranked=False))

    def average(method: str) -> Entry:
        pairs = {}
        for panel in source.panels:
            for group in ("near", "far"):
                pairs[panel["dataset"], group] = source.entry(panel, method, f"auroc:{group}").mean
        if not pairs or None in pairs.values():
            return Entry()
        return Entry(sum(pairs.values()) / len(pairs), pairs=pairs)

    if len(source.panels) > 1:
        fields.append(_Field(Column("all", "mean", "auroc:average"), average))
    return _block("AUROC by ID set", fields, rows)


def _ood_counts(source: _Source, panel: Mapping, methods: Sequence[str]) -> str:
    """Images per set, as the first method that scored them saw them."""
    for method in methods:
        inside = source.get(panel, method, "n_id")
        if inside is not None:
            sets = [f"{s} {source.get(panel, method, f'n_ood:{s}')['mean']:,.0f}" for s in panel["near"] + panel["far"]]
            return f"{panel['title']} {inside['mean']:,.0f} ID images against {', '.join(sets)}"
    return ""


# ------------------------------------------------------------------------------------------------ ablation and cost


def _ablation(source: _Source) -> Table:
    """Variants of one method: quality, stability of the top, cost."""
    blocks, rates = [], []
    for panel in source.panels:
        columns = [
            Column("", "AUC-PR", "auc_pr"),
            Column("", "P@1%", "p_at_1"),
            Column("Recall", "@1%", "recall_at_1"),
            Column("Recall", "@5%", "recall_at_5"),
            Column("Recall", "@10%", "recall_at_10"),
            Column("", "τ top 1%", "tau_top1", "higher", "number2"),
            Column("overhead", "marginal", "overhead_marginal", "lower", "times"),
            Column("overhead", "stand-alone", "overhead_standalone", "lower", "times"),
            Column("", "HVPs/step", "extra:hvps_per_step", "lower", "number1"),
        ]
        fields = [_cells(source, panel, c) for c in columns]
        for f in fields[6:]:
            f.ranked = False  # cost
        rows = [("", m) for m in panel["methods"]]
        block = _block(f"{panel['title']} {_noise_words(panel)}", fields, rows, corner=("", "variant"))
        for row in block.rows:
            name, _, variant = row.method.partition("@")
            row.title = variant.replace("_", " ") if variant else f"{TITLES.get(name, name)} (full)"
        blocks.append(block)
        rate = source.get(panel, "", "base_rate")
        if rate is not None:
            rates.append(f"{panel['title']} {_noise_words(panel)} {_rate(rate['mean'])}")
    caption = [
        "Each row changes one part of the method; all else is the full method. Quality in %.",
        *_marks(source),
        _top_words(source) if source.panels else "",
        f"Base rates: {', '.join(rates)}." if rates else "",
        "τ top 1%: Kendall's tau-b on the union of the top-1% sets of two adjacent epochs, mean over epochs.",
        OVERHEAD,
        NOTHING,
    ]
    return source.table(blocks, caption)


def _cost(source: _Source) -> Table:
    """Where the time goes: means over settings and seeds of each dataset."""
    task = source.layout["task"]
    rows = source.methods(NOISY_GROUPS if task == "noisy" else OOD_GROUPS)
    columns = [
        Column("seconds", "train", "seconds_train", "lower", "seconds"),
        Column("seconds", "fit", "seconds_fit", "lower", "seconds"),
        Column("seconds", "score", "seconds_score", "lower", "seconds"),
        Column("seconds", "retrain", "seconds_retrain", "lower", "seconds"),
        Column("seconds", "total", "seconds_total", "lower", "seconds"),
        Column("seconds", "CPU", "cpu_seconds_total", "lower", "seconds"),
        Column("memory", "peak MB", "peak_memory_mb", "lower", "megabytes"),
        Column("overhead", "marginal", "overhead_marginal", "lower", "times"),
        Column("overhead", "stand-alone", "overhead_standalone", "lower", "times"),
        Column("overhead", "stand-alone CPU", "overhead_cpu", "lower", "times"),
        Column("overhead", "with retraining", "overhead_cleaned", "lower", "times"),
        Column("overhead", "memory", "overhead_memory", "lower", "times"),
        Column("overhead", "FLOPs", "overhead_flops", "lower", "times"),
    ]
    blocks = []
    for dataset in dict.fromkeys(p["dataset"] for p in source.panels):
        panels = [p for p in source.panels if p["dataset"] == dataset]
        fields = [_Field(c, lambda m, c=c, panels=panels: _pooled(source, panels, m, c), ranked=False) for c in columns]
        used = [f for f in fields if any(f.entry(m).mean is not None for _, m in rows)]
        blocks.append(_block(panels[0]["title"], used, rows))
    seeds = sorted({len(p["seeds"]) for p in source.panels})
    caption = [
        f"Measured cost, mean over all settings of the dataset and {' to '.join(map(str, seeds))} seed(s)."
        if seeds else "",
        OVERHEAD if task == "noisy" else OVERHEAD_OOD,
        "stand-alone CPU: the same in CPU seconds, which do not grow when other jobs share the machine.",
        "FLOPs: passes of an image through the network (a training step counts three), shared runs and retraining "
        "included, over those of the plain run.",
        "total: everything the cell did, what it writes down for other methods included. Nothing is marked: the "
        "cheapest method is not the best.",
        NOTHING,
    ]  # fmt: skip
    return source.table(blocks, caption)


def _pooled(source: _Source, panels: Sequence[Mapping], method: str, column: Column) -> Entry:
    """Mean over all seeds of all settings; without any number, what befell the first."""
    entries = [source.entry(p, method, column.metric) for p in panels]
    values = [v for e in entries for v in e.pairs.values()]
    if not values:
        ran = any(source.entry(p, method, "seconds_total").mean is not None for p in panels)
        return Entry() if ran else next((e for e in entries if e.status != "ok"), Entry())
    mean, std = statistics.mean_std(values)
    short = next((e for e in entries if e.status != "ok"), None)
    return Entry(mean, std, len(values), status="partial" if short else "ok", note=short.note if short else None)
