"""What every table's files must be like, whatever the table shows."""

import re

from tests.helpers.fake_runs import Run

NAMES = ["table1", "table2", "table3", "ablation", "cost"]  # tables of the run that tests of tables share


def grids(markdown: str) -> list[list[str]]:
    return [block.splitlines() for block in re.split(r"\n\n", markdown) if block.startswith("|")]


def grid(markdown: str, block: int = 0) -> tuple[list[str], dict[str, list[str]]]:
    """(header, {first cell: other cells}) of a block."""
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in grids(markdown)[block]]
    return cells[0], {c[0]: c[1:] for c in cells[2:]}


def check_markdown(markdown: str) -> None:
    assert grids(markdown)
    for lines in grids(markdown):
        assert len({len(line) for line in lines}) == 1, "columns are not aligned"
        assert len({line.count("|") for line in lines}) == 1
    words = [line for line in markdown.splitlines() if not line.startswith(("|", "#", "["))]
    assert max(map(len, words)) <= 120


def check_notes(markdown: str) -> None:
    body, notes = [], []
    for line in markdown.splitlines():
        (notes if line.startswith("[") else body).append(line)
    used = {int(n) for line in body if line.startswith("|") for n in re.findall(r"\[(\d+)\]", line)}
    assert used == set(range(1, len(notes) + 1))


def check_latex(tex: str) -> None:
    assert tex.isascii()
    for environment in ("table*", "tabular"):
        assert tex.count(f"\\begin{{{environment}}}") == tex.count(f"\\end{{{environment}}}") > 0
    for block in re.findall(r"\\begin{tabular}{(l?r*)}(.*?)\\end{tabular}", tex, re.S):
        for line in block[1].splitlines():
            if line.endswith(r"\\"):
                spans = sum(int(n) - 1 for n in re.findall(r"\\multicolumn{(\d+)}", line))
                assert len(re.findall(r"(?<!\\)&", line)) + 1 + spans == len(block[0]), line
    assert not re.search(r"(?<!\\)%(?! \\usepackage)", tex) and not re.search(r"(?<!\\)[#_]", tex)
    assert tex.count("$") % 2 == 0 and tex.count("{") - tex.count(r"\{") == tex.count("}") - tex.count(r"\}")
    assert "?" not in tex, "a sign that LaTeX does not know"


def text(run: Run, name: str, ending: str = "md") -> str:
    """A file of a table."""
    return (run.root / "tables" / f"{name}.{ending}").read_text()


def find(run: Run, **wanted: object) -> list[dict]:
    """The records of a summary that have these values."""
    return [r for r in run.records if all(r[k] == v for k, v in wanted.items())]
