"""Mean training loss: the loss of plain training, averaged over visits instead of read once at the end.

s_i = mean over the visits t of a window of CE(f_t(x_i), y_i), with the logits of the training steps themselves

The last-epoch loss (`loss.py`) is one pass of one network on one view. The training steps give one loss per epoch on
another view and another network each, at no cost. O2U-Net (Huang, Qu, Jia & Zhao, ICCV 2019) ranks by such a mean, with
a cyclic learning rate. Candidates: the last half of training (`window`, that of SG-OIF), and all of it.
Removed before retraining: the upper component of a two-component mixture on the scores.

Code: none; the formula is all.
Deviations: O2U-Net's cyclic rate is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sgoif.bench.methods.base import Detection, NoisyLabelDetector
from sgoif.bench.methods.robust.visits import WINDOW
from sgoif.bench.methods.score_threshold import by_mixture
from sgoif.bench.methods.tasks import NoisyTask


class MeanLoss(NoisyLabelDetector):
    name = "mean_loss"
    title = "mean loss"
    group = "Free detectors"
    order = 4
    reads_plain = True
    candidates: ClassVar = {
        "window": "mean loss over the last part of training, `window` (a half)",
        "all": "mean loss over all of training",
    }
    ranked_by = "window"

    @dataclass(frozen=True)
    class Params:
        window: float = WINDOW  # share of the epochs, the last ones

    def __init__(self, **params):
        super().__init__(**params)
        self.need(0 < self.params.window <= 1, "window", "a share in (0, 1]")

    def detect(self, task: NoisyTask) -> Detection:
        visits = task.plain.visits
        scores = {"window": visits.mean_loss(self.params.window), "all": visits.mean_loss()}
        return self.detection(scores, remove=by_mixture)
