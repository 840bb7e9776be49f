"""`CheckTrace`: what every check of a run found, one row each, for figures of convergence.

    trace = CheckTrace(influence)
    ... influence.step(optimizer); trace.look() ...
    trace.arrays()["residual"]                               # [checks]

It only looks: nothing of the run depends on it, and in a step it never waits for the device.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from sgoif.influence import OnlineInfluence

MEASURED = {  # column -> what it is
    "residual": "mean over the anchors of the relative residual R_v",
    "confidence": "mean over the anchors of the confidence c_v",
    "tolerance": "tau_t",
    "step_size": "mean over the anchors of rho, in units of the largest safe step",
    "lambda_min": "smallest eigenvalue of the Gram matrix of the unit phi_v, at the last look at coverage (NaN before)",
}
COUNTED = {"step": "training steps so far", "hvps": "curvature-vector products so far"}
COLUMNS = {**COUNTED, **MEASURED}


class CheckTrace:
    """Rows stay on the device until they are read or saved."""

    def __init__(self, influence: OnlineInfluence) -> None:
        self.influence = influence
        self.counts: list[list[int]] = []
        self.rows: list[Tensor] = []

    @torch.no_grad()
    def look(self) -> None:
        """To be called after each `influence.step`; adds a row if that step made a check."""
        influence = self.influence
        if influence.checks == len(self.rows):
            return
        controller = influence.parts.controller
        with influence.lane.work():
            means = [values.mean() for values in (controller.residual, controller.confidence)]
            row = torch.stack([*means, controller.tau, controller.rho.mean(), influence.parts.anchors.smallest])
        self.counts.append([influence.steps, influence.parts.directions.products])
        self.rows.append(row)

    def arrays(self) -> dict[str, np.ndarray]:
        """Column -> `[checks]`, float32 (counts int64). A residual that diverged is infinite."""
        counts = np.asarray(self.counts, dtype=np.int64).reshape(-1, len(COUNTED))
        rows = self._stacked().numpy()
        columns = dict(zip(COUNTED, counts.T, strict=True)) | dict(zip(MEASURED, rows.T, strict=True))
        return {name: columns[name] for name in COLUMNS}

    def _stacked(self) -> Tensor:
        self.influence.lane.join()
        return torch.stack(self.rows).float().cpu() if self.rows else torch.zeros(0, len(MEASURED))

    def state_dict(self) -> dict[str, Any]:
        return {"counts": [list(c) for c in self.counts], "rows": self._stacked()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.counts, self.rows = (
            [list(c) for c in state["counts"]],
            list(state["rows"].to(self.influence.ledger.device)),
        )
