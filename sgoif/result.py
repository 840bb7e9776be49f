"""`InfluenceResult`: one score per training example, and beside it what makes it trustworthy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from sgoif.backend.linalg import products
from sgoif.config import InfluenceConfig
from sgoif.label_noise import latent_classes
from sgoif.scores.bernstein import half_width
from sgoif.scores.visit_statistics import Ledger

FRESH_RESIDUAL = 0.15
MARGINS = 3  # weight of the margins where wrong labels are scattered


def level(values: Tensor) -> Tensor:
    """Values over their root mean square; zero stays zero."""
    return values / values.square().mean().sqrt().clamp(min=torch.finfo(values.dtype).tiny)


def _latent(kept: tuple[Tensor, Tensor, Tensor] | None, known: latent_classes.Known | None) -> dict[str, Any]:
    """`beliefs`, `odds`, `margin`, `transition`, `trust`, `scatter` from what a ledger kept; `known`: see
    `latent_classes.find`."""
    if kept is None:
        return {}
    beliefs, given, margin = kept
    seen = beliefs.sum(1) > 0
    mean = torch.where(seen.unsqueeze(1), beliefs / beliefs.sum(1, keepdim=True), 1 / beliefs.shape[1])
    odds = torch.zeros_like(mean[:, 0])
    found, told = {"beliefs": mean, "odds": odds, "margin": margin}, {}
    if seen.any():
        visited = mean[seen], given[seen]
        with products(fast=False):
            classes = latent_classes.find(*visited, known)
            odds[seen] = classes.log_odds(*visited)
        found["transition"] = classes.transition
        told = {"trust": classes.trust, "scatter": classes.scatter}
    return {**{name: value.float().cpu() for name, value in found.items()}, **told}


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
    # with config.memory: what the predictions at those visits say about the labels (`sgoif.label_noise.latent_classes`)
    beliefs: Tensor | None = None  # [N, C] mean prediction; uniform where never visited
    odds: Tensor | None = None  # log-odds that the given label is wrong; 0 where never visited
    transition: Tensor | None = None  # [C, C] estimated noise matrix: row c = how often class c is given each label
    margin: Tensor | None = None  # mean over all visits of the largest other logit less the given label's
    trust: float = 0.0  # how far these are to be believed, in [0, 1]
    scatter: float = 0.0  # how far the wrong labels of a class are scattered over many, in [0, 1]

    @classmethod
    def read(
        cls,
        ledger: Ledger,
        config: InfluenceConfig,
        counters: dict,
        scope: dict,
        known: latent_classes.Known | None = None,
    ) -> InfluenceResult:
        """The result that a ledger holds; `known`: see `latent_classes.find`."""
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
            **_latent(ledger.read_beliefs(), known),
        )

    @property
    def suspicion(self) -> Tensor:
        """How suspicious the given label is `[N]`: the influence beside what the latent classes say,

            s_i / rms(s) + t (o_i / rms(o) + 3 e m_i / rms(m)),

        o_i: `odds`, m_i: `margin`, t: `trust`, e: `scatter`.

        The anchors hold the last fraction of an epoch and know the labels by name only: where most labels of a class
        are wrong, so are its anchors. The predictions of the whole window tell the classes apart by what they look
        like, whatever they are called. Where wrong labels are scattered, there is little for either to know, and the
        margins tell how long the network resisted a label. `config.memory = False`: the influence alone.
        """
        return self.score if self.odds is None else level(self.score) + self.trust * self.dissent

    @property
    def dissent(self) -> Tensor | None:
        """What the predictions say against the given label `[N]`: o_i / rms(o) + 3 e m_i / rms(m), see `suspicion`."""
        if self.odds is None:
            return None
        return level(self.odds) + MARGINS * self.scatter * level(self.margin)

    @property
    def fresh(self) -> Tensor:
        """Certificate in one word: visited, and the directions used solved their systems to `FRESH_RESIDUAL` on
        unseen examples."""
        return (self.visits > 0) & (self.residual <= FRESH_RESIDUAL) & (self.confidence > 0)

    @property
    def trusted_odds(self) -> Tensor | None:
        """`odds` where they are fully trusted, else None: what `estimate_wrong` counts by."""
        return self.odds if self.trust == 1 else None

    def numpy(self) -> dict[str, Any]:
        """The tensors as arrays, by name."""
        return {name: value.numpy() for name, value in vars(self).items() if isinstance(value, torch.Tensor)}
