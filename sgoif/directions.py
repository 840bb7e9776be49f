"""The inverse-curvature directions phi_v ~ H^-1 g_v: how they are measured, stepped, restarted, refined and added up.

One check, every `solve_every` steps, on probe examples that made none of the directions:
 1. ONE batched curvature product H [phi; fresh; Q] for the K directions, the K cold starts s P^-1 g_v (s: the best length) and
    the r subspace rows Q.
 2. The residuals of phi are its certificate. An anchor whose residual grew, or whose cold start is better, restarts.
 3. The aggregated direction phibar = sum_v w_v c_v phi_v is made of these certified phi.
 4. In the background phi moves one solver step towards the next check; the subspace moves by Q <- orth(P^-1 H Q).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sgoif import distributed
from sgoif.batch import FactoredBatch
from sgoif.config import InfluenceConfig
from sgoif.controller import Controller
from sgoif.curvature import Curvature
from sgoif.linalg import orthonormal_rows
from sgoif.solvers import Apply, Sketch, conjugate_gradient, neumann, norms, quotient, richardson

UNGATED_STEP = 0.5  # step size of the iteration without the stability gate
LOW_CONFIDENCE = 0.5  # anchors below this are refined when they matter


class Operator:
    """V -> H V: curvature of the probe examples (mean over processes) plus the backend's damping; counts its products."""

    def __init__(self, probe: FactoredBatch, curvature: Curvature) -> None:
        self.probe, self.curvature, self.products = probe, curvature, 0

    def __call__(self, rows: Tensor) -> Tensor:
        self.products += len(rows)
        image = self.probe.matvec(rows, self.curvature.kind)
        distributed.sum_(image)
        return image / distributed.size() + self.curvature.damp(rows)


