"""Random scores: the floor. P@1% and AUC-PR equal the noise rate in expectation.

s_i ~ U(0, 1), a function of the seed alone.   Removal rule: nothing is removed, since nothing was found.

Code: none; the formula is all.
Deviations: none.
"""

from __future__ import annotations

from sgoif.bench.methods.base import Detection, NoisyLabelDetector
from sgoif.bench.methods.tasks import NoisyTask
from sgoif.training.seeds import numpy_generator


class Random(NoisyLabelDetector):
    name = "random"
    title = "random"
    group = "Free detectors"
    order = 1

    def detect(self, task: NoisyTask) -> Detection:
        return Detection(numpy_generator(task.seed, self.name).random(len(task.train)))
