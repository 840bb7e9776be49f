"""Scores as tables: pandas, and from there CSV, Parquet or a Hugging Face data set.

What is written is every tensor or array `[N]` of the results that are passed (`InfluenceResult`, `LabelIssues`,
`FeatureIssues`, `Triage`, `Poisoning`, `Priority`), one row per example in data-set order. An `order` becomes the
column `rank`: 0 = first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from sgoif.errors import InfluenceError
from sgoif.interop.optional import import_optional

if TYPE_CHECKING:
    import datasets
    import pandas


def columns(*results: Any, **more: Sequence[Any]) -> dict[str, Any]:
    """Collect the columns of a table.

    Args:
        *results: Dataclasses with tensors or arrays; of a name that several of them have, the first is taken.
        **more: Further columns, such as paths, shape [N] each.

    Returns:
        Arrays of shape [N] by name.

    Raises:
        InfluenceError: If the columns have different lengths, or a result has none.
    """
    found: dict[str, Any] = {}
    for result in results:
        arrays = _arrays(result)
        if not arrays:
            raise InfluenceError(f"a {type(result).__name__} has no column of shape [N]")
        for name, value in arrays.items():
            found.setdefault(*(("rank", value.argsort()) if name == "order" else (name, value)))
    found |= {name: _to_array(values) for name, values in more.items()}
    lengths = {name: len(value) for name, value in found.items()}
    if len(set(lengths.values())) > 1:
        raise InfluenceError(f"the columns have different lengths: {lengths}")
    return found


def _arrays(result: Any) -> dict[str, np.ndarray]:
    """Return what a result says of every example, by the names of its fields."""
    values = {f.name: getattr(result, f.name) for f in fields(result)}
    arrays = {name: _to_array(v) for name, v in values.items() if isinstance(v, Tensor | np.ndarray) and v.ndim == 1}
    n = len(arrays["order"]) if "order" in arrays else None  # `FeatureIssues` also has one entry a class
    return {name: v for name, v in arrays.items() if n in (None, len(v))}


def _to_array(values: Any) -> np.ndarray:
    """Return a column without an index: its rows are in data-set order, whatever the index of a pandas series says."""
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)


def to_pandas(*results: Any, **more: Sequence[Any]) -> pandas.DataFrame:
    """Make a data frame with one row per example and the index `example`.

    Args:
        *results: Dataclasses with tensors, see `columns`.
        **more: Further columns, such as paths, shape [N] each.

    Raises:
        InfluenceError: If the columns have different lengths, or pandas is not installed.
    """
    frame = import_optional("pandas").DataFrame(columns(*results, **more))
    return frame.rename_axis("example")


def to_huggingface(*results: Any, **more: Sequence[Any]) -> datasets.Dataset:
    """Make a Hugging Face data set; join it to your own with `datasets.concatenate_datasets(..., axis=1)`.

    Args:
        *results: Dataclasses with tensors, see `columns`.
        **more: Further columns, such as paths, shape [N] each.

    Raises:
        InfluenceError: If the columns have different lengths, or datasets is not installed.
    """
    return import_optional("datasets").Dataset.from_pandas(to_pandas(*results, **more), preserve_index=False)
