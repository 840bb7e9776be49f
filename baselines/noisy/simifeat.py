"""SimiFeat, a vote of the nearest neighbours. Zhu, Dong & Liu, ICML 2022 (arXiv:2110.06283).

Images with near features have the same class. The k nearest neighbours of an image by cosine similarity c vote with
their given labels:

    `vote`      s_i = 1 - share of the k neighbours that have the label y_i
    `soft`      the same with votes weighted by their similarity
    `released`  s_i = -log v_i(y_i),   v_i(k) = sum of c_ij over those of the label k, scaled to unit length over k,
                among the image itself and k - 1 neighbours; the image's own similarity is extrapolated from the
                next two, 2 c_1 - c_2

Official code: github.com/UCSC-REAL/SimiFeat (`main_fast.py`, `hoc.py`, `test_c10_instance.sh`): k = 10, votes by
similarity, the image itself among the ten, features of CLIP or an ImageNet ResNet-18. SimiFeat-V calls a label wrong if
the largest v is another class's (the removal rule here); SimiFeat-R ranks within a class and cuts where an estimated
transition matrix (HOC) says.
Cost: nothing beyond the plain run.
Deviations: networks pre-trained elsewhere are not to be had here: the features are those of the plain run, which has
seen the wrong labels. The vote over 21 augmented passes is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif.bench.methods.base import Detection, NoisyLabelDetector
from sgoif.bench.methods.score_threshold import at_most
from sgoif.bench.methods.tasks import NoisyTask


def neighbours(features: Tensor, k: int, block: int = 1024) -> tuple[Tensor, Tensor]:
    """[N, k] cosine similarities and indices of the nearest other features [N, d], largest first."""
    unit = F.normalize(features.float(), dim=1)
    similarities, indices = [], []
    for start in range(0, len(unit), block):
        product = unit[start : start + block] @ unit.T
        rows = torch.arange(len(product), device=unit.device)
        product[rows, start + rows] = -torch.inf
        found = product.topk(min(k, len(unit) - 1), dim=1)
        similarities.append(found.values)
        indices.append(found.indices)
    return torch.cat(similarities), torch.cat(indices)


def votes(labels: Tensor, weights: Tensor, indices: Tensor, n_classes: int) -> Tensor:
    """[N, K] shares of the votes of the neighbours [N, k] with these weights."""
    total = torch.zeros(len(labels), n_classes, dtype=torch.float64, device=labels.device)
    total.scatter_add_(1, labels[indices], weights.double().clamp(min=0))
    return total / total.sum(1, keepdim=True).clamp(min=1e-12)


def released_votes(labels: Tensor, similarity: Tensor, indices: Tensor, n_classes: int) -> Tensor:
    """[N, K] votes of the image itself and all but the last neighbour, each row of unit length."""
    similarity = similarity.double()
    own = 2 * similarity[:, 0] - similarity[:, min(1, similarity.shape[1] - 1)]
    total = torch.zeros(len(labels), n_classes, dtype=torch.float64, device=labels.device)
    total.scatter_add_(1, labels[indices[:, :-1]], similarity[:, :-1])
    return F.normalize(total.scatter_add_(1, labels[:, None], own[:, None]), dim=1)


class SimiFeat(NoisyLabelDetector):
    name = "simifeat"
    title = "kNN vote (SimiFeat)"
    group = "Free detectors"
    order = 11
    reads_plain = True
    candidates: ClassVar = {
        "vote": "share of the ten nearest neighbours with another label",
        "soft": "the same, weighted by cosine similarity",
        "released": "the same with the image itself among the ten, on a logarithmic scale (published)",
    }
    ranked_by = "soft"

    @dataclass(frozen=True)
    class Params:
        k: int = 10  # neighbours

    def __init__(self, **params):
        super().__init__(**params)
        self.need(self.params.k >= 1, "k", "at least 1")

    def detect(self, task: NoisyTask) -> Detection:
        similarity, index = neighbours(task.plain.features, self.params.k)
        hard = votes(task.labels, torch.ones_like(similarity), index, task.n_classes)
        soft = votes(task.labels, similarity, index, task.n_classes)
        released = released_votes(task.labels, similarity, index, task.n_classes)
        own = task.labels[:, None]
        scores = {
            "vote": 1 - hard.gather(1, own).squeeze(1),
            "soft": 1 - soft.gather(1, own).squeeze(1),
            "released": -(released.gather(1, own).squeeze(1) + 1e-8).clamp(min=1e-8).log(),
        }
        scores = {name: values.cpu().numpy() for name, values in scores.items()}
        outvoted = (released.argmax(1) != task.labels).cpu().numpy()
        return self.detection(scores, remove=at_most(outvoted, scores["released"]))
