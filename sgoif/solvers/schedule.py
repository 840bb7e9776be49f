"""`CheckSchedule`: how many steps lie between two checks, and how many anchors a check may refine."""

from __future__ import annotations

import math

from sgoif.config import InfluenceConfig


class CheckSchedule:
    """Spaces the checks so that the budget of curvature-vector products per training step is kept.

    Args:
        config: Supplies solver, budget and the longest interval.
        n_anchors: Number of anchors K.
        subspace_size: Rows of the streaming subspace.
        n_classes: Number of classes, which the budget depends on.

    Attributes:
        interval: Steps between two checks.
        refine_slots: Anchors that a check may refine.
    """

    def __init__(self, config: InfluenceConfig, n_anchors: int, subspace_size: int, n_classes: int) -> None:
        self.config = config
        self.n_anchors = n_anchors
        self.budget = config.budget(n_classes)
        self.products_per_check = _products_per_anchor(config) * n_anchors + subspace_size
        self.interval = config.solve_every
        self.refine_slots = 0

    def plan(self, epoch_steps: int, affordable: float = math.inf) -> None:
        """Set interval and refinement slots for epochs of `epoch_steps` steps.

        There is a check every `solve_every` steps and at least one per epoch, unless that exceeds the budget. If
        products are expensive (at most `affordable` per step), checks are rarer, but there is at least one per epoch.

        Args:
            epoch_steps: Optimiser steps of an epoch.
            affordable: Products per training step that the cost of training allows.
        """
        wanted = max(1, min(self.config.solve_every, epoch_steps))
        by_cost = min(math.ceil(self.products_per_check / affordable), max(epoch_steps, 1))
        by_budget = -(-self.products_per_check // self.budget)
        self.interval = int(max(wanted, by_cost, by_budget))
        left = min(self.budget, affordable) * self.interval - self.products_per_check
        slots = int(left // (self.config.refine_steps + 1)) if self.config.trigger else 0
        self.refine_slots = min(max(slots, 0), self.n_anchors)

    def is_due(self, step: int) -> bool:
        """Return whether a check follows optimiser step `step`, counted from 1."""
        return step % self.interval == 0


def _products_per_anchor(config: InfluenceConfig) -> int:
    """Return the curvature products that one check needs per anchor, without refinement."""
    by_solver = {"richardson": 2, "direct": 2, "neumann": 2 + config.depth, "pcg": 3 + config.refine_steps}
    return by_solver[config.solver]
