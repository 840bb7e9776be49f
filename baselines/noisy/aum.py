"""AUM, the area under the margin. Pleiss, Zhang, Elenberg & Weinberger, NeurIPS 2020 (arXiv:2001.10528).

A wrong label is learned late and against the pull of similar, rightly labelled examples: over the whole training its
logit stays below that of another class.

    margin_t(i) = f_t(x_i)[y_i] - max_{k != y_i} f_t(x_i)[k]        s_i = -AUM_i = -mean_{t <= T} margin_t(i)

over the epochs t of the plain run (logits in eval mode, after each epoch). `epoch_scores[T]` is the score had training
stopped after epoch T.
Removal rule: s_i > 0, where another class wins over the mean of training. The paper finds the threshold by training
twice more with a fake class of "threshold samples"; a removal rule that costs two trainings is left out.
"""

import torch
from torch import Tensor

from sgoif.bench.contracts import Detection, NoisyLabelDetector, NoisyTask
from sgoif.bench.removal import at_most


def margins(logits: Tensor, labels: Tensor) -> Tensor:
    """f_y - max_{k != y} f_k for logits [..., N, K] and labels [N]."""
    given = labels.expand(logits.shape[:-1]).unsqueeze(-1)
    others = logits.scatter(-1, given, -torch.inf)
    return (logits.gather(-1, given) - others.max(dim=-1, keepdim=True).values).squeeze(-1)


class AUM(NoisyLabelDetector):
    name = "aum"
    title = "AUM"
    reads_plain = True

    def detect(self, task: NoisyTask) -> Detection:
        margin = margins(task.plain.epoch_logits, task.given).double()  # [E, N]
        epochs = torch.arange(1, len(margin) + 1, device=margin.device)[:, None]
        so_far = (-margin.cumsum(0) / epochs).cpu().numpy()
        return Detection(so_far[-1], remove=at_most(so_far[-1] > 0, so_far[-1]), epoch_scores=so_far)
