"""Bridge to pytorch-ood: any of its detectors as a baseline. In both, higher = more out-of-distribution.

    # baselines/ood/rmd.py
    class RMD(PytorchOOD):
        name, title = "rmd", "RMD"

        def build(self, net):
            from pytorch_ood.detector import RMD
            return RMD(net.features)

The detector is fitted to the plain run's network and training images, and then scores batch by batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from sgoif.bench.methods.base import OODDetector
from sgoif.bench.methods.ood.features import finite
from sgoif.bench.methods.tasks import OODTask
from sgoif.training.cost.compute_counter import COMPUTE
from sgoif.training.images import ImageSource
from sgoif.training.models import Network

BATCH_SIZE = 256  # images of a forward pass


class Loader:
    """Yields batches (images [n, C, H, W], labels [n]) in data-set order, as pytorch-ood expects of a DataLoader."""

    def __init__(self, images: ImageSource, labels: Tensor) -> None:
        self.images = images
        self.labels = labels

    def __len__(self) -> int:
        return -(-len(self.images) // BATCH_SIZE)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for index in torch.arange(len(self.images), device=self.images.device).split(BATCH_SIZE):
            COMPUTE.forward_passes += len(index)
            yield self.images.batch(index), self.labels[index]


class PytorchOOD(OODDetector):
    """Base class of a pytorch-ood baseline: subclass it in `baselines/ood/<name>.py` and implement `build`."""

    def build(self, net: Network) -> Any:
        """Make the pytorch-ood detector for a trained network.

        Args:
            net: `net(x)` gives logits, shape [n, K]; `net.features(x)` gives features, shape [n, d].
        """
        raise NotImplementedError

    def fit(self, task: OODTask) -> None:
        """Fit the detector to the training images with the task's seed."""
        super().fit(task)
        self.net.eval()
        self.detector = self.build(self.net).to(task.train.device)
        with torch.random.fork_rng():
            torch.manual_seed(task.seed)
            self.detector.fit(Loader(task.train, task.labels))

    def score(self, images: ImageSource) -> Tensor:
        """Score images, shape [n]; higher = more out-of-distribution."""
        parts = []
        for index in torch.arange(len(images), device=images.device).split(BATCH_SIZE):
            COMPUTE.forward_passes += len(index)
            parts.append(self.detector.predict(images.batch(index)).detach().float())
        return finite(torch.cat(parts), f"{self.name}: scores of pytorch-ood's {type(self.detector).__name__}")
