"""SG-OIF's shift sentinel: both sides of g' H^-1 g, the input side in every stage, from one forward pass.

One pass over the training images streams class sums and second moments of the pooled activations; the ID validation
images give the scale of every component. No OOD image is used. The formulas are in
sgoif/applications/shift_detection.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from sgoif.applications import Activations, ShiftConfig, ShiftSentinel, pooled
from sgoif.bench.methods.base import OODDetector, OODTask
from sgoif.bench.methods.features import check_param, stage_outputs
from sgoif.errors import InfluenceError, UserError
from sgoif.training.images import ImageSet

DEFAULT = ShiftConfig()


class SGOIF(OODDetector):
    name = "sgoif"
    title = "SG-OIF"
    group = "Ours"
    order = 1

    @dataclass(frozen=True)
    class Params:
        width: int = 1024  # of the pooled activations of a stage; an eighth of the training images at most
        damping: float = DEFAULT.damping  # relative to the mean eigenvalue
        temperature: float = DEFAULT.temperature  # at up to ten classes
        output: float = DEFAULT.output  # shares of the shifts expected in each component; they add up to 1
        kinship: float = DEFAULT.kinship
        leverage: float = DEFAULT.leverage

        def __post_init__(self):
            check_param(self.width >= 1, "sgoif.width", "must be at least 1", self.width)
            try:
                self.config()
            except InfluenceError as e:
                raise UserError(f"params.sgoif: {e}") from e

        def config(self) -> ShiftConfig:
            return ShiftConfig(**{f.name: getattr(self, f.name) for f in fields(ShiftConfig)})

    def fit(self, task: OODTask) -> None:
        super().fit(task)
        self.width = min(self.params.width, max(len(task.train) // 8, 1))
        self.sentinel = ShiftSentinel(task.n_classes, self.params.config())
        for index, trace in self._traces(task.train):
            self.sentinel.observe(trace, task.labels[index])
        self.sentinel.calibrate(trace for _, trace in self._traces(task.val))

    def _traces(self, images: ImageSet) -> Iterator[tuple[Tensor, Activations]]:
        """One forward pass over `images`: positions and traces, batch by batch."""
        for inner in stage_outputs(self.net, images, self.name, stages=[*self.net.stages, self.net.backbone]):
            *stages, features = inner.maps
            views = [view for m in stages for view in pooled(m, self.width)]
            yield inner.index, Activations(views, features.flatten(1), inner.logits)

    def score(self, images: ImageSet) -> Tensor:
        return torch.cat([self.sentinel.score(trace) for _, trace in self._traces(images)])

    def extras(self) -> dict[str, float]:
        return {"sgoif_views": float(len(self.sentinel.layers or ())), "sgoif_temperature": self.sentinel.temperature}
