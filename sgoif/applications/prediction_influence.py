"""Influence of training examples on chosen predictions, of a network that is already trained.

The training examples pass once more, twice, through the network as it is; anchors are the chosen predictions alone:

    g_v = mean gradient of the targets (x, y) with label v,      effect_i = <phibar, g_i>,   phibar ~ H^-1 g_v.

To first order, training without example i changes the targets' mean loss by effect_i / N. Positive = example i supports
the predictions, negative = it stands against them. This is -1 times the score of `OnlineInfluence`, whose positive
side is harm.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sgoif.anchors.external import evaluating
from sgoif.config import InfluenceConfig
from sgoif.errors import InfluenceError
from sgoif.influence import OnlineInfluence

PASSES = 2  # the first builds the curvature, the second scores


def support(
    model: nn.Module,
    train: Iterable[tuple[Tensor, Tensor, Tensor]],
    n_examples: int,
    targets: Iterable[tuple[Tensor, Tensor]],
    config: InfluenceConfig | None = None,
) -> Tensor:
    """effect_i `[N]`: how much each training example supports the predictions `targets`; 0 where it was not seen.

    `train`: batches (index, x, y), iterated twice, so no bare generator; `targets`: batches (x, y), y the predictions
    in question. The network is left as it was: parameters, gradients, modes, batch-norm statistics.
    """
    for name, data in (("train", train), ("targets", targets)):
        if iter(data) is data:
            raise InfluenceError(f"support(): {name} is read more than once; give a list or a DataLoader, no generator")
    own = {"source": "trusted", "anchor_examples": sys.maxsize, "window": 1 / PASSES, "memory": False}
    config = replace(config or InfluenceConfig(), **own)
    influence = OnlineInfluence(model, n_examples, config=config, anchor_data=targets)
    try:
        with evaluating(model):
            for _ in range(PASSES):
                for index, x, y in train:
                    _watch(influence, model, index, x, y)
                influence.end_epoch()
            result = influence.scores()
    finally:
        influence.close()
    if not (result.confidence > 0).any():
        raise InfluenceError(
            "support(): no direction towards the targets could be certified; are the targets labelled with what the "
            "network predicts, and are there enough training batches?"
        )
    return -result.score


def _watch(influence: OnlineInfluence, model: nn.Module, index: Tensor, x: Tensor, y: Tensor) -> None:
    """One pass without a training step; deep scopes need the gradients inside the network, and leave every .grad."""
    deep = influence.capture.deep
    with influence.watch(index, y), torch.set_grad_enabled(deep):
        logits = model(x)
        if deep:
            parameters = [p for p in model.parameters() if p.requires_grad]
            torch.autograd.grad(F.cross_entropy(logits.float(), y), parameters, allow_unused=True)
    influence.step()
