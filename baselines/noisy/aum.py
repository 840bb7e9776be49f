"""AUM, the area under the margin. Pleiss, Zhang, Elenberg & Weinberger, NeurIPS 2020 (arXiv:2001.10528).

A wrong label is learned late and against the pull of similar, rightly labelled examples: over the whole training its
logit stays below that of another class.

    margin_t(i) = f_t(x_i)[y_i] - max_{k != y_i} f_t(x_i)[k]        s_i = -AUM_i = -mean_{t <= T} margin_t(i)

over the epochs t of the plain run, with the logits of the training steps themselves (augmented images, training mode),
as the authors record them. `epoch_scores[T]` is the score had training stopped after epoch T.
Removal rule: s_i > 0, where another class wins over the mean of training. The paper finds the threshold by training
twice more with a fake class of "threshold samples"; a removal rule that costs two trainings is left out.
"""

from __future__ import annotations

import torch

from sgoif.bench.methods.base import Detection, NoisyLabelDetector, NoisyTask
from sgoif.bench.methods.score_threshold import at_most


class AUM(NoisyLabelDetector):
    name = "aum"
    title = "mean margin (AUM)"
    group = "Free detectors"
    order = 4
    reads_plain = True

    def detect(self, task: NoisyTask) -> Detection:
        margin = task.plain.margins.double()  # [E, N]
        visits = torch.isfinite(margin).cumsum(0).clamp(min=1)
        so_far = (-margin.nan_to_num(0.0).cumsum(0) / visits).cpu().numpy()
        return Detection(so_far[-1], remove=at_most(so_far[-1] > 0, so_far[-1]), epoch_scores=so_far)
