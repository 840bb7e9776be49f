"""The inverse-curvature directions phi_v ~ H^-1 g_v: how they are measured, restarted, stepped, refined and combined.

A direction is its cold start plus what the solver has learnt on top, phi_v = s_v P^-1 g_v + delta_v. When target and
curvature drift between checks, the first part follows at once and delta_v is the warm start. One check, on probe
examples that were not used for delta:

 1. Multiply: ONE batched curvature product H [P^-1 g; delta; Q] for K cold starts, K corrections and the r subspace
    rows Q. The images of Q give a sketch of H, its leading eigenvalues, and the next Q <- orth(P^-1 H Q).
 2. Measure: s_v is the length that leaves the smallest residual of the cold start alone. A delta_v that does not
    reduce the residual is dropped (restart).
 3. Certify: the residuals of these phi_v give their confidence. phibar = sum_v pi_v w_v t_v phi_v, with the share pi_v
    of the anchor's class, is what scores use until the next check.
 4. Advance: delta_v moves one solver step, or a refinement, which the next check certifies.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sgoif.backend import collectives
from sgoif.backend.linalg import orthonormal_rows
from sgoif.config import InfluenceConfig
from sgoif.curvature import Curvature
from sgoif.gradients.factored_batch import FactoredBatch
from sgoif.solvers.iterative import Apply, conjugate_gradient, neumann, norms, richardson, safe_divide
from sgoif.solvers.operator import Operator, probe_mean, probe_rms
from sgoif.solvers.schedule import CheckSchedule
from sgoif.solvers.sketch import Sketch
from sgoif.solvers.stability import FULL_CONFIDENCE, StabilityController

UNGATED_STEP_SIZE = 0.5  # of the iteration without the stability gate
MIN_EIGENVALUE = 1e-6
MAX_CERTIFIED_RESIDUAL = 1e6


@dataclass(frozen=True)
class Systems:
    """The linear systems H phi_v = g_v of one check."""

    targets: Tensor  # [K, d] g_v
    operator: Operator
    precondition: Apply


@dataclass(frozen=True)
class Images:
    """Result of step 1: what the curvature makes of cold starts, corrections and subspace."""

    cold: Tensor  # [K, d] P^-1 g
    cold_image: Tensor  # [K, d] H P^-1 g
    delta_image: Tensor  # [K, d] H delta
    sketch: Sketch | None
    eigenvalues: Tensor  # [r] leading eigenvalues of P^-1 H, largest first


@dataclass(frozen=True)
class Measured:
    """Result of step 2: the directions' parts and their residuals."""

    cold: Tensor  # [K, d] s_v P^-1 g_v
    residual_vector: Tensor  # [K, d] g_v - H phi_v
    residual: Tensor  # [K] relative residual R_v
    usable: Tensor  # [K] whether the anchor has a target


