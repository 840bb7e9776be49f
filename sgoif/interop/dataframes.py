"""Scores as tables: pandas, and from there CSV, Parquet or a Hugging Face data set.

What is written is every tensor `[N]` of the results that are passed (`InfluenceResult`, `LabelIssues`, `Triage`,
`Poisoning`, `Priority`), one row per example in data-set order. An `order` becomes the column `rank`: 0 = first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sgoif.errors import InfluenceError
from sgoif.interop.optional import import_optional

if TYPE_CHECKING:
    import datasets
    import pandas


def columns(*results: Any, **more: Sequence[Any]) -> dict[str, Any]:
    """Collect the columns of a table.

    Args:
        *results: Dataclasses with tensors; of a name that several of them have, the first is taken.
        **more: Further columns, such as paths, shape [N] each.

    Returns:
        Arrays of shape [N] by name.

    Raises:
        InfluenceError: If the columns have different lengths.
    """
    found: dict[str, Any] = {}
    for result in results:
        for f in fields(result):
            value = getattr(result, f.name)
            if not isinstance(value, Tensor) or value.dim() != 1:
                continue
            if f.name == "order":
                found.setdefault("rank", value.argsort().numpy())
            else:
                found.setdefault(f.name, value.numpy())
    found |= {name: torch.as_tensor(v).cpu().numpy() if isinstance(v, Tensor) else v for name, v in more.items()}
    lengths = {name: len(value) for name, value in found.items()}
    if len(set(lengths.values())) > 1:
        raise InfluenceError(f"the columns have different lengths: {lengths}")
    return found


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
