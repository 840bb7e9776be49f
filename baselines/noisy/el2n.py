"""EL2N, the error norm. Paul, Ganguli & Dziugaite, NeurIPS 2021 (arXiv:2107.07075).

    s_i = mean_t || p_t(x_i) - onehot(y_i) ||_2

EL2N approximates the norm of the loss gradient (GraNd). The authors (github.com/mansheej/data_diet) average it over ten
networks early in training, after 10 to 20 of 200 epochs, to prune what is easy; examples with the highest scores are
often mislabelled. Here there is one network, and the errors are those of the training steps themselves, at no cost.
Candidates: `early`, the first tenth of training but at least two epochs (the authors' time, one network); `window`, its
last half; `all`. The authors take one checkpoint of each network, `early` the mean over epochs.
Removed before retraining: the upper component of a two-component mixture on the scores.

Deviations: one network for ten, and errors of the training steps for passes of their own.
"""

from __future__ import annotations

from typing import ClassVar

from sgoif.bench.methods.base import Detection, NoisyLabelDetector
from sgoif.bench.methods.robust.visits import WINDOW, late_mean
from sgoif.bench.methods.score_threshold import by_mixture
from sgoif.bench.methods.tasks import NoisyTask

EARLY = 0.1  # share of training, the first, that the authors' epochs 10 to 20 of 200 end


class EL2N(NoisyLabelDetector):
    name = "el2n"
    title = "error norm (EL2N)"
    group = "Free detectors"
    order = 9
    reads_plain = True
    candidates: ClassVar = {
        "early": "mean error norm over the first tenth of training (published, with ten networks)",
        "window": "mean error norm over the last half of training",
        "all": "mean error norm over all of training",
    }
    ranked_by = "window"

    def detect(self, task: NoisyTask) -> Detection:
        errors = task.plain.visits.errors
        first = max(round(EARLY * len(errors)), min(2, len(errors)))
        scores = {"early": late_mean(errors[:first]), "window": late_mean(errors, WINDOW), "all": late_mean(errors)}
        return self.detection(scores, remove=by_mixture)
