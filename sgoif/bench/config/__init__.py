"""Configurations of benchmark runs: read, layered, checked and completed.

Way in: `load_config(path)` for a file, `resolve_config(mapping)` for keys and values; both return a resolved
configuration (`types.ResolvedConfig`). Reads configs/*.yaml and `config.schema.json`, which describes every key.
Writes nothing: a run that starts writes the resolved one to results/<run>/config.json, which `check_resolved` checks.
"""

from sgoif.bench.config.layering import read_yaml
from sgoif.bench.config.resolve import check_resolved, load_config, resolve_config
from sgoif.bench.config.schema import read_schema
from sgoif.bench.config.selection import parse_selection, selection_name
from sgoif.bench.config.values import digest, walk

__all__ = [
    "check_resolved",
    "digest",
    "load_config",
    "parse_selection",
    "read_schema",
    "read_yaml",
    "resolve_config",
    "selection_name",
    "walk",
]
