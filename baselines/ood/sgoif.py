"""SG-OIF's shift sentinel: both sides of g' H^-1 g, the input side in every stage, from one forward pass.

One pass over the training images streams class sums and second moments of the pooled activations and fills a bounded
bank of anchors; the ID validation images give the scale of every component. No OOD image is used. The formulas are in
sgoif/adaptors/shift.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from sgoif.adaptors.shift import WEIGHTS, ShiftConfig, ShiftSentinel, Trace, pooled
from sgoif.bench.contracts import OODDetector, OODTask
from sgoif.bench.images import ImageSet
from sgoif.bench.posthoc import check_param, stage_outputs

DEFAULT = ShiftConfig()


class SGOIF(OODDetector):
    name = "sgoif"
    title = "SG-OIF"

    @dataclass(frozen=True)
    class Params:
        damping: float = DEFAULT.damping  # relative to the mean eigenvalue
        width: int = 1024  # of the pooled activations of a stage; an eighth of the training images at most
        bank: int = DEFAULT.bank  # anchors kept
        neighbours: int = DEFAULT.neighbours
        output: float = DEFAULT.output  # weights of the z-scored components
        energy: float = DEFAULT.energy
        support: float = DEFAULT.support
        residual: float = DEFAULT.residual
        influence: float = DEFAULT.influence
        leverage: float = DEFAULT.leverage  # of each view of each layer, by what exceeds `excess` standard deviations
        excess: float = DEFAULT.excess

        def __post_init__(self):
            check_param(self.damping > 0, "sgoif.damping", "must be above 0", self.damping)
            for key in ("width", "bank", "neighbours"):
                check_param(getattr(self, key) >= 1, f"sgoif.{key}", "must be at least 1", getattr(self, key))
            for key in WEIGHTS:
                check_param(getattr(self, key) >= 0, f"sgoif.{key}", "must not be negative", getattr(self, key))

    def fit(self, task: OODTask) -> None:
        super().fit(task)
        settings = {f.name: getattr(self.params, f.name) for f in fields(ShiftConfig)}
        self.width = min(self.params.width, max(len(task.train) // 8, 1))
        self.sentinel = ShiftSentinel(task.n_classes, ShiftConfig(**settings))
        for index, trace in self._traces(task.train):
            self.sentinel.observe(trace, task.labels[index])
        self.sentinel.calibrate(trace for _, trace in self._traces(task.val))

    def _traces(self, images: ImageSet) -> Iterator[tuple[Tensor, Trace]]:
        """One forward pass over `images`: positions and traces, batch by batch."""
        for inner in stage_outputs(self.net, images, self.name, stages=[*self.net.stages, self.net.backbone]):
            *stages, features = inner.maps
            views = [view for m in stages for view in pooled(m, self.width)]
            yield inner.index, Trace(views, features.flatten(1), inner.logits)

    def score(self, images: ImageSet) -> Tensor:
        return torch.cat([self.sentinel.score(trace) for _, trace in self._traces(images)])

    def extras(self) -> dict[str, float]:
        return {"sgoif_anchors": float(len(self.sentinel.bank)), "sgoif_views": float(len(self.sentinel.metrics))}
