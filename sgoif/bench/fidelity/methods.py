"""Methods that say how far every training example supports each target prediction, each at its cost.

All of them analyse the same run (`AnalysedRun`). An effect is on the loss of the target: positive means that training
without the example would raise it. Passes count images through the network beyond plain training, three for a forward
and backward pass.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sgoif import InfluenceConfig, OnlineInfluence
from sgoif.applications import PredictionInfluence
from sgoif.applications.target_influence import SETTINGS
from sgoif.bench.fidelity.packages import (
    EKFAC_DAMPING,
    TRAK_DIMENSION,
    TRAK_REGULARISER,
    ekfac_effects,
    trak_effects,
)
from sgoif.bench.fidelity.problem import AttributionProblem
from sgoif.bench.fidelity.run import AnalysedRun, Factors, gradient_factors, gradient_products, recorded_factors
from sgoif.errors import UserError

BACKWARD = 3  # passes that a forward and backward pass counts as
EXAMPLES_AT_ONCE = 250  # whose gradients TracIn holds


@dataclass(frozen=True)
class Attribution:
    """Effects and what they cost.

    Attributes:
        effects: On the loss of each target, shape [M, N]; [1, N] for a method that only knows all targets together.
        passes: Images passed through the network beyond plain training.
        seconds: Seconds beyond plain training: of the CPU, or wall-clock seconds with a GPU.
        per_target: Whether the effects are of single targets.
    """

    effects: Tensor
    passes: float
    seconds: float
    per_target: bool = True


def attribute(name: str, problem: AttributionProblem, settings: Mapping[str, Any] | None = None) -> Attribution:
    """Run a method; the time of plain training, measured before it, is taken off.

    Args:
        name: One of `METHODS`.
        problem: The problem.
        settings: Settings of the method that differ from its defaults.

    Raises:
        UserError: If the method has no such setting.
    """
    function, settings = METHODS[name].attribute, settings or {}
    try:
        inspect.signature(function).bind(problem, **settings)
    except TypeError as e:
        raise UserError(f"fidelity: settings of {name}: {e}") from None
    start = _seconds(problem)
    AnalysedRun(problem).train()
    plain = _seconds(problem) - start
    start = _seconds(problem)
    effects, passes = function(problem, **settings)
    seconds = max(0.0, _seconds(problem) - start - plain)
    return Attribution(effects.double().cpu(), passes, seconds, METHODS[name].per_target)


def _seconds(problem: AttributionProblem) -> float:
    """Return a clock: CPU seconds of this process, or with a GPU wall-clock seconds once it has finished."""
    if problem.x.device.type != "cuda":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def _online(problem: AttributionProblem, config: InfluenceConfig) -> tuple[Tensor, float]:
    run = AnalysedRun(problem)
    targets = problem.target_x, problem.target_y
    with PredictionInfluence(run.model, problem.n, targets, problem.steps, config) as influence:
        run.train(influence.watch, influence.step)
    return influence.effects(), BACKWARD * influence.target_passes


def sgoif_head(problem: AttributionProblem, **changes: Any) -> tuple[Tensor, float]:
    """SG-OIF of single predictions, last layer."""
    return _online(problem, replace(SETTINGS, scope="head", **changes))


def sgoif_blocks(problem: AttributionProblem) -> tuple[Tensor, float]:
    """SG-OIF of single predictions, without the first layer.

    Raises:
        UserError: If the network is convolutional.
    """
    if problem.images:
        raise UserError("sgoif_blocks is for networks of linear layers; leave it out of `methods`")
    return _online(problem, replace(SETTINGS, scope="blocks:[1-9]") if problem.recipe.hidden else SETTINGS)


def sgoif_all(problem: AttributionProblem, **changes: Any) -> tuple[Tensor, float]:
    """SG-OIF of single predictions, all layers: the defaults of `PredictionInfluence`."""
    return _online(problem, replace(SETTINGS, **changes))


def sgoif_scores(problem: AttributionProblem) -> tuple[Tensor, float]:
    """The scores of `OnlineInfluence` at its defaults, which know neither targets nor test images."""
    run = AnalysedRun(problem)
    config = InfluenceConfig(memory=False)
    with OnlineInfluence(run.model, problem.n, problem.n_classes, config, problem.steps) as influence:
        run.train(influence.watch, lambda: influence.step(run.optimizer), after_epoch=influence.end_epoch)
        return -influence.scores().score.unsqueeze(0), 0.0


def sgoif_all_scores(problem: AttributionProblem) -> tuple[Tensor, float]:
    """The scores of `OnlineInfluence` in scope `all`."""
    run = AnalysedRun(problem)
    config = InfluenceConfig(scope="all", memory=False, update_every=1)
    with OnlineInfluence(run.model, problem.n, problem.n_classes, config, problem.steps) as influence:
        run.train(influence.watch, lambda: influence.step(run.optimizer), after_epoch=influence.end_epoch)
        return -influence.scores().score.unsqueeze(0), 0.0


def tracin(problem: AttributionProblem, checkpoints: int = 4) -> tuple[Tensor, float]:
    """TracIn over checkpoints of the run, evenly over training, all layers."""
    run = AnalysedRun(problem)
    total = torch.zeros(len(problem.target_y), problem.n, device=problem.x.device)
    epochs = problem.recipe.epochs
    wanted = {round(epochs * (k + 1) / checkpoints) for k in range(checkpoints)}
    done, passes = 0, 0

    def after_epoch() -> None:
        nonlocal done, passes
        done += 1
        if done in wanted:
            targets = gradient_factors(run.model, problem.target_x, problem.target_y)
            rate = run.optimizer.param_groups[0]["lr"]
            for rows in torch.arange(problem.n, device=problem.x.device).split(EXAMPLES_AT_ONCE):
                train = gradient_factors(run.model, problem.x[rows], problem.labels[rows])
                total[:, rows] += rate * gradient_products(targets, train)
            passes += BACKWARD * (problem.n + len(problem.target_y))

    run.train(after_epoch=after_epoch)
    return total, passes


def inrun_shapley(problem: AttributionProblem) -> tuple[Tensor, float]:
    """In-Run Data Shapley, first order, all layers: products with the targets' gradients at every step."""
    run = AnalysedRun(problem)
    total = torch.zeros(len(problem.target_y), problem.n, device=problem.x.device)

    @contextmanager
    def watch(index: Tensor, labels: Tensor) -> Iterator[None]:
        targets = gradient_factors(run.model, problem.target_x, problem.target_y)
        train: Factors = []
        with recorded_factors(run.model, train):  # the step's own gradients
            yield
        scale = run.optimizer.param_groups[0]["lr"] * len(index)  # the loss of a step is a mean
        total.index_add_(1, index, gradient_products(targets, train), alpha=scale)

    run.train(watch)
    return total, BACKWARD * problem.steps * len(problem.target_y)