class Directions(nn.Module):
    """Buffers: `phi` `[K, d]`, `basis` `[max(r, 1), d]`, `combined` `[1, d]` (phibar), `certificate` `[3]`, `events` `[3]`."""

    def __init__(self, config: InfluenceConfig, count: int, dim: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.config, self.count = config, count
        width = min(max(config.rank, 1), dim)
        start = torch.randn(width, dim, dtype=dtype, generator=torch.Generator().manual_seed(1))
        self.register_buffer("phi", torch.zeros(count, dim, dtype=dtype))
        self.register_buffer("certified", torch.zeros(count, dim, dtype=dtype))
        self.register_buffer("basis", orthonormal_rows(start)[0])
        self.register_buffer("combined", torch.zeros(1, dim, dtype=dtype))
        self.register_buffer("certificate", torch.tensor([0.0, 1.0, 0.0], dtype=dtype))  # confidence, residual, age
        self.register_buffer("events", torch.zeros(2, dtype=torch.float64))  # restarts, triggers
        self.products = 0
        self.interval, self.slots = self.schedule(config, count, width)

    @staticmethod
    def schedule(config: InfluenceConfig, count: int, width: int) -> tuple[int, int]:
        """(steps between checks, anchors refined per check) that keep to `hvp_budget` products per training step."""
        base = (1 if config.gate == "none" else 2) * count + width
        base += (
            count
            * {"richardson": 0, "direct": 0, "neumann": config.depth, "pcg": config.refine_steps + 1}[config.solver]
        )
        interval = max(config.solve_every, -(-base // config.hvp_budget))
        spare = config.hvp_budget * interval - base
        slots = int(spare // (config.refine_steps + 1)) if config.trigger else 0
        return int(interval), max(0, min(slots, count))

    def preconditioner(self, curvature: Curvature) -> Apply:
        if self.config.precondition:
            return curvature.solve
        scale = curvature.mean_eigenvalue()
        return lambda rows: rows / scale

    def begin(self, targets: Tensor, curvature: Curvature) -> None:
        """The first directions: cold starts, not yet certified."""
        self.phi = self.preconditioner(curvature)(targets)

    def check(self, targets: Tensor, probe: FactoredBatch, curvature: Curvature, controller: Controller) -> None:
        """One check as described above; leaves `certified`, `combined`, `certificate` and the next `phi`."""
        precondition, operator = self.preconditioner(curvature), Operator(probe, curvature)
        fresh = precondition(targets)
        rows = [self.phi, self.basis, *([fresh] if controller.controlled else [])]
        images = operator(torch.cat(rows)).split([len(r) for r in rows])
        sketch = Sketch(self.basis, images[1]) if self.config.rank else None
        spectrum = self._advance_subspace(precondition(images[1]))

        length = norms(targets)
        phi, residual = self.phi, targets - images[0]
        relative = quotient(norms(residual), length)
        grew = controller.control(relative[:, 0], spectrum[0])
        if controller.controlled:
            stretch = quotient(
                (images[2] * targets).sum(1, keepdim=True), images[2].square().sum(1, keepdim=True)
            ).clamp(min=0)
            fresh, other = stretch * fresh, targets - stretch * images[2]
            cold = quotient(norms(other), length)
            restart = grew.unsqueeze(1) | (cold < relative) | ~torch.isfinite(norms(residual))
            phi, residual = torch.where(restart, fresh, phi), torch.where(restart, other, residual)
            relative = torch.where(restart, cold, relative)
            self.events[0] += restart.sum()
        controller.trust(relative[:, 0], usable=length[:, 0] > 0)
        self._combine(phi, controller)
        self.phi = self._next(phi, residual, fresh, targets, operator, precondition, sketch, spectrum, controller)
        if self.slots:
            self._refine(targets, probe, operator, precondition, sketch, controller)
        self.products += operator.products

    def _advance_subspace(self, images: Tensor) -> Tensor:
        """Q <- orth(P^-1 H Q); returns estimates of the leading eigenvalues of P^-1 H, largest first."""
        basis, spectrum = orthonormal_rows(images)
        sound = torch.isfinite(basis).all() & torch.isfinite(spectrum).all()
        self.basis = torch.where(sound, basis, self.basis)
        return torch.where(sound, spectrum, 1.0).clamp(min=1e-6)

    def _combine(self, phi: Tensor, controller: Controller) -> None:
        confidence = controller.confidence
        share = quotient(confidence, confidence.sum())
        self.certified = phi
        self.combined = (controller.weights().unsqueeze(1) * torch.where(torch.isfinite(phi), phi, 0)).sum(
            0, keepdim=True
        )
        trusted = confidence.sum() > 0
        residual = torch.where(
            trusted, (share * controller.residual.nan_to_num(posinf=0.0)).sum(), controller.residual.max()
        )
        self.certificate = torch.stack(
            [(share * confidence).sum(), residual.nan_to_num(posinf=1e6), torch.zeros_like(residual)]
        )

    def _next(self, phi, residual, fresh, targets, operator, precondition, sketch, spectrum, controller) -> Tensor:
        """The solver's step from the certified phi, to be certified by the next check."""
        config = self.config
        if config.solver == "direct":
            return fresh
        if config.solver == "pcg":
            inverse = sketch.precondition(precondition) if sketch and config.refiner == "sketch_pcg" else precondition
            return conjugate_gradient(targets, phi, operator, inverse, config.refine_steps)
        safe = 1 / spectrum[0].clamp(min=1.0)
        if config.solver == "neumann":
            return neumann(targets, operator, precondition, safe, config.depth)[0]
        if not controller.controlled:
            return richardson(phi, residual, precondition, torch.full_like(phi[:, :1], UNGATED_STEP))
        if sketch is not None:
            inside, residual = sketch.correct(residual)
            phi, safe = phi + inside, 1 / spectrum[-1].clamp(min=1.0)
        return richardson(phi, residual, precondition, safe * controller.rho.unsqueeze(1))

    def _refine(self, targets, probe, operator, precondition, sketch, controller) -> None:
        """Trigger: anchors that move some example a lot, relative to the bank, with low confidence get a short (sketch) PCG."""
        reach = probe.inner(self.certified).abs().amax(0)
        distributed.max_(reach)
        doubt = torch.where(controller.confidence < LOW_CONFIDENCE, 1 - controller.confidence, 0)
        need = quotient(reach, reach.median()) * doubt
        chosen = need.topk(self.slots).indices
        flagged = (need[chosen] >= LOW_CONFIDENCE).unsqueeze(1)
        inverse = sketch.precondition(precondition) if sketch and self.config.refiner == "sketch_pcg" else precondition
        start = self.phi[chosen]
        refined = conjugate_gradient(targets[chosen], start, operator, inverse, self.config.refine_steps)
        refined = torch.where(flagged & torch.isfinite(norms(refined)), refined, start)
        self.phi = self.phi.index_copy(0, chosen, refined)
        self.events[1] += flagged.sum()
