"""Writes a table as Markdown that reads as plain text: decimal points and ± stand beneath each other."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from sgoif.bench.tables.model import BEST, CLOSE, Block, Entry, Table, format_entry, name_marks, one_line, placeholder

WIDTH = 118  # characters of a caption's line
MARKS = {BEST: ("**", "**"), CLOSE: ("", "≈")}  # before and after a number
MARK_WIDTH = 2  # characters on either side


def to_markdown(table: Table) -> str:
    """Return the table as Markdown."""
    lines = [f"# {table.title}", ""]
    for sentence in table.caption:
        lines += textwrap.wrap(
            name_marks(sentence, "**bold**", "≈"), WIDTH, initial_indent="- ", subsequent_indent="  ",
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
    lines.append("")
    for block in table.blocks:
        if block.title:
            lines += [f"## {block.title}", ""]
        lines += [*_block(block), ""]
        if block.footer:
            lines += [block.footer, ""]
    for number, note in enumerate(table.notes, 1):
        lines.append(f"[{number}] {one_line(note)}  ")
    return "\n".join(lines).rstrip() + "\n"


def _block(block: Block) -> list[str]:
    columns = [_aligned([row.entries[i] for row in block.rows], c.style) for i, c in enumerate(block.columns)]
    header = [" · ".join(filter(None, block.corner))]
    header += [" · ".join(filter(None, (c.group, c.title))) for c in block.columns]
    body = []
    for i, row in enumerate(block.rows):
        if block.starts_group(i):
            body.append([f"*{row.group}*"] + [""] * len(columns))
        body.append([row.title] + [column[i] for column in columns])
    lines = [[cell.replace("|", "\\|") for cell in line] for line in [header, *body]]
    widths = [max(len(line[j]) for line in lines) for j in range(len(header))]
    rule = "|" + "|".join("-" * (w + 2) if j == 0 else "-" * (w + 1) + ":" for j, w in enumerate(widths)) + "|"
    head, *rest = ("| " + " | ".join(_padded(line, widths)) + " |" for line in lines)
    return [head, rule, *rest]


def _padded(line: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Pad the cells of a line: titles on the left, all others on the right."""
    title, *cells = line
    return [title.ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(cells, widths[1:], strict=True))]


def _aligned(entries: Sequence[Entry], style: str) -> list[str]:
    """Return the cells of a column, padded so that decimal points and ± stand beneath each other."""
    shown = [format_entry(e, style) if e.mean is not None else None for e in entries]
    mean_width = max((len(parts[0]) for parts in shown if parts), default=0)
    spread_width = max((len(parts[1]) for parts in shown if parts), default=0)
    note_width = max((len(_note(e)) for e in entries if e.mean is not None), default=0)
    mark_width = MARK_WIDTH if any(e.mark for e in entries) else 0
    cells = []
    for entry, parts in zip(entries, shown, strict=True):
        if parts is None:
            cells.append(placeholder(entry))
            continue
        mean, std, unit = parts
        before, after = MARKS.get(entry.mark, ("", ""))
        spread = f"±{std:>{spread_width}}" if std else ""
        lead = " " * (mean_width - len(mean) + max(mark_width - len(before), 0))
        widest_spread = spread_width + 1 if spread_width else 0
        trail = " " * (widest_spread - len(spread) + max(mark_width - len(after), 0))
        cells.append(f"{lead}{before}{mean}{spread}{unit}{after}{trail}{_note(entry).ljust(note_width)}")
    return cells


def _note(entry: Entry) -> str:
    return f" [{entry.note}]" if entry.note else ""
