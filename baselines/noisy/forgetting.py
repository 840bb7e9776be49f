"""Forgetting events. Toneva, Sordoni, Tachet des Combes, Trischler, Bengio & Gordon, ICLR 2019 (arXiv:1812.05159).

An example is forgotten when it was classified as labelled at one visit and is not at the next:

    s_i = number of t with correct_t(i) and not correct_{t+1}(i),      above all others if it was never correct

over the visits of the plain run, with the predictions of the training steps themselves before their update, as the
authors record them (github.com/mtoneva/example_forgetting, `order_examples_by_forgetting.py`: an example that was never
learned has as many events as there could be). The paper finds that mislabelled examples are forgotten most.
Few values are possible, so that ties are many; the metrics take their expectation. Candidate `misclassified` is the
share of visits at which the example was not classified as labelled.
Removed before retraining: the upper component of a two-component mixture on the scores.

Deviations: one run (the authors' program adds up several, if given).
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from sgoif.bench.methods.base import Detection, NoisyLabelDetector
from sgoif.bench.methods.score_threshold import by_mixture
from sgoif.bench.methods.tasks import NoisyTask


def forgetting_events(margins: Tensor) -> np.ndarray:
    """[N] events from margins [E, N], NaN where an example was not seen; the number of epochs if it was never right."""
    before = torch.zeros(margins.shape[1], dtype=torch.bool, device=margins.device)  # right at its last visit
    learned, events = torch.zeros_like(before), torch.zeros(margins.shape[1], device=margins.device)
    for margin in margins:
        seen, right = margin.isfinite(), margin > 0
        events += (seen & before & ~right).float()
        learned |= seen & right
        before = torch.where(seen, right, before)
    return torch.where(learned, events, torch.tensor(float(len(margins)))).double().cpu().numpy()


class Forgetting(NoisyLabelDetector):
    name = "forgetting"
    title = "forgetting events"
    group = "Free detectors"
    order = 8
    reads_plain = True
    candidates: ClassVar = {
        "events": "number of forgetting events, most for examples that are never learned (published)",
        "misclassified": "share of visits at which the example is not classified as labelled",
    }
    ranked_by = "misclassified"

    def detect(self, task: NoisyTask) -> Detection:
        margins = task.plain.visits.margins
        seen = margins.isfinite()
        wrong = (seen & ~(margins > 0)).sum(0) / seen.sum(0).clamp(min=1)
        scores = {"events": forgetting_events(margins), "misclassified": wrong.double().cpu().numpy()}
        return self.detection(scores, remove=by_mixture)
