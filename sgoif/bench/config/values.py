"""Hash and walk the values of a configuration."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from sgoif.bench.config.types import DatasetSpec, ResolvedConfig, Task


def digest(value: Any) -> str:
    """Return a short hash of a JSON value that does not depend on the order of keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def walk(config: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all leaves of a configuration as (dotted path, value)."""
    if isinstance(config, dict) and config:
        for key, value in config.items():
            yield from walk(value, f"{path}.{key}" if path else str(key))
    else:
        yield path, config


def datasets_of(config: ResolvedConfig) -> Iterator[tuple[Task, str, DatasetSpec]]:
    """Yield (task, name, specification) of all datasets; a dataset may be deleted meanwhile."""
    for name, noisy in list(config["noisy"].items()):
        yield "noisy", name, noisy
    for name, ood in list(config["ood"].items()):
        yield "ood", name, ood
