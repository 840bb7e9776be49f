"""k-means on the device, the same bits on every run: sums are matrix products, never atomic additions."""

import torch
from torch import Tensor

BLOCK = 16384  # points per block: bounds the memory of the [block, k] distances


def nearest(x: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    """Index of the nearest centre [n] and squared distance to it [n]."""
    labels, distances = [], []
    for part in x.split(BLOCK):
        squared = part.square().sum(1, keepdim=True) - 2 * part @ centres.T + centres.square().sum(1)
        d, i = squared.min(1)
        labels.append(i)
        distances.append(d.clamp_min(0))
    return torch.cat(labels), torch.cat(distances)


def kmeans(x: Tensor, k: int, iterations: int = 20) -> Tensor:
    """Cluster of each row of x [n, d]: Lloyd's iterations from k random rows (torch's global CPU generator).

    A cluster that runs empty takes the row farthest from its centre.
    """
    k = min(k, len(x))
    centres = x[torch.randperm(len(x))[:k].to(x.device)].clone()
    for _ in range(iterations):
        labels, distances = nearest(x, centres)
        sums, counts = torch.zeros_like(centres), torch.zeros(k, device=x.device)
        for part, label in zip(x.split(BLOCK), labels.split(BLOCK), strict=True):
            member = torch.nn.functional.one_hot(label, k).to(x.dtype)
            sums += member.T @ part
            counts += member.sum(0)
        empty = counts == 0
        centres = sums / counts.clamp_min(1)[:, None]
        far = x[distances.topk(k).indices]
        centres = torch.where(empty[:, None], far, centres)
    return nearest(x, centres)[0]
