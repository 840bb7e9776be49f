"""Hashes the code of a job: the project files that it imports, directly or not.

Snakemake sees the command line, not the modules behind it. This hash goes into each rule's `params`, so that an edit of
a method reruns that method and what depends on it, and nothing else. Comments, docstrings and layout do not count.
"""

from __future__ import annotations

import ast
import functools
import hashlib
from pathlib import Path

from sgoif.utils.paths import ROOT

PACKAGES = ("sgoif", "baselines")


def source_hash(*modules: str) -> str:
    """Returns the hash of some modules (dotted names) and of every project module they import."""
    todo = list(modules)
    seen: set[str] = set()
    while todo:
        module = todo.pop()
        if module not in seen:
            seen.add(module)
            todo += [m for m in imports(module) if m not in seen]
    text = "\n".join(f"{m} {_code(m)}" for m in sorted(seen))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def path_of(module: str) -> Path | None:
    """Returns the file of a project module, None if it is not one."""
    base = ROOT.joinpath(*module.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None


@functools.cache
def _tree(module: str) -> ast.Module:
    path = path_of(module)
    if path is None:
        raise ValueError(f"{module} is not a module of the project")
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if ast.get_docstring(node):
                node.body = node.body[1:] or [ast.Pass()]
    return tree


@functools.cache
def _code(module: str) -> str:
    return hashlib.sha256(ast.dump(_tree(module)).encode()).hexdigest()


@functools.cache
def imports(module: str) -> tuple[str, ...]:
    """Returns the project modules that a module imports anywhere in its file, functions included.

    The packages around a module are executed too when it is imported, but contribute nothing to it, so they do not
    count.
    """
    found: set[str] = set()
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.Import):
            found.update(a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
            found.update(f"{node.module}.{a.name}" for a in node.names)
    return tuple(sorted(m for m in found if m.split(".")[0] in PACKAGES and path_of(m)))
