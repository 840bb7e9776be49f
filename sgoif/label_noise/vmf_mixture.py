"""Mixtures of von Mises-Fisher distributions on the unit sphere, fitted by expectation-maximisation.

All components of a mixture share one concentration kappa:

    P(c | u) ~ pi_c exp(kappa <mu_c, u>).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sgoif.backend.cuda import GraphedFunction
from sgoif.backend.linalg import matmul_tn

MAX_ITERATIONS = 60
KAPPA_TOLERANCE = 1e-5  # relative change of kappa at which EM ends
CONVERGENCE_CHECK_EVERY = 4  # iterations; each check waits for the device
CHUNK_ROWS = 65_536  # points in memory at once, times the number of components
PSEUDO_COUNT = 1.0  # points added to the weight of every component


def on_sphere(probabilities: Tensor) -> Tensor:
    """Return the square roots of probabilities, scaled to unit length.

    Args:
        probabilities: Shape [n, C].

    Returns:
        Points on the unit sphere, shape [n, C].
    """
    return torch.nn.functional.normalize(probabilities.clamp(min=0).sqrt(), dim=1)


def concentration(length: Tensor, dimension: int) -> Tensor:
    """Return the kappa of von Mises-Fisher distributions from the lengths of their means (Banerjee et al., JMLR 2005).

    Args:
        length: Lengths of the mean vectors, within [0, 1], any shape.
        dimension: Dimension of the space that the sphere lies in.

    Returns:
        Concentrations, in the shape of `length`.
    """
    length = length.clamp(1e-6, 1 - 1e-6)
    return length * (dimension - length**2) / (1 - length**2)


class VMFMixtures:
    """Several mixtures with C components each, fitted at once to the same points `[n, d]`.

    Attributes:
        centres: Mean directions mu_c, shape [S, C, d].
        kappa: Concentrations, shape [S], in double precision.
        weights: Component weights pi_c up to a factor, shape [S, C]; they need not add up to one.
    """

    def __init__(self, centres: Tensor, kappa: Tensor, weights: Tensor) -> None:
        """Take the parameters as they are; see the attributes for their shapes."""
        self.centres, self.kappa, self.weights = centres, kappa, weights

    @classmethod
    def from_centres(cls, centres: Tensor, lengths: Sequence[float]) -> VMFMixtures:
        """Start one mixture per mean length, all at the same centres and with equal weights.

        Args:
            centres: Mean directions, shape [C, C].
            lengths: Mean lengths from which the concentrations follow.
        """
        starts, components = len(lengths), len(centres)
        kappa = concentration(torch.tensor(lengths, dtype=torch.float64, device=centres.device), components)
        return cls(centres.repeat(starts, 1, 1), kappa, centres.new_full((starts, components), 1 / components))

    def posterior(self, u: Tensor) -> Tensor:
        """Return P(c | u_i) by each mixture.

        Args:
            u: Points on the unit sphere, shape [n, d].

        Returns:
            Probabilities, shape [n, S, C].
        """
        scaled = self.kappa.to(u.dtype)[:, None, None] * self.centres
        joint = torch.addmm(self.weights.log().flatten(), u, scaled.flatten(0, 1).T)
        return joint.view(len(u), *self.weights.shape).softmax(2)

    def fit(self, u: Tensor) -> VMFMixtures:
        """Run EM in place until every concentration has converged.

        Args:
            u: Points on the unit sphere, shape [n, d].

        Returns:
            The mixtures themselves.
        """
        active = torch.ones_like(self.kappa, dtype=torch.bool)
        iterate = GraphedFunction(lambda: self._iterate(u, active), u.device)
        for number in range(MAX_ITERATIONS):
            iterate()
            if number % CONVERGENCE_CHECK_EVERY == 0 and not active.any():
                break
        return self

    def _iterate(self, u: Tensor, active: Tensor) -> None:
        """Run one EM iteration, in place, of the mixtures that have not converged (`active`, shape [S])."""
        sums, mass = torch.zeros_like(self.centres), torch.zeros_like(self.weights)
        for part in torch.split(u, max(1, CHUNK_ROWS // len(self.kappa))):
            member = self.posterior(part)
            sums += matmul_tn(member.flatten(1), part).view_as(sums)
            mass += member.sum(0)
        lengths = sums.norm(dim=2, keepdim=True)
        centres = torch.where(lengths > 0, sums / lengths.clamp(min=1e-12), self.centres)
        kappa = concentration(lengths.double().sum((1, 2)) / len(u), u.shape[1])
        converged = (kappa - self.kappa).abs() <= KAPPA_TOLERANCE * torch.maximum(kappa, self.kappa)
        self.centres.copy_(torch.where(active[:, None, None], centres, self.centres))
        self.weights.copy_(torch.where(active[:, None], mass + PSEUDO_COUNT, self.weights))
        self.kappa.copy_(torch.where(active, kappa, self.kappa))
        active &= ~converged

    @property
    def tightest(self) -> VMFMixtures:
        """The mixture with the largest concentration, as a set of one."""
        best = self.kappa.argmax().unsqueeze(0)
        return VMFMixtures(self.centres[best], self.kappa[best], self.weights[best])
