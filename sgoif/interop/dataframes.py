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
from sgoif.interop.optional import need

if TYPE_CHECKING:
    import datasets
    import pandas


def columns(*results: Any, **more: Sequence) -> dict[str, Any]:
    """Name -> array `[N]`; of a name that several results have, the first counts."""
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


def to_pandas(*results: Any, **more: Sequence) -> pandas.DataFrame:
    """A data frame with one row per example, named `example` in its index; `more`: further columns, such as paths."""
    frame = need("pandas").DataFrame(columns(*results, **more))
    return frame.rename_axis("example")


def to_huggingface(*results: Any, **more: Sequence) -> datasets.Dataset:
    """The same as a `datasets.Dataset`, to be joined with one's own by `datasets.concatenate_datasets(..., axis=1)`."""
    return need("datasets").Dataset.from_pandas(to_pandas(*results, **more), preserve_index=False)
