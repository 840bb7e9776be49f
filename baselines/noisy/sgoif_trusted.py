"""SG-OIF with trusted anchors: the same method, given a few images with clean labels.

The anchors are the trusted images instead of the training stream, passed through the network in turns, some at every
check, and what the network predicts for them tells what the labels mean (`sgoif.label_noise.evidence`). That matters
where most labels of a class are wrong in one and the same way: the labels alone then say nothing about which is meant.

Reference: as for SG-OIF; an influence on validation loss is what the paper's equations define. Cost: one training run,
and a forward pass of some trusted images per check.

Paper: SG-OIF, the paper of this repository.
Code: `sgoif`, this repository's library.
Deviations: what differs from the paper is in docs/method.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from sgoif.bench.methods.sgoif_detector import SGOIFDetector
from sgoif.bench.methods.tasks import NoisyTask
from sgoif.errors import UserError
from sgoif.training.images import ImageSource

BATCH = 512  # no more than pass at one check


@dataclass
class Trusted:
    """The images with their labels, batch by batch, as often as asked."""

    images: ImageSource
    labels: Tensor

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        parts = torch.arange(len(self.labels), device=self.images.device).split(BATCH)
        for part, x in zip(parts, self.images.iter_batches(parts), strict=True):
            yield x, self.labels[part]


class TrustedSGOIF(SGOIFDetector):
    name = "sgoif_trusted"
    title = "SG-OIF, trusted †"
    group = "Given all clean labels that were set aside"
    order = 3
    ranked = False
    uses_trusted = True
    source = "trusted"

    def anchor_data(self, task: NoisyTask) -> Trusted:
        if task.trusted is None:
            raise UserError("sgoif_trusted needs trusted images (noisy.<dataset>.val): they are its anchors")
        images, labels = task.trusted
        return Trusted(images, labels.to(images.device))
