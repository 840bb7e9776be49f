"""Writes docs/methods/{noisy,ood}.md, a section for each method, from its file: `make docs`. A test checks them.

The module's docstring of a method has its formulas, then fields at the start of a line, `Paper:`, `Code:`, `Settings:`,
`Deviations:`, `Parity:` (a test) and `Score:`; further lines of a field are indented. Where a file has no such field,
what its text says is taken: its first line, the addresses in it, and its sentence on deviations.
"""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

from sgoif.bench.methods import registry
from sgoif.bench.methods.declaration import MethodDeclaration
from sgoif.bench.tables import names

ROOT = Path(__file__).resolve().parents[2]
PAGES = {"noisy": "Methods for wrong labels", "ood": "Methods for out-of-distribution images"}
INTRO = """# {title}

<!-- Written by `make docs` from the files in baselines/{task}; edit those. -->

One section for each method, in the order of the tables: what it computes, where it comes from, its settings, where it
differs from the authors' code, the tests that hold it to a reference, and the score that ranks.
"""
FIELDS = ("Paper", "Code", "Settings", "Deviations", "Parity", "Score")
OTHER_NAMES = {"Official code": "Code", "Deviation": "Deviations"}
STARTS = re.compile(rf"^({'|'.join([*FIELDS, *OTHER_NAMES])}): ")
ENDS = re.compile(r"^(?:$|    |[A-Z][\w ]{2,24}: |`)")  # what ends a field whose further lines are not indented


def docstring_fields(text: str) -> tuple[list[str], dict[str, str]]:
    """Split the docstring of a method into its own lines and its fields."""
    lines = re.sub(r"(?<=[.)]) (Deviations?: )", r"\n\1", text).splitlines()
    body: list[str] = []
    fields: dict[str, str] = {}
    field = ""
    for line in lines:
        if start := STARTS.match(line):
            field = OTHER_NAMES.get(start[1], start[1])
            fields[field] = f"{fields[field]} {line[start.end() :]}" if field in fields else line[start.end() :]
        elif field and line.startswith("    "):
            fields[field] += " " + line.strip()
        elif field and not ENDS.match(line):
            fields[field] += " " + line.strip()
        else:
            field = ""
            body.append(line)
    return body, fields


def prose(line: str) -> str:
    """Return a line of text that Markdown takes as it is."""
    return re.sub(r"<(?=\S)", "&lt;", line)


def as_markdown(body: list[str]) -> str:
    """Return the text of a docstring: indented lines are formulas, the others paragraphs or lists."""
    blocks = re.split(r"\n\s*\n", "\n".join(body).strip())
    parts = []
    for block in blocks:
        lines = block.splitlines()
        is_formula = lines[0].startswith("    ") or re.match(r"\S+ += ", lines[0]) is not None
        if is_formula:
            parts.append("```text\n" + inspect.cleandoc("\n" + block) + "\n```")
            continue
        text, formula = lines, [n for n, line in enumerate(lines) if line.startswith("    ")]
        if formula:
            text, rest = lines[: formula[0]], lines[formula[0] :]
            parts.append("\n".join(map(prose, text)))
            parts.append("```text\n" + inspect.cleandoc("\n" + "\n".join(rest)) + "\n```")
        else:
            parts.append("\n".join(line if line.startswith("* ") else prose(line) for line in text))
    return "\n\n".join(part for part in parts if part.strip())


def parameters(text: str) -> list[str]:
    """List the fields of `Params` in a method's file: name, default and comment."""
    lines, found = text.splitlines(), []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef) and node.name == "Params":
            for item in node.body:
                if isinstance(item, ast.AnnAssign) and item.value is not None:
                    about = lines[(item.end_lineno or 1) - 1][item.end_col_offset or 0 :].partition("# ")[2]
                    named = f"`{ast.unparse(item.target)} = {ast.unparse(item.value)}`"
                    found.append(f"    * {named}" + (f": {prose(about)}" if about else ""))
    return found


def tests_of(task: str, name: str) -> list[str]:
    """Return the parity tests that import a method, for files that name none."""
    own = re.compile(rf"baselines\.{task}\.{name}\b|from baselines\.{task} import [^\n]*\b{name}\b")
    files = sorted((ROOT / "tests" / "parity").glob("test_*.py"))
    return [path.relative_to(ROOT).as_posix() for path in files if own.search(path.read_text())]


def score_words(declared: MethodDeclaration, told: str) -> list[str]:
    """Say which score ranks, and list the declared ones."""
    if not declared.candidates:
        parts = [f"    * `{name}`, shown beside it: {prose(words)}" for name, words in declared.parts.items()]
        return [f"* **Score**: {prose(told or 'one, as above.')}", *parts]
    lines = [f"* **Score**: {prose(told)}" if told else "* **Score**: declared were"]
    for name, words in declared.candidates.items():
        ranks = " **(ranks)**" if name == declared.ranked_by else ""
        lines.append(f"    * `{name}`: {prose(words)}{ranks}")
    return lines


def section(task: str, name: str) -> str:
    """Return the section of one method."""
    path = ROOT / "baselines" / task / f"{name}.py"
    text = path.read_text()
    declared = registry.declaration(task, name)
    doc = ast.get_docstring(ast.parse(text)) or ""
    body, fields = docstring_fields(doc)
    links = list(dict.fromkeys(re.findall(r"github\.com/[\w.-]+/[\w.-]*\w", doc)))
    published = re.search(r"\b(?:19|20)\d\d\b", body[0]) is not None
    paper = fields.get("Paper") or (body[0] if published else "none: a detector of this benchmark.")
    code = fields.get("Code") or ", ".join(f"https://{link}" for link in links) or "none is named."
    parity = [fields["Parity"]] if "Parity" in fields else tests_of(task, name)
    lines = [
        f"## {declared.title} (`{name}`)",
        "",
        as_markdown(body),
        "",
        f"* **Paper**: {prose(paper)}",
        f"* **Code**: {prose(code)} Ours: `baselines/{task}/{name}.py`.",
        f"* **Settings**: {prose(fields.get('Settings', 'the defaults of its parameters.'))}",
        *parameters(text),
        f"* **Deviations**: {prose(fields.get('Deviations', 'as the text says.'))}",
        f"* **Parity**: {', '.join(f'`{one}`' for one in parity) or 'none; the contract tests alone.'}",
        *score_words(declared, fields.get("Score", "")),
    ]
    return "\n".join(lines)


def page(task: str) -> str:
    """Return the page of one task."""
    parts = [INTRO.format(title=PAGES[task], task=task)]
    ordered = names.grouped(task, list(registry.available(task)))
    parts += [section(task, name) for _, name in ordered]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


if __name__ == "__main__":
    for task in PAGES:
        target = ROOT / "docs" / "methods" / f"{task}.md"
        target.parent.mkdir(exist_ok=True)
        target.write_text(page(task))
        print(f"wrote {target.relative_to(ROOT)}")
