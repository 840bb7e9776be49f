"""Features of any array as blocks of float32 rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sgoif.errors import InfluenceError

BLOCK_ROWS = 16_384  # rows that are in memory at a time
MAX_NAMED = 4  # columns in an error message


class FeatureArray:
    """N rows of d numbers that are read in blocks, when they are asked for."""

    def __init__(self, values: Any, block_rows: int = BLOCK_ROWS, select: np.ndarray | None = None) -> None:
        """Keep a reference to the features; nothing is read yet.

        Args:
            values: The features, shape [N, d]: a NumPy array (mapped from a file, too), a torch tensor, a pandas frame
                of numbers, a sequence of rows, or the path of a .npy file.
            block_rows: Rows that are read at a time.
            select: Positions of the rows that count, in ascending order; None for all.

        Raises:
            InfluenceError: If the features are not numbers of shape [N, d].
        """
        self._values = _as_matrix(values)
        self._select = np.arange(len(self._values)) if select is None else select
        self.block_rows = block_rows

    def __len__(self) -> int:
        return len(self._select)

    @property
    def dim(self) -> int:
        """Number of features d."""
        return int(self._values.shape[1])

    def rows(self, index: np.ndarray) -> Tensor:
        """Read rows in any order; the file is read in ascending order.

        Args:
            index: Positions of the rows, shape [n].

        Returns:
            The rows, float32, shape [n, d].
        """
        ascending = np.argsort(index, kind="stable")
        found = np.empty((len(index), self.dim), np.float32)
        found[ascending] = self._values[self._select[index[ascending]]]
        return torch.from_numpy(found)

    def blocks(self) -> Iterator[tuple[int, Tensor]]:
        """Yield the first position and the rows [b, d] of every block, in order.

        Raises:
            InfluenceError: If a number is missing or infinite; the message names its row.
        """
        for first in range(0, len(self), self.block_rows):
            rows = self._select[first : first + self.block_rows]
            with np.errstate(over="ignore"):  # what float32 cannot hold is refused in the next line
                block = np.asarray(self._values[rows], np.float32)
            _require_finite(block, rows)
            yield first, torch.from_numpy(block)


def _as_matrix(values: Any) -> np.ndarray:
    """Return features as an array [N, d] of numbers, a mapped one as it is."""
    if isinstance(values, (str, Path)):
        values = _map_file(Path(values))
    if isinstance(values, Tensor):
        values = values.detach().to("cpu")
        values = values.float().numpy() if values.dtype == torch.bfloat16 else values.numpy()
    elif hasattr(values, "to_numpy") and hasattr(values, "columns"):
        values = _frame_values(values)
    elif hasattr(values, "toarray"):
        raise InfluenceError("features: a sparse matrix; pass features.toarray(), or reduce it with TruncatedSVD")
    elif isinstance(values, np.ma.MaskedArray) and values.mask.any():
        raise InfluenceError("features: masked entries; leave such rows out, or fill them in")
    try:
        matrix = values if isinstance(values, np.ndarray) else np.asarray(values)
    except ValueError:
        raise InfluenceError("features: the rows have different lengths; every example needs the same ones") from None
    if matrix.ndim != 2 or 0 in matrix.shape:
        what = "; embed images first, or flatten them" if matrix.ndim > 2 else ""
        raise InfluenceError(f"features of shape {list(matrix.shape)}; expected [examples, features]{what}")
    if matrix.dtype.kind not in "fiub":
        raise InfluenceError(f"features of type {matrix.dtype}; expected numbers")
    return matrix


def _map_file(path: Path) -> np.ndarray:
    if path.suffix != ".npy" or not path.is_file():
        raise InfluenceError(f"features: {path} is no .npy file")
    try:
        mapped: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as e:
        raise InfluenceError(f"features: {path} cannot be read as .npy ({e})") from None
    return mapped


def _frame_values(frame: Any) -> np.ndarray:
    odd = [str(name) for name, kind in zip(frame.columns, frame.dtypes, strict=True) if _kind(kind) not in "fiub"]
    if odd:
        named = ", ".join(odd[:MAX_NAMED]) + (", …" if len(odd) > MAX_NAMED else "")
        raise InfluenceError(f"features: columns that are no numbers ({named}); leave them out, or encode them")
    return np.asarray(frame.to_numpy(np.float64, na_value=np.nan))


def _kind(dtype: Any) -> str:
    return str(getattr(dtype, "kind", "O"))


def _require_finite(part: np.ndarray, rows: np.ndarray) -> None:
    """Raise InfluenceError that names the first row with a missing or infinite number."""
    bad = np.flatnonzero(~np.isfinite(part).all(1))
    if len(bad):
        raise InfluenceError(
            f"features: row {rows[bad[0]]} has a missing or infinite number (NaN, inf), or one too large for float32; "
            "leave such rows out, or fill them in"
        )
