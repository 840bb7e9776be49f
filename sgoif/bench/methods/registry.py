"""Finds methods by listing `baselines/<task>`, and knows how their names are written.

A method is called by its file's name, a variant of it (other hyper-parameters) `method@variant`.
"""

from __future__ import annotations

import functools
import importlib
import sys
from typing import Any

from sgoif.bench.methods.declaration import FOLDS, PLAIN, MethodDeclaration, read_declaration
from sgoif.errors import UserError
from sgoif.utils.paths import ROOT

FOLDER = ROOT / "baselines"
TASKS = ("noisy", "ood")
OURS = "sgoif"
SHARED = (PLAIN, FOLDS)  # runs that methods read instead of training again
VARIANT_MARK = "@"


@functools.cache
def available(task: str) -> tuple[str, ...]:
    """Return the names of all methods of a task, `noisy` or `ood`, by listing its folder."""
    return tuple(sorted(p.stem for p in (FOLDER / task).glob("*.py") if not p.stem.startswith("_")))


@functools.cache
def declaration(task: str, name: str) -> MethodDeclaration:
    """Return what a method's class declares, without importing it.

    Args:
        task: `noisy` or `ood`.
        name: The method, without a variant.

    Raises:
        UserError: If there is no such method, or its class lacks a title.
    """
    _require(task, name)
    return read_declaration(FOLDER / task / f"{name}.py", name)


def load(task: str, name: str) -> type[Any]:
    """Import a method and return its class: the one whose `name` is the file's.

    Args:
        task: `noisy` or `ood`.
        name: The method, without a variant.

    Raises:
        UserError: If there is no such method, or its file has no class of that name.
    """
    _require(task, name)
    if str(ROOT) not in sys.path:  # baselines/ belongs to the checkout and is not installed
        sys.path.append(str(ROOT))
    module = importlib.import_module(f"baselines.{task}.{name}")
    for value in vars(module).values():
        if isinstance(value, type) and value.__module__ == module.__name__ and getattr(value, "name", None) == name:
            return value
    raise UserError(f"baselines/{task}/{name}.py has no class with name = {name!r}")


def _require(task: str, name: str) -> None:
    if name not in available(task):
        raise UserError(f"no {task} method {name!r}; there are: {', '.join(available(task))}")


def task_kind(task: str) -> str:
    """Return which methods a task runs: `ood` for itself, `noisy` for `noisy` and `tuning`."""
    return "ood" if task == "ood" else "noisy"


def split_variant(method: str) -> tuple[str, str]:
    """Split `sgoif@no_gate` into (`sgoif`, `no_gate`); the variant of `sgoif` is empty."""
    name, _, variant = method.partition(VARIANT_MARK)
    return name, variant


def has_row(task: str, method: str) -> bool:
    """Tell whether a method is a row of every table: it is no variant, or one that its class declares as a row."""
    name, variant = split_variant(method)
    if not variant:
        return True
    return name in available(task) and declaration(task, name).row(variant) is not None


def is_variant(method: str) -> bool:
    """Tell `sgoif@no_gate` from `sgoif`."""
    return VARIANT_MARK in method
