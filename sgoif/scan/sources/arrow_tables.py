"""Tables of Arrow: a Parquet file, or a Hugging Face data set as `save_to_disk` writes it. Both are read in batches."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sgoif.errors import UserError

BATCH_ROWS = 8_192
UNNAMED_INDEX = re.compile(r"__index_level_\d+__")  # what pandas calls the column of an index without a name


@dataclass
class ArrowTable:
    """A table that is read in batches.

    Attributes:
        path: Where it lies.
        n: Number of rows.
        schema: Arrow's schema.
        batches: Iterates over batches of some columns.
        names: Names of the classes by column, where the file has them.
    """

    path: Path
    n: int
    schema: Any
    batches: Callable[[list[str]], Iterator[Any]]
    names: dict[str, list[str]] = field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        """Names of all columns."""
        return list(self.schema.names)

    @property
    def lists(self) -> list[str]:
        """Names of the columns whose cells are lists of numbers or truth values."""
        return [f.name for f in self.schema if _is_list(f.type) and _is_number(f.type.value_type)]

    @property
    def numbers(self) -> list[str]:
        """Names of the columns whose cells are numbers or truth values, without the index of a pandas frame."""
        return [f.name for f in self.schema if _is_number(f.type) and f.name not in self.index]

    @property
    def index(self) -> set[str]:
        """Names of the columns that pandas wrote the index of a frame to: they number the rows."""
        about = json.loads((self.schema.metadata or {}).get(b"pandas", "{}"))
        named = {name for name in about.get("index_columns", []) if isinstance(name, str)}
        return named | {name for name in self.columns if UNNAMED_INDEX.fullmatch(name)}

    def labels(self, column: str) -> np.ndarray:
        """Return the cells of a column as they are, shape [n]."""
        cells = [cell for batch in self.batches([column]) for cell in batch.column(0).to_pylist()]
        values = np.empty(len(cells), dtype=object)
        values[:] = cells
        return values

    def class_names(self, column: str) -> list[str] | None:
        """Return the names of the classes that a column numbers, if the file has them."""
        return self.names.get(column)

    def matrix(self, columns: list[str], path: Path) -> np.ndarray:
        """Write columns as float32 to a .npy file, batch by batch, and return it mapped, shape [n, d].

        Raises:
            UserError: If lists have different lengths, or a cell is empty.
        """
        out: np.memmap | None = None
        done = 0
        for batch in self.batches(columns):
            block = self._block(batch)
            if out is None:
                out = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(self.n, block.shape[1]))
            if block.shape[1] != out.shape[1]:
                raise UserError(f"{self.path}: the lists in {columns[0]} have different lengths")
            out[done : done + len(block)] = block
            done += len(block)
        if out is None:
            raise UserError(f"{self.path} has no rows")
        out.flush()
        mapped: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
        return mapped

    def _block(self, batch: Any) -> np.ndarray:
        """Return the rows of a batch, shape [b, d]; empty cells become NaN, which is refused where rows are read."""
        if not _is_list(batch.schema.field(0).type):
            cells = [np.asarray(column.to_numpy(zero_copy_only=False), np.float32) for column in batch.columns]
            return np.stack(cells, axis=1)
        name, column = batch.schema.names[0], batch.column(0)
        if column.null_count:
            raise UserError(f"{self.path}: a cell of {name} is empty; leave such rows out")
        lengths = {len(cell) for cell in column}
        if len(lengths) != 1:
            raise UserError(f"{self.path}: the lists in {name} have different lengths")
        flat = column.flatten().to_numpy(zero_copy_only=False)
        return np.asarray(flat, np.float32).reshape(len(column), -1)


def open_parquet(path: Path) -> ArrowTable:
    """Open a Parquet file."""
    _require_pyarrow(path)
    import pyarrow
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(path)
    except (pyarrow.ArrowException, OSError) as e:
        raise UserError(f"{path} is not a Parquet file ({' '.join(str(e).split())[:120]})") from None
    return ArrowTable(
        path, file.metadata.num_rows, file.schema_arrow, lambda names: file.iter_batches(BATCH_ROWS, columns=names)
    )


def open_huggingface(path: Path) -> ArrowTable:
    """Open the folder of a Hugging Face data set; the library `datasets` is not needed."""
    if not (path / "state.json").is_file():
        hint = "its parts are folders, name one of them" if (path / "dataset_dict.json").is_file() else ""
        raise UserError(
            f"--features {path}: {hint or 'not the folder of a Hugging Face data set; dataset.save_to_disk writes one'}"
        )
    _require_pyarrow(path)
    import pyarrow.ipc

    state = json.loads((path / "state.json").read_text())
    if state.get("_indices_data_files") or state.get("_indices_files"):
        raise UserError(f"--features {path}: rows were selected or shuffled; save dataset.flatten_indices() instead")
    files = [path / Path(entry["filename"]).name for entry in state["_data_files"]]

    def batches(names: list[str]) -> Iterator[Any]:
        for file in files:
            with pyarrow.memory_map(str(file)) as source, pyarrow.ipc.open_stream(source) as reader:
                for batch in reader:
                    yield batch.select(names)

    with pyarrow.memory_map(str(files[0])) as source, pyarrow.ipc.open_stream(source) as reader:
        schema = reader.schema
    n = sum(batch.num_rows for batch in batches([schema.names[0]]))
    about = path / "dataset_info.json"
    features = json.loads(about.read_text()).get("features") or {} if about.is_file() else {}
    names = {name: kind["names"] for name, kind in features.items() if isinstance(kind, dict) and kind.get("names")}
    return ArrowTable(path, n, schema, batches, names)


def _require_pyarrow(path: Path) -> None:
    from importlib.util import find_spec

    if find_spec("pyarrow") is None:
        raise UserError(f"--features {path} needs pyarrow, which is not installed: pip install pyarrow")


def _is_list(kind: Any) -> bool:
    import pyarrow.types as t

    return bool(t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind))


def _is_number(kind: Any) -> bool:
    import pyarrow.types as t

    return bool(t.is_floating(kind) or t.is_integer(kind) or t.is_boolean(kind))
