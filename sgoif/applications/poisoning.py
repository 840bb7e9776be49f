"""Poisoning localisation: which training examples taught the network a backdoor.

The inputs are a few examples that show the behaviour: a trigger makes the network predict the class `target`. The
influence of every training example on these predictions is computed (`influence_on_predictions`). Planted examples have
the target's label and, unlike the honest ones of that class, share the trigger's features. So among the examples with
the label `target` their influence forms an upper component of its own, which is flagged.

A backdoor is memorised, so at the usual temperature its gradients are close to zero. Hence the softmax is softened
more here, and the damping is weak, so that rare features count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sgoif.applications.prediction_influence import influence_on_predictions
from sgoif.backend.eval_mode import eval_mode
from sgoif.config import InfluenceConfig
from sgoif.errors import InfluenceError
from sgoif.gradients.hooks import find_head, logits_of, unwrap
from sgoif.label_noise.two_gaussians import upper_component_probability

CONFIG = InfluenceConfig(temperature=20.0, damping=0.1)


@dataclass(frozen=True)
class Poisoning:
    """The training examples responsible for a behaviour.

    Attributes:
        influence: Influence of every training example on the behaviour, shape [N]; higher means more responsible.
        order: Positions of the training examples, most responsible first, shape [N].
        flagged: Which examples are probably planted, bool, shape [N].
    """

    influence: Tensor
    order: Tensor
    flagged: Tensor


@torch.no_grad()
def _require_behaviour(model: nn.Module, suspects: Tensor, target: int, head: str) -> None:
    """Raise unless every suspect is predicted as `target`."""
    _, layer = find_head(unwrap(model), None, head)
    with eval_mode(model):
        logits = logits_of(model(suspects), layer.out_features)
    if logits is None:
        raise InfluenceError("localise: the model returns no logits; wrap it so that it does")
    predicted = logits.argmax(1)
    if not (predicted == target).all():
        other = int((predicted != target).sum())
        raise InfluenceError(
            f"localise: {other} of {len(suspects)} suspects are not predicted as class {target}; "
            "pass only inputs that show the behaviour"
        )


def localise(
    model: nn.Module,
    train: Iterable[tuple[Tensor, Tensor, Tensor]],
    labels: Tensor,
    suspects: Tensor,
    target: int,
    config: InfluenceConfig = CONFIG,
) -> Poisoning:
    """Find the training examples responsible for suspicious inputs being predicted as one class.

    Args:
        model: The trained network.
        train: Training batches (index, x, y); they are read twice, so no generator.
        labels: Labels as trained on, shape [N].
        suspects: Inputs that show the behaviour, shape [m, ...].
        target: The class that they are predicted as.
        config: Settings of the influence.

    Returns:
        The influence on the suspects' predictions, the order, and the examples that are probably planted.

    Raises:
        InfluenceError: If there are no suspects, or one of them is not predicted as `target`.
    """
    if len(suspects) == 0:
        raise InfluenceError("localise: no suspects; pass a few inputs that show the behaviour")
    _require_behaviour(model, suspects, target, config.head)
    targets = torch.full((len(suspects),), target, device=suspects.device)
    influence = influence_on_predictions(model, train, len(labels), [(suspects, targets)], config)
    members = (torch.as_tensor(labels).cpu() == target).nonzero()[:, 0]
    flagged = torch.zeros(len(labels), dtype=torch.bool)
    if len(members) > 2:
        inside = influence[members]
        flagged[members] = upper_component_probability(inside - inside.median()) > 0.5
    return Poisoning(influence, influence.argsort(descending=True, stable=True), flagged)
