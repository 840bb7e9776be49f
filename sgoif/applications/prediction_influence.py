"""Influence of training examples on chosen predictions of a network that is already trained.

The training examples pass twice through the network, which stays unchanged. The anchors are the chosen predictions:

    g_v = mean gradient of the targets (x, y) with label v,      effect_i = <phibar, g_i>,   phibar ~ H^-1 g_v.

To first order, training without example i changes the targets' mean loss by effect_i / N. A positive effect means that
example i supports the predictions, a negative one that it opposes them. This is -1 times the score of
`OnlineInfluence`, where positive means harmful.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sgoif.backend.eval_mode import eval_mode
from sgoif.config import InfluenceConfig
from sgoif.errors import InfluenceError
from sgoif.gradients.hooks import logits_of
from sgoif.influence import OnlineInfluence

PASSES = 2  # the first builds the curvature, the second scores
CHECK_EVERY = 16  # steps; two passes over few examples would otherwise see two checks


def influence_on_predictions(
    model: nn.Module,
    train: Iterable[tuple[Tensor, Tensor, Tensor]],
    n_examples: int,
    targets: Iterable[tuple[Tensor, Tensor]],
    config: InfluenceConfig | None = None,
) -> Tensor:
    """Compute how much every training example supports the target predictions.

    The network is left as it was: parameters, gradients, modes and batch-norm statistics.

    Args:
        model: The trained network.
        train: Training batches (index, x, y); they are read twice, so no generator.
        n_examples: Size N of the training set.
        targets: Batches (x, y) of inputs and the predictions in question; no generator.
        config: Settings of the influence; anchors, window and memory are set by this function.

    Returns:
        effect_i, shape [N]; 0 for examples that `train` does not contain.

    Raises:
        InfluenceError: If a generator is passed, or no scoring direction could be certified.
    """
    for name, data in (("train", train), ("targets", targets)):
        if iter(data) is data:
            raise InfluenceError(
                f"influence_on_predictions: {name} is read more than once; pass a list or a DataLoader, no generator"
            )
    config = replace(
        config or InfluenceConfig(solve_every=CHECK_EVERY),
        source="trusted",
        anchor_examples=sys.maxsize,
        window=1 / PASSES,
        memory=False,
    )
    with OnlineInfluence(model, n_examples, config=config, anchor_data=targets) as influence, eval_mode(model):
        for _ in range(PASSES):
            for batch in train:
                if not isinstance(batch, tuple | list) or len(batch) != 3:
                    raise InfluenceError(
                        "influence_on_predictions: train must yield batches (index, x, y), with the positions of the "
                        "examples in the training set"
                    )
                _watch(influence, model, *batch)
            influence.end_epoch()
        result = influence.scores()
    if not (result.confidence > 0).any():
        raise InfluenceError(
            "influence_on_predictions: no direction for the targets could be certified; are the targets labelled with "
            "what the network predicts, and are there enough training batches?"
        )
    return -result.score


def _watch(influence: OnlineInfluence, model: nn.Module, index: Tensor, x: Tensor, y: Tensor) -> None:
    """Watch one pass without a training step; deep scopes need gradients inside the network, but no .grad is set."""
    with influence.watch(index, y), torch.set_grad_enabled(influence.needs_backward):
        output = model(x)
        if influence.needs_backward:
            logits = logits_of(output, influence.n_classes)
            if logits is None:
                raise InfluenceError("influence_on_predictions: the model returns no logits; wrap it so that it does")
            parameters = [p for p in model.parameters() if p.requires_grad]
            torch.autograd.grad(F.cross_entropy(logits.float(), y), parameters, allow_unused=True)
    influence.step()
