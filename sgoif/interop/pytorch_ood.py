"""Any detector of pytorch-ood as a baseline of this benchmark. Both say: **higher = more out-of-distribution.**

    # baselines/ood/rmd.py
    class RMD(PytorchOOD):
        name, title = "rmd", "RMD"

        def build(self, net):
            from pytorch_ood.detector import RMD
            return RMD(net.features)

The detector is fitted on the plain run's network and training images, then asked for scores batch by batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from sgoif.bench.methods.base import OODDetector, OODTask
from sgoif.bench.methods.features import finite
from sgoif.training.compute_counter import COMPUTE
from sgoif.training.images import ImageSet
from sgoif.training.models import Network

BATCH = 256


class Loader:
    """Batches (x, y) in the order of the data set, as pytorch-ood expects them from a DataLoader."""

    def __init__(self, images: ImageSet, labels: Tensor) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return -(-len(self.images) // BATCH)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for index in torch.arange(len(self.images), device=self.images.device).split(BATCH):
            COMPUTE.forward_passes += len(index)
            yield self.images.batch(index), self.labels[index]


class PytorchOOD(OODDetector):
    """Subclass it in `baselines/ood/<name>.py` with `name`, `title` and `build`."""

    def build(self, net: Network) -> Any:
        """The pytorch-ood detector for a trained network (`net(x)` logits, `net.features(x)` features `[n, d]`)."""
        raise NotImplementedError

    def fit(self, task: OODTask) -> None:
        super().fit(task)
        self.net.eval()
        self.detector = self.build(self.net).to(task.train.device)
        with torch.random.fork_rng():
            torch.manual_seed(task.seed)
            self.detector.fit(Loader(task.train, task.labels))

    def score(self, images: ImageSet) -> Tensor:
        parts = []
        for index in torch.arange(len(images), device=images.device).split(BATCH):
            COMPUTE.forward_passes += len(index)
            parts.append(self.detector.predict(images.batch(index)).detach().float())
        return finite(torch.cat(parts), f"{self.name}: scores of pytorch-ood's {type(self.detector).__name__}")