class Directions(nn.Module):
    """The directions of all anchors and the one scoring direction they are combined to.

    Buffers: `phi` [K, d] (certified), `delta` [K, d] (moving), `subspace` [max(r, 1), d] (Q), `scoring_direction`
    [1, d] (phibar), `certificate` [2] (confidence, residual), `events` [2] (restarts, triggers) and
    `needs_refinement` (whether some anchor did at the last check).

    Args:
        config: Supplies solver, rank and refinement.
        n_anchors: Number of anchors K.
        dim: Number of parameters d.
        dtype: Type of the buffers.
        n_classes: Number of classes, which the budget depends on.
    """

    phi: Tensor
    delta: Tensor
    subspace: Tensor
    scoring_direction: Tensor
    certificate: Tensor
    events: Tensor
    needs_refinement: Tensor

    def __init__(self, config: InfluenceConfig, n_anchors: int, dim: int, dtype: torch.dtype, n_classes: int) -> None:
        super().__init__()
        self.config = config
        self.hvps = 0  # curvature-vector products so far
        rank = min(max(config.rank, 1), dim)
        start = torch.randn(rank, dim, dtype=dtype, device="cpu", generator=torch.Generator().manual_seed(1))
        self.register_buffer("phi", torch.zeros(n_anchors, dim, dtype=dtype))
        self.register_buffer("delta", torch.zeros(n_anchors, dim, dtype=dtype))
        self.register_buffer("subspace", orthonormal_rows(start.to(torch.get_default_device()))[0])
        self.register_buffer("scoring_direction", torch.zeros(1, dim, dtype=dtype))
        self.register_buffer("certificate", torch.tensor([0.0, 1.0], dtype=dtype))
        self.register_buffer("events", torch.zeros(2, dtype=torch.float64))
        self.register_buffer("needs_refinement", torch.tensor(False))
        self._host_flag: tuple[Tensor, torch.cuda.Event] | None = None
        self.schedule = CheckSchedule(config, n_anchors, rank, n_classes)

    def preconditioner(self, curvature: Curvature) -> Apply:
        """Return V -> P^-1 V, with a scalar P in the ablation without preconditioning."""
        if self.config.precondition:
            return curvature.solve
        scale = curvature.mean_eigenvalue()
        return lambda rows: rows / scale

    def check(
        self,
        targets: Tensor,
        prior: Tensor,
        probe: FactoredBatch,
        curvature: Curvature,
        controller: StabilityController,
    ) -> None:
        """Make one check in the four steps of the module docstring.

        Args:
            targets: g_v, shape [K, d].
            prior: How far each anchor counts by the share of its class, shape [K].
            probe: Examples that were not used for phi or the inverse.
            curvature: Supplies damping and preconditioner.
            controller: Is updated with the residuals and supplies confidence and step sizes.
        """
        systems = Systems(targets, Operator(probe, curvature), self.preconditioner(curvature))
        images = self._multiply(systems)
        measured = self._measure(systems, images, controller)
        self._certify(measured, prior, controller)
        self._advance(systems, images, measured, controller)
        self.hvps += systems.operator.products

    def _multiply(self, systems: Systems) -> Images:
        """Step 1: one batched curvature product for cold starts, corrections and subspace."""
        cold = systems.precondition(systems.targets)
        rows = [cold, self.delta, self.subspace]
        products = systems.operator(torch.cat(rows))
        cold_image, delta_image, images = torch.split(products, [len(r) for r in rows])
        sketch = Sketch(self.subspace, images) if self.config.rank else None
        eigenvalues = self._move_subspace(systems.precondition(images))
        return Images(cold, cold_image, delta_image, sketch, eigenvalues)

    def _move_subspace(self, images: Tensor) -> Tensor:
        """Set Q <- orth(P^-1 H Q) and return the leading eigenvalues of P^-1 H, largest first."""
        subspace, eigenvalues = orthonormal_rows(images)
        finite = torch.isfinite(subspace.sum() + eigenvalues.sum())
        self.subspace = torch.where(finite, subspace, self.subspace)
        return torch.where(finite, eigenvalues, 1.0).clamp(min=MIN_EIGENVALUE)

    def _measure(self, systems: Systems, images: Images, controller: StabilityController) -> Measured:
        """Step 2: choose the lengths of the cold starts, measure the residuals, and restart where delta does not help.

        Residuals are compared by what their solutions change in the scores of the probe examples.
        """
        targets, delta_image = systems.targets, images.delta_image
        solve = systems.precondition if images.sketch is None else images.sketch.precondition(systems.precondition)
        solved = solve(torch.cat([targets, images.cold_image, delta_image]))
        wanted, by_cold, by_delta = torch.split(systems.operator.probe_dot(solved), len(targets), dim=1)
        size = probe_rms(wanted)
        length = torch.ones_like(size)
        if controller.gated:
            length = safe_divide(probe_mean(wanted * by_cold), probe_mean(by_cold.square())).clamp(min=0)
        cold_error = probe_rms(wanted - length * by_cold)
        error = probe_rms(wanted - length * by_cold - by_delta)
        cold_error, error = safe_divide(cold_error, size), safe_divide(error, size)
        cold = length.unsqueeze(1) * images.cold
        residual = targets - length.unsqueeze(1) * images.cold_image
        controller.update_step_size(error, images.eigenvalues[0])
        if controller.gated:
            restart = ~(error <= cold_error)  # also where the error is not a number
            self.delta = torch.where(restart.unsqueeze(1), 0, self.delta)
            delta_image = torch.where(restart.unsqueeze(1), 0, delta_image)
            error = torch.where(restart, cold_error, error)
            self.events[0].add_(restart.sum())
        return Measured(cold, residual - delta_image, error, usable=size > 0)

    def _certify(self, measured: Measured, prior: Tensor, controller: StabilityController) -> None:
        """Step 3: set phi and its confidence, and combine phi into the scoring direction and its certificate."""
        self.phi = measured.cold + self.delta
        controller.update_confidence(measured.residual, measured.usable)
        confidence, error = controller.confidence, controller.relative_error()
        share = safe_divide(confidence, confidence.sum())
        finite_phi = self.phi.nan_to_num(0.0, 0.0, 0.0)
        self.scoring_direction = ((prior * controller.anchor_weights()) @ finite_phi).unsqueeze(0)
        mean_error = (share * torch.where(share > 0, error, 0)).sum()
        mean_error = torch.where(confidence.sum() > 0, mean_error, error.max())
        self.certificate = torch.stack([(share * confidence).sum(), mean_error.clamp(max=MAX_CERTIFIED_RESIDUAL)])

    def _advance(self, systems: Systems, images: Images, measured: Measured, controller: StabilityController) -> None:
        """Step 4: move delta by one solver step and, if an anchor needed it at the last check, by a refinement."""
        following = self._solver_step(systems, images, measured.residual_vector, controller)
        if self.schedule.refine_slots:
            refine = self._refinement_was_needed()
            need = self._refinement_need(systems.operator, controller)
            self.needs_refinement = (need >= FULL_CONFIDENCE).any()
            if refine:
                following = self._refine(systems, images.sketch, following, need)
        self.delta = following - measured.cold

    def _solver_step(
        self, systems: Systems, images: Images, residual: Tensor, controller: StabilityController
    ) -> Tensor:
        """Return the next phi, shape [K, d], before any refinement."""
        config, phi, precondition = self.config, self.phi, systems.precondition
        if config.solver == "direct":
            return phi - self.delta
        if config.solver == "pcg":
            inverse = self._refinement_preconditioner(precondition, images.sketch)
            return conjugate_gradient(systems.targets, phi, systems.operator, inverse, config.refine_steps)
        safe_step = 1 / images.eigenvalues[0].clamp(min=1.0)
        if config.solver == "neumann":
            return neumann(systems.targets, systems.operator, precondition, safe_step, config.depth)
        if not controller.gated:
            return richardson(phi, residual, precondition, UNGATED_STEP_SIZE)
        if images.sketch is not None:
            inside, residual = images.sketch.correct(residual)
            phi, safe_step = phi + inside, 1 / images.eigenvalues[-1].clamp(min=1.0)
        return richardson(phi, residual, precondition, safe_step * controller.step_size.unsqueeze(1))

    def _refinement_preconditioner(self, precondition: Apply, sketch: Sketch | None) -> Apply:
        use_sketch = sketch is not None and self.config.refiner == "sketch_pcg"
        return sketch.precondition(precondition) if sketch is not None and use_sketch else precondition

    def _refinement_need(self, operator: Operator, controller: StabilityController) -> Tensor:
        """Return how much each anchor needs a refinement, shape [K].

        It is the most that the anchor changes the score of a probe example, relative to the median anchor, times its
        missing confidence.
        """
        reach = operator.probe_dot(self.phi).abs().amax(0)
        collectives.max_(reach)
        confidence = controller.confidence
        doubt = torch.where(confidence < FULL_CONFIDENCE, 1 - confidence, 0)
        return safe_divide(reach, reach.median()) * doubt

    def _refine(self, systems: Systems, sketch: Sketch | None, phi: Tensor, need: Tensor) -> Tensor:
        """Trigger: run a short PCG for the anchors of large effect and low confidence, and return the new phi."""
        chosen = need.topk(self.schedule.refine_slots).indices
        flagged = (need[chosen] >= FULL_CONFIDENCE).unsqueeze(1)
        inverse = self._refinement_preconditioner(systems.precondition, sketch)
        refined = conjugate_gradient(
            systems.targets[chosen], phi[chosen], systems.operator, inverse, self.config.refine_steps
        )
        flagged &= torch.isfinite(norms(refined))
        self.events[1].add_(flagged.sum())
        return phi.index_copy(0, chosen, torch.where(flagged, refined, phi[chosen]))

    def copy_flag_to_host(self) -> None:
        """Start copying `needs_refinement` to the host, so that the next check reads it without waiting."""
        if self.needs_refinement.is_cuda:
            host = torch.empty((), dtype=torch.bool, pin_memory=True).copy_(self.needs_refinement, non_blocking=True)
            self._host_flag = host, torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._host_flag[1].record()  # type: ignore[no-untyped-call]

    def forget_host_flag(self) -> None:
        """Drop the host copy of `needs_refinement`, because the buffer has been loaded."""
        self._host_flag = None

    def _refinement_was_needed(self) -> bool:
        """Return whether the previous check found an anchor to refine; the refinement runs one check later."""
        if self._host_flag is None:  # on the host, or just resumed
            return bool(self.needs_refinement)
        host, copied = self._host_flag
        copied.synchronize()  # recorded a whole interval ago
        return bool(host)
