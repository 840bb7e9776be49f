"""Reads a trained network for OOD methods: features, outputs of its stages, nearest neighbours.

Values that are NaN or infinite raise an error (`finite`), so that the cell ends as a typed failure instead of a score
without meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from sgoif.backend.eval_mode import eval_mode
from sgoif.errors import UserError
from sgoif.training.cost.compute_counter import COMPUTE
from sgoif.training.images import ImageSource
from sgoif.training.models import Network
from sgoif.training.predict import predict


def check_param(ok: bool, where: str, what: str, value: object) -> None:
    """Check a hyper-parameter in `Params.__post_init__`.

    Args:
        ok: Whether its value is allowed.
        where: `<method>.<field>`.
        what: What it must be, for the message.
        value: What it is.

    Raises:
        UserError: If not `ok`.
    """
    if not ok:
        raise UserError(f"params.{where}: {what}, not {value!r}")


def finite(values: Tensor, what: str) -> Tensor:
    """Return `values` if all are finite.

    Args:
        values: Any shape.
        what: Method and quantity, for the message.

    Raises:
        ValueError: If a value is NaN or infinite.
    """
    good = torch.isfinite(values)
    if not good.all():
        raise ValueError(f"{what}: {int((~good).sum())} of {values.numel()} values are NaN or infinite")
    return values


def features_and_logits(net: Network, images: ImageSource, method: str) -> tuple[Tensor, Tensor]:
    """Return penultimate features, shape [n, d], and logits, shape [n, K], of one float32 pass; both are finite."""
    logits, features = predict(net, images, features=True)
    assert features is not None
    return finite(features, f"{method}: features of the network"), finite(logits, f"{method}: logits of the network")


def percentile(values: Tensor, percent: float) -> float:
    """Return a percentile over all entries, linearly interpolated; `torch.quantile` is limited to 16 million."""
    return float(np.percentile(values.detach().cpu().numpy(), percent))


def largest(features: Tensor, percent: float) -> Tensor:
    """Return which features of an image are not among its smallest `percent` %, bool, shape [n, d].

    Args:
        features: Shape [n, d].
        percent: Share of the d values that is left out, rounded to whole values; one at least is kept.
    """
    width = features.shape[1]
    index = features.topk(max(width - round(width * percent / 100), 1), dim=1).indices
    return torch.zeros_like(features, dtype=torch.bool).scatter_(1, index, True)


def moved(x: Tensor, objective: Callable[[Tensor], Tensor], step: Tensor | float) -> Tensor:
    """Return images that are moved by one signed gradient step that raises an objective.

    Args:
        x: Images, shape [n, C, H, W].
        objective: Images -> one value each, shape [n].
        step: Length of the step, broadcast to the shape of `x`; negative to lower the objective.
    """
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        (gradient,) = torch.autograd.grad(objective(x).sum(), x)
    return x.detach() + step * gradient.sign()


def pixel_step(epsilon: float, images: ImageSource) -> Tensor:
    """Return a step of `epsilon` on the scale 0 … 1 of pixels for normalised images, shape [1, C, 1, 1]."""
    return epsilon / torch.tensor(images.std, device=images.device).view(1, -1, 1, 1)


# --- outputs of stages ----------------------------------------------------------------------------------------------


@dataclass
class StageOutputs:
    """Logits and outputs of the stages of a network for one batch.

    Attributes:
        index: Positions in the image set, shape [n].
        logits: Shape [n, K].
        maps: One tensor of shape [n, C, H, W] per stage.
    """

    index: Tensor
    logits: Tensor
    maps: list[Tensor]


def stage_outputs(
    net: Network,
    images: ImageSource,
    method: str,
    stages: Iterable[nn.Module] | None = None,
    indices: ArrayLike | Tensor | None = None,
    batch_size: int = 256,
) -> Iterator[StageOutputs]:
    """Yield logits and outputs of stages batch by batch, in eval mode.

    Args:
        net: The network.
        images: The images.
        method: Name of the calling method, for error messages.
        stages: Modules whose outputs are yielded; default the stages of the network.
        indices: Positions in `images`, shape [n]; default all.
        batch_size: Images per pass.

    Raises:
        ValueError: If the network has no stages, or a value is not finite.
    """
    modules = list(net.stages if stages is None else stages)
    if not modules:
        raise ValueError(f"{method}: the network has no stages whose outputs could be read")
    order = torch.arange(len(images)) if indices is None else torch.as_tensor(indices)
    caught: dict[int, Tensor] = {}
    hooks = [
        m.register_forward_hook(lambda _m, _in, out, i=i: caught.__setitem__(i, out)) for i, m in enumerate(modules)
    ]
    try:
        with eval_mode(net):
            for part in order.to(images.device).split(batch_size):
                with torch.no_grad():
                    logits = finite(net(images.batch(part)).float(), f"{method}: logits of the network")
                    COMPUTE.forward_passes += len(part)
                    maps = [as_map(caught[i].float()) for i in range(len(modules))]
                for i, m in enumerate(maps):
                    finite(m, f"{method}: output of stage {i + 1}")
                yield StageOutputs(part, logits, maps)
    finally:
        for hook in hooks:
            hook.remove()


def as_map(out: Tensor) -> Tensor:
    """Return the output of a stage as a map, shape [n, C, H, W].

    Maps stay as they are, tokens [n, T, C] become a square (without prefix tokens), vectors a map of one pixel.
    """
    if out.ndim == 4:
        return out
    if out.ndim == 3:  # tokens [n, T, C]
        side = int(out.shape[1] ** 0.5)
        square = out[:, out.shape[1] - side * side :]
        return square.transpose(1, 2).reshape(len(out), out.shape[2], side, side)
    return out.reshape(len(out), -1, 1, 1)


# --- neighbours -----------------------------------------------------------------------------------------------------


def nearest(queries: Tensor, keys: Tensor, k: int, block_entries: int = 2**25) -> Tensor:
    """Return Euclidean distances to the k nearest keys, ascending.

    Neighbours are found by one matrix product and then measured directly: the product alone loses small distances.

    Args:
        queries: Shape [n, d].
        keys: Shape [m, d].
        k: Number of neighbours; all m if there are fewer.
        block_entries: Number of floats that are held in memory at a time.

    Returns:
        Distances, shape [n, min(k, m)].
    """
    k = min(k, len(keys))
    rows = max(block_entries // max(len(keys), k * keys.shape[1]), 1)
    squared = keys.square().sum(1)
    distances = []
    for q in queries.split(rows):
        found = torch.addmm(squared, q, keys.T, beta=1.0, alpha=-2.0).topk(k, largest=False).indices
        distances.append((keys[found] - q[:, None]).norm(dim=2).sort(1).values)
    return torch.cat(distances) if distances else queries.new_zeros(0, k)
