"""The records that jobs write as JSON: one result per cell (result.json), one entry per cell in a batch file.

Each record has one constructor from JSON, which checks it, so that no reader has to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sgoif.bench.execution.plan import Cell
from sgoif.bench.methods.registry import SHARED
from sgoif.errors import UserError
from sgoif.utils.files import read_json

STATUSES = ("ok", "failed", "skipped")
CELL_KEYS = frozenset(("task", "dataset", "setting", "seed", "method"))


class MalformedRecord(ValueError):
    """A JSON value that is not the record it should be; the message says which part is wrong."""


@dataclass(frozen=True)
class ResultRecord:
    """The content of a cell's result.json: how the computation ended, what it cost, what it was computed with.

    Attributes:
        cell: The cell.
        key: Hash of all that the result depends on.
        status: "ok", "failed" or "skipped".
        reason: Why the cell has no arrays, if it has none.
        arrays: Shape and dtype of each array in arrays.npz.
        arrays_sha256: Checksum of arrays.npz, None if there is no such file.
        created: Date and time, ISO 8601.
        versions: Package versions by name.
        hardware: Facts about the machine by name.
        commit: Commit of the code; empty where there was no git.
        seconds: Wall-clock seconds by timer.
        cpu_seconds: CPU seconds by timer.
        network_passes: Images passed through a network by timer; a training step counts three.
        shared_gpu: Whether other jobs ran on the same GPU.
        peak_memory_mb: Peak memory, None if it is not known.
        seed: The cell's seed.
        shared: Names of the shared runs that the cell read.
        config: The part of the configuration that the result depends on.
        extras: Numbers that the method reported.
        curves: Values by epoch that the method reported.
    """

    cell: Cell
    key: str
    status: str
    reason: str = ""
    arrays: dict[str, Any] = field(default_factory=dict)
    arrays_sha256: str | None = None
    created: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    hardware: dict[str, Any] = field(default_factory=dict)
    commit: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    cpu_seconds: dict[str, float] = field(default_factory=dict)
    network_passes: dict[str, float] = field(default_factory=dict)
    shared_gpu: bool = False
    peak_memory_mb: float | None = None
    seed: int = 0
    shared: list[str] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    extras: dict[str, float] = field(default_factory=dict)
    curves: dict[str, list[float]] = field(default_factory=dict)

    @classmethod
    def from_json(cls, value: Any) -> ResultRecord:
        """Read a result; keys that are missing or null get their defaults, unknown keys are dropped.

        Raises:
            MalformedRecord: If a value has the wrong type.
        """
        if not isinstance(value, dict):
            raise MalformedRecord("it is not a JSON object")
        cell = parse_cell(value.get("cell"))
        if value.get("status") not in STATUSES:
            raise MalformedRecord(f"its status is {value.get('status')!r}")
        known = {k: v for k, v in value.items() if k in cls.__dataclass_fields__ and v is not None}
        known = {"seed": cell.seed, **known, "cell": cell}
        for key, kind in _TYPES.items():
            if not isinstance(known.get(key, kind()), kind):
                raise MalformedRecord(f"`{key}` is not of type {kind.__name__}")
        if "key" not in known:
            raise MalformedRecord("it has no `key`")
        for key in ("seconds", "cpu_seconds", "network_passes", "extras"):
            if not all(_is_number(v) for v in known.get(key, {}).values()):
                raise MalformedRecord(f"`{key}` is not a table of numbers")
        if not _is_number(known.get("peak_memory_mb", 0.0)):
            raise MalformedRecord("`peak_memory_mb` is no number")
        if not set(map(str, known.get("shared", []))) <= set(SHARED):
            raise MalformedRecord("`shared` is no list of runs")
        return cls(**known)

    def to_json(self) -> dict[str, Any]:
        """Return the record as result.json holds it."""
        return asdict(self)


_TYPES: dict[str, type] = {
    "key": str, "reason": str, "arrays": dict, "arrays_sha256": str, "created": str, "versions": dict,
    "hardware": dict, "commit": str, "seconds": dict, "cpu_seconds": dict, "network_passes": dict, "shared_gpu": bool,
    "seed": int, "shared": list, "config": dict, "extras": dict, "curves": dict,
}  # fmt: skip


def parse_cell(value: Any) -> Cell:
    """Read the `cell` of a record.

    Raises:
        MalformedRecord: If it does not name task, dataset, setting, seed and method, and nothing else.
    """
    if not isinstance(value, dict):
        raise MalformedRecord("it has no `cell`")
    names = [value.get(k) for k in ("task", "dataset", "setting", "method")]
    if set(value) != CELL_KEYS or not all(isinstance(n, str) for n in names) or not isinstance(value["seed"], int):
        raise MalformedRecord("its `cell` does not name task, dataset, setting, seed and method")
    return Cell(**value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@dataclass(frozen=True)
class BatchEntry:
    """What a batch file says about one of its cells.

    Attributes:
        cell: The cell.
        path: Its folder, relative to the run's folder.
        key: The result's `key`.
        status: The result's `status`.
        reason: The result's `reason`.
        arrays_sha256: The result's `arrays_sha256`.
    """

    cell: Cell
    path: str
    key: str
    status: str
    reason: str
    arrays_sha256: str | None

    @classmethod
    def of(cls, result: ResultRecord) -> BatchEntry:
        """Make the entry of a result."""
        path = result.cell.folder.as_posix()
        return cls(result.cell, path, result.key, result.status, result.reason, result.arrays_sha256)

    @classmethod
    def from_json(cls, value: Any) -> BatchEntry:
        """Read an entry.

        Raises:
            MalformedRecord: If it is not one, or if its path does not lie below the run's folder.
        """
        if not isinstance(value, dict) or not _is_inside(value.get("path")):
            raise MalformedRecord("its path is not that of a cell")
        texts = {k: value.get(k, "") for k in ("key", "status", "reason")}
        sha256 = value.get("arrays_sha256")
        if not all(isinstance(text, str) for text in texts.values()) or not isinstance(sha256, str | None):
            raise MalformedRecord("its key, status, reason or sha256 is no text")
        return cls(parse_cell(value.get("cell")), value["path"], **texts, arrays_sha256=sha256)

    def to_json(self) -> dict[str, Any]:
        """Return the entry as the batch file holds it."""
        return asdict(self)


def _is_inside(path: Any) -> bool:
    """Whether a path from a file names a folder of a cell below the run's folder."""
    return isinstance(path, str) and path.startswith("cells/") and ".." not in path and "\0" not in path


def read_batch(path: Path) -> list[BatchEntry]:
    """Read the entries of a batch file.

    Args:
        path: results/<run>/batches/<task>/<dataset>/<method>/<number>.json.

    Raises:
        UserError: If the file is damaged or does not list cells.
    """
    content = read_json(path)
    listed: Mapping[str, Any] = content if isinstance(content, dict) else {}
    try:
        return [BatchEntry.from_json(value) for value in _list(listed.get("cells"))]
    except MalformedRecord as e:
        raise UserError(f"{path} does not list the cells of a batch ({e}); delete it and run again") from None


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise MalformedRecord("it has no `cells`")
    return value
