"""Features of every training example, kept where only the last layer is trained.

A head on frozen features learns wrong labels by heart, so what it says of an example that it has seen tells less than
what heads say that have not seen it (`sgoif.label_noise.held_out_evidence`). These can be fitted once the features are
known. With random crops or other changes of the images it is the mean of their features that is kept.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from sgoif.backend import collectives
from sgoif.backend.linalg import zero_rows_unless

MAX_NUMBERS = 2**28  # features of all examples together (1 GiB in float32); more are not kept
STATE = ("total", "visits")
SAME_NORM = 1e-9  # relative difference of norms up to which weights count as unchanged


@torch.no_grad()
def parameter_norms(parameters: Iterable[Tensor]) -> Tensor:
    """Return the 1-norm and the 2-norm of p parameters, shape [p, 2], float64, on the first one's device.

    They tell whether weights were changed without a copy of them. Those of other numbers than floats are left out.
    """
    real = [p.detach() for p in parameters if p.is_floating_point() and not is_lazy(p)]
    norms = [torch.linalg.vector_norm(p, order, dtype=torch.float64) for p in real for order in (1, 2)]
    return torch.stack([n.to(norms[0].device) for n in norms]).view(-1, 2) if norms else torch.zeros(0, 2)


class FeatureMemory:
    """Adds the features of visits to sums and reads their means."""

    def __init__(self, n_examples: int, dim: int, device: torch.device) -> None:
        """Start without any visit.

        Args:
            n_examples: Size N of the training set.
            dim: Number of features d.
            device: Device of the sums.
        """
        self.total = torch.zeros(n_examples, dim, dtype=torch.float32, device=device)
        self.visits = torch.zeros(n_examples, dtype=torch.float32, device=device)

    def add(self, index: Tensor, valid: Tensor, features: Tensor) -> None:
        """Add one visit of each example.

        Args:
            index: Positions in the training set, shape [n].
            valid: Which visits count, shape [n].
            features: Inputs of the last layer, shape [n, d].
        """
        (counted,) = zero_rows_unless(valid, features.float())
        self.total.index_add_(0, index, counted)
        self.visits.index_add_(0, index, valid.to(self.visits.dtype))

    def read(self) -> tuple[Tensor, Tensor]:
        """Return the mean features of the n examples with a visit, of all processes together.

        Returns:
            Their features, shape [n, d], and which of all examples they are, bool, shape [N], on the device.
        """
        total, visits = self.total.clone(), self.visits.clone()
        collectives.sum_(total, visits)
        visited = visits > 0
        return total[visited] / visits[visited].unsqueeze(1), visited

    def state_dict(self) -> dict[str, Tensor]:
        """Return a copy of everything that a resumed run needs."""
        return {name: getattr(self, name).clone() for name in STATE}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Continue from a state that `state_dict` returned; it is copied."""
        for name in STATE:
            getattr(self, name).copy_(state[name])