def trak(
    problem: AttributionProblem, dimension: int = TRAK_DIMENSION, regulariser: float = TRAK_REGULARISER
) -> tuple[Tensor, float]:
    """TRAK from the last checkpoint, by the authors' package."""
    effects = trak_effects(problem, AnalysedRun(problem).train(), dimension, regulariser)
    return effects, BACKWARD * (problem.n + len(problem.target_y))


def ekfac(problem: AttributionProblem, damping: float | None = EKFAC_DAMPING) -> tuple[Tensor, float]:
    """Influence by EK-FAC at the last checkpoint, by the package kronfluence."""
    passes = BACKWARD * (3 * problem.n + len(problem.target_y))  # covariances, eigenvalues, scores
    return ekfac_effects(problem, AnalysedRun(problem).train(), damping), passes


def random_effects(problem: AttributionProblem) -> tuple[Tensor, float]:
    """Random numbers."""
    return torch.randn(len(problem.target_y), problem.n, generator=problem.generator("run")), 0.0


@dataclass(frozen=True)
class AttributionMethod:
    """A row of the table: its title, what computes the effects, and whether they are of single targets."""

    title: str
    attribute: Callable[..., tuple[Tensor, float]]
    group: str
    per_target: bool = True


ONLINE, AFTER, REFERENCE = "While the network trains", "After training", "Reference"
METHODS = {
    "sgoif_all": AttributionMethod("SG-OIF, all layers", sgoif_all, ONLINE),
    "sgoif_blocks": AttributionMethod("SG-OIF, without the first layer", sgoif_blocks, ONLINE),
    "sgoif_head": AttributionMethod("SG-OIF, last layer", sgoif_head, ONLINE),
    "sgoif_scores": AttributionMethod("SG-OIF scores for wrong labels", sgoif_scores, ONLINE, per_target=False),
    "sgoif_all_scores": AttributionMethod("the same, all layers", sgoif_all_scores, ONLINE, per_target=False),
    "inrun_shapley": AttributionMethod("In-Run Data Shapley, first order", inrun_shapley, ONLINE),
    "tracin": AttributionMethod("TracIn", tracin, AFTER),
    "trak": AttributionMethod("TRAK, one checkpoint", trak, AFTER),
    "ekfac": AttributionMethod("EK-FAC influence", ekfac, AFTER),
    "random": AttributionMethod("random", random_effects, REFERENCE),
}
