"""A table written down: Markdown that reads as plain text, LaTeX (booktabs), CSV and JSON.

The CSV has one line per cell of the table (tidy), so that nothing is lost in its layout.
"""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path

from sgoif.utils.files import atomic_write_json, atomic_write_text

BEST, CLOSE = "best", "close"
STYLES = {  # factor, decimals, unit, whether a spread is shown
    "percent": (100, 1, "", True),
    "times": (1, 2, "×", True),
    "seconds": (1, 1, "", False),
    "milliseconds": (1000, 3, "", False),
    "megabytes": (1, 0, "", False),
    "number1": (1, 1, "", False),
    "number2": (1, 2, "", True),
    "points": (100, 2, "", True),
    "count": (1, 0, "", False),
    "p": (1, 3, "", False),
}


@dataclass
class Column:
    group: str
    title: str
    metric: str
    better: str = "higher"  # "higher", "lower", or "" for a column without a best
    style: str = "percent"


@dataclass
class Entry:
    """One cell: a number, or a status (`failed`, `not run`, ...) instead, or nothing."""

    mean: float | None = None
    std: float | None = None
    n_seeds: int = 0
    status: str = "ok"
    note: int | None = None
    mark: str = ""
    pairs: dict = field(default_factory=dict, repr=False)  # value by seed (or setting), for the tests


@dataclass
class Row:
    group: str
    method: str
    title: str
    entries: list[Entry]


@dataclass
class Block:
    title: str
    columns: list[Column]
    rows: list[Row]
    corner: tuple[str, str] = ("", "method")
    footer: str = ""


@dataclass
class Table:
    name: str
    kind: str
    title: str
    caption: list[str]  # sentences; {best} and {close} stand for the marks of the format
    blocks: list[Block]
    notes: list[str]  # numbered reasons


def write(table: Table, folder: Path | str) -> list[Path]:
    """Writes <folder>/<name>.md, .tex, .csv and .json; returns the four paths."""
    folder = Path(folder)
    paths = [folder / f"{table.name}.{ending}" for ending in ("md", "tex", "csv", "json")]
    atomic_write_text(paths[0], markdown(table), seal=True)
    atomic_write_text(paths[1], latex(table), seal=True)
    atomic_write_text(paths[2], as_csv(table), seal=True)
    atomic_write_json(paths[3], as_json(table), seal=True)
    for path in paths:
        path.touch()  # Snakemake compares times, so an unchanged file must look new too
    return paths


# ------------------------------------------------------------------------------------------------ numbers


def number(value: float, style: str) -> str:
    factor, decimals, _, _ = STYLES[style]
    text = f"{factor * value:,.{decimals}f}"
    return text[1:] if text.startswith("-") and not text.strip("-0.") else text  # no "-0.0"


def parts(entry: Entry, style: str) -> tuple[str, str, str]:
    """(mean, spread, unit) as printed; the spread is empty where there is none."""
    _, _, unit, spread = STYLES[style]
    std = number(entry.std, style) if spread and entry.std is not None else ""
    return number(entry.mean, style), std, unit


# ------------------------------------------------------------------------------------------------ Markdown


