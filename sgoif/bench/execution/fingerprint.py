"""What a job's code is: a hash over the project files it imports, directly or not.

Snakemake sees the command line, not the modules behind it. This hash goes into each rule's `params`, so that an edit of
a method reruns that method and what depends on it, and nothing else. Comments, docstrings and layout do not count.
"""

import ast
import functools
import hashlib
from pathlib import Path

from sgoif.utils.paths import ROOT

PACKAGES = ("sgoif", "baselines")


def source_hash(*modules: str) -> str:
    """Hash of the given modules (dotted names) and of every project module they import."""
    todo, seen = list(modules), set()
    while todo:
        module = todo.pop()
        if module not in seen:
            seen.add(module)
            todo += [m for m in imports(module) if m not in seen]
    text = "\n".join(f"{m} {_code(m)}" for m in sorted(seen))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def path_of(module: str) -> Path | None:
    base = ROOT.joinpath(*module.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None


@functools.cache
def _tree(module: str) -> ast.Module:
    tree = ast.parse(path_of(module).read_text())
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(
            node
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return tree


@functools.cache
def _code(module: str) -> str:
    return hashlib.sha256(ast.dump(_tree(module)).encode()).hexdigest()


@functools.cache
def imports(module: str) -> tuple[str, ...]:
    """Project modules that `module` imports anywhere in its file, functions included.

    The packages around a module run too when it is imported, but give it nothing, so they do not count.
    """
    found = set()
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.Import):
            found.update(a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
            found.update(f"{node.module}.{a.name}" for a in node.names)
    return tuple(sorted(m for m in found if m.split(".")[0] in PACKAGES and path_of(m)))
