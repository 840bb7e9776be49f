"""SG-OIF's shift sentinel: both sides of g' H^-1 g, the input side in every stage, from one forward pass.

One pass over the training images streams class sums and second moments of the pooled activations; the ID validation
images give the scale of every component. The formulas are in sgoif/applications/shift_detection.py.

Paper: this project's; its parts are relatives of DOCTOR and GEN (output), SHE (kinship) and MDSEns (leverage).
Code: this file and sgoif/applications/shift_detection.py.
Settings: temperature 4 up to ten classes (it falls with more), damping 0.01, shares 0.7, 0.2 and 0.1.
Deviations: no OOD image is used by a run, but the form, the temperature and the shares were chosen by AUROC on other
    pairs of ID and OOD sets (about 1,500 forms); see docs/lab-notebook/out-of-distribution.md.
Parity: tests/applications/test_shift_detection.py::test_leverage_is_the_diagonal_of_the_hat_matrix
Score: the log likelihood ratio of all parts; each part alone and each pair are declared beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import ClassVar

import torch
from torch import Tensor

from sgoif.applications import Activations, ShiftConfig, ShiftSentinel, pooled
from sgoif.bench.methods.base import OODDetector
from sgoif.bench.methods.ood.features import check_param, stage_outputs
from sgoif.bench.methods.tasks import OODTask
from sgoif.errors import InfluenceError, UserError
from sgoif.training.images import ImageSource

DEFAULT = ShiftConfig()
PARTS = ("output", "kinship", "leverage")


def forms(config: ShiftConfig) -> dict[str, ShiftConfig]:
    """The settings of every candidate: without a part, the shares of the others keep their proportion."""
    given = {part: getattr(config, part) for part in PARTS}
    found = {"all": config}
    for part in PARTS:
        found[part] = replace(config, **{p: float(p == part) for p in PARTS})
    for part in PARTS:
        rest = sum(given[p] for p in PARTS if p != part)
        if rest > 0:
            found[f"without_{part}"] = replace(config, **{p: given[p] / rest if p != part else 0.0 for p in PARTS})
    return found


class SGOIF(OODDetector):
    name = "sgoif"
    title = "SG-OIF"
    group = "Ours"
    order = 1
    candidates: ClassVar = {
        "all": "all three parts, in the shares of the settings",
        "output": "output side alone (as DOCTOR and GEN, with T and B^-1)",
        "kinship": "kinship alone (nearest class mean, as SHE)",
        "leverage": "leverage alone (Mahalanobis distances of pooled stages, as MDSEns)",
        "without_output": "without the output side",
        "without_kinship": "without kinship",
        "without_leverage": "without leverage",
    }
    ranked_by = "all"

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

    def _traces(self, images: ImageSource) -> Iterator[tuple[Tensor, Activations]]:
        """One forward pass over `images`: positions and traces, batch by batch."""
        for inner in stage_outputs(self.net, images, self.name, stages=[*self.net.stages, self.net.backbone]):
            *stages, features = inner.maps
            views = [view for m in stages for view in pooled(m, self.width)]
            yield inner.index, Activations(views, features.flatten(1), inner.logits)

    def scores(self, images: ImageSource) -> dict[str, Tensor]:
        """All forms of one forward pass: the full score, each part alone, and each pair."""
        parts = [self.sentinel.components(trace) for _, trace in self._traces(images)]
        whole = {name: torch.cat([p[name] for p in parts]) for name in parts[0]}
        return {form: self.sentinel.mix(whole, shares) for form, shares in forms(self.params.config()).items()}

    def extras(self) -> dict[str, float]:
        return {"sgoif_views": float(len(self.sentinel.layers or ())), "sgoif_temperature": self.sentinel.temperature}
