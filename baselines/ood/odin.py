"""ODIN (Liang, Li & Srikant, ICLR 2018): softmax at a high temperature, after a step that raises it.

    x~   = x - eps sign(d CE(f(x) / T, y) / dx) / std,   y = argmax_k f_k(x)
    s(x) = -max_k softmax(f(x~) / T)_k

`std` of the normalisation makes `eps` a step in pixel values on the scale 0 … 1. A score costs two forward passes and a
backward pass.

Paper: Enhancing the Reliability of Out-of-Distribution Image Detection in Neural Networks, ICLR 2018.
Code: https://github.com/facebookresearch/odin; OpenOOD's `odin`.
Settings: T = 1000 and eps = 0.0014, those of the paper and OpenOOD's before its sweep.
Deviations: a pixel without gradient stays as it is (theirs moves). The paper chooses T and eps on OOD images;
    `odin@searched` chooses them on OOD validation images, as OpenOOD does.
Parity: tests/parity/test_ood_posthoc_later.py::test_odin
Score: the negative largest probability after the step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif.bench.methods.base import OODDetector
from sgoif.bench.methods.ood.features import check_param, finite, moved, pixel_step
from sgoif.training.cost.compute_counter import COMPUTE
from sgoif.training.images import ImageSource
from sgoif.training.models import Network


class ODIN(OODDetector):
    name = "odin"
    title = "ODIN"
    group = "Post hoc, not in the paper"
    order = 2
    sweep: ClassVar = {"temperature": (1.0, 10.0, 100.0, 1000.0), "epsilon": (0.0014, 0.0028)}

    @dataclass(frozen=True)
    class Params:
        temperature: float = 1000.0
        epsilon: float = 0.0014

        def __post_init__(self):
            check_param(self.temperature > 0, "odin.temperature", "must be above 0", self.temperature)
            check_param(self.epsilon >= 0, "odin.epsilon", "must not be negative", self.epsilon)

    @staticmethod
    @torch.no_grad()
    def after_step(net: Network, x: Tensor, step: Tensor, temperature: float) -> Tensor:
        """-max softmax(f(x~) / T), [n]; in float64, as the probabilities differ little at T = 1000."""

        def loss(x: Tensor) -> Tensor:
            logits = net(x).float() / temperature
            return F.cross_entropy(logits, logits.argmax(1), reduction="none")

        logits = finite(net(moved(x, loss, -step)), "odin: logits of the network")
        return -(logits.double() / temperature).softmax(1).amax(1)

    def score(self, images: ImageSource) -> Tensor:
        step, scores = pixel_step(self.params.epsilon, images), []
        for index in torch.arange(len(images), device=images.device).split(512):
            scores.append(self.after_step(self.net, images.batch(index), step, self.params.temperature))
            COMPUTE.forward_passes += 4 * len(index)  # two forward passes and a backward pass
        return torch.cat(scores)
