"""What OOD methods on a trained network share: its features, its inner maps, neighbours, and one check for NaN.

A network that gives NaN is told as such (`finite`), so that the cell ends as a typed failure and not as a silent score.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sgoif.errors import UserError
from sgoif.training.compute_counter import COMPUTE
from sgoif.training.images import ImageSet
from sgoif.training.learner import predict
from sgoif.training.models import Network


def check_param(ok: bool, where: str, what: str, value) -> None:
    """Hyper-parameter check for `Params.__post_init__`; `where` is `<method>.<field>`."""
    if not ok:
        raise UserError(f"params.{where}: {what}, not {value!r}")


def finite(values: Tensor, what: str) -> Tensor:
    """`values`, or a ValueError that says what is not finite; `what` names the method and the quantity."""
    good = torch.isfinite(values)
    if not good.all():
        raise ValueError(f"{what}: {int((~good).sum())} of {values.numel()} values are NaN or infinite")
    return values


def features_and_logits(net: Network, images: ImageSet, method: str) -> tuple[Tensor, Tensor]:
    """Penultimate features [n, d] and logits [n, K] in one float32 pass, checked."""
    logits, features = predict(net, images, features=True)
    return finite(features, f"{method}: features of the network"), finite(logits, f"{method}: logits of the network")


def percentile(values: Tensor, percent: float) -> float:
    """Percentile over all entries, linearly interpolated (torch's quantile stops at 16 million entries)."""
    return float(np.percentile(values.detach().cpu().numpy(), percent))


# --- inner maps -----------------------------------------------------------------------------------------------------


@dataclass
class Inner:
    """What one batch leaves inside the network."""

    index: Tensor  # [n] positions in the image set
    logits: Tensor  # [n, K]
    maps: list[Tensor]  # one [n, C, H, W] per stage


def stage_outputs(
    net: Network, images: ImageSet, method: str, stages=None, indices=None, batch_size: int = 256
) -> Iterator[Inner]:
    """Streams logits and the outputs of `stages` (default: all of the network's); nothing of a batch is kept."""
    modules = list(net.stages if stages is None else stages)
    if not modules:
        raise ValueError(f"{method}: the network has no stages to read inner maps from")
    order = torch.arange(len(images)) if indices is None else torch.as_tensor(indices)
    caught: dict[int, Tensor] = {}
    hooks = [
        m.register_forward_hook(lambda _m, _in, out, i=i: caught.__setitem__(i, out)) for i, m in enumerate(modules)
    ]
    was_training = net.training
    net.eval()
    try:
        for part in order.to(images.device).split(batch_size):
            with torch.no_grad():
                logits = finite(net(images.batch(part)).float(), f"{method}: logits of the network")
                COMPUTE.forward_passes += len(part)
                maps = [as_map(caught[i].float()) for i in range(len(modules))]
            for i, m in enumerate(maps):
                finite(m, f"{method}: output of stage {i + 1}")
            yield Inner(part, logits, maps)
    finally:
        net.train(was_training)
        for hook in hooks:
            hook.remove()


def as_map(out: Tensor) -> Tensor:
    """[n, C, H, W] of any stage output: maps as they are, a square of tokens (prefix tokens left off), or a vector."""
    if out.ndim == 4:
        return out
    if out.ndim == 3:  # tokens [n, T, C]
        side = int(out.shape[1] ** 0.5)
        square = out[:, out.shape[1] - side * side :]
        return square.transpose(1, 2).reshape(len(out), out.shape[2], side, side)
    return out.reshape(len(out), -1, 1, 1)


# --- neighbours -----------------------------------------------------------------------------------------------------


def nearest(queries: Tensor, keys: Tensor, k: int, block_entries: int = 2**25) -> Tensor:
    """[n, k] Euclidean distances to the k nearest keys, ascending; memory for `block_entries` floats at a time.

    Neighbours are found by one matrix product and then measured directly: the product alone loses small distances.
    """
    k = min(k, len(keys))
    rows = max(block_entries // max(len(keys), k * keys.shape[1]), 1)
    squared = keys.square().sum(1)
    distances = []
    for q in queries.split(rows):
        found = torch.addmm(squared, q, keys.T, beta=1.0, alpha=-2.0).topk(k, largest=False).indices
        distances.append((keys[found] - q[:, None]).norm(dim=2).sort(1).values)
    return torch.cat(distances) if distances else queries.new_zeros(0, k)
