"""`InfluenceConfig`: the settings of the method, one field each, with a help text beside it.

The defaults were chosen on tuning noise (figures in `docs/lab-notebook/defaults.md`): last layer, Kronecker-factored
curvature, streaming anchors of one class each, weighted by p_y, temperature 4 at ten classes, the second half of
training. Every ablation of the paper changes one field: `InfluenceConfig.ablations()`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from sgoif.errors import InfluenceError, wrong_type

CHOICES = {
    "curvature": ("kfac", "diagonal", "fisher", "lowrank"),
    "source": ("stream", "heldout", "trusted"),
    "solver": ("richardson", "neumann", "pcg", "direct"),
    "gate": ("stability", "moving_average", "none"),
    "weighting": ("confidence", "uniform"),
    "anchor_prior": ("labels", "uniform"),
    "tolerance": ("relative", "literal"),
    "refiner": ("sketch_pcg", "cg"),
}


def option(default: Any, help: str) -> Any:
    """Return a dataclass field with a help text."""
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class InfluenceConfig:
    """Settings of `OnlineInfluence`; `InfluenceConfig.help()` returns the help text of every field.

    Raises:
        InfluenceError: If a value is not allowed; the message names the field.
    """

    # scope
    scope: str = option(
        "head", "Parameters that gradients refer to: 'head', 'blocks:<regex of module names>' or 'all'."
    )
    head: str = option("", "Name of the classifying Linear layer; '' is the last one with n_classes outputs.")
    update_every: int = option(16, "In deep scopes, steps between two updates of curvature and anchors.")
    deep_examples: int = option(
        128, "In deep scopes, examples of such a step that enter curvature and anchors; their gradients are stored."
    )

    # anchors
    anchors: int = option(
        0, "Number of anchors K; 0 is one per class. Use a multiple of n_classes, or fewer than n_classes."
    )
    source: str = option(
        "stream", "Where anchors come from: 'stream' (training batches), 'heldout' or 'trusted' (external data)."
    )
    anchor_examples: int = option(
        512,
        "Number of external anchor examples evaluated per check, or as many as let all of them pass within about an "
        "epoch, if that is more.",
    )
    anchor_prior: str = option(
        "labels", "How anchors count in a score: 'labels' (by the share of their class) or 'uniform' (all alike)."
    )
    half_life: float = option(
        0.25, "Half-life of the averages of anchor gradients and curvature, in epochs; shorter than one epoch."
    )
    coverage: float = option(
        0.1, "An anchor is refreshed when lambda_min of the Gram matrix of the unit phi falls below this."
    )
    coverage_every: int = option(
        0, "Checks between two coverage checks; the paper's part. 0 is never: no regime was found in which it helps."
    )

    # curvature
    curvature: str = option("kfac", "Backend of the curvature: 'kfac', 'diagonal', 'fisher' or 'lowrank'.")
    damping: float = option(1.0, "Damping relative to the mean eigenvalue (of each Kronecker factor, for kfac).")
    temperature: float = option(
        4.0,
        "Softens the softmax inside every gradient. Value for C <= 10 classes; for more, 1 + (T - 1) * sqrt(10 / C) is "
        "used. 0 calibrates it on the streaming NLL.",
    )

    # solver
    solver: str = option(
        "richardson", "How phi_v follows H^-1 g_v: 'richardson', 'neumann', 'pcg' or 'direct' (P^-1 g_v alone)."
    )
    precondition: bool = option(True, "Precondition the solvers by the backend's inverse; False uses a scalar.")
    rank: int = option(8, "Rank r of the streaming subspace in which systems are solved exactly; 0 is none.")
    depth: int = option(4, "Largest truncation depth of the Neumann series.")
    trigger: bool = option(
        False,
        "Refine anchors of large effect (|phi_v.g_i|) and low confidence c_v; no published run with the default gate"
        " needed it.",
    )
    refiner: str = option(
        "sketch_pcg", "What a refinement runs: 'sketch_pcg' (preconditioned by the subspace) or 'cg' (without it)."
    )
    refine_steps: int = option(4, "Conjugate-gradient iterations of one refinement.")

    # stability
    gate: str = option(
        "stability", "Confidence gate: 'stability', 'moving_average' or 'none' (without step-size control, too)."
    )
    tolerance: str = option(
        "relative", "tau_t: 'relative' (beta and Gamma over their running medians) or 'literal' (as printed)."
    )
    kappa: float = option(
        2.0,
        "Stability scale, tau_t = kappa beta_t Gamma_t. At 2, a calm late phase (beta at half its median) has tau = 1.",
    )
    gamma1: float = option(1.0, "Weight of learning rate times gradient norm in the stability proxy beta_t.")
    gamma2: float = option(1.0, "Weight of the weight decay in the stability proxy beta_t.")
    weighting: str = option(
        "confidence",
        "Weights of the anchors in a score: 'confidence' (t_v^2 / sum t_u, t_v = min(1, 2 c_v)) or 'uniform' (1 / K).",
    )

    # schedule
    solve_every: int = option(
        100,
        "Most steps between checks (also at least one per epoch, of as many steps as the first batch fits into "
        "`n_examples`; fewer if `hvp_budget` would be exceeded).",
    )
    hvp_budget: float = option(
        8.0,
        "Curvature-vector products per training step that checks and refinements may use. Budget for C <= 50 classes; "
        "multiplied by max(50 / C, 0.25) above.",
    )
    probe_examples: int = option(
        1024,
        "Number of newest examples whose curvature the residual is measured with; in head scope at most a quarter of "
        "the training set.",
    )

    # scores
    window: float = option(0.5, "Last fraction of training whose visits make the score.")
    memory: bool = option(
        True,
        "Keep mean predictions and class influences, both [N, C]. Without them `suspicion` is the influence alone.",
    )
    keep_features: bool = option(
        True,
        "Where only the head is trained, keep the features [N, d] of all examples (at most 8,192 each, 2^28 numbers in "
        "all), so that heads that have not seen an example judge its label.",
    )
    alpha: float = option(0.05, "1 - level of the interval of a score.")

    def __post_init__(self) -> None:
        wrong = wrong_type(InfluenceConfig, vars(self))
        if wrong:
            self._require(wrong[0], False, wrong[1])
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
        for name in ("anchors", "temperature", "rank", "gamma1", "gamma2", "coverage", "coverage_every"):
            self._require(name, getattr(self, name) >= 0, "must not be negative")
        for name in (
            "anchor_examples",
            "solve_every",
            "update_every",
            "probe_examples",
            "deep_examples",
            "depth",
            "refine_steps",
        ):
            self._require(name, getattr(self, name) >= 1, "must be at least 1")
        for name in ("window", "alpha"):
            self._require(name, 0 < getattr(self, name) <= 1, "must lie in (0, 1]")

    def _require(self, name: str, holds: bool, rule: str) -> None:
        if not holds:
            raise InfluenceError(f"InfluenceConfig.{name} = {getattr(self, name)!r}: {rule}")

    def softening(self, n_classes: int) -> float:
        """Return the temperature for `n_classes`.

        With more classes the probability of the top class is lower already, so the same T would flatten the softmax
        too far.
        """
        return float(1 + (self.temperature - 1) * min(1.0, 10 / n_classes) ** 0.5)

    def budget(self, n_classes: int) -> float:
        """Return the `hvp_budget` for `n_classes`; a product costs more with more classes."""
        return self.hvp_budget * min(1.0, max(0.25, 50 / n_classes))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> InfluenceConfig:
        """Build a configuration from fields by name.

        Args:
            values: Any of the fields; the others keep their defaults.

        Raises:
            InfluenceError: If there is no such field, or a value is not allowed.
        """
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise InfluenceError(
                f"InfluenceConfig has no field {', '.join(unknown)}; it has {', '.join(sorted(known))}"
            )
        return cls(**values)

    @classmethod
    def help(cls) -> dict[str, str]:
        """Return the help text of every field by name."""
        return {f.name: f.metadata["help"] for f in fields(cls)}

    @staticmethod
    def ablations() -> dict[str, dict[str, Any]]:
        """Return the changed field of every ablation, by its name in the paper (the trigger is off by default)."""
        return {
            "Full": {},
            "w/o Stability Gate": {"gate": "none"},
            "Moving-Average Gate": {"gate": "moving_average"},
            "w/o Sketch PCG": {"refiner": "cg"},
            "w/o Confidence Calibration": {"weighting": "uniform"},
            "w/o Temperature": {"temperature": 1.0},
            "w/o LowRank": {"rank": 0},
            "w/o Preconditioning": {"precondition": False},
            "with Refinement Trigger": {"trigger": True},
        }

    def variant(self, name: str) -> InfluenceConfig:
        """Return this configuration with one ablation of the paper applied.

        Args:
            name: A key of `ablations()`.

        Raises:
            InfluenceError: If there is no such ablation.
        """
        if name not in self.ablations():
            raise InfluenceError(f"no ablation {name!r}; there are {', '.join(self.ablations())}")
        return replace(self, **self.ablations()[name])
