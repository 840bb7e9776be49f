"""Finds what can be mutated in a source file, and writes the file with one such place changed.

A mutant differs from the file in the text of one node. Its tree is the old one with that node exchanged: an edit for
which this does not hold, such as one that needs brackets, is written again with brackets, or given up.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from tests.mutants.edits import Edit, edits

SILENT = {"__repr__", "__str__"}
LOGGERS = {"logging", "logger", "log", "warnings"}
OPERATORS = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.Is: "is",
    ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in", ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/",
    ast.And: "and", ast.Or: "or",
}  # fmt: skip


@dataclass(frozen=True)
class Site:
    """A node that has mutations; `identity` stays the same while other parts of the file change."""

    identity: str
    function: str  # the function or class it is in
    node: ast.AST
    path: tuple[tuple[str, int | None], ...]  # from the root to the node: fields and indices
    edits: list[Edit] = field(compare=False)


@dataclass(frozen=True)
class Mutant:
    """One changed place of a file."""

    file: str
    line: int
    function: str
    kind: str
    before: str
    after: str
    source: str = field(repr=False)  # the whole mutated file

    def diff(self, original: str) -> list[str]:
        """Return the lines that differ, those of the original with a minus."""
        lines = difflib.unified_diff(original.splitlines(), self.source.splitlines(), n=0, lineterm="")
        return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


class SourceFile:
    """A source file, its sites, and its mutants.

    Args:
        name: The file's path in the project.
        text: Its content.
    """

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text.encode()
        self.tree = ast.parse(text)
        self.starts = [0]
        for line in self.text.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    @cached_property
    def dump(self) -> str:
        return ast.dump(self.tree)

    def sites(self) -> list[Site]:
        """Return every node with a mutation, in the order of the tree."""
        seen: Counter[str] = Counter()
        found = []
        for node, parent, path, function in walk(self.tree):
            options = list(edits(node, parent))
            if options:
                identity = f"{self.name}:{function}:{type(node).__name__}:{ast.unparse(node)}"
                seen[identity] += 1
                found.append(Site(f"{identity}:{seen[identity]}", function, node, path, options))
        return found

    def mutant(self, site: Site, choice: int) -> Mutant | None:
        """Write the file with one edit of a site; None if the text cannot be changed so, or the tree stays equal.

        Args:
            site: The place.
            choice: Which of its edits to take, modulo their number.
        """
        kind, new = site.edits[choice % len(site.edits)]
        wanted = self._dump_with(site, new)
        if wanted == self.dump:
            return None
        node = site.node
        start, end = self._span(node)
        plain = ast.unparse(new)
        for text in (self._operator_changed(node, new), plain, f"({plain})"):
            source = text is not None and (self.text[:start] + text.encode() + self.text[end:]).decode()
            if source and tree_of(source) == wanted:
                return Mutant(self.name, node.lineno, site.function, kind, self.text_of(site), text, source)
        return None

    def text_of(self, site: Site) -> str:
        """Return what stands at a site."""
        start, end = self._span(site.node)
        return self.text[start:end].decode()

    def _span(self, node: ast.AST) -> tuple[int, int]:
        start = self.starts[node.lineno - 1] + node.col_offset
        return start, self.starts[node.end_lineno - 1] + node.end_col_offset

    def _operator_changed(self, node: ast.AST, new: ast.AST) -> str | None:
        """Write an operation with its operator alone exchanged, so that the rest keeps its look."""
        parts = operands(node)
        if parts is None or type(node) is not type(new):
            return None
        (start, end), text, done = self._span(node), b"", 0
        operators = zip(parts[1], operands(new)[1], strict=True)
        for left, right, (old, other) in zip(parts[0], parts[0][1:], operators, strict=False):
            gap_start, gap_end = self._span(left)[1], self._span(right)[0]
            pattern = re.escape(OPERATORS.get(type(old), "?")).replace(r"\ ", r"\s+").encode()
            gap = re.sub(pattern, OPERATORS.get(type(other), "?").encode(), self.text[gap_start:gap_end], count=1)
            text += self.text[start + done : gap_start] + gap
            done = gap_end - start
        return (text + self.text[start + done : end]).decode()

    def _dump_with(self, site: Site, new: ast.AST) -> str:
        """Dump the tree with a site's node exchanged."""
        parent: ast.AST = self.tree
        for name, index in site.path[:-1]:
            parent = getattr(parent, name) if index is None else getattr(parent, name)[index]
        name, index = site.path[-1]
        holder, key = (vars(parent), name) if index is None else (getattr(parent, name), index)
        holder[key] = new
        try:
            return ast.dump(self.tree)
        finally:
            holder[key] = site.node


def operands(node: ast.AST) -> tuple[list[ast.AST], list[ast.AST]] | None:
    """Return the operands of an operation and the operators between them."""
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators], node.ops
    if isinstance(node, ast.BoolOp):
        return node.values, [node.op] * (len(node.values) - 1)
    if isinstance(node, ast.BinOp):
        return [node.left, node.right], [node.op]
    if isinstance(node, ast.AugAssign):
        return [node.target, node.value], [node.op]
    return None


def walk(tree: ast.Module) -> Iterator[tuple[ast.AST, ast.AST | None, tuple, str]]:
    """Yield the nodes that may be mutated: the node, its parent, its path and the function it is in."""
    stack: list[tuple[ast.AST, ast.AST | None, tuple, str]] = [(tree, None, (), "")]
    while stack:
        node, parent, path, function = stack.pop()
        if is_exempt(node, parent, path[-1][0] if path else ""):
            continue
        if path:
            yield node, parent, path, function
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            function = f"{function}.{node.name}".lstrip(".")
        below = []
        for name, value in ast.iter_fields(node):
            for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
                if isinstance(child, ast.AST):
                    below.append((child, node, (*path, (name, index)), function))
        stack.extend(reversed(below))


def is_exempt(node: ast.AST, parent: ast.AST | None, field_name: str) -> bool:
    """Say whether a node is left alone with all that is below it.

    These are: types, errors and their texts, f-strings, representations, logging, imports for type checking, `__all__`,
    and what states an intent that correct code never meets: the options of `@dataclass` and `strict` of `zip`.
    """
    if field_name in ("annotation", "returns") or isinstance(node, ast.Raise | ast.JoinedStr | ast.Assert):
        return True
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return node.name in SILENT
    if isinstance(node, ast.If):
        return ast.unparse(node.test).endswith("TYPE_CHECKING")
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets)
    if isinstance(node, ast.keyword) and isinstance(parent, ast.Call):
        return node.arg == "strict" and ast.unparse(parent.func) == "zip"
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func)
        is_declaration = field_name == "decorator_list" and called.split(".")[-1] == "dataclass"
        return is_declaration or called == "print" or called.split(".")[0] in LOGGERS
    return False


def tree_of(source: str) -> str | None:
    """Dump the tree of a source, None if it is no Python."""
    try:
        return ast.dump(ast.parse(source))
    except (SyntaxError, ValueError):
        return None
