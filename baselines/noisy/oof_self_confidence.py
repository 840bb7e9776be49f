"""Out-of-fold self-confidence: the probability of the given label from a network that never saw it.

s_i = 1 - p_i[y_i],   p_i from the 4-fold cross-validation that Confident Learning reads too.

What Confident Learning's ranking is without its noise model: the simplest score that memorisation cannot spoil.
Removal rule: the out-of-fold prediction differs from the given label, argmax_k p_i[k] != y_i ("C_confusion").

Code: none; the formula is all.
Deviations: none.
"""

from __future__ import annotations

import numpy as np

from sgoif.bench.methods.base import Detection, NoisyLabelDetector
from sgoif.bench.methods.cross_validation import out_of_fold
from sgoif.bench.methods.tasks import NoisyTask


class OOFSelfConfidence(NoisyLabelDetector):
    name = "oof_self_confidence"
    title = "out-of-fold self-confidence"
    group = "Free detectors"
    order = 6
    reads_folds = True

    def detect(self, task: NoisyTask) -> Detection:
        probabilities, labels = out_of_fold(task), task.labels.cpu().numpy()
        scores = 1.0 - probabilities[np.arange(len(labels)), labels]
        remove = probabilities.argmax(axis=1) != labels
        return Detection(scores, remove=remove, extras={"oof_accuracy": float(1 - remove.mean())})
