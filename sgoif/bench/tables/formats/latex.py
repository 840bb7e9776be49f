"""Writes a table as LaTeX with booktabs."""

from __future__ import annotations

from itertools import groupby

from sgoif.bench.tables.model import BEST, CLOSE, Block, Entry, Table, format_entry, name_marks, one_line, placeholder

ESCAPES = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"$<$", ">": r"$>$", "±": r"$\pm$", "×": r"$\times$",
    "–": "--", "—": "---", "·": r"$\cdot$", "≈": r"$\approx$", "τ": r"$\tau$", "α": r"$\alpha$", "…": r"\ldots{}",
    "†": r"$\dagger$", "Δ": r"$\Delta$", "κ": r"$\kappa$", "λ": r"$\lambda$",
    "≥": r"$\geq$", "≤": r"$\leq$", "→": r"$\to$", "µ": r"$\mu$", "|": r"\textbar{}",
}  # fmt: skip
MAX_LATIN = 0x250  # pdflatex prints letters below this code point


def escape_latex(text: str) -> str:
    """Escapes a text for LaTeX; signs that pdflatex does not know become a question mark."""
    escaped = (ESCAPES.get(c, c) for c in one_line(text))
    return "".join(c if c.isascii() or (c.isalpha() and ord(c) < MAX_LATIN) else "?" for c in escaped)


def to_latex(table: Table) -> str:
    """Return the table as one `table*` for each block; needs the package booktabs."""
    caption = name_marks(" ".join(table.caption), "Bold", "underlined")
    lines = ["% \\usepackage{booktabs}"]
    for i, block in enumerate(table.blocks):
        title = f"{table.title}: {block.title}" if block.title else table.title
        words = f"\\textbf{{{escape_latex(title)}.}}" + (f" {escape_latex(caption)}" if i == 0 else "")
        label = f"tab:{table.name}" + (f"-{i + 1}" if i else "")
        lines += ["\\begin{table*}[htbp]", "\\centering", "\\scriptsize", "\\setlength{\\tabcolsep}{3pt}"]
        lines += [f"\\caption{{{words}}}", f"\\label{{{label}}}", *_block(block)]
        for text in _texts_below(table, block):
            lines.append(f"\\par\\smallskip\\parbox{{\\textwidth}}{{\\raggedright {escape_latex(text)}}}")
        lines += ["\\end{table*}", ""]
    return "\n".join(lines)


def _texts_below(table: Table, block: Block) -> list[str]:
    """Return the footer of a block and the notes that its entries refer to."""
    used = sorted({e.note for row in block.rows for e in row.entries if e.note})
    footer = [block.footer] if block.footer else []
    return [*footer, *(f"[{n}] {table.notes[n - 1]}" for n in used)]


def _block(block: Block) -> list[str]:
    n = len(block.columns)
    lines = [f"\\begin{{tabular}}{{l{'r' * n}}}", "\\toprule", *_group_header(block)]
    titles = [block.corner[1], *(c.title for c in block.columns)]
    lines += [" & ".join(map(escape_latex, titles)) + r" \\", "\\midrule"]
    for i, row in enumerate(block.rows):
        if block.starts_group(i):
            lines += ["\\midrule"] if i else []
            lines.append(f"\\multicolumn{{{n + 1}}}{{l}}{{\\textit{{{escape_latex(row.group)}}}}} \\\\")
        cells = [_cell(e, c.style) for e, c in zip(row.entries, block.columns, strict=True)]
        lines.append(" & ".join([escape_latex(row.title), *cells]) + r" \\")
    return [*lines, "\\bottomrule", "\\end{tabular}"]


def _group_header(block: Block) -> list[str]:
    """Return the line of headings above groups of columns, with the rules below them; nothing without groups."""
    if not any(c.group for c in block.columns):
        return []
    spans = [escape_latex(block.corner[0])]
    rules = []
    first = 2  # the first column has the titles of the rows
    for group, columns in groupby(block.columns, key=lambda c: c.group):
        width = len(list(columns))
        spans.append(f"\\multicolumn{{{width}}}{{c}}{{{escape_latex(group)}}}")
        if group:
            rules.append(f"\\cmidrule(lr){{{first}-{first + width - 1}}}")
        first += width
    return [" & ".join(spans) + r" \\", " ".join(rules)]


def _cell(entry: Entry, style: str) -> str:
    if entry.mean is None:
        return escape_latex(placeholder(entry))
    mean, spread, unit = format_entry(entry, style)
    text = escape_latex(f"{mean}±{spread}{unit}" if spread else f"{mean}{unit}").replace("$$", "")
    if entry.mark == BEST:
        text = f"\\textbf{{{text}}}"
    elif entry.mark == CLOSE:
        text = f"\\underline{{{text}}}"
    return text + (f"\\,[{entry.note}]" if entry.note else "")
