"""Writes docs/api.md from the docstrings, without importing the package: `make docs`. A test checks that it is current.

Google-style sections of a docstring (Args, Returns, Raises, Attributes, ...) become lists.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "api.md"
INTRO = """# API

<!-- Written by `make docs` from the docstrings; edit those. -->

What others may build on. Shapes are in brackets: `[N]` is one number per training example, in
the order of the data set.
"""
RESULTS = ("sgoif.result", "sgoif.label_noise.issues")  # modules of `sgoif` that have a part of their own
PARTS = {  # heading -> packages whose exported names, or modules whose public names, belong there
    "The method": ["sgoif"],
    "Results and label issues": ["sgoif"],
    "Applications": ["sgoif.applications"],
    "Bridges to other libraries": ["sgoif.interop.cleanlab", "sgoif.interop.dataframes", "sgoif.interop.pytorch_ood"],
    "Contracts of the benchmark": ["sgoif.bench.methods.base", "sgoif.bench.methods.tasks"],
}
SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises|Shape|Example|Examples|Note|Notes):$")
LISTED = ("Args", "Attributes", "Raises", "Shape")  # sections of `name: text` items
CODE = ("Example", "Examples")
ITEM = re.compile(r"^([\w.*`\[\], ]+?)(?: \(([^)]*)\))?: (.*)$")
Documented = ast.ClassDef | ast.FunctionDef


def source(module: str) -> tuple[str, ast.Module]:
    """Return text and syntax tree of a module or package."""
    path = ROOT.joinpath(*module.split("."))
    text = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()
    return text, ast.parse(text)


def exported(package: str) -> dict[str, list[str]]:
    """Return module -> names: what a package's `__init__` imports by name, or all public names of a plain module."""
    homes: dict[str, list[str]] = {}
    tree = source(package)[1]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(package + "."):
            homes.setdefault(node.module or "", []).extend(alias.name for alias in node.names)
    if homes:
        return homes
    named = [n for n in tree.body if isinstance(n, Documented)]
    return {package: [n.name for n in named if not n.name.startswith("_")]}


def docstring(node: ast.AST | None) -> str:
    """Return the docstring of a node without indentation; empty if it has none."""
    text = ast.get_docstring(node) if isinstance(node, Documented) else ""
    return inspect.cleandoc(text or "")


def sections(text: str) -> list[tuple[str, list[str]]]:
    """Split a docstring into (section, lines); the text before the first section is called ""."""
    found: list[tuple[str, list[str]]] = [("", [])]
    for line in text.splitlines():
        if heading := SECTION.match(line):
            found.append((heading[1], []))
        else:
            found[-1][1].append(line)
    return [(name, textwrap.dedent("\n".join(lines)).strip().splitlines()) for name, lines in found]


def items(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of the items of a section; indented lines continue an item."""
    blocks: list[str] = []
    for line in lines:
        if blocks and (line.startswith(" ") or not line.strip()):
            blocks[-1] += " " + line.strip()
        else:
            blocks.append(line)
    for block in blocks:
        found = ITEM.match(block.strip())
        yield (found[1].strip("`"), found[3]) if found else ("", block.strip())


def rendered(text: str, indent: str = "") -> str:
    """Return a docstring as Markdown: paragraphs as they are, sections as lists.

    Args:
        text: The docstring, without indentation.
        indent: Put before every line but the first.
    """
    parts: list[str] = []
    for name, lines in sections(text):
        if not name:
            parts.append("\n".join(lines).strip())
        elif name in CODE:
            parts.append(f"{name}:\n\n```python\n" + "\n".join(lines).strip() + "\n```")
        elif name in LISTED:
            listed = [f"* `{item}`: {about}" if item else f"* {about}" for item, about in items(lines)]
            parts.append(f"{name}:\n\n" + "\n".join(listed))
        else:
            parts.append(f"{name}: " + "\n".join(lines).strip())
    joined = "\n\n".join(part for part in parts if part)
    return "\n".join(indent + line if i and line else line for i, line in enumerate(joined.splitlines()))


def signature(node: ast.FunctionDef) -> str:
    """Return name, arguments without `self` and the result type of a function."""
    arguments = ast.unparse(node.args)
    for own in ("self, ", "cls, ", "self", "cls"):
        if arguments.startswith(own):
            arguments = arguments[len(own) :]
            break
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{node.name}({arguments}){returns}"


def fields(node: ast.ClassDef, lines: list[str]) -> Iterator[str]:
    """Yield the annotated attributes of a class, each with its comment or its help text.

    What the docstring says about an attribute (section Attributes) stays there and is not repeated.
    """
    for item in node.body:
        if not isinstance(item, ast.AnnAssign) or not isinstance(item.target, ast.Name):
            continue
        value: ast.expr | None = item.value
        about = lines[(item.end_lineno or 1) - 1][item.end_col_offset or 0 :].partition("# ")[2]
        if isinstance(value, ast.Call) and getattr(value.func, "id", "") == "option":
            about = ast.literal_eval(value.args[1])
            value = value.args[0]
        default = "" if value is None or isinstance(value, ast.Call) else f" = {ast.unparse(value)}"
        yield f"* `{item.target.id}: {ast.unparse(item.annotation)}{default}`" + (f": {about}" if about else "")


def described_fields(node: ast.ClassDef, lines: list[str]) -> list[str]:
    """List the attributes of a class: those of its docstring with their types, else what `fields` finds."""
    attributes = next((lines for name, lines in sections(docstring(node)) if name == "Attributes"), [])
    about = dict(items(attributes))
    found = []
    for line in fields(node, lines):
        name = line[3:].split(":")[0]
        found.append(f"{line}: {about[name]}" if name in about else line)
    return found


def entry(node: Documented, package: str, lines: list[str]) -> Iterator[str]:
    """Yield the parts of the page about a class or function."""
    yield f"### {node.name}\n\n`from {package} import {node.name}`\n"
    if isinstance(node, ast.FunctionDef):
        yield f"`{signature(node)}`\n\n{rendered(docstring(node))}\n"
        return
    start = next((m for m in node.body if isinstance(m, ast.FunctionDef) and m.name == "__init__"), None)
    head = signature(start).removeprefix("__init__").removesuffix(" -> None") if start else ""
    listed = described_fields(node, lines)
    text = docstring(node)
    if listed:  # the attributes are listed below, with their types
        text = re.sub(r"\n*^Attributes:\n(?:[ \t]+.*\n?|\n)*", "\n\n", text + "\n", flags=re.M).strip()
    yield (f"`{node.name}{head}`\n\n" if head else "") + rendered(text) + "\n"
    if start and docstring(start):
        yield rendered(docstring(start)) + "\n"
    if listed:
        yield "\n".join(listed) + "\n"
    for method in node.body:
        if isinstance(method, ast.FunctionDef) and not method.name.startswith("_"):
            is_property = any("property" in ast.unparse(d) for d in method.decorator_list)
            shown = method.name if is_property else signature(method)
            yield f"* **`{shown}`** {rendered(docstring(method), indent='  ')}".rstrip() + "\n"


def page() -> str:
    """Return the whole page."""
    parts = [INTRO]
    for heading, packages in PARTS.items():
        parts.append(f"## {heading}\n")
        for package in packages:
            for module, names in exported(package).items():
                if (module in RESULTS) == (heading == "Results and label issues"):
                    text, tree = source(module)
                    nodes = [n for n in tree.body if isinstance(n, Documented) and n.name in names]
                    for node in nodes:
                        parts += entry(node, package, text.splitlines())
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE.relative_to(ROOT)}")
