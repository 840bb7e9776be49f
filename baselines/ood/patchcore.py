"""PatchCore (Roth, Pemula, Zepeda, Schoelkopf, Brox & Gehler, CVPR 2022).

A patch is one position of the two middle stages of the ID classifier (stages 2 and 3 of a ResNet): each map is averaged
over 3x3 neighbourhoods (at training and at test alike), the deeper one is resized to the shallower one's grid, and the
two are joined. A memory bank M of training patches is thinned by greedy k-centre selection, in a random projection.

    d_j(q) = distance from patch q to its j-th nearest patch of M
    s(x)   = (1 - max_j softmax(d_1 … d_9)_j) * d_1(q*),     q* = the patch of x with the largest d_1

Memory is bounded: at most `pool` patches, drawn evenly from all images while they stream by, enter the selection.

Paper: Towards Total Recall in Industrial Anomaly Detection, CVPR 2022.
Code: https://github.com/amazon-science/patchcore-inspection; OpenOOD's `patchcore`.
Settings: 1 % of the patches, at least 500 and at most 10,000; nine neighbours.
Deviations: the network is the ID classifier (the paper: ImageNet's WideResNet-50). It looks for local defects, so that
    whole objects of other classes are not what it is made for. The weight is OpenOOD's, by plain distances (theirs:
    squared ones); the paper has the nearest patch in its numerator, the authors' program no weight. Coarse stages
    are enlarged bilinearly (OpenOOD: by repetition).
Parity: tests/parity/test_ood_anomaly.py::test_patchcore_score_by_brute_force
Score: the weighted distance of the strangest patch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif.bench.methods.base import OODDetector
from sgoif.bench.methods.ood.features import check_param, nearest, stage_outputs
from sgoif.bench.methods.tasks import OODTask
from sgoif.training.images import ImageSource
from sgoif.training.seeds import numpy_generator


class PatchCore(OODDetector):
    name = "patchcore"
    title = "PatchCore"
    group = "Anomaly detection"
    order = 3

    @dataclass(frozen=True)
    class Params:
        coreset: float = 0.01  # share of all training patches that M keeps …
        minimum: int = 500  # … but at least so many (small data) …
        maximum: int = 10_000  # … and at most so many
        pool: int = 100_000  # patches the selection may choose from
        projection: int = 128  # dimensions in which the selection measures distance
        neighbours: int = 9

        def __post_init__(self):
            check_param(0 < self.coreset <= 1, "patchcore.coreset", "a share in (0, 1]", self.coreset)
            for field in ("minimum", "maximum", "pool", "projection"):
                value = getattr(self, field)
                check_param(value >= 1, f"patchcore.{field}", "must be at least 1", value)
            check_param(self.neighbours >= 2, "patchcore.neighbours", "must be at least 2", self.neighbours)

    @staticmethod
    def middle(stages: tuple) -> list:
        """The two middle stages: 2 and 3 of four, the last two of three, both of two."""
        first = max((len(stages) - 1) // 2, 0)
        return list(stages[first : first + 2])

    @staticmethod
    def patches(maps: list[Tensor]) -> Tensor:
        """[n, HW, C] patch features of the stages' maps, on the grid of the first."""
        local = [F.avg_pool2d(m, 3, stride=1, padding=1) for m in maps]
        grid = local[0].shape[2:]
        local = [m if m.shape[2:] == grid else F.interpolate(m, grid, mode="bilinear") for m in local]
        return torch.cat(local, 1).flatten(2).transpose(1, 2)

    @staticmethod
    def k_centre(points: Tensor, size: int, start: int = 0) -> Tensor:
        """[size] indices: each time the point farthest from those already chosen."""
        size = min(size, len(points))
        chosen = torch.empty(size, dtype=torch.long, device=points.device)
        chosen[0] = start
        squared = points.square().sum(1)
        distance = torch.full_like(squared, torch.inf)
        for i in range(1, size):
            last = chosen[i - 1]  # no value leaves the device: thousands of steps without a wait
            distance = torch.minimum(distance, squared + squared[last] - 2 * (points @ points[last]))
            distance[last] = -1.0  # rounding must not bring it back
            chosen[i] = distance.argmax()
        return chosen

    @staticmethod
    def weighted(distances: Tensor) -> Tensor:
        """[n] from the ascending distances [n, k] of the worst patch; a softmax, so that nothing overflows."""
        return (1 - distances.softmax(1).amax(1)) * distances[:, 0]

    def fit(self, task: OODTask) -> None:
        super().fit(task)
        p, rng, n = self.params, numpy_generator(task.seed, self.name), len(task.train)
        self.stages = self.middle(self.net.stages)
        drawn = np.sort(rng.permutation(n)[: p.pool])
        pool, per_image = [], 1
        for inner in stage_outputs(self.net, task.train, self.name, self.stages, drawn):
            patches = self.patches(inner.maps)
            per_image = patches.shape[1]
            keep = min(per_image, max(p.pool // len(drawn), 1))
            if keep < per_image:
                where = torch.from_numpy(rng.random(patches.shape[:2]).argsort(1)[:, :keep]).to(patches.device)
                patches = patches.gather(1, where[:, :, None].expand(-1, -1, patches.shape[2]))
            pool.append(patches.flatten(0, 1))
        pool = torch.cat(pool)
        size = min(max(round(p.coreset * n * per_image), p.minimum), p.maximum)
        self.bank = pool[self.k_centre(self._projected(pool, rng), size, int(rng.integers(len(pool))))]

    def _projected(self, points: Tensor, rng: np.random.Generator) -> Tensor:
        """Points in a random subspace, where distances are about the same and cost less."""
        width = points.shape[1]
        if width <= self.params.projection:
            return points
        matrix = rng.standard_normal((width, self.params.projection)) / self.params.projection**0.5
        return points @ torch.from_numpy(matrix).to(points)

    def score(self, images: ImageSource) -> Tensor:
        scores = []
        for inner in stage_outputs(self.net, images, self.name, self.stages):
            patches = self.patches(inner.maps)
            closest = nearest(patches.flatten(0, 1), self.bank, 1).view(patches.shape[:2])
            worst = patches[torch.arange(len(patches), device=patches.device), closest.argmax(1)]
            scores.append(self.weighted(nearest(worst, self.bank, self.params.neighbours)))
        return torch.cat(scores)

    def extras(self) -> dict[str, float]:
        return {"patches_kept": float(len(self.bank))}
