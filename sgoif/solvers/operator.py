"""The curvature of the probe examples as an operator, and statistics over the probe examples of all processes."""

from __future__ import annotations

from torch import Tensor

from sgoif.backend import collectives
from sgoif.backend.linalg import tf32_products
from sgoif.curvature import Curvature
from sgoif.gradients.factored_batch import FactoredBatch


def probe_mean(values: Tensor) -> Tensor:
    """Return the mean over the probe examples of all processes, shape [K], of values [n, K]."""
    average = values.mean(0)
    collectives.sum_(average)
    return average / collectives.size()


def probe_rms(values: Tensor) -> Tensor:
    """Return the root mean square over the probe examples of all processes, shape [K], of values [n, K]."""
    return probe_mean(values.square()).sqrt()


class Operator:
    """V -> H V: curvature of the probe examples (mean over processes) plus the backend's damping.

    Args:
        probe: Examples whose curvature is used.
        curvature: Supplies the damping.

    Attributes:
        products: Number of rows multiplied so far.
    """

    def __init__(self, probe: FactoredBatch, curvature: Curvature) -> None:
        self.probe = probe
        self.curvature = curvature
        self.products = 0

    def __call__(self, rows: Tensor) -> Tensor:
        self.products += len(rows)
        with tf32_products(enabled=self.probe.closed_form):
            image = self.probe.matvec(rows, self.curvature.kind)
        collectives.sum_(image)
        return self.curvature.damp(rows).add_(image, alpha=1 / collectives.size())

    def probe_dot(self, rows: Tensor) -> Tensor:
        """Return the dot products of the probe gradients with the rows, shape [n, K]."""
        with tf32_products(enabled=self.probe.closed_form):
            return self.probe.dot(rows)
