"""The inverse-curvature directions phi_v ~ H^-1 g_v: how they are measured, restarted, stepped, refined and added up.

A direction is kept as its cold start plus what the solver has learnt on top: phi_v = s_v P^-1 g_v + delta_v. When
target and curvature drift between checks the first part follows at once and delta_v is the warm start. One check, on
probe examples that made no delta:
 1. ONE batched curvature product H [P^-1 g; delta; Q] for K cold starts, K corrections and the r subspace rows Q.
 2. s_v is the length that leaves the smallest residual of the cold start alone; a delta_v that does not help is
    dropped (restart).
 3. The residuals of these phi_v certify them; phibar = sum_v w_v t_v phi_v is what scores use until the next check.
 4. delta_v moves one solver step, to be certified by the next check, and Q moves by Q <- orth(P^-1 H Q).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from sgoif.backend import collectives
from sgoif.backend.linalg import orthonormal_rows, products
from sgoif.config import InfluenceConfig
from sgoif.curvature import Curvature
from sgoif.gradients.factored_batch import FactoredBatch
from sgoif.solvers.iterative import Apply, Sketch, conjugate_gradient, neumann, norms, quotient, richardson
from sgoif.solvers.stability import TRUSTED, Controller

UNGATED_STEP = 0.5  # step size of the iteration without the stability gate
CHECKS_PER_EPOCH = 4


def mean(values: Tensor) -> Tensor:
    """Mean over the probe examples of all processes: `[n, K]` -> `[K]`."""
    average = values.mean(0)
    collectives.sum_(average)
    return average / collectives.size()


def rms(values: Tensor) -> Tensor:
    return mean(values.square()).sqrt()


class Operator:
    """V -> H V: curvature of the probe examples (mean over processes) plus the backend's damping; counts its
    products."""

    def __init__(self, probe: FactoredBatch, curvature: Curvature) -> None:
        self.probe, self.curvature, self.products = probe, curvature, 0

    def __call__(self, rows: Tensor) -> Tensor:
        self.products += len(rows)
        with products(fast=self.probe.closed_form):
            image = self.probe.matvec(rows, self.curvature.kind)
        collectives.sum_(image)
        return self.curvature.damp(rows).add_(image, alpha=1 / collectives.size())


class Directions(nn.Module):
    """Buffers: `phi` `[K, d]` (certified), `correction` `[K, d]` (delta, moving), `basis` `[max(r, 1), d]` (Q),
    `combined` `[1, d]` (phibar), `certificate` `[2]` (confidence, residual), `events` `[2]` (restarts, triggers),
    `doubtful` (whether some anchor asked for a refinement at the last check)."""

    def __init__(self, config: InfluenceConfig, count: int, dim: int, dtype: torch.dtype, n_classes: int) -> None:
        super().__init__()
        self.config, self.budget, self.products = config, config.budget(n_classes), 0
        width = min(max(config.rank, 1), dim)
        start = torch.randn(width, dim, dtype=dtype, device="cpu", generator=torch.Generator().manual_seed(1))
        self.register_buffer("phi", torch.zeros(count, dim, dtype=dtype))
        self.register_buffer("correction", torch.zeros(count, dim, dtype=dtype))
        self.register_buffer("basis", orthonormal_rows(start.to(torch.get_default_device()))[0])
        self.register_buffer("combined", torch.zeros(1, dim, dtype=dtype))
        self.register_buffer("certificate", torch.tensor([0.0, 1.0], dtype=dtype))
        self.register_buffer("events", torch.zeros(2, dtype=torch.float64))
        self.register_buffer("doubtful", torch.tensor(False))
        self.told: tuple[Tensor, torch.cuda.Event] | None = None
        self.plan(epoch_steps=config.solve_every * CHECKS_PER_EPOCH)

    def plan(self, epoch_steps: int, affordable: float = math.inf) -> None:
        """Set the steps between checks and the anchors refined per check: at least `CHECKS_PER_EPOCH` checks in an
        epoch of `epoch_steps` steps, at least one every `solve_every` steps, unless that breaks the budget of products
        per training step. Where products are dear, `affordable` of them a step, checks are rarer, but one an epoch."""
        config, count, width = self.config, len(self.phi), len(self.basis)
        per_anchor = {"richardson": 2, "direct": 2, "neumann": 2 + config.depth, "pcg": 3 + config.refine_steps}
        base = per_anchor[config.solver] * count + width
        wanted = max(1, min(config.solve_every, epoch_steps // CHECKS_PER_EPOCH))
        dear = min(math.ceil(base / affordable), max(epoch_steps, 1))
        self.interval = int(max(wanted, dear, -(-base // self.budget)))
        left = min(self.budget, affordable) * self.interval - base
        slots = int(left // (config.refine_steps + 1)) if config.trigger else 0
        self.slots = min(max(slots, 0), count)

    def preconditioner(self, curvature: Curvature) -> Apply:
        if self.config.precondition:
            return curvature.solve
        scale = curvature.mean_eigenvalue()
        return lambda rows: rows / scale

    def check(self, targets: Tensor, probe: FactoredBatch, curvature: Curvature, controller: Controller) -> None:
        """One check as described above, for targets g_v `[K, d]`."""
        precondition, operator = self.preconditioner(curvature), Operator(probe, curvature)
        cold = precondition(targets)
        rows = [cold, self.correction, self.basis]
        cold_image, correction_image, images = operator(torch.cat(rows)).split([len(r) for r in rows])
        sketch = Sketch(self.basis, images) if self.config.rank else None
        spectrum = self._advance_subspace(precondition(images))

        inverse = precondition if sketch is None else sketch.precondition(precondition)
        solved = inverse(torch.cat([targets, cold_image, correction_image]))
        with products(fast=probe.closed_form):
            goal, reached, corrected = probe.inner(solved).split(len(targets), dim=1)
        scale = rms(goal)
        stretch = torch.ones_like(scale)
        if controller.controlled:
            stretch = quotient(mean(goal * reached), mean(reached.square())).clamp(min=0)
        alone = rms(goal - stretch * reached)
        error = rms(goal - stretch * reached - corrected)
        alone, error = quotient(alone, scale), quotient(error, scale)
        cold, residual = stretch.unsqueeze(1) * cold, targets - stretch.unsqueeze(1) * cold_image
        controller.control(error, spectrum[0])
        if controller.controlled:
            restart = ~(error <= alone)  # also where it is not a number
            self.correction = torch.where(restart.unsqueeze(1), 0, self.correction)
            correction_image = torch.where(restart.unsqueeze(1), 0, correction_image)
            error = torch.where(restart, alone, error)
            self.events[0] += restart.sum()
        residual = residual - correction_image
        self.phi = cold + self.correction
        controller.trust(error, usable=scale > 0)
        self._combine(controller)
        following = self._step(residual, targets, operator, precondition, sketch, spectrum, controller)
        if self.slots:
            doubted = self._doubted()
            need = self._need(probe, controller)
            self.doubtful = (need >= TRUSTED).any()
            if doubted:
                following = self._refine(following, need, targets, operator, precondition, sketch)
        self.correction = following - cold
        self.products += operator.products

    def _advance_subspace(self, images: Tensor) -> Tensor:
        """Q <- orth(P^-1 H Q); returns estimates of the leading eigenvalues of P^-1 H, largest first."""
        basis, spectrum = orthonormal_rows(images)
        sound = torch.isfinite(basis).all() & torch.isfinite(spectrum).all()
        self.basis = torch.where(sound, basis, self.basis)
        return torch.where(sound, spectrum, 1.0).clamp(min=1e-6)

    def _combine(self, controller: Controller) -> None:
        """phibar and the step's certificate from the certified phi."""
        confidence, residual = controller.confidence, controller.error()
        share = quotient(confidence, confidence.sum())
        self.combined = controller.weights() @ torch.where(torch.isfinite(self.phi), self.phi, 0)
        self.combined = self.combined.unsqueeze(0)
        trusted = (share * torch.where(share > 0, residual, 0)).sum()
        trusted = torch.where(confidence.sum() > 0, trusted, residual.max()).clamp(max=1e6)
        self.certificate = torch.stack([(share * confidence).sum(), trusted])

    def _step(self, residual, targets, operator, precondition, sketch, spectrum, controller) -> Tensor:
        """The solver's step from the certified phi, given its residual: the next phi, before any refinement."""
        config, phi = self.config, self.phi
        if config.solver == "direct":
            return phi - self.correction
        if config.solver == "pcg":
            return conjugate_gradient(targets, phi, operator, self._sketched(precondition, sketch), config.refine_steps)
        safe = 1 / spectrum[0].clamp(min=1.0)
        if config.solver == "neumann":
            return neumann(targets, operator, precondition, safe, config.depth)[0]
        if not controller.controlled:
            return richardson(phi, residual, precondition, UNGATED_STEP)
        if sketch is not None:
            inside, residual = sketch.correct(residual)
            phi, safe = phi + inside, 1 / spectrum[-1].clamp(min=1.0)
        return richardson(phi, residual, precondition, safe * controller.rho.unsqueeze(1))

    def _sketched(self, precondition: Apply, sketch: Sketch | None) -> Apply:
        use = sketch is not None and self.config.refiner == "sketch_pcg"
        return sketch.precondition(precondition) if use else precondition

    def _need(self, probe: FactoredBatch, controller: Controller) -> Tensor:
        """How much each anchor needs a refinement `[K]`: its reach (the most it moves a probe example, over the
        anchors' median) times the doubt in it."""
        with products(fast=probe.closed_form):
            reach = probe.inner(self.phi).abs().amax(0)
        collectives.max_(reach)
        doubt = torch.where(controller.confidence < TRUSTED, 1 - controller.confidence, 0)
        return quotient(reach, reach.median()) * doubt

    def remember(self) -> None:
        """Start telling the host whether an anchor is in doubt, so that the next check knows without waiting."""
        if self.doubtful.is_cuda:
            host = torch.empty((), dtype=torch.bool, pin_memory=True).copy_(self.doubtful, non_blocking=True)
            self.told = host, torch.cuda.Event()
            self.told[1].record()

    def _doubted(self) -> bool:
        """Whether the check before found an anchor in doubt: refinements are run in the check after."""
        if self.told is None:  # on the host, or just resumed
            return bool(self.doubtful)
        host, copied = self.told
        copied.synchronize()  # recorded a whole interval ago
        return bool(host)

    def _refine(self, phi, need, targets, operator, precondition, sketch) -> Tensor:
        """Trigger: anchors that move some example more than most anchors do, with low confidence, get a short
        (sketch) PCG."""
        chosen = need.topk(self.slots).indices
        flagged = (need[chosen] >= TRUSTED).unsqueeze(1)
        inverse = self._sketched(precondition, sketch)
        refined = conjugate_gradient(targets[chosen], phi[chosen], operator, inverse, self.config.refine_steps)
        flagged &= torch.isfinite(norms(refined))
        self.events[1] += flagged.sum()
        return phi.index_copy(0, chosen, torch.where(flagged, refined, phi[chosen]))
