"""To which settings and seeds something is limited: `restrict` and `retrain` of a dataset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def restriction(spec: Mapping[str, Any], method: str) -> dict[str, Any]:
    """Return the limits that a dataset's `restrict` sets for a method: settings, seeds, besides and reason.

    Args:
        spec: The configuration of the dataset.
        method: Name of the method.
    """
    limits: dict[str, Any] = spec.get("restrict", {}).get(method, {})
    return limits


def allowed(limits: Mapping[str, Any], setting: str, seed: int | None) -> bool:
    """Return whether limits, {settings, seeds, besides}, include a setting and seed; empty limits include all."""
    if setting in limits.get("settings", [setting]) and seed in limits.get("seeds", [seed]):
        return True
    return any(allowed(more, setting, seed) for more in limits.get("besides", []))
