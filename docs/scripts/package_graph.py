"""Draws the graph of packages in docs/architecture.md from the imports: `make docs`. A test holds the page current.

A node is a folder of `sgoif` or of `sgoif/bench`, or a module that lies beside these folders. An arrow means "imports",
wherever in the file: at the top, inside a function, or for type checking alone. Arrows that follow from others
(a -> b -> c implies a -> c) are left out, so the picture is the transitive reduction of the graph.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "architecture.md"
START, END = "<!-- package graph: written by `make docs` -->\n", "<!-- end of the package graph -->\n"

Graph = Mapping[str, set[str]]


def modules(root: Path = ROOT) -> dict[str, Path]:
    """All modules of the package `sgoif`: dotted name -> file."""
    found = {}
    for path in sorted((root / "sgoif").rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(path: Path, known: Iterable[str]) -> set[str]:
    """The project modules that a file imports, lazily or for type checking included."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            names.update(whole & set(known) or {node.module})
    return names & set(known)


def module_graph(root: Path = ROOT) -> dict[str, set[str]]:
    """Module -> modules that it imports."""
    found = modules(root)
    return {name: imported(path, found) - {name} for name, path in found.items()}


def package_of(module: str, root: Path = ROOT) -> str:
    """The node of a module: `sgoif.bench.data.load` -> `bench.data`, `sgoif.config` -> `config`."""
    parts = module.split(".")
    if parts[0] != "sgoif" or len(parts) == 1:
        return parts[0]
    deep = 3 if parts[1] == "bench" else 2
    return ".".join(parts[1:deep])


def package_graph(root: Path = ROOT) -> dict[str, set[str]]:
    """Package -> packages that it imports."""
    graph: dict[str, set[str]] = {}
    for module, targets in module_graph(root).items():
        home = package_of(module)
        graph.setdefault(home, set()).update(package_of(target) for target in targets)
    return {home: targets - {home} for home, targets in graph.items()}


def cycle(graph: Graph) -> list[str]:
    """Some cycle of the graph as a list of nodes, first = last; empty if there is none."""
    done: set[str] = set()

    def visit(node: str, path: list[str]) -> list[str]:
        if node in path:
            return [*path[path.index(node) :], node]
        if node in done:
            return []
        for target in sorted(graph.get(node, ())):
            if found := visit(target, [*path, node]):
                return found
        done.add(node)
        return []

    for start in sorted(graph):
        if found := visit(start, []):
            return found
    return []


def reachable(graph: Graph, start: str) -> set[str]:
    """All nodes that can be reached from `start`, itself not included."""
    seen: set[str] = set()
    todo = list(graph.get(start, ()))
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            todo += graph.get(node, ())
    return seen


def reduced(graph: Graph) -> dict[str, set[str]]:
    """The transitive reduction of an acyclic graph."""
    return {
        node: {t for t in targets if not any(t in reachable(graph, other) for other in targets - {t})}
        for node, targets in graph.items()
    }


def mermaid(graph: Graph) -> str:
    """The graph as a Mermaid block, which GitHub and the documentation site draw."""
    lines = ["```mermaid", "flowchart TD"]
    for node in sorted(graph):
        lines += [f"    {node} --> {target}" for target in sorted(reduced(graph)[node])]
    return "\n".join([*lines, "```"]) + "\n"


def page(text: str, root: Path = ROOT) -> str:
    """The text of docs/architecture.md with the picture drawn anew."""
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    return before + START + mermaid(package_graph(root)) + END + after


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
    print(f"wrote the package graph of {PAGE.relative_to(ROOT)}")
