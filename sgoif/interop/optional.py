"""Importing a library that may not be installed."""

from __future__ import annotations

import importlib
from types import ModuleType

from sgoif.errors import InfluenceError


def import_optional(module: str, package: str | None = None) -> ModuleType:
    """Import a module of an optional library.

    Args:
        module: Full name of the module.
        package: Name of the package to install; None for the first part of `module`.

    Raises:
        InfluenceError: If the library is not installed; the message says what to install.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = package or module.split(".")[0]
        raise InfluenceError(f"{name} is not installed ({error}); install it with: pip install {name}") from error
