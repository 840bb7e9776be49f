"""`InfluenceConfig`: every choice of the method, one field each, with its meaning beside it.

The defaults were chosen on tuning noise (`docs/measurements.md` has the figures): last layer, Kronecker-factored
curvature, class-balanced streaming anchors weighted by p_y, temperature 4 at ten classes, the second half of
training. Every ablation of the paper is one changed field: `InfluenceConfig.ablations()`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from sgoif.errors import InfluenceError

CHOICES = {
    "curvature": ("kfac", "diagonal", "fisher", "lowrank"),
    "source": ("stream", "heldout", "trusted"),
    "solver": ("richardson", "neumann", "pcg", "direct"),
    "gate": ("stability", "moving_average", "none"),
    "weighting": ("confidence", "uniform"),
    "tolerance": ("relative", "literal"),
    "refiner": ("sketch_pcg", "cg"),
}


def option(default: Any, help: str) -> Any:
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class InfluenceConfig:
    """Settings of `OnlineInfluence`; `help()` prints the table of fields."""

    scope: str = option("head", "parameters g and phi live in: 'head', 'blocks:<regex of module names>' or 'all'")
    head: str = option("", "name of the classifying Linear layer; '' = the last one with n_classes outputs")
    curvature: str = option("kfac", "backend of H_t: kfac, diagonal, fisher or lowrank")
    damping: float = option(1.0, "damping relative to the mean eigenvalue (of each Kronecker factor, for kfac)")
    anchors: int = option(0, "number of anchors K; 0 = one per class; a multiple of n_classes, or fewer than n_classes")
    source: str = option(
        "stream", "where anchors come from: stream (training batches), heldout or trusted (given data)"
    )
    anchor_examples: int = option(
        512,
        "of given anchor data, examples that pass at a check after the first; of more, the next batches in turn, or as "
        "many as it takes for all to pass within about an epoch",
    )
    half_life: float = option(0.25, "half-life of anchor gradients and curvature averages, in epochs: shorter than one")
    temperature: float = option(
        4.0,
        "softens the softmax inside every gradient; stated for up to ten classes, above 1 + (T - 1) sqrt(10 / C); "
        "0 = calibrate on the streaming NLL",
    )
    solver: str = option(
        "richardson", "how phi_v follows H^-1 g_v: richardson, neumann, pcg or direct (P^-1 g_v alone)"
    )
    precondition: bool = option(True, "precondition the solvers by the backend's inverse; False = a scalar")
    rank: int = option(8, "rank r of the streaming subspace that solves the dominant directions exactly; 0 = none")
    solve_every: int = option(50, "steps between two checks of the residual (each followed by one solver step)")
    update_every: int = option(16, "outside head scope, steps between two updates of curvature and anchors")
    probe_examples: int = option(1024, "examples, newest first, whose curvature makes the residual")
    deep_examples: int = option(
        128, "examples of such a step that enter curvature and anchors outside head scope; their gradients are held"
    )
    depth: int = option(4, "largest truncation depth of the Neumann series")
    gate: str = option("stability", "confidence gate: stability, moving_average or none (then no step control either)")
    tolerance: str = option(
        "relative", "tau_t: relative (beta, Gamma over their running medians) or literal (as printed)"
    )
    kappa: float = option(
        2.0,
        "stability scale: tau_t = kappa beta_t Gamma_t; at 2, a calm late phase (beta at half its median) has tau = 1",
    )
    gamma1: float = option(1.0, "weight of lr x gradient norm in the stability proxy beta_t")
    gamma2: float = option(1.0, "weight of the weight decay in the stability proxy beta_t")
    weighting: str = option(
        "confidence",
        "weights of the anchors in a score: confidence (t_v^2 / sum t_u, t_v = min(1, 2 c_v)) or uniform (1/K)",
    )
    trigger: bool = option(True, "refine anchors that matter (large |phi_v.g_i|) but are not trusted (low c_v)")
    refiner: str = option(
        "sketch_pcg", "what the trigger runs: sketch_pcg (subspace preconditioner) or cg (without it)"
    )
    refine_steps: int = option(4, "conjugate-gradient iterations of one refinement")
    hvp_budget: float = option(
        8.0,
        "curvature-vector products per training step that checks and refinements may use; stated for up to fifty "
        "classes, with more of them fewer, down to a quarter",
    )
    coverage: float = option(
        0.1, "refresh an anchor when lambda_min of the Gram matrix of the unit phi falls below this"
    )
    coverage_every: int = option(10, "checks between two looks at the Gram matrix")
    window: float = option(0.5, "last fraction of training whose visits make the score")
    memory: bool = option(
        True, "keep the mean predictions [N, C], so that latent classes speak in `suspicion` beside the anchors"
    )
    alpha: float = option(0.05, "1 - level of the empirical-Bernstein interval")

    def __post_init__(self) -> None:
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise InfluenceError(
                    f"InfluenceConfig.{name} = {getattr(self, name)!r}: choose one of {', '.join(allowed)}"
                )
        if self.scope not in ("head", "all") and not self.scope.startswith("blocks:"):
            raise InfluenceError(f"InfluenceConfig.scope = {self.scope!r}: use 'head', 'all' or 'blocks:<regex>'")
        if self.scope.startswith("blocks:"):
            try:
                re.compile(self.scope.removeprefix("blocks:"))
            except re.error as error:
                raise InfluenceError(
                    f"InfluenceConfig.scope: {self.scope!r} is not a regular expression ({error})"
                ) from error
        for name in ("damping", "half_life", "kappa", "hvp_budget"):
            self._require(name, getattr(self, name) > 0, "must be positive")
        for name in ("anchors", "temperature", "rank", "gamma1", "gamma2", "coverage"):
            self._require(name, getattr(self, name) >= 0, "must not be negative")
        for name in (
            "anchor_examples",
            "solve_every",
            "update_every",
            "probe_examples",
            "deep_examples",
            "depth",
            "refine_steps",
            "coverage_every",
        ):
            self._require(name, getattr(self, name) >= 1, "must be at least 1")
        for name in ("window", "alpha"):
            self._require(name, 0 < getattr(self, name) <= 1, "must lie in (0, 1]")

    def _require(self, name: str, holds: bool, rule: str) -> None:
        if not holds:
            raise InfluenceError(f"InfluenceConfig.{name} = {getattr(self, name)!r}: {rule}")

    def softening(self, n_classes: int) -> float:
        """The temperature at `n_classes`. The probability of the top class falls with the number of its rivals as it
        falls with T: what is a moderate softening among ten classes would leave nothing of it among a hundred."""
        return 1 + (self.temperature - 1) * min(1.0, 10 / n_classes) ** 0.5

    def budget(self, n_classes: int) -> float:
        """The `hvp_budget` at `n_classes`: what a product costs grows with their number."""
        return self.hvp_budget * min(1.0, max(0.25, 50 / n_classes))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> InfluenceConfig:
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise InfluenceError(
                f"InfluenceConfig has no field {', '.join(unknown)}; it has {', '.join(sorted(known))}"
            )
        return cls(**values)

    @classmethod
    def help(cls) -> dict[str, str]:
        """Field -> what it means."""
        return {f.name: f.metadata["help"] for f in fields(cls)}

    @staticmethod
    def ablations() -> dict[str, dict[str, Any]]:
        """Name of the variant in the paper -> the one field it changes."""
        return {
            "Full": {},
            "w/o Stability Gate": {"gate": "none"},
            "Moving-Average Gate": {"gate": "moving_average"},
            "w/o Sketch PCG": {"refiner": "cg"},
            "w/o Confidence Calibration": {"weighting": "uniform"},
            "w/o Temperature": {"temperature": 1.0},
            "w/o LowRank": {"rank": 0},
            "w/o Preconditioning": {"precondition": False},
            "w/o Refinement Trigger": {"trigger": False},
        }

    def variant(self, name: str) -> InfluenceConfig:
        """This configuration with one ablation of the paper applied."""
        if name not in self.ablations():
            raise InfluenceError(f"no ablation {name!r}; there are {', '.join(self.ablations())}")
        return replace(self, **self.ablations()[name])
