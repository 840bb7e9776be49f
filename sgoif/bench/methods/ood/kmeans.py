"""k-means on the device, with the same result on every run: sums are matrix products instead of atomic additions."""

from __future__ import annotations

import torch
from torch import Tensor

POINTS_PER_BLOCK = 16384  # limits the memory of the [block, k] distances


def nearest(x: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    """Find the nearest centre of every point.

    Args:
        x: Points, shape [n, d].
        centres: Shape [k, d].

    Returns:
        Index of the nearest centre, shape [n], and squared distance to it, shape [n].
    """
    nearest_index, distances = [], []
    for part in x.split(POINTS_PER_BLOCK):
        squared = part.square().sum(1, keepdim=True) - 2 * part @ centres.T + centres.square().sum(1)
        d, i = squared.min(1)
        nearest_index.append(i)
        distances.append(d.clamp_min(0))
    return torch.cat(nearest_index), torch.cat(distances)


def kmeans(x: Tensor, k: int, iterations: int = 20) -> Tensor:
    """Cluster points by Lloyd's iterations from k random points, drawn from torch's global CPU generator.

    A cluster without points gets the point that is farthest from its centre.

    Args:
        x: Points, shape [n, d].
        k: Number of clusters; n if there are fewer points.
        iterations: Number of Lloyd's iterations.

    Returns:
        Cluster of each point, shape [n].
    """
    k = min(k, len(x))
    centres = x[torch.randperm(len(x))[:k].to(x.device)].clone()
    for _ in range(iterations):
        cluster, distances = nearest(x, centres)
        sums, counts = torch.zeros_like(centres), torch.zeros(k, device=x.device)
        for part, number in zip(x.split(POINTS_PER_BLOCK), cluster.split(POINTS_PER_BLOCK), strict=True):
            member = torch.nn.functional.one_hot(number, k).to(x.dtype)
            sums += member.T @ part
            counts += member.sum(0)
        empty = counts == 0
        centres = sums / counts.clamp_min(1)[:, None]
        far = x[distances.topk(k).indices]
        centres = torch.where(empty[:, None], far, centres)
    return nearest(x, centres)[0]
