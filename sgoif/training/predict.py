"""Predictions of a trained network."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from sgoif.backend.eval_mode import eval_mode
from sgoif.training import distributed
from sgoif.training.cost.compute_counter import COMPUTE
from sgoif.training.images import ImageSet, ImageSource
from sgoif.training.models import Network

SMALL_IMAGE_SIZE = 64  # pixels a side up to which large batches are used


@torch.no_grad()
def predict(
    net: Network,
    images: ImageSource,
    indices: Sequence[int] | np.ndarray | Tensor | None = None,
    batch_size: int | None = None,
    precision: str = "float32",
    features: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Predict images in eval mode, without augmentation; of several processes each predicts its share.

    Args:
        net: The network; its modes are restored afterwards.
        images: The images, N of them.
        indices: Which images, in this order, shape [n]; None for all.
        batch_size: Images of a forward pass; None for a value that suits their size.
        precision: "float32" or "bfloat16" (on a GPU).
        features: Whether to return penultimate features too.

    Returns:
        float32 logits [n, K], and float32 features [n, d] or None.
    """
    everything = torch.arange(len(images)) if indices is None else torch.as_tensor(indices)
    order = distributed.shard(everything).to(images.device)
    batch_size = batch_size or (1024 if images.size <= SMALL_IMAGE_SIZE else 256)
    bfloat16 = precision == "bfloat16" and images.device.type == "cuda"
    parts = (fill_batches(order, batch_size) if wants_one_shape(images) else order).split(batch_size)
    logits, penultimate = [], []
    with eval_mode(net):
        for x in images.iter_batches(parts):
            with torch.autocast("cuda", torch.bfloat16) if bfloat16 else contextlib.nullcontext():
                z = net.features(x)
                f = net.classify(z)
            logits.append(f.float())
            if features:
                penultimate.append(z.float())
    COMPUTE.forward_passes += len(order)
    n = len(everything)
    found = distributed.gather_shards(torch.cat(logits)[: len(order)], n)
    return found, distributed.gather_shards(torch.cat(penultimate)[: len(order)], n) if features else None


def wants_one_shape(images: ImageSource) -> bool:
    """Say whether all batches should be equally large: on a GPU, which searches its algorithms at every new shape."""
    return images.device.type == "cuda" and isinstance(images, ImageSet)


def fill_batches(order: Tensor, batch_size: int) -> Tensor:
    """Make all batches equally large: after the last of `order`, shape [n], its first ones follow once more.

    Fewer than one batch stay as they are.
    """
    missing = -len(order) % batch_size if len(order) > batch_size else 0
    return torch.cat([order, order[:missing]])
