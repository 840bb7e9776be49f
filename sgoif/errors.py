"""Errors of wrong use: of the library (`InfluenceError`) and of the commands (`UserError`).

Each message says what was wrong, where, and what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

NAMES_OF_TYPES = {float: "a number", int: "an integer", bool: "true or false", str: "a text", NoneType: "nothing"}


class InfluenceError(ValueError):
    """Base class of the errors that the library raises on wrong use."""


class ScopeError(InfluenceError):
    """Raised if the model has no supported layer in `config.scope`, or no classification layer."""


class BatchError(InfluenceError):
    """Raised if indices or labels do not fit the batch, the classes or the data set."""


class CaptureError(InfluenceError):
    """Raised if a forward or backward pass did not reach the watched layers."""


class UserError(Exception):
    """A user's mistake or a missing precondition, reported by a command.

    The message is one line that says what was wrong, where, and what to do. The command line prints it without a
    traceback and exits with status 2.
    """


def wrong_type(fields: type, values: Mapping[str, Any]) -> tuple[str, str] | None:
    """Find a value for a field of a dataclass that is not of its type.

    Numbers of numpy pass as numbers, truth values do not, and lists pass as tuples.

    Args:
        fields: The class. Types in `NAMES_OF_TYPES`, tuples and unions of them are checked, others are not.
        values: Values of some of its fields.

    Returns:
        The first such field and what it must be, in words; None if there is none.
    """
    kinds = get_type_hints(fields)
    for name, value in values.items():
        if not _fits(value, kinds[name]):
            return name, f"must be {_in_words(kinds[name])}"
    return None


def _fits(value: Any, kind: Any) -> bool:
    origin = get_origin(kind)
    if origin in (UnionType, Union):
        return any(_fits(value, one) for one in get_args(kind))
    if origin is tuple:
        return isinstance(value, tuple | list) and all(_fits(item, get_args(kind)[0]) for item in value)
    if kind in (float, int):
        return isinstance(value, Real if kind is float else Integral) and not isinstance(value, bool)
    return kind not in NAMES_OF_TYPES or isinstance(value, kind)


def _in_words(kind: Any) -> str:
    if get_origin(kind) in (UnionType, Union):
        return " or ".join(_in_words(one) for one in get_args(kind))
    if get_origin(kind) is tuple:
        return f"a list, each {_in_words(get_args(kind)[0])}"
    return NAMES_OF_TYPES.get(kind, str(kind))
