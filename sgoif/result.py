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


def rival_margin(logits: Tensor, labels: Tensor) -> Tensor:
    """max_{k != y} f_k - f_y for logits `[n, C]`: how far the best rival of the given label is ahead, `[n]`."""
    own = labels.unsqueeze(1)
    return logits.scatter(1, own, -torch.inf).amax(1) - logits.gather(1, own)[:, 0]


def level(values: Tensor) -> Tensor:
    """Values over their root mean square; zero stays zero."""
    return values / values.square().mean().sqrt().clamp(min=torch.finfo(values.dtype).tiny)


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
    margin: Tensor  # mean of max_{k != y} f_k - f_y at those visits: how far a rival of the given label was ahead
    agreement: Tensor  # mean probability of the given label at those visits
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
            margin=mean["margin"],
            agreement=mean["agreement"],
            epoch_scores=epochs.float(),
            counters=counters,
            scope=scope,
            config=config,
        )

    @property
    def suspicion(self) -> Tensor:
        """How suspicious the given label is `[N]`: the influence score and, by squared agreement, the model's own view,

            s_i / rms(s) + abar^2 m_i / rms(m),        abar: mean agreement over all examples, m_i: `margin`.

        The head's weights are the sum of all gradient steps so far; m_i is the influence of z_i on that long memory
        under the margin loss, where the anchors hold the last fraction of an epoch. It enters as an anchor does, by
        the square of its confidence, which is how far model and labels agree: under heavy noise the memory is of
        wrong labels. `config.memory = False`: the influence alone.
        """
        if not self.config.memory:
            return self.score
        seen = self.visits > 0
        trust = self.agreement[seen].mean() if seen.any() else torch.zeros(())
        return level(self.score) + trust.square() * level(self.margin)

    @property
    def fresh(self) -> Tensor:
        """Certificate in one word: visited, and the directions used solved their systems to `FRESH_RESIDUAL` on
        unseen examples."""
        return (self.visits > 0) & (self.residual <= FRESH_RESIDUAL) & (self.confidence > 0)

    def numpy(self) -> dict[str, Any]:
        """The tensors as arrays, by name."""
        return {name: value.numpy() for name, value in vars(self).items() if isinstance(value, torch.Tensor)}
