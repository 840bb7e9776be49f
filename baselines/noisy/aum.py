"""AUM, the area under the margin. Pleiss, Zhang, Elenberg & Weinberger, NeurIPS 2020 (arXiv:2001.10528).

A wrong label is learned late and against the pull of similar, rightly labelled examples: over the training its logit
stays below that of another class.

    margin_t(i) = f_t(x_i)[y_i] - max_{k != y_i} f_t(x_i)[k]        s_i = -AUM_i = -mean_{t in window} margin_t(i)

with the logits of the training steps themselves (augmented images, training mode), as the authors record them
(github.com/asappresearch/aum). Their runs have a constant learning rate and average all epochs up to its first drop.
This recipe's rate falls all the time, so that the window is open; candidates are all of training (`all`), its last half
and its last quarter. `epoch_scores[T]` is the score `all` had training stopped after epoch T.

Removal rule: s_i > 0, where another class wins over the mean of the window. The paper finds the threshold by training
twice more with a fake class of "threshold samples"; a removal rule that costs two trainings is left out.

Deviations: no threshold samples, no first drop of the rate to stop at, and batches of the recipe (theirs: 64). `all`
counts the first epoch, which the authors' program leaves out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from sgoif.bench.methods.base import Detection, NoisyLabelDetector
from sgoif.bench.methods.robust.visits import WINDOW
from sgoif.bench.methods.score_threshold import at_most
from sgoif.bench.methods.tasks import NoisyTask


def so_far(margins: Tensor) -> np.ndarray:
    """Minus the mean margin of the visits up to each epoch, [E, N]."""
    visits = margins.isfinite().cumsum(0).clamp(min=1)
    return (-margins.double().nan_to_num(0.0).cumsum(0) / visits).cpu().numpy()


class AUM(NoisyLabelDetector):
    name = "aum"
    title = "mean margin (AUM)"
    group = "Free detectors"
    order = 5
    reads_plain = True
    shown_variants: ClassVar = {
        "all": {"title": "mean margin (AUM), all of training", "group": "Free detectors", "order": 5}
    }
    candidates: ClassVar = {
        "all": "minus the mean margin over all of training (published: up to the first drop of a constant rate)",
        "window": "minus the mean margin over the last part of training, `window` (a half)",
        "quarter": "minus the mean margin over the last quarter of training",
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
        scores = {
            "all": visits.mean_margin(),
            "window": visits.mean_margin(self.params.window),
            "quarter": visits.mean_margin(WINDOW / 2),
        }
        return self.detection(scores, remove=lambda s: at_most(s > 0, s), epoch_scores=so_far(visits.margins))