def markdown(table: Table) -> str:
    out = [f"# {table.title}", ""]
    for sentence in table.caption:
        out += textwrap.wrap(
            marked(sentence, "**bold**", "≈"), 118, initial_indent="- ", subsequent_indent="  ",
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
    out.append("")
    for block in table.blocks:
        if block.title:
            out += [f"## {block.title}", ""]
        out += [*_markdown_block(block), ""]
        if block.footer:
            out += [block.footer, ""]
    for i, note in enumerate(table.notes, 1):
        out.append(f"[{i}] {one_line(note)}  ")
    return "\n".join(out).rstrip() + "\n"


def marked(text: str, best: str, close: str) -> str:
    return text.replace("{best}", best).replace("{close}", close)


def one_line(text: str) -> str:
    return " ".join(str(text).split())


def _markdown_block(block: Block) -> list[str]:
    columns = [_aligned([row.entries[i] for row in block.rows], c.style) for i, c in enumerate(block.columns)]
    header = [" · ".join(filter(None, block.corner))]
    header += [" · ".join(filter(None, (c.group, c.title))) for c in block.columns]
    groups = list(dict.fromkeys(row.group for row in block.rows))
    lines = []
    for i, row in enumerate(block.rows):
        if len(groups) > 1 and (i == 0 or row.group != block.rows[i - 1].group):
            lines.append([f"*{row.group}*"] + [""] * len(columns))
        lines.append([row.title] + [column[i] for column in columns])
    lines = [[_escape_markdown(cell) for cell in line] for line in [header, *lines]]
    widths = [max(len(line[j]) for line in lines) for j in range(len(header))]
    rule = "|" + "|".join("-" * (w + 2) if j == 0 else "-" * (w + 1) + ":" for j, w in enumerate(widths)) + "|"
    text = ["| " + " | ".join(_pad(c, w, j) for j, (c, w) in enumerate(zip(line, widths, strict=True))) + " |"
            for line in lines]  # fmt: skip
    return [text[0], rule, *text[1:]]


def _pad(cell: str, width: int, column: int) -> str:
    return cell.ljust(width) if column == 0 else cell.rjust(width)


def _escape_markdown(cell: str) -> str:
    return cell.replace("|", "\\|")


def _aligned(entries: Sequence[Entry], style: str) -> list[str]:
    """The cells of a column, padded so that decimal points and ± stand beneath each other."""
    shown = [parts(e, style) if e.mean is not None else None for e in entries]
    means = max((len(p[0]) for p in shown if p), default=0)
    spreads = max((len(p[1]) for p in shown if p), default=0)
    marked = any(e.mark for e in entries)
    noted = max((len(f" [{e.note}]") for e in entries if e.note and e.mean is not None), default=0)
    out = []
    for entry, p in zip(entries, shown, strict=True):
        if p is None:
            out.append(instead(entry))
            continue
        mean, spread, unit = p
        before, after = {BEST: ("**", "**"), CLOSE: ("", "≈")}.get(entry.mark, ("", ""))
        spread = f"±{spread:>{spreads}}" if spread else ""
        text = f"{before}{mean}{spread}{unit}{after}"
        lead = " " * (means - len(mean) + (2 - len(before) if marked else 0))
        trail = " " * (bool(spreads) * (spreads + 1) - len(spread) + (2 - len(after) if marked else 0))
        note = f" [{entry.note}]" if entry.note else ""
        out.append(lead + text + trail + note.ljust(noted))
    return out


def instead(entry: Entry) -> str:
    """What a cell without a number says."""
    if entry.status == "ok":
        return "–"
    return f"{entry.status} [{entry.note}]" if entry.note else entry.status


# ------------------------------------------------------------------------------------------------ LaTeX

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"$<$", ">": r"$>$", "±": r"$\pm$", "×": r"$\times$",
    "–": "--", "—": "---", "·": r"$\cdot$", "≈": r"$\approx$", "τ": r"$\tau$", "α": r"$\alpha$", "…": r"\ldots{}",
    "†": r"$\dagger$", "Δ": r"$\Delta$", "κ": r"$\kappa$", "λ": r"$\lambda$",
    "≥": r"$\geq$", "≤": r"$\leq$", "→": r"$\to$", "µ": r"$\mu$", "|": r"\textbar{}",
}  # fmt: skip


def escape_latex(text: str) -> str:
    """Text that means itself in LaTeX; signs that pdflatex does not know become a question mark."""
    out = (_LATEX.get(c, c) for c in one_line(text))
    return "".join(c if c.isascii() or (c.isalpha() and ord(c) < 0x250) else "?" for c in out)


