"""Methods that say how far every training example supports each target prediction, each at its cost.

All of them analyse the same run (`AnalysedRun`). An effect is on the loss of the target: positive means that training
without the example would raise it. Passes count images through the network beyond plain training, three for a forward
and backward pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sgoif import InfluenceConfig, OnlineInfluence
from sgoif.applications import PredictionInfluence
from sgoif.applications.target_influence import SETTINGS
from sgoif.bench.fidelity.packages import ekfac_effects, trak_effects
from sgoif.bench.fidelity.problem import AttributionProblem
from sgoif.bench.fidelity.run import AnalysedRun, gradient_factors, gradient_products

BACKWARD = 3  # passes that a forward and backward pass counts as
CHECKPOINTS = 4  # of TracIn, evenly over training


@dataclass(frozen=True)
class Attribution:
    """Effects and what they cost.

    Attributes:
        effects: On the loss of each target, shape [M, N]; [1, N] for a method that only knows all targets together.
        passes: Images passed through the network beyond plain training.
        seconds: CPU seconds beyond plain training.
        per_target: Whether the effects are of single targets.
    """

    effects: Tensor
    passes: float
    seconds: float
    per_target: bool = True


def attribute(name: str, problem: AttributionProblem) -> Attribution:
    """Run a method; the time of plain training, measured before it, is taken off.

    Args:
        name: One of `METHODS`.
        problem: The problem.
    """
    start = time.process_time()
    AnalysedRun(problem).train()
    plain = time.process_time() - start
    start = time.process_time()
    effects, passes = METHODS[name].attribute(problem)
    seconds = max(0.0, time.process_time() - start - plain)
    return Attribution(effects.double().cpu(), passes, seconds, METHODS[name].per_target)


def _online(problem: AttributionProblem, config: InfluenceConfig) -> tuple[Tensor, float]:
    run = AnalysedRun(problem)
    targets = problem.target_x, problem.target_y
    with PredictionInfluence(run.model, problem.n, targets, problem.steps, config) as influence:
        run.train(influence.watch, influence.step)
    return influence.effects(), BACKWARD * influence.target_passes


def sgoif_head(problem: AttributionProblem) -> tuple[Tensor, float]:
    """SG-OIF of single predictions, last layer."""
    return _online(problem, replace(SETTINGS, scope="head"))


def sgoif_blocks(problem: AttributionProblem) -> tuple[Tensor, float]:
    """SG-OIF of single predictions, without the first layer."""
    return _online(problem, replace(SETTINGS, scope="blocks:[1-9]") if problem.recipe.hidden else SETTINGS)


def sgoif_all(problem: AttributionProblem) -> tuple[Tensor, float]:
    """SG-OIF of single predictions, all layers: the defaults of `PredictionInfluence`."""
    return _online(problem, SETTINGS)


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


def tracin(problem: AttributionProblem) -> tuple[Tensor, float]:
    """TracIn over the checkpoints of the run, all layers."""
    run = AnalysedRun(problem)
    total = torch.zeros(len(problem.target_y), problem.n, device=problem.x.device)
    epochs = problem.recipe.epochs
    wanted = {round(epochs * (k + 1) / CHECKPOINTS) for k in range(CHECKPOINTS)}
    done, passes = 0, 0

    def after_epoch() -> None:
        nonlocal done, passes
        done += 1
        if done in wanted:
            targets = gradient_factors(run.model, problem.target_x, problem.target_y)
            train = gradient_factors(run.model, problem.x, problem.labels)
            rate = run.optimizer.param_groups[0]["lr"]
            total.add_(gradient_products(targets, train), alpha=rate)
            passes += BACKWARD * (problem.n + len(problem.target_y))

    run.train(after_epoch=after_epoch)
    return total, passes


def inrun_shapley(problem: AttributionProblem) -> tuple[Tensor, float]:
    """In-Run Data Shapley, first order, all layers: products with the targets' gradients at every step."""
    run = AnalysedRun(problem)
    total = torch.zeros(len(problem.target_y), problem.n, device=problem.x.device)

    def before_step(index: Tensor, rate: float) -> None:
        targets = gradient_factors(run.model, problem.target_x, problem.target_y)
        train = gradient_factors(run.model, problem.x[index], problem.labels[index])  # the step's own gradients
        total.index_add_(1, index, gradient_products(targets, train), alpha=rate)

    run.train(before_step=before_step)
    return total, BACKWARD * problem.steps * len(problem.target_y)


def trak(problem: AttributionProblem) -> tuple[Tensor, float]:
    """TRAK from the last checkpoint, by the authors' package."""
    return trak_effects(problem, AnalysedRun(problem).train()), BACKWARD * (problem.n + len(problem.target_y))


def ekfac(problem: AttributionProblem) -> tuple[Tensor, float]:
    """Influence by EK-FAC at the last checkpoint, by the package kronfluence."""
    passes = BACKWARD * (3 * problem.n + len(problem.target_y))  # covariances, eigenvalues, scores
    return ekfac_effects(problem, AnalysedRun(problem).train()), passes


def random_effects(problem: AttributionProblem) -> tuple[Tensor, float]:
    """Random numbers."""
    return torch.randn(len(problem.target_y), problem.n, generator=problem.generator("run")), 0.0


@dataclass(frozen=True)
class AttributionMethod:
    """A row of the table: its title, what computes the effects, and whether they are of single targets."""

    title: str
    attribute: Callable[[AttributionProblem], tuple[Tensor, float]]
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
