"""Records what the training step itself says about every example, and averages it over a window of training.

In each epoch an example passes through the network once, augmented and in training mode. Its logits f, computed anyway,
give at no cost

    margin  f_y - max_{k != y} f_k        loss  -log p_y        error  ||p - onehot(y)||

and p_y = exp(-loss). All scores of this module are **higher = more suspicious**. A window is the last share of the
epochs; 0.5 is also the window of SG-OIF's influence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif.backend.collectives import sum_

WINDOW = 0.5  # share of the epochs, the last ones, that SG-OIF's influence is of too
FIELDS = ("margins", "losses", "errors")


def margins(logits: Tensor, labels: Tensor) -> Tensor:
    """Return f_y - max_{k != y} f_k, shape [..., N], for logits of shape [..., N, K] and labels of shape [N]."""
    index = labels.expand(logits.shape[:-1]).unsqueeze(-1)
    others = logits.scatter(-1, index, -torch.inf)
    return (logits.gather(-1, index) - others.max(dim=-1, keepdim=True).values).squeeze(-1)


def measure(logits: Tensor, labels: Tensor) -> Tensor:
    """Return margin, loss and error of logits [n, K] with labels [n], shape [3, n]."""
    logits = logits.detach()
    losses = F.cross_entropy(logits, labels, reduction="none")
    index = labels.unsqueeze(1)
    error = logits.softmax(1).scatter_add(1, index, -torch.ones_like(index, dtype=logits.dtype))
    return torch.stack([margins(logits, labels), losses, error.norm(dim=1)])


class VisitRecorder:
    """Collects what `measure` returns for every example, epoch by epoch. Resumable state."""

    def __init__(self, n_examples: int, device: torch.device) -> None:
        """Make room for the current epoch.

        Args:
            n_examples: Number of training examples N.
            device: Where the measurements of a step lie.
        """
        self.epochs: list[Tensor] = []  # [3, N] each, NaN for an example that was not seen
        self._current = torch.full((len(FIELDS), n_examples), torch.nan, device=device)

    def add(self, index: Tensor, measured: Tensor) -> None:
        """Record the examples of a step: positions [n] and what `measure` returned for them, shape [3, n]."""
        self._current.index_copy_(1, index, measured)

    def end_epoch(self) -> None:
        """Close the epoch; of several processes each adds the examples that it has seen, some or all of them."""
        seen = self._current.isfinite()
        total, count = self._current.nan_to_num(0.0), seen.float()
        sum_(total, count)
        self.epochs.append(torch.where(count > 0, total / count, torch.nan).half().cpu())
        self._current.fill_(torch.nan)

    def visits(self) -> Visits:
        """Return the epochs so far."""
        return Visits(*torch.stack(self.epochs, 1).float())

    def state_dict(self) -> dict[str, Any]:
        return {"epochs": self.epochs}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.epochs = [t.cpu() for t in state["epochs"]]


@dataclass(frozen=True)
class Visits:
    """What was recorded of a training, shape [E, N] each, NaN where an example sat out an epoch.

    Attributes:
        margins: f_y - max_{k != y} f_k.
        losses: Cross-entropy.
        errors: ||p - onehot(y)||.
    """

    margins: Tensor
    losses: Tensor
    errors: Tensor

    def first(self, n: int) -> Visits:
        """Return the visits of the first n examples."""
        return Visits(self.margins[:, :n], self.losses[:, :n], self.errors[:, :n])

    @property
    def probabilities(self) -> Tensor:
        """p_y of every visit, shape [E, N]."""
        return (-self.losses).exp()

    def mean_loss(self, window: float = 1.0) -> np.ndarray:
        """Return the mean loss over the last share of the epochs, shape [N]."""
        return late_mean(self.losses, window)

    def mean_margin(self, window: float = 1.0) -> np.ndarray:
        """Return minus the mean margin over the last share of the epochs, shape [N]."""
        return -late_mean(self.margins, window)

    def mean_doubt(self, window: float = 1.0) -> np.ndarray:
        """Return one minus the mean p_y over the last share of the epochs, shape [N]."""
        return 1 - late_mean(self.probabilities, window)


def in_window(epoch: int, epochs: int, window: float = WINDOW) -> bool:
    """Say whether an epoch, counted from 0, is among the last share of the epochs."""
    return epoch >= epochs - max(round(window * epochs), 1)


def late_mean(values: Tensor, window: float = 1.0) -> np.ndarray:
    """Return the mean of each example over its visits within a window.

    Args:
        values: Shape [E, N], NaN where an example sat out an epoch.
        window: Share of the epochs, the last ones, in (0, 1]; at least one epoch.

    Returns:
        Shape [N], float64. An example without a visit in the window has the value of its last visit before it, and
        one without any visit the mean of all others.
    """
    epochs = len(values)
    late = torch.stack([row for epoch, row in enumerate(values) if in_window(epoch, epochs, window)]).double()
    seen = late.isfinite()
    mean = late.nan_to_num(0.0).sum(0) / seen.sum(0)
    if not seen.any(0).all():
        mean = torch.where(seen.any(0), mean, _last_visit(values.double()))
        mean = torch.where(mean.isfinite(), mean, mean.nanmean())
    return mean.cpu().numpy()


def _last_visit(values: Tensor) -> Tensor:
    """The value of each example's last visit, NaN if it has none, shape [N]."""
    last = torch.full_like(values[0], torch.nan)
    for row in values:
        last = torch.where(row.isfinite(), row, last)
    return last


CANDIDATES: Mapping[str, Callable[[Visits], np.ndarray]] = {
    "window_loss": lambda visits: visits.mean_loss(WINDOW),
    "window_margin": lambda visits: visits.mean_margin(WINDOW),
    "window_doubt": lambda visits: visits.mean_doubt(WINDOW),
    "mean_loss": Visits.mean_loss,
    "mean_margin": Visits.mean_margin,
    "mean_doubt": Visits.mean_doubt,
}


def candidate_scores(visits: Visits) -> dict[str, np.ndarray]:
    """Return the scores over the window and over all of training by loss, margin and p_y, shape [N] each."""
    return {name: score(visits) for name, score in CANDIDATES.items()}
