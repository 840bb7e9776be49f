"""Where training starts: at random weights, or at the weights of a network that was trained on other data.

    recipe: {model: "timm:tf_efficientnet_lite0@96", start: {weights: efficientnet_lite0, frozen: true}}

The last layer always starts at random, because its classes are others. With `frozen` only the last layer is trained:
the backbone gives fixed features, its batch norms keep their statistics. Without it all layers are trained further.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from sgoif.errors import UserError
from sgoif.training.models import Network
from sgoif.training.recipe import Start
from sgoif.utils.files import load_npz


def weights_of(network: Network) -> dict[str, np.ndarray]:
    """Return weights and statistics of a network's backbone by number and name, in the order of its layers."""
    return numbered({name: value.cpu().numpy() for name, value in network.backbone.state_dict().items()})


def numbered(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return arrays under names that keep their order when they are sorted."""
    return {f"{number:04d} {name}": array for number, (name, array) in enumerate(arrays.items())}


def match_by_order(wanted: Mapping[str, torch.Tensor], given: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return given tensors under the wanted names, by their order: libraries name the same layers differently.

    Args:
        wanted: The network's own tensors by name.
        given: As many tensors of the same shapes, in the same order.

    Raises:
        ValueError: If number or shapes differ; the message says where.
    """
    if len(wanted) != len(given):
        raise ValueError(f"it has {len(given)} tensors, the model {len(wanted)}")
    for (name, value), (own, tensor) in zip(wanted.items(), given.items(), strict=True):
        if value.shape != tensor.shape:
            raise ValueError(f"{own} is {list(tensor.shape)}, {name} of the model {list(value.shape)}")
    return dict(zip(wanted, given.values(), strict=True))


def start_from(network: Network, start: Start) -> Network:
    """Put weights into the backbone of a network by their order, and freeze it if the start says so.

    Args:
        network: The network; it is changed.
        start: The weights.

    Returns:
        The network.

    Raises:
        UserError: If the weights are of another network, or no run has found their file.
    """
    if start.file is None:
        raise UserError(f"recipe.start.weights: {start.weights} has no file; name it with `Start.at`")
    arrays = load_npz(start.file)
    given = {name: torch.from_numpy(arrays[name]) for name in sorted(arrays)}
    try:
        network.backbone.load_state_dict(match_by_order(network.backbone.state_dict(), given))
    except ValueError as error:
        raise UserError(
            f"recipe.start.weights: {start.weights} are not of the backbone of recipe.model: {error}"
        ) from None
    if start.frozen:
        network.freeze_backbone()
    return network
