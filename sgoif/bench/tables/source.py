"""What all kinds of tables share: finding the records of a cell, filling a block, marking the best, words on seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sgoif.bench.evaluation import significance
from sgoif.bench.evaluation.overhead import SHARED_GPU
from sgoif.bench.methods.registry import PLAIN
from sgoif.bench.tables import names, render
from sgoif.bench.tables.names import REFERENCE
from sgoif.bench.tables.render import BEST, CLOSE, Block, Column, Entry, Row, Table

OVERHEAD = (
    "Overhead (×): measured wall-clock over that of plain training (same data, network, epochs, machine), folds and "
    "peer networks included, retraining on cleaned labels not. Marginal: a plain run that the method reads is there "
    "anyway; stand-alone: it is counted."
)
NOTHING = "–: the method does not give this quantity."
CLOCKED = ("seconds", "cpu_seconds", "overhead_cpu")  # what metrics of time begin with that are shown all the same


class Source:
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
            shared = metric.startswith(CLOCKED) and self._shared_a_gpu(panel, method)
            status, reason = ("partial", SHARED_GPU) if shared else (record["status"], record["reason"])
            return Entry(
                record["mean"], record["std"], record["n_seeds"], status=status, note=self.note(reason),
                pairs=dict(zip(record["seeds"], record["values"], strict=True)),
            )  # fmt: skip
        told = fate if fate is not None and fate["status"] != "partial" else record
        if told is None:
            return Entry()
        return Entry(status=told["status"], note=self.note(told["reason"]))

    def _shared_a_gpu(self, panel: Mapping, method: str) -> bool:
        """Whether jobs of some seed did, so that their time is shown with that said."""
        overhead = self.get(panel, method, "overhead_marginal")
        return overhead is not None and SHARED_GPU in overhead["reason"]

    def note(self, reason: str) -> int | None:
        """The number of a reason beneath the table; the same words get the same number."""
        if not reason:
            return None
        if reason not in self.notes:
            self.notes.append(reason)
        return self.notes.index(reason) + 1

    def methods(self) -> list[tuple[str, str]]:
        """Return (group, method) of the rows, in the order that the methods declare, then plain training."""
        there = list(dict.fromkeys(m for p in self.panels for m in p["methods"]))
        rows = names.grouped(self.layout["task"], [m for m in there if m != PLAIN])
        return rows + [(REFERENCE, PLAIN)] * (PLAIN in there)

    def table(self, blocks: list[Block], caption: Iterable[str]) -> Table:
        layout = self.layout
        stand_ins = dict.fromkeys(f"{p['title']} in place of {p['stands_for']}" for p in self.panels if p["stands_for"])
        words = [f"STAND-IN DATA: {', '.join(stand_ins)}."] if stand_ins else []
        words += [*caption, layout["selection"]]
        tuning = dict.fromkeys(t for p in self.panels for t in p["tuning"])
        if tuning:
            words.append(f"Set aside for tuning, not in this table: {', '.join(tuning)}.")
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
class Field:
    """A column and how the cell of a method is found."""

    column: Column
    entry: Callable[[str], Entry]
    ranked: bool = True  # takes part in best and not-significantly-worse
    extra: dict[str, Entry] = field(default_factory=dict)  # rows that are not methods, such as the base rate


def make_block(
    title: str, fields: Sequence[Field], rows: Sequence[tuple[str, str]], task: str = "noisy", **words
) -> Block:
    """Rows x fields; marks the best; leaves out rows that have nothing to say."""
    columns = [{m: f.entry(m) for _, m in rows} for f in fields]
    for f, entries in zip(fields, columns, strict=True):
        if f.ranked and f.column.better:
            mark_best(entries, f.column, task)
    out = []
    for group, method in rows:
        entries = [c[method] for c in columns]
        measured = any(e.mean is not None for e in entries)
        if measured or (method != PLAIN and any(e.status != "ok" for e in entries)):
            out.append(Row(group, method, names.title(task, method), entries))
    for name in dict.fromkeys(n for f in fields for n in f.extra):
        out.append(Row(REFERENCE, "", name, [f.extra.get(name, Entry()) for f in fields]))
    return Block(title, [f.column for f in fields], out, **words)


def mark_best(entries: Mapping[str, Entry], column: Column, task: str = "noisy") -> None:
    """Marks the best (and what looks the same as printed), and what is not significantly worse than it.

    Methods that are declared unranked do not compete, nor does one that lacks seeds: its mean may be good because the
    hard seed failed.
    Where that leaves one of several, or such a mean is the best, nothing is marked.
    """
    shown = {m: e for m, e in entries.items() if e.mean is not None and names.is_ranked(task, m)}
    measured = {m: e for m, e in shown.items() if e.status == "ok"}
    if len(measured) < 2 <= sum(e.mean is not None for e in entries.values()):
        return
    sign = 1 if column.better == "higher" else -1
    best, close = significance.not_worse({m: e.pairs for m, e in measured.items()}, sign > 0)
    if best is None or any(sign * (e.mean - measured[best].mean) > 0 for m, e in shown.items() if m not in measured):
        return
    for method, entry in measured.items():
        if render.number(entry.mean, column.style) == render.number(measured[best].mean, column.style):
            entry.mark = BEST
        elif method in close:
            entry.mark = CLOSE


def metric_field(source: Source, panel: Mapping, column: Column) -> Field:
    return Field(column, lambda method: source.entry(panel, method, column.metric))


def gap_field(source: Source, absent: Mapping) -> Field:
    """A column that says why there is nothing."""
    entry = Entry(status="not run", note=source.note(absent["reason"]))
    return Field(Column(absent["title"], "", "status"), lambda method: entry, ranked=False)


def pooled(source: Source, panels: Sequence[Mapping], method: str, metric: str) -> Entry:
    """Mean over all seeds of all panels, pairs by (panel, seed); without any number, what befell the first. Of several
    notes the first, or that a GPU was shared."""
    entries = [source.entry(p, method, metric) for p in panels]
    pairs = {(i, seed): v for i, e in enumerate(entries) for seed, v in e.pairs.items()}
    if not pairs:
        ran = any(source.entry(p, method, "seconds_total").mean is not None for p in panels)
        return Entry() if ran else next((e for e in entries if e.status != "ok"), Entry())
    mean, std = significance.mean_std(list(pairs.values()))
    shared = source.note(SHARED_GPU)
    short = sorted((e for e in entries if e.status != "ok"), key=lambda e: e.note != shared)
    status, note = ("partial", short[0].note) if short else ("ok", None)
    return Entry(mean, std, len(pairs), status=status, note=note, pairs=pairs)


def seed_words(source: Source) -> list[str]:
    """The sentence about seeds and marks, from what was measured."""
    counts = sorted({len(p["seeds"]) for p in source.panels})
    if not counts or counts[-1] == 1:
        return ["One seed: no spread and no test can be given. {best}: best of the column."]
    seeds = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    test = "t-test" if counts[-1] < significance.SMALLEST_WILCOXON else "signed-rank test"
    return [
        f"Mean ± standard deviation over {seeds} seeds. {{best}}: best of the column; {{close}}: not significantly "
        f"worse than the best (one-sided paired {test} over seeds, Holm-corrected over the column, "
        f"α = {significance.ALPHA}). A method that lacks seeds does not compete; where its mean is the best, nothing "
        "is marked."
    ]
