"""The pages that tests of the documentation read, and what of a page is prose."""

import re
from pathlib import Path

from tests.helpers.project_copy import ROOT

DOCS = ROOT / "docs"
PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "benchmarks/README.md",
    *sorted(str(p.relative_to(ROOT)) for p in DOCS.rglob("*.md")),
]
GENERATED = (  # written by programs, from docstrings or runs
    "docs/api.md",
    "docs/chaos.md",
    "docs/mutants.md",
    "docs/methods/noisy.md",
    "docs/methods/ood.md",
)
NOTEBOOK = [page for page in PAGES if page.startswith("docs/lab-notebook/")]


def read(page: str | Path) -> str:
    return (ROOT / page).read_text()


def without_code(page: str) -> str:
    """The page without fenced blocks."""
    return re.sub(r"^[ \t]*```.*?^[ \t]*```", "", read(page), flags=re.S | re.M)


def prose(page: str) -> list[str]:
    """Paragraphs and items of lists: no code, headings, tables or comments; a link is its text, code is a word."""
    text = re.sub(r"<!--.*?-->", "", without_code(page), flags=re.S)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`[^`]+`", "Code", text)
    found: list[str] = []
    for block in re.split(r"\n\s*\n", text):
        for item in re.split(r"\n(?=\s*(?:\* |\d+\. |[#|]))", "\n" + block):
            line = re.sub(r"^\s*(?:\* |\d+\. )", "", item.strip("\n"))
            if line.strip() and not line.lstrip().startswith(("|", "#", "@")):
                found.append(" ".join(line.split()))
    return found
