"""Read a configuration file and lay it over the files it extends."""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sgoif.errors import UserError

MAX_LAYERS = 16  # files laid over each other
REPLACE = "replace"  # `replace: true` in a mapping: it takes the place of the one below instead of merging into it


def read_yaml(path: Path) -> dict[str, Any]:
    """Read the keys and values of one configuration file, not yet checked.

    Raises:
        UserError: If the file is missing, is no YAML or holds no mapping.
    """
    from sgoif.bench.config.yaml_reader import MAX_BYTES, parse_yaml

    try:
        if path.exists() and not path.is_file():  # a named pipe would be waited for
            raise UserError(f"{path} is not valid YAML: it is no regular file")
        with open(path, "rb") as f:
            raw = parse_yaml(f.read(MAX_BYTES + 1), str(path))
    except FileNotFoundError:
        raise UserError(f"no configuration file {path}") from None
    except (OSError, ValueError) as e:  # ValueError: a path with a zero byte
        raise UserError(f"{path} cannot be read ({e})") from None
    if not isinstance(raw, dict):
        raise UserError(f"{path}: a configuration is a mapping of keys to values")
    return raw


def layer(config: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Lay a configuration over the file that its key `extends` names, and that one over its own, and so on.

    Args:
        config: A configuration, not changed.
        folder: Where the files that are extended lie.

    Returns:
        The merged configuration, see `merge`, without `extends`.

    Raises:
        UserError: If `extends` is not a file name, a file extends itself, or a mapping would replace what is not there.
    """
    layers = [copy.deepcopy(config), *(below for _, below in _extended(config, folder))]
    for one in layers:
        one.pop("extends", None)
    layers.append({})  # below the lowest there is nothing to replace
    try:
        return functools.reduce(merge, reversed(layers))  # from the lowest: what is taken away is gone from all below
    except RecursionError:
        raise UserError("configuration: a mapping contains itself, or is nested too deeply") from None


def file_in_words(path: Path, config: dict[str, Any]) -> str:
    """Name a configuration file and those that it extends, as far as they can be read."""
    names = []
    with contextlib.suppress(UserError):
        for name, _ in _extended(config, path.parent):
            names.append(name)
    return f"{path} (extends {', '.join(names)})" if names else str(path)


def _extended(config: dict[str, Any], folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield name and content of the file that a configuration extends, of the one that this extends, and so on."""
    seen: set[str] = set()
    while (parent := config.get("extends")) is not None:
        if not isinstance(parent, str) or not re.fullmatch(r"[a-z0-9_-]+\.yaml", parent):
            raise UserError(f"extends: {parent!r} is not the name of a configuration file in {folder}")
        if parent in seen:
            raise UserError(f"extends: {parent} extends itself")
        if len(seen) == MAX_LAYERS - 1:
            raise UserError(f"extends: {parent} is the {MAX_LAYERS + 1}th file in a row; lay fewer over each other")
        seen.add(parent)
        config = read_yaml(folder / parent)
        yield parent, config


def merge(below: dict[str, Any], above: dict[str, Any], path: str = "") -> dict[str, Any]:
    """Merge two mappings: mappings merge, null removes a key of the lower one, everything else replaces it.

    A mapping with `replace: true` takes the place of the lower one: nothing of that is left.

    Args:
        below: The lower mapping, not changed.
        above: The upper one, not changed.
        path: Where they stand in the configuration, for messages.

    Raises:
        UserError: If a mapping with `replace: true` has nothing below it, or `replace` is something else.
    """
    merged = dict(below)
    for key, value in above.items():
        where = f"{path}.{key}".removeprefix(".")
        if key == REPLACE and not isinstance(value, dict):
            raise UserError(f"{where}: a file as a whole replaces nothing; leave out `extends` instead")
        if value is None and key in below:
            del merged[key]
        elif not isinstance(value, dict):
            merged[key] = value
        elif REPLACE in value and not isinstance(value[REPLACE], dict):
            merged[key] = _replacement(value, key in below, where)
        else:
            lower = merged.get(key)
            merged[key] = merge(lower if isinstance(lower, dict) else {}, value, where)
    return merged


def _replacement(value: dict[str, Any], is_there: bool, where: str) -> dict[str, Any]:
    """Return a mapping that replaces another, without the key that says so."""
    if value[REPLACE] is not True:
        raise UserError(f"{where}.{REPLACE}: only `true` has a meaning here, got {value[REPLACE]!r}; leave it out")
    if not is_there:
        raise UserError(f"{where}.{REPLACE}: there is no {where} below this file to replace; leave it out")
    return merge({}, {key: inner for key, inner in value.items() if key != REPLACE}, where)


def as_json(config: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration as JSON would give it back.

    Raises:
        UserError: If JSON cannot express it: dates, infinities, or a mapping that contains itself.
    """
    try:
        for path, value in _leaves(config):
            if isinstance(value, float) and not math.isfinite(value):
                raise UserError(f"{path}: {value} is not a finite number")
            if not isinstance(value, str | int | float | None):
                raise UserError(f"{path}: {value} is neither text, number, list nor mapping; put it in quotes")
        return json.loads(json.dumps(config, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as e:
        raise UserError(f"configuration: a value is neither text, number, list nor mapping ({e})") from None


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all values that are neither lists nor mappings, with the path of their keys."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _leaves(inner, f"{path}.{key}" if path else str(key))
    else:
        yield path, value
