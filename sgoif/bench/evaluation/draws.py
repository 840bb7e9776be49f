"""Says which numbers of a table are independent of each other, so that a test may count them.

A seed draws its own noise and its own training, for all settings of a dataset together. Settings of one dataset share
their images and, under one seed, most of their wrong labels (`noise/matrix.py`), so they are not independent: a test
counts a seed of a dataset once, by the mean over its settings. Where all seeds saw the same labels (people gave them,
or older records share one draw), all numbers of the dataset together are one draw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sgoif.bench.evaluation.table_layout import Panel

MIN_DRAWS = 5  # with fewer, a test hardly ever finds a difference, and its silence says nothing

Draw = tuple[str, int | None]  # dataset and seed; None: of labels that all its seeds share
Record = Mapping[str, Any]  # of a summary


def draws_own_noise(panel: Panel, facts: Record | None) -> bool:
    """Tells whether each seed of a panel has labels of its own; clean labels do not differ and always count as such.

    Args:
        panel: The panel.
        facts: The summary record of its share of wrong labels (`base_rate`); without one, seeds count.
    """
    return panel.task == "ood" or facts is None or facts.get("seeds") != [None]


def panels_by_draw(
    panels: Sequence[Panel], facts_of: Callable[[Panel], Record | None]
) -> dict[Draw, list[tuple[Panel, int | None]]]:
    """Group panels by independent draw: for each the panels, with the seed that counts (None: all seeds together)."""
    groups: dict[Draw, list[tuple[Panel, int | None]]] = {}
    for panel in panels:
        seeds: list[int | None] = [*panel.seeds] if draws_own_noise(panel, facts_of(panel)) else [None]
        for seed in seeds:
            groups.setdefault((panel.dataset, seed), []).append((panel, seed))
    return groups


def values_by_draw(
    groups: Mapping[Draw, Sequence[tuple[Panel, int | None]]], record_of: Callable[[Panel], Record | None]
) -> dict[Draw, float]:
    """Return the mean of a metric in each independent draw; a draw in which a number is missing is left out.

    Args:
        groups: The panels of each draw, of `panels_by_draw`.
        record_of: Returns the summary record of the metric in a panel.
    """
    found = {}
    for draw, members in groups.items():
        values = [_value(record_of(panel), seed) for panel, seed in members]
        if all(value is not None for value in values):
            found[draw] = float(np.mean([value for value in values if value is not None]))
    return found


def _value(record: Record | None, seed: int | None) -> float | None:
    if record is None or record["mean"] is None:
        return None
    if seed is None:
        return float(record["mean"])
    by_seed: dict[int | None, float] = dict(zip(record["seeds"], record["values"], strict=True))
    return by_seed.get(seed)
