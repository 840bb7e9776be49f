"""Scores with a temperature: as published, and as SG-OIF's sentinel has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from torch import Tensor

from sgoif import InfluenceConfig
from sgoif.bench.methods.base import OODDetector


class SoftenedDetector(OODDetector):
    """Base class of methods whose score has a temperature; that of the sentinel is declared beside the published one.

    So a gain of the sentinel that comes from its temperature alone can be seen.
    """

    candidates: ClassVar = {"published": "T = 1, as published", "softened": "T as SG-OIF's sentinel has it"}
    ranked_by = "published"

    @staticmethod
    def at_both(score: Callable[[float], Tensor], n_classes: int, published: float = 1.0) -> dict[str, Tensor]:
        """Return both candidates.

        Args:
            score: Scores of images at a temperature, shape [n].
            n_classes: Number of classes.
            published: The temperature that ranks.
        """
        return {"published": score(published), "softened": score(InfluenceConfig().softening(n_classes))}
