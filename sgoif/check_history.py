"""`CheckHistory`: what every check of a run found, one row per check, for figures of convergence.

    history = CheckHistory(influence)
    ... influence.step(optimizer); history.record() ...
    history.arrays()["residual"]                             # [checks]

The run does not depend on it, and recording never waits for the device.
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
    "lambda_min": "smallest eigenvalue of the Gram matrix of the unit phi_v, at the last coverage check (NaN before)",
}
COUNTED = {"step": "training steps so far", "hvps": "curvature-vector products so far"}
COLUMNS = {**COUNTED, **MEASURED}


class CheckHistory:
    """Collects the diagnostics of every check; they stay on the device until they are read or saved."""

    def __init__(self, influence: OnlineInfluence) -> None:
        """Start with no rows; checks that were made before are not in it.

        Args:
            influence: The run to record.
        """
        self.influence = influence
        self._checks = influence.checks  # at the last row
        self._counts: list[list[int]] = []
        self._rows: list[tuple[Tensor, ...]] = []

    def record(self) -> None:
        """Add a row if the last step made a check; call it after each `influence.step`."""
        if self.influence.checks == self._checks:
            return
        self._checks = self.influence.checks
        found = self.influence.diagnostics()
        self._counts.append([getattr(found, name) for name in COUNTED])
        self._rows.append(tuple(getattr(found, name) for name in MEASURED))

    def arrays(self) -> dict[str, np.ndarray[Any, np.dtype[Any]]]:
        """Return the columns by name, shape [checks], float32 (counts int64); a diverged residual is infinite."""
        counts = np.asarray(self._counts, dtype=np.int64).reshape(-1, len(COUNTED))
        rows = self._stacked().numpy()
        columns = dict(zip(COUNTED, counts.T, strict=True)) | dict(zip(MEASURED, rows.T, strict=True))
        return {name: columns[name] for name in COLUMNS}

    def _stacked(self) -> Tensor:
        """Return all measured columns on the host, shape [checks, columns]."""
        self.influence.synchronise()
        if not self._rows:
            return torch.zeros(0, len(MEASURED))
        return torch.stack([torch.stack(row) for row in self._rows]).float().cpu()

    def state_dict(self) -> dict[str, Any]:
        """Return the rows so far."""
        return {"checks": self._checks, "counts": [list(c) for c in self._counts], "rows": self._stacked()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from saved rows."""
        self._checks = state["checks"]
        self._counts = [list(c) for c in state["counts"]]
        self._rows = [tuple(row.unbind()) for row in state["rows"].to(self.influence.device)]
