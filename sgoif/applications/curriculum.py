"""Curriculum reweighting: suspicious examples count less in the rest of the same training run.

After every epoch the scores so far, each class on its own scale, are split into two Gaussians
(`sgoif.label_noise.two_gaussians`). The weight of an example is its probability of the lower, harmless one:

    w_i = P(lower | s_i) / mean_j P(lower | s_j),      s_i = mean score over its epochs of the later half of them.

The weights have mean one, so learning rates keep their meaning. Epochs in which an example was not visited do not
count, and the weight of an example without any is one. While the two Gaussians are not separated, as on clean
labels, every weight is one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sgoif.backend.integers import as_integers, describe
from sgoif.errors import InfluenceError
from sgoif.influence import OnlineInfluence
from sgoif.label_noise.count import scale_per_class
from sgoif.label_noise.two_gaussians import upper_component_probability

WARMUP_EPOCHS = 2  # before that the anchors themselves are not learnt, and scores mean little


class Curriculum:
    """Weights for the losses of a training run, from the scores of the same run.

        curriculum = Curriculum(labels)
        for epoch in range(epochs):
            for index, x, y in loader:
                with influence.watch(index, y):
                    losses = F.cross_entropy(model(x), y, reduction="none")
                    (curriculum.weights[index] * losses).mean().backward()
                ...
            influence.end_epoch()
            curriculum.update(influence)

    There is no state to save: a resumed run calls `update` once after it has loaded the state of the influence.

    Attributes:
        labels: Labels of the training set, shape [N].
        warmup: Epochs without reweighting.
        weights: Current weights, shape [N], on the device of the labels.
    """

    def __init__(self, labels: Tensor, warmup: int = WARMUP_EPOCHS) -> None:
        """Start with all weights at one.

        Args:
            labels: Labels of the training set, integers of shape [N], on the device of the weights.
            warmup: Epochs without reweighting, at least 1.

        Raises:
            InfluenceError: If the labels are not integers of shape [N] from 0 on, or the warm-up is shorter than one
                epoch.
        """
        found = as_integers(labels)
        if found is None or found.dim() != 1:
            raise InfluenceError(f"Curriculum: labels must be integers of shape [N], not {describe(labels)}")
        if found.numel() and int(found.min()) < 0:
            raise InfluenceError(f"Curriculum: label {int(found.min())}; classes count from 0")
        if warmup < 1:
            raise InfluenceError(f"Curriculum: warmup must be at least 1 epoch, not {warmup}")
        self.labels, self.warmup = found.long(), warmup
        self.weights = torch.ones(len(found), device=found.device)

    def update(self, influence: OnlineInfluence) -> None:
        """Compute new weights from the epochs closed so far; call it after `influence.end_epoch()`.

        Args:
            influence: The influence that watches this training run.

        Raises:
            InfluenceError: If the influence watches another number of examples.
        """
        if influence.n_examples != len(self.labels):
            raise InfluenceError(f"Curriculum: {len(self.labels)} labels, but {influence.n_examples} scored examples")
        if influence.epochs <= self.warmup:
            return
        epochs = influence.scores().epoch_scores
        late = epochs[len(epochs) // 2 :].double()
        visits = (late != 0).sum(0)
        seen = visits > 0
        weights = torch.ones(len(self.labels), dtype=torch.double)
        if seen.any():
            scores = late[:, seen].sum(0) / visits[seen]
            harmless = 1 - upper_component_probability(scale_per_class(scores, self.labels.cpu()[seen]))
            weights[seen] = harmless / harmless.mean()
        self.weights = weights.to(self.weights)
