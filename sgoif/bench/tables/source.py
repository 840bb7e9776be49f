"""Finds the records of the summary that a table shows, and turns them into entries."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from sgoif.bench.evaluation import significance
from sgoif.bench.evaluation.draws import Draw, draws_own_noise, panels_by_draw, values_by_draw
from sgoif.bench.evaluation.overhead import SHARED_GPU
from sgoif.bench.evaluation.table_layout import Panel, TableLayout, stand_ins
from sgoif.bench.methods.registry import PLAIN
from sgoif.bench.tables import names
from sgoif.bench.tables.model import Block, Entry, Table
from sgoif.bench.tables.names import REFERENCE
from sgoif.bench.tables.seeds import CAPTION as SEEDS_CAPTION
from sgoif.bench.tables.seeds import add_seeds_columns

TIME_METRICS = ("seconds", "cpu_seconds", "overhead_cpu")  # prefixes of times that are shown although a GPU was shared


class Source:
    """The records of one table, found by panel (dataset and setting), method and metric.

    Args:
        name: Name of the table.
        layout: What it shows.
        records: All records of the summary.
    """

    def __init__(self, name: str, layout: TableLayout, records: Iterable[Mapping[str, Any]]):
        self.name = name
        self.layout = layout
        self.panels = layout.panels
        mine = [r for r in records if r["table"] == name and r["metric"] != "layout"]
        self.index = {(r["dataset"], r["setting"], r["method"], r["metric"]): r for r in mine if not r["variant"]}
        self.of_variants = {  # of scores that do not rank
            (r["dataset"], r["setting"], r["method"], r["variant"], r["metric"]): r for r in mine if r["variant"]
        }
        self.notes: list[str] = []

    def get(self, panel: Panel, method: str, metric: str) -> Mapping[str, Any] | None:
        """Return the record of a metric, None if there is none; method "" is about the labels."""
        return self.index.get((panel.dataset, panel.setting, method, metric))

    def variants(self, method: str) -> list[str]:
        """Return the scores of a method that do not rank, by name, as far as some panel has a number."""
        return list(dict.fromkeys(variant for _, _, m, variant, _ in self.of_variants if m == method))

    def variant_entry(self, panel: Panel, method: str, variant: str, metric: str) -> Entry:
        """Return the entry of a score that does not rank."""
        r = self.of_variants.get((panel.dataset, panel.setting, method, variant, metric))
        if r is None or r["mean"] is None:
            return Entry()
        pairs = dict(zip(r["seeds"], r["values"], strict=True))
        return Entry(r["mean"], r["std"], r["n_seeds"], r["status"], self.note(r["reason"]), pairs=pairs)

    def means(self, metric: str, method: str = "") -> list[float]:
        """Return the means of a metric in all panels that have one."""
        found = [self.get(panel, method, metric) for panel in self.panels]
        return [r["mean"] for r in found if r is not None and r["mean"] is not None]

    def entry(self, panel: Panel, method: str, metric: str) -> Entry:
        """Return the entry of a method: a value, a failure status, or an empty entry."""
        record = self.get(panel, method, metric)
        if record is not None and record["mean"] is not None:
            status, reason = record["status"], record["reason"]
            if metric.startswith(TIME_METRICS) and self._shared_gpu(panel, method):
                status, reason = "partial", SHARED_GPU
            pairs = dict(zip(record["seeds"], record["values"], strict=True))
            entry = Entry(record["mean"], record["std"], record["n_seeds"], status, self.note(reason), pairs=pairs)
            entry.independent = draws_own_noise(panel, self.get(panel, "", "base_rate"))
            return entry
        cells = self.get(panel, method, "status")
        failure = cells if cells is not None and cells["status"] != "partial" else record
        if failure is None:
            return Entry()
        return Entry(status=failure["status"], note=self.note(failure["reason"]))

    def _shared_gpu(self, panel: Panel, method: str) -> bool:
        """Whether the job of some seed shared its GPU, so that its times are shown with a note."""
        overhead = self.get(panel, method, "overhead_marginal")
        return overhead is not None and SHARED_GPU in overhead["reason"]

    def pooled(self, panels: Sequence[Panel], method: str, metric: str) -> Entry:
        """Return the mean over all seeds of several panels, with pairs by (panel, seed).

        Without any number the entry has the status of the first panel that has one. Of several notes it has the one on
        a shared GPU, else the first.
        """
        entries = [self.entry(panel, method, metric) for panel in panels]
        pairs: dict[Hashable, float] = {
            (i, seed): value for i, e in enumerate(entries) for seed, value in e.pairs.items()
        }
        incomplete = [e for e in entries if e.status != "ok"]
        if not pairs:
            has_run = any(self.entry(panel, method, "seconds_total").mean is not None for panel in panels)
            return incomplete[0] if incomplete and not has_run else Entry()
        mean, std = significance.mean_std(list(pairs.values()))
        independent = len(panels) == 1 and entries[0].independent  # settings of one draw are not
        if not incomplete:
            return Entry(mean, std, len(pairs), pairs=pairs, independent=independent)
        shared_gpu = self.note(SHARED_GPU)
        notes = [e.note for e in incomplete]
        note = shared_gpu if shared_gpu in notes else notes[0]
        return Entry(mean, std, len(pairs), "partial", note, pairs=pairs, independent=independent)

    def draws(self, panels: Sequence[Panel]) -> dict[Draw, list[tuple[Panel, int | None]]]:
        """Return the independent draws of some panels, see `evaluation.draws`."""
        return panels_by_draw(panels, lambda panel: self.get(panel, "", "base_rate"))

    def by_draw(self, panels: Sequence[Panel], method: str, metric: str) -> dict[Draw, float]:
        """Return the mean of a metric over the panels of each independent draw."""
        return values_by_draw(self.draws(panels), lambda panel: self.get(panel, method, metric))

    def note(self, reason: str) -> int | None:
        """Return the number of a reason beneath the table; the same words get the same number."""
        if not reason:
            return None
        if reason not in self.notes:
            self.notes.append(reason)
        return self.notes.index(reason) + 1

    def methods(self) -> list[tuple[str, str]]:
        """Return (group, method) of the rows, in the order that the methods declare, then plain training.

        A method of which no cell was run has no row; the caption names it (`not_run`).
        """
        shown = [m for m in self._planned() if m not in self.not_run()]
        rows = names.grouped(self.layout.task, [m for m in shown if m != PLAIN])
        return [*rows, (REFERENCE, PLAIN)] if PLAIN in shown else rows

    def not_run(self) -> list[str]:
        """Return the methods of which no cell of this table was run."""
        cells = [(m, self.get(panel, m, "status")) for panel in self.panels for m in panel.methods if m != PLAIN]
        has_run = {m for m, status in cells if status is None or status["status"] != "not run"}
        return [m for m in self._planned() if m != PLAIN and m not in has_run]

    def _planned(self) -> list[str]:
        return list(dict.fromkeys(m for panel in self.panels for m in panel.methods))

    def table(self, blocks: list[Block], caption: Iterable[str]) -> Table:
        """Make the table of these blocks; seeds, where they differ, stand-in data, selection and tuning are added."""
        replaced = ", ".join(stand_ins(self.panels))
        title = f"{self.layout.title} ({replaced})" if replaced else self.layout.title
        tuning = ", ".join(dict.fromkeys(name for panel in self.panels for name in panel.tuning))
        differ = add_seeds_columns(blocks, self.notes)
        sentences = [
            f"STAND-IN DATA: {replaced}." if replaced else "",
            *caption,
            SEEDS_CAPTION if differ else "",
            f"Not run, and not shown: {absent}." if (absent := self._not_run_titles()) else "",
            self.layout.selection,
            f"Set aside for tuning, not in this table: {tuning}." if tuning else "",
        ]
        notes = self._used_notes(blocks)
        return Table(self.name, self.layout.kind, title, [s for s in sentences if s], blocks, notes)

    def _used_notes(self, blocks: list[Block]) -> list[str]:
        """Return the reasons that entries refer to, and number them in the order in which a reader meets them."""
        entries = {id(e): e for block in blocks for row in block.rows for e in row.entries if e.note}.values()
        order = list(dict.fromkeys(e.note for e in entries if e.note))
        for entry in entries:
            if entry.note:
                entry.note = order.index(entry.note) + 1
        return [self.notes[number - 1] for number in order]

    def _not_run_titles(self) -> str:
        is_variants = bool(self.layout.rows)  # its rows are named by the configuration and all shown
        return "" if is_variants else ", ".join(names.title(self.layout.task, m) for m in self.not_run())
