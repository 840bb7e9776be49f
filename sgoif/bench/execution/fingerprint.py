"""Hashes the code of a job: the project files that it imports, directly or not.

Snakemake sees the command line, not the modules behind it. This hash goes into each rule's `params`, so that an edit of
a method reruns that method and what depends on it, and nothing else. Comments, docstrings and layout do not count.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path

from sgoif.errors import UserError
from sgoif.utils.files import atomic_write_json
from sgoif.utils.paths import ROOT

PACKAGES = ("sgoif", "baselines")
KNOWN_SOURCES = Path(".snakemake/source-hashes.json")


def source_hash(*modules: str) -> str:
    """Return the hash of some modules (dotted names) and of every project module they import."""
    todo = list(modules)
    seen: set[str] = set()
    while todo:
        module = todo.pop()
        if module not in seen:
            seen.add(module)
            todo += [m for m in imports(module) if m not in seen]
    _save_sources()
    text = "\n".join(f"{m} {_source(m).code}" for m in sorted(seen))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def path_of(module: str) -> Path | None:
    """Return the file of a project module, None if it is not one."""
    base = ROOT.joinpath(*module.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None


@dataclass(frozen=True)
class ModuleSource:
    """What counts of a module's file.

    Attributes:
        code: Hash of its code without comments, docstrings and layout.
        imported: Names that it imports anywhere, functions included; some may be attributes of modules.
    """

    code: str
    imported: tuple[str, ...]


@functools.cache
def imports(module: str) -> tuple[str, ...]:
    """Return the project modules that a module imports anywhere in its file, functions included.

    The packages around a module are executed too when it is imported, but contribute nothing to it, so they do not
    count.
    """
    return tuple(m for m in _source(module).imported if path_of(m))


@functools.cache
def _source(module: str) -> ModuleSource:
    path = path_of(module)
    if path is None:
        raise ValueError(f"{module} is not a module of the project")
    content = path.read_bytes()
    key = hashlib.sha256(_reader() + content).hexdigest()
    known = _known_sources()
    if key not in known:
        known[key] = _read(content)
        _unsaved.append(key)
    return known[key]


def _read(content: bytes) -> ModuleSource:
    tree = ast.parse(content)
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if ast.get_docstring(node):
                node.body = node.body[1:] or [ast.Pass()]
        elif isinstance(node, ast.Import):
            found.update(a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
            found.update(f"{node.module}.{a.name}" for a in node.names)
    imported = tuple(sorted(m for m in found if m.split(".")[0] in PACKAGES))
    return ModuleSource(hashlib.sha256(ast.dump(tree).encode()).hexdigest(), imported)


# --- sources that were read before, by their content, so that a job does not parse a hundred files again --------------


@functools.cache
def _reader() -> bytes:
    """What a source was read by: this file and this Python."""
    return hashlib.sha256(Path(__file__).read_bytes() + sys.version.encode()).digest()


_unsaved: list[str] = []  # keys of sources that are not in the file yet


@functools.cache
def _known_sources() -> dict[str, ModuleSource]:
    try:
        entries = json.loads(KNOWN_SOURCES.read_bytes())
        return {key: ModuleSource(code, tuple(imported)) for key, (code, imported) in entries.items()}
    except (OSError, ValueError, TypeError, AttributeError):  # none yet, or damaged
        return {}


def _save_sources() -> None:
    """Write what was read, once Snakemake has made its folder; where that fails, it is read again next time."""
    if not _unsaved or not KNOWN_SOURCES.parent.is_dir():
        return
    _unsaved.clear()
    with contextlib.suppress(OSError, UserError):
        atomic_write_json(KNOWN_SOURCES, {key: [s.code, s.imported] for key, s in _known_sources().items()})
