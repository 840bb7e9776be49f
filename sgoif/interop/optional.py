"""Importing a library that may not be there."""

import importlib
from types import ModuleType

from sgoif.errors import InfluenceError


def need(module: str, package: str | None = None) -> ModuleType:
    """The module, or an error that says which package to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = package or module.split(".")[0]
        raise InfluenceError(f"{name} is not installed ({error}); install it with: pip install {name}") from error