def latex(table: Table) -> str:
    """One table* per block; needs \\usepackage{booktabs}."""
    caption = marked(" ".join(table.caption), "Bold", "underlined")
    out = ["% \\usepackage{booktabs}"]
    for i, block in enumerate(table.blocks):
        title = f"{table.title}: {block.title}" if block.title else table.title
        words = f"\\textbf{{{escape_latex(title)}.}}" + (f" {escape_latex(caption)}" if i == 0 else "")
        label = f"tab:{table.name}" + (f"-{i + 1}" if i else "")
        out += ["\\begin{table*}[htbp]", "\\centering", "\\scriptsize", "\\setlength{\\tabcolsep}{3pt}"]
        out += [f"\\caption{{{words}}}", f"\\label{{{label}}}", *_latex_block(block)]
        used = sorted({e.note for row in block.rows for e in row.entries if e.note})
        told = [block.footer] if block.footer else []
        told += [f"[{n}] {table.notes[n - 1]}" for n in used]
        out += [f"\\par\\smallskip\\parbox{{\\textwidth}}{{\\raggedright {escape_latex(t)}}}" for t in told]
        out += ["\\end{table*}", ""]
    return "\n".join(out)


def _latex_block(block: Block) -> list[str]:
    n = len(block.columns)
    out = [f"\\begin{{tabular}}{{l{'r' * n}}}", "\\toprule"]
    spans, rules, at = [escape_latex(block.corner[0])], [], 2
    for group, columns in groupby(block.columns, key=lambda c: c.group):
        width = len(list(columns))
        spans.append(f"\\multicolumn{{{width}}}{{c}}{{{escape_latex(group)}}}")
        rules += [f"\\cmidrule(lr){{{at}-{at + width - 1}}}"] if group else []
        at += width
    if any(c.group for c in block.columns):
        out += [" & ".join(spans) + r" \\", " ".join(rules)]
    out += [" & ".join(map(escape_latex, [block.corner[1], *(c.title for c in block.columns)])) + r" \\", "\\midrule"]
    groups = list(dict.fromkeys(row.group for row in block.rows))
    for i, row in enumerate(block.rows):
        if len(groups) > 1 and (i == 0 or row.group != block.rows[i - 1].group):
            out += ["\\midrule"] if i else []
            out.append(f"\\multicolumn{{{n + 1}}}{{l}}{{\\textit{{{escape_latex(row.group)}}}}} \\\\")
        cells = [_latex_cell(e, c.style) for e, c in zip(row.entries, block.columns, strict=True)]
        out.append(" & ".join([escape_latex(row.title), *cells]) + r" \\")
    return [*out, "\\bottomrule", "\\end{tabular}"]


def _latex_cell(entry: Entry, style: str) -> str:
    if entry.mean is None:
        return escape_latex(instead(entry))
    mean, spread, unit = parts(entry, style)
    text = escape_latex(f"{mean}±{spread}{unit}" if spread else f"{mean}{unit}").replace("$$", "")
    text = {BEST: f"\\textbf{{{text}}}", CLOSE: f"\\underline{{{text}}}"}.get(entry.mark, text)
    return text + (f"\\,[{entry.note}]" if entry.note else "")


# ------------------------------------------------------------------------------------------------ CSV and JSON


def as_csv(table: Table) -> str:
    """table, block, row group, method, column, metric, mean, std, n_seeds, mark, status, reason: a line per cell."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    head = ["table", "block", "row_group", "method", "row", "column_group", "column", "metric"]
    writer.writerow([*head, "mean", "std", "n_seeds", "mark", "status", "reason"])
    for block in table.blocks:
        for row in block.rows:
            for column, e in zip(block.columns, row.entries, strict=True):
                status = e.status if e.mean is not None or e.status != "ok" else "not given"
                where = [table.name, block.title, row.group, row.method, row.title, column.group, column.title]
                number = ["" if v is None else repr(v) for v in (e.mean, e.std)]
                reason = one_line(table.notes[e.note - 1]) if e.note else ""
                writer.writerow([*where, column.metric, *number, e.n_seeds, e.mark, status, reason])
    return out.getvalue()


def as_json(table: Table) -> dict:
    """The table as it stands, without the values of single seeds (the summary has them)."""
    value = asdict(table)
    value["caption"] = marked(" ".join(table.caption), BEST, CLOSE)
    for block in value["blocks"]:
        for row in block["rows"]:
            for entry in row["entries"]:
                del entry["pairs"]
    return value
