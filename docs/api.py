"""Writes docs/api.md from the docstrings, without importing anything: `make docs`. A test holds the page current."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "api.md"
INTRO = """# API

<!-- Written by `make docs` from the docstrings; edit those. -->

What others may build on. Shapes are in brackets: `[N]` one number per training example, in the order of the data set.
"""
SECTIONS = {  # heading -> packages whose exported names, or modules whose public names, belong there
    "The method": ["sgoif"],
    "Applications": ["sgoif.applications"],
    "Bridges to other libraries": ["sgoif.interop.cleanlab", "sgoif.interop.dataframes", "sgoif.interop.pytorch_ood"],
    "Contracts of the benchmark": ["sgoif.bench.methods.base"],
}


def source(module: str) -> tuple[str, ast.Module]:
    path = ROOT.joinpath(*module.split("."))
    text = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()
    return text, ast.parse(text)


def exported(package: str) -> dict[str, list[str]]:
    """Module -> names: what a package's `__init__` imports by name, or all public names of a plain module."""
    homes: dict[str, list[str]] = {}
    tree = source(package)[1]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(package + "."):
            homes.setdefault(node.module, []).extend(alias.name for alias in node.names)
    if homes:
        return homes
    return {package: [n.name for n in tree.body if hasattr(n, "name") and not n.name.startswith("_")]}


def described(node: ast.AST) -> str:
    return inspect.cleandoc(ast.get_docstring(node) or "")


def signature(node: ast.FunctionDef) -> str:
    arguments = ast.unparse(node.args)
    for own in ("self, ", "cls, ", "self", "cls"):
        if arguments.startswith(own):
            arguments = arguments[len(own) :]
            break
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{node.name}({arguments}){returns}"


def fields(node: ast.ClassDef, lines: list[str]) -> Iterator[str]:
    """Annotated class attributes with the comment, or the help text, beside them."""
    for item in node.body:
        if not isinstance(item, ast.AnnAssign):
            continue
        value = item.value
        about = lines[item.end_lineno - 1][item.end_col_offset :].partition("# ")[2]
        if isinstance(value, ast.Call) and getattr(value.func, "id", "") == "option":
            value, about = value.args[0], ast.literal_eval(value.args[1])
        default = "" if value is None or isinstance(value, ast.Call) else f" = {ast.unparse(value)}"
        yield f"* `{item.target.id}: {ast.unparse(item.annotation)}{default}`" + (f": {about}" if about else "")


def entry(node: ast.ClassDef | ast.FunctionDef, package: str, lines: list[str]) -> Iterator[str]:
    yield f"### {node.name}\n\n`from {package} import {node.name}`\n"
    if isinstance(node, ast.FunctionDef):
        yield f"`{signature(node)}`\n\n{described(node)}\n"
        return
    start = next((m for m in node.body if isinstance(m, ast.FunctionDef) and m.name == "__init__"), None)
    head = signature(start).removeprefix("__init__").removesuffix(" -> None") if start else ""
    yield (f"`{node.name}{head}`\n\n" if head else "") + described(node) + "\n"
    if start and described(start):
        yield described(start) + "\n"
    if listed := list(fields(node, lines)):
        yield "\n".join(listed) + "\n"
    for method in node.body:
        if isinstance(method, ast.FunctionDef) and not method.name.startswith("_"):
            shown = (
                method.name if any("property" in ast.unparse(d) for d in method.decorator_list) else signature(method)
            )
            yield f"* **`{shown}`** {' '.join(described(method).split())}".rstrip() + "\n"


def page() -> str:
    parts = [INTRO]
    for heading, packages in SECTIONS.items():
        parts.append(f"## {heading}\n")
        for package in packages:
            for module, names in exported(package).items():
                text, tree = source(module)
                for node in tree.body:
                    if getattr(node, "name", None) in names:
                        parts += entry(node, package, text.splitlines())
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE.relative_to(ROOT)}")
