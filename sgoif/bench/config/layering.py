"""Read a configuration file and lay it over the files it extends."""

from __future__ import annotations

import copy
import functools
import json
import re
from pathlib import Path
from typing import Any

from sgoif.errors import UserError


def read_yaml(path: Path) -> dict[str, Any]:
    """Read the keys and values of one configuration file, not yet checked.

    Raises:
        UserError: If the file is missing, is no YAML or holds no mapping.
    """
    import yaml

    try:
        raw = yaml.safe_load(path.read_bytes())
    except FileNotFoundError:
        raise UserError(f"no configuration file {path}") from None
    except (yaml.YAMLError, OSError, ValueError, RecursionError) as e:  # a folder, not UTF-8, an impossible date
        raise UserError(f"{path} is not valid YAML: {' '.join(str(e).split())[:300]}") from None
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
        UserError: If `extends` is not a file name, or a file extends itself.
    """
    layers = [copy.deepcopy(config)]
    seen = set()
    while (parent := layers[-1].pop("extends", None)) is not None:
        if not isinstance(parent, str) or not re.fullmatch(r"[a-z0-9_-]+\.yaml", parent):
            raise UserError(f"extends: {parent!r} is not the name of a configuration file in {folder}")
        if parent in seen:
            raise UserError(f"extends: {parent} extends itself")
        seen.add(parent)
        layers.append(read_yaml(folder / parent))
    return functools.reduce(merge, reversed(layers))  # from the lowest: what is taken away is gone from all below


def merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Merge two mappings: mappings merge, null removes a key of the lower one, everything else replaces it."""
    merged = dict(below)
    for key, value in above.items():
        if value is None and key in below:
            del merged[key]
        elif isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = merge(merged[key], value)
        else:
            merged[key] = value
    return merged


def as_json(config: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration as JSON would give it back.

    Raises:
        UserError: If JSON cannot express it: dates, infinities, or a mapping that contains itself.
    """
    try:
        return json.loads(json.dumps(config, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as e:
        raise UserError(f"configuration: a value is neither text, number, list nor mapping ({e})") from None
