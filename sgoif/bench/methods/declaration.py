"""Reads what a method's class declares (title, group, needs) from its source, without importing it.

Planning, tables and figures need these few attributes of every method, and importing a method imports torch. So the
class attributes are read with `ast`: from the class itself or, where it does not set them, from its base classes.
Attributes that are declared must therefore be written as literals; a mapping may take in that of another class of the
project, `{"name": "words", **Base.candidates}`.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from sgoif.errors import UserError
from sgoif.utils.paths import ROOT

PLAIN = "plain"  # ordinary training, whose logits, features and checkpoints post-hoc methods read
FOLDS = "folds"  # cross-validation, whose out-of-fold probabilities some detectors read
SEARCHED = "searched"  # variant of OOD methods whose hyper-parameters are searched on OOD validation images
OTHERS = "Others"  # heading of methods that declare no group
LAST = 1000  # place of methods that declare no order
PROJECT_PACKAGES = ("sgoif", "baselines")  # base classes from elsewhere declare nothing


@dataclass(frozen=True)
class RowDeclaration:
    """How a method, or one of its variants, is shown in tables and figures.

    Attributes:
        title: Name as printed.
        group: Heading of the rows that it stands among.
        order: Place within the group, smallest first; equal numbers keep the order of the configuration.
        ranked: False for a row that is shown beside the others but neither marked as best nor ranked.
    """

    title: str
    group: str = OTHERS
    order: int = LAST
    ranked: bool = True


@dataclass(frozen=True)
class MethodDeclaration(RowDeclaration):
    """What the class of a method declares; see `sgoif.bench.methods.base.Method` for the meaning of each attribute."""

    name: str = ""
    shown_variants: Mapping[str, RowDeclaration] = field(default_factory=dict)
    candidates: Mapping[str, str] = field(default_factory=dict)
    ranked_by: str = ""
    parts: Mapping[str, str] = field(default_factory=dict)
    reads_plain: bool = False
    reads_folds: bool = False
    uses_trusted: bool = False
    told_noise: bool = False
    uses_auxiliary: bool = False
    sweep: Mapping[str, Any] = field(default_factory=dict)
    distributes: bool = False
    alone_with: Mapping[str, Any] = field(default_factory=dict)

    @property
    def shared_runs(self) -> list[str]:
        """Names of the shared runs that the method reads."""
        return [name for name, reads in ((PLAIN, self.reads_plain), (FOLDS, self.reads_folds)) if reads]

    def row(self, variant: str = "") -> RowDeclaration | None:
        """Return how the method or its variant is shown, None for a variant without a row of its own.

        With a sweep the method has a variant `SEARCHED`, which stands beside it.
        """
        if variant == SEARCHED and self.sweep:
            return RowDeclaration(f"{self.title}, searched", self.group, self.order, self.ranked)
        return self.shown_variants.get(variant) if variant else self


DECLARED = tuple(f.name for f in fields(MethodDeclaration))


def read_declaration(path: Path, name: str) -> MethodDeclaration:
    """Read the declaration of the class called `name` in a method's file.

    Args:
        path: The Python file.
        name: Value of the class attribute `name`, which tells the method's class from helpers in the same file.

    Returns:
        The declared attributes; what neither the class nor its bases set has the default of `MethodDeclaration`.

    Raises:
        UserError: If no class has this name, it has no title, or a declared attribute is not a literal.
    """
    where = path.relative_to(ROOT)
    module = _parse(path)
    for node in module.classes.values():
        found = _attributes(module, node)
        if found.get("name") == name:
            break
    else:
        raise UserError(f"{where} has no class with name = {name!r}")
    for key, value in found.items():
        if isinstance(value, _NotLiteral):
            raise UserError(f"{where}: `{key}` of class {node.name} must be written as a literal")
    if not found.get("title"):
        raise UserError(f"{where}: class {node.name} has no title")
    if found.get("ranked_by", "") not in (found.get("candidates") or {"": ""}):
        raise UserError(f"{where}: `ranked_by` of class {node.name} is none of its `candidates`")
    variants = {
        key: _variant(row, f"{where}: shown_variants[{key!r}]") for key, row in found.pop("shown_variants", {}).items()
    }
    return MethodDeclaration(**found, shown_variants=variants)


def _variant(row: Any, where: str) -> RowDeclaration:
    try:
        return RowDeclaration(**row)
    except TypeError as e:
        raise UserError(f"{where} must have a title and may have group, order and ranked ({e})") from None


class _NotLiteral:
    """Stands for the value of an attribute that only running the code would tell."""


@dataclass(frozen=True)
class _Module:
    """The top-level classes of a file and where its other names come from."""

    classes: dict[str, ast.ClassDef]
    imported: dict[str, tuple[str, str]]  # local name -> (module, name there)


@functools.cache
def _parse(path: Path) -> _Module:
    try:
        tree = ast.parse(path.read_text(), filename=str(path))
    except SyntaxError as e:
        raise UserError(f"{path.relative_to(ROOT)}, line {e.lineno}: {e.msg}") from None
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    imported: dict[str, tuple[str, str]] = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            imported |= {a.asname or a.name: (node.module, a.name) for a in node.names}
    return _Module(classes, imported)


def _attributes(module: _Module, node: ast.ClassDef) -> dict[str, Any]:
    """The declared attributes of a class: its own before those of its bases, earlier bases first."""
    found: dict[str, Any] = {}
    for base in reversed(node.bases):
        if isinstance(base, ast.Name):
            found |= _base_attributes(module, base.id)
    for statement in node.body:
        for name, value in _assignments(statement):
            if name in DECLARED:
                found[name] = _value(module, value)
    return found


def _base_attributes(module: _Module, name: str) -> dict[str, Any]:
    if name in module.classes:
        return _attributes(module, module.classes[name])
    source, original = module.imported.get(name, ("", ""))
    if source.split(".")[0] not in PROJECT_PACKAGES:
        return {}
    path = ROOT.joinpath(*source.split(".")).with_suffix(".py")
    if not path.is_file():
        path = path.with_suffix("") / "__init__.py"
    there = _parse(path)
    return _base_attributes(there, original)


def _assignments(statement: ast.stmt) -> list[tuple[str, ast.expr]]:
    """(name, value) of `a = 1`, `a: int = 1` and `a, b = 1, 2`."""
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
        return [(statement.target.id, statement.value)]
    if not isinstance(statement, ast.Assign):
        return []
    found: list[tuple[str, ast.expr]] = []
    for target in statement.targets:
        pairs = [(target, statement.value)]
        if isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple):
            pairs = list(zip(target.elts, statement.value.elts, strict=False))
        found += [(left.id, right) for left, right in pairs if isinstance(left, ast.Name)]
    return found


def _value(module: _Module, value: ast.expr) -> Any:
    """What an expression stands for: a literal, or a mapping that takes in others, `{**Base.candidates}`."""
    if not isinstance(value, ast.Dict) or None not in value.keys:
        return _literal(value)
    found: dict[Any, Any] = {}
    for key, item in zip(value.keys, value.values, strict=True):
        if key is not None:
            found[_literal(key)] = _literal(item)
        elif isinstance(item, ast.Attribute) and isinstance(item.value, ast.Name):
            found |= _base_attributes(module, item.value.id).get(item.attr, {})
        else:
            return _NotLiteral()
    return _NotLiteral() if any(isinstance(one, _NotLiteral) for pair in found.items() for one in pair) else found


def _literal(value: ast.expr) -> Any:
    try:
        return ast.literal_eval(value)
    except ValueError:
        return _NotLiteral()
