"""`InfluenceResult`: one score per training example, and beside it what makes it trustworthy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from sgoif.config import InfluenceConfig
from sgoif.intervals import half_width
from sgoif.ledger import Ledger

FRESH_RESIDUAL = 0.15


@dataclass(frozen=True)
class InfluenceResult:
    """All tensors are on the host, `[N]` in data-set order unless said otherwise. Higher score = more harmful = more
    suspicious."""

    score: Tensor  # mean over the visits in the score window of -<phibar, g_i>; 0 where never visited
    confidence: Tensor  # mean confidence of the anchors at those visits, in [0, 1]
    residual: Tensor  # mean estimated relative error of the anchors' scores at those visits (`Controller.error`)
    half_width: Tensor  # empirical-Bernstein half-width of the score; infinite where never visited
    visits: Tensor  # number of visits in the score window
    anchor_age: Tensor  # mean number of steps since the anchors had been checked
    epoch_scores: Tensor  # [E, N] score per epoch
    counters: dict[str, float] = field(default_factory=dict)
    scope: dict[str, Any] = field(default_factory=dict)  # layers in scope, parameters left out, backend, dimension
    config: InfluenceConfig = field(default_factory=InfluenceConfig)

    @classmethod
    def read(cls, ledger: Ledger, config: InfluenceConfig, counters: dict, scope: dict) -> InfluenceResult:
        """The result that a ledger holds."""
        sums, spread, epochs = ledger.read()
        visits = sums["visits"]
        mean = {name: (column / visits.clamp(min=1)).float() for name, column in sums.items()}
        return cls(
            score=mean["score"],
            confidence=mean["confidence"],
            residual=torch.where(visits > 0, mean["residual"], torch.inf),
            half_width=half_width(sums["score"], sums["square"], visits, spread, config.alpha).float(),
            visits=visits.long(),
            anchor_age=mean["age"],
            epoch_scores=epochs.float(),
            counters=counters,
            scope=scope,
            config=config,
        )

    @property
    def fresh(self) -> Tensor:
        """Certificate in one word: visited, and the directions used solved their systems to `FRESH_RESIDUAL` on
        unseen examples."""
        return (self.visits > 0) & (self.residual <= FRESH_RESIDUAL) & (self.confidence > 0)

    def numpy(self) -> dict[str, Any]:
        """The tensors as arrays, by name."""
        return {name: value.numpy() for name, value in vars(self).items() if isinstance(value, torch.Tensor)}
