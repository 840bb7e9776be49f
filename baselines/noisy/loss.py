"""Last-epoch loss: the simplest detector. A label the network cannot fit is suspicious.

s_i = CE(f(x_i), y_i)   at the end of the plain run

Removed before retraining: the upper component of a two-component mixture on the scores.

Code: none; the formula is all.
Deviations: none.
"""

from __future__ import annotations

import torch.nn.functional as F

from sgoif.bench.methods.base import Detection, NoisyLabelDetector
from sgoif.bench.methods.score_threshold import by_mixture
from sgoif.bench.methods.tasks import NoisyTask


class Loss(NoisyLabelDetector):
    name = "loss"
    title = "last-epoch loss"
    group = "Free detectors"
    order = 2
    reads_plain = True

    def detect(self, task: NoisyTask) -> Detection:
        losses = F.cross_entropy(task.plain.logits, task.labels, reduction="none").cpu().numpy()
        return Detection(losses, remove=by_mixture(losses))
