"""Last-epoch margin: how far another class is ahead of the given one.

s_i = max_{k != y_i} f(x_i)[k] - f(x_i)[y_i]   at the end of the plain run

Removed before retraining: where another class is ahead.

Code: none; the formula is all.
Deviations: none.
"""

from __future__ import annotations

from sgoif.bench.methods.base import Detection, NoisyLabelDetector
from sgoif.bench.methods.robust.visits import margins
from sgoif.bench.methods.score_threshold import at_most
from sgoif.bench.methods.tasks import NoisyTask


class Margin(NoisyLabelDetector):
    name = "margin"
    title = "last-epoch margin"
    group = "Free detectors"
    order = 3
    reads_plain = True

    def detect(self, task: NoisyTask) -> Detection:
        scores = -margins(task.plain.logits, task.labels).cpu().numpy()
        return Detection(scores, remove=at_most(scores > 0, scores))
