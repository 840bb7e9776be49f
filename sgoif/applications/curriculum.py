"""Curriculum reweighting: examples the anchors vote against count less in the rest of the same training run.

After every epoch the scores so far, each class on its own scale, are split into two normal distributions (as
`estimate_wrong` does it), and an example weighs what speaks for its label:

    w_i = P(lower hump | s_i) / mean_j P(lower hump | s_j),      s_i = mean score over the later half of the epochs.

Weights have mean one, so learning rates keep their meaning. While the two humps do not stand apart, as on clean
labels, every weight is one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sgoif.errors import InfluenceError
from sgoif.influence import OnlineInfluence
from sgoif.label_noise.count import per_class_scale
from sgoif.label_noise.two_gaussians import upper_hump

WARMUP = 2  # epochs before the scores mean anything: the anchors themselves have to be learnt first


class Curriculum:
    """Weights `[N]` for the losses of a training run, from the scores it makes itself.

        curriculum = Curriculum(given)
        for epoch in range(epochs):
            for index, x, y in loader:
                with influence.watch(index, y):
                    losses = F.cross_entropy(model(x), y, reduction="none")
                    (curriculum.weights[index] * losses).mean().backward()
                ...
            influence.end_epoch()
            curriculum.update(influence)

    There is nothing to save: a resumed run calls `update` once after loading the influence's state.
    """

    def __init__(self, given: Tensor, warmup: int = WARMUP) -> None:
        """`given` `[N]`: the given labels, on the device on which the weights are wanted."""
        if given.dim() != 1 or given.is_floating_point():
            raise InfluenceError(f"Curriculum: given labels must be integers of shape [N], not {tuple(given.shape)}")
        if warmup < 1:
            raise InfluenceError(f"Curriculum: warmup must be at least 1 epoch, not {warmup}")
        self.given, self.warmup = given, warmup
        self.weights = torch.ones(len(given), device=given.device)

    def update(self, influence: OnlineInfluence) -> None:
        """New weights from the epochs closed so far; call after `influence.end_epoch()`."""
        epochs = influence.scores().epoch_scores
        if epochs.shape[1] != len(self.given):
            raise InfluenceError(f"Curriculum: {len(self.given)} given labels, but {epochs.shape[1]} scored examples")
        if len(epochs) <= self.warmup:
            return
        scores = epochs[len(epochs) // 2 :].double().mean(0)
        right = 1 - upper_hump(per_class_scale(scores, self.given.cpu()))
        self.weights = (right / right.mean()).to(self.weights)
