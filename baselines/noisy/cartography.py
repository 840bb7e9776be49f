"""Dataset Cartography. Swayamdipta, Schwartz, Lourie, Wang, Hajishirzi, Smith & Choi, EMNLP 2020 (arXiv:2009.10795).

Over the epochs t of the plain run, with the probability of the label in the training steps themselves:

    confidence   mu_i = mean_t p_t(y_i | x_i)           variability   sigma_i = sqrt(mean_t (p_t(y_i | x_i) - mu_i)^2)

Wrong labels gather in the "hard-to-learn" region: low confidence, low variability. The paper's detector of wrong labels
is a classifier on the confidence alone, so that `confidence` (1 - mu) is the published ranking; `window` is the same
over the last half of training. `hard_to_learn` is 1 - mu - sigma, the direction of that region.
Official code: github.com/allenai/cartography (`cartography/selection/train_dy_filtering.py`): probabilities of the gold
label by epoch, their mean and standard deviation.
The probabilities are those of the training steps, as the authors record them.
Deviations: an epoch in which an example was not seen does not count.
Removed before retraining: the upper component of a two-component mixture on the scores.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from torch import Tensor

from sgoif.bench.methods.base import Detection, NoisyLabelDetector
from sgoif.bench.methods.robust.visits import WINDOW
from sgoif.bench.methods.score_threshold import by_mixture
from sgoif.bench.methods.tasks import NoisyTask


def variability(probabilities: Tensor) -> np.ndarray:
    """sigma_i over the visits of each example, [N], from p_y [E, N] with NaN for epochs without a visit."""
    p = probabilities.double()
    visits = p.isfinite().sum(0).clamp(min=1)
    mean = p.nan_to_num(0.0).sum(0) / visits
    squares = (p - mean).square().nan_to_num(0.0).sum(0) / visits
    return squares.sqrt().cpu().numpy()


class Cartography(NoisyLabelDetector):
    name = "cartography"
    title = "Dataset Cartography"
    group = "Free detectors"
    order = 7
    reads_plain = True
    shown_variants: ClassVar = {
        "all": {"title": "Dataset Cartography, all of training", "group": "Free detectors", "order": 7}
    }
    candidates: ClassVar = {
        "confidence": "one minus the mean probability of the label over all of training (published)",
        "window": "the same over the last half of training",
        "variability": "spread of the probability of the label over all of training",
        "hard_to_learn": "one minus confidence minus variability: towards the hard-to-learn region",
    }
    ranked_by = "window"

    def detect(self, task: NoisyTask) -> Detection:
        visits = task.plain.visits
        doubt, spread = visits.mean_doubt(), variability(visits.probabilities)
        scores = {
            "confidence": doubt,
            "window": visits.mean_doubt(WINDOW),
            "variability": spread,
            "hard_to_learn": doubt - spread,
        }
        return self.detection(scores, remove=by_mixture)
