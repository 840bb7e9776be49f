"""Writes the comparison with the paper as Markdown: counts, findings, then one table per table of the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sgoif.bench.paper.checks.finding import CONSISTENT, OUTCOMES

PUBLIC_FORMATS = {"proved": "= {:.2f}", "differs": "≠ {:.2f}", "not verified": "not verified"}
HEAD = """# Ledger: the paper's numbers, one by one

Run `{run}`. Every number of every table of the paper: as printed, where it also stands in public, what this run
measured, and a verdict. docs/reproduction.md says how to read it; ledger.json holds the same, with every digit.
"""


def page(ledger: Mapping[str, Any]) -> str:
    """Render the content of ledger.json as the text of ledger.md."""
    parts = [HEAD.format(run=ledger["run"]), "## Verdicts\n", _counts(ledger["tables"]), _rules(ledger["rules"])]
    parts += ["## Findings: arithmetic on the printed numbers\n", _findings(ledger["findings"])]
    for table in ledger["tables"]:
        parts.append(_table(table, [c for c in ledger["cells"] if c["table"] == table["name"]]))
    return "\n".join(parts)


def _counts(tables: Sequence[Mapping[str, Any]]) -> str:
    names = {
        **{verdict: verdict for verdict in ("reproduced", "differs", "inconclusive", "stand-in")},
        "not_defined": "not defined",
        "not_run": "not run",
        "proved": "found in public",
    }
    rows = [[t["name"], *(str(t[key]) for key in names)] for t in tables]
    rows.append(["all", *(str(sum(t[key] for t in tables)) for key in names)])
    return _grid(["table", *names.values()], rows)


def _rules(rules: Mapping[str, str]) -> str:
    return "\n".join(f"* **{name}**: {words}." for name, words in rules.items()) + "\n"


def _findings(findings: Sequence[Mapping[str, Any]]) -> str:
    """What does not agree first; what agrees is counted, and listed in ledger.json."""
    lines = []
    for outcome in (o for o in OUTCOMES if o != CONSISTENT):
        chosen = [f for f in findings if f["outcome"] == outcome]
        if chosen:
            lines.append(f"### {outcome.capitalize()} ({len(chosen)})\n")
            lines += [f"* *{f['check']}* ({_tables(f['tables'])}): {f['statement']}" for f in chosen]
            lines.append("")
    agree = sum(f["outcome"] == CONSISTENT for f in findings)
    return "\n".join([*lines, f"{agree} further checks agree; ledger.json lists them.\n"])


def _tables(names: Sequence[str]) -> str:
    return f"Table{'s' if len(names) > 1 else ''} " + ", ".join(n.removeprefix("Table ") for n in names)


class _Notes:
    """Numbered notes beneath a table; equal texts share a number."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def add(self, text: str) -> str:
        """The reference to put into the table."""
        if text not in self.texts:
            self.texts.append(text)
        return f"[{self.texts.index(text) + 1}]"

    def lines(self) -> str:
        return "\n".join(f"[{i}] {text}  " for i, text in enumerate(self.texts, 1))


def _table(table: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]) -> str:
    notes = _Notes()
    rows = [_row(entry, notes) for entry in entries]
    header = ["row", "column", "printed", "public", "measured", "verdict", "another reading"]
    empty = {i for i in range(len(header)) if not any(row[i] for row in rows)}
    kept = [[w for i, w in enumerate(row) if i not in empty] for row in [header, *rows]]
    return f"## {table['name']}: {table['shows']}\n\n{_grid(kept[0], kept[1:])}\n{notes.lines()}\n"


def _row(entry: Mapping[str, Any], notes: _Notes) -> list[str]:
    """One printed number as a row; its notes are numbered in the order of the columns."""
    public = [f"{PUBLIC_FORMATS[s['status']].format(s['value'])} {notes.add(s['name'])}" for s in entry["sources"]]
    measured = ""
    if entry["measured"] is not None:
        value = _measured(entry["measured"], entry["interval"], entry["seeds"])
        measured = f"{value} {notes.add(entry['measured_what'])}"
    verdict = f"{entry['verdict']} {notes.add(shared_reason(entry['reason']))}"
    others = []
    for other in entry["also"]:
        judged = "" if other["verdict"] in ("not run", "not defined", "stand-in") else f": {other['verdict']}"
        value = _measured(other["value"], other["interval"], other["seeds"])
        others.append(f"{value} {notes.add(other['what'])}{judged}")
    return [
        entry["row"], entry["column"], entry["printed_text"], ", ".join(public), measured, verdict, "; ".join(others)
    ]  # fmt: skip


def shared_reason(reason: str) -> str:
    """Return the part of a reason that many cells share: how far a number is off stands in ledger.json."""
    _, separator, rest = reason.partition(" the printed number; ")
    return rest if separator else reason


def _measured(value: float, interval: Sequence[float] | None, seeds: int) -> str:
    between = f" [{interval[0]:.2f}, {interval[1]:.2f}]" if interval else ""
    return f"{value:.2f}{between} n={seeds}"


def _grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = [[w.replace("|", "\\|") for w in row] for row in (header, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = ["| " + " | ".join(w.ljust(n) for w, n in zip(row, widths, strict=True)) + " |" for row in cells]
    return "\n".join([lines[0], "|" + "|".join("-" * (n + 2) for n in widths) + "|", *lines[1:]]) + "\n"
