"""Poisoning localisation: which training examples taught the network a backdoor.

Given a few inputs that show the behaviour (a trigger sends them to the class `target`), the influence of every training
example on exactly these predictions is taken (`towards.support`). Planted examples carry the target's label and, unlike
the honest ones of that class, share the trigger's features; among the examples labelled `target` their influence is a
hump of its own, which is what is flagged. A backdoor is learnt by heart, so that at the usual temperature its gradients
have all but vanished: the softmax is softened more here, and the damping is weak, so that rare features count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sgoif.applications.prediction_influence import support
from sgoif.config import InfluenceConfig
from sgoif.errors import InfluenceError
from sgoif.label_noise.two_gaussians import upper_hump

CONFIG = InfluenceConfig(temperature=20.0, damping=0.1)


@dataclass(frozen=True)
class Poisoning:
    """`support` `[N]` in data-set order; `order` positions, most responsible first; `flagged` `[N]` bool."""

    support: Tensor
    order: Tensor
    flagged: Tensor


@torch.no_grad()
def _check(model: nn.Module, suspects: Tensor, target: int) -> None:
    was_training = model.training
    predicted = model.eval()(suspects).argmax(1)
    model.train(was_training)
    if not (predicted == target).all():
        other = int((predicted != target).sum())
        raise InfluenceError(
            f"localise: {other} of {len(suspects)} suspects are not predicted as class {target}; "
            "give only inputs that show the behaviour"
        )


def localise(
    model: nn.Module,
    train: Iterable[tuple[Tensor, Tensor, Tensor]],
    given: Tensor,
    suspects: Tensor,
    target: int,
    config: InfluenceConfig = CONFIG,
) -> Poisoning:
    """Training examples responsible for `suspects` `[m, …]` being predicted as `target`, most responsible first.

    `train`: batches (index, x, y), read twice; `given` `[N]`: the labels as trained on.
    """
    if len(suspects) == 0:
        raise InfluenceError("localise: no suspects; give a few inputs that show the behaviour")
    _check(model, suspects, target)
    labels = torch.full((len(suspects),), target, device=suspects.device)
    effect = support(model, train, len(given), [(suspects, labels)], config)
    members = (torch.as_tensor(given).cpu() == target).nonzero()[:, 0]
    flagged = torch.zeros(len(given), dtype=torch.bool)
    if len(members) > 2:
        inside = effect[members]
        flagged[members] = upper_hump(inside - inside.median()) > 0.5
    return Poisoning(effect, effect.argsort(descending=True, stable=True), flagged)
