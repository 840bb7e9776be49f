"""What can be read from an engine: scores, counters, what the last check found, contributions of the anchors."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sgoif._engine import Engine
from sgoif._parts import EVENTS, REPORTED_EVENTS
from sgoif.anchors.external import anchor_predictions
from sgoif.backend.linalg import tf32_products
from sgoif.label_noise.evidence import SCATTERED_POWER, SCATTERED_WEIGHT, weigh_signals, with_unused_classes
from sgoif.label_noise.held_out_evidence import FeatureMatrix, read_held_out_heads
from sgoif.result import InfluenceResult
from sgoif.scores.features import FeatureMemory

SEEN_INFLUENCE_WEIGHT = 1.0  # of the influence at noise entropy 1 beside held-out margins: its head has seen the labels
MOST_NOT_FINITE = 0.01  # share of the steps above which outputs that are not finite are told
LEAST_SEEN = 0.1  # share of the examples below which the indices of a loop are doubted
MIN_EXAMPLES_PER_CLASS = 10  # below that too few are left for heads that leave out a fold


@dataclass(frozen=True)
class CheckDiagnostics:
    """What the last check found. The tensors are device scalars; call `synchronise` before you read them."""

    step: int  # training steps so far
    checks: int  # checks so far
    hvps: int  # curvature-vector products so far
    residual: Tensor  # mean over the anchors of the relative residual R_v
    confidence: Tensor  # mean over the anchors of the confidence c_v
    tolerance: Tensor  # tau_t
    step_size: Tensor  # mean over the anchors of the step size, in units of the largest safe step
    lambda_min: Tensor  # smallest eigenvalue of the Gram matrix of the unit phi_v, at the last coverage check


def read_scores(engine: Engine) -> InfluenceResult:
    """Score what is queued and return the result so far; trusted anchors pass once more to tell what labels mean."""
    engine.require_steps("scores()")
    config, trusted = engine.config, None
    engine.drop_features_if_layers_were_trained()
    with torch.inference_mode(False), torch.autocast(engine.scope.device.type, enabled=False):
        with engine.stream.run(engine.queue.tensors()):
            engine.score_queue()
        engine.stream.synchronise()
        engine.raise_out_of_range()
        if engine.anchor_cycle is not None and config.source == "trusted" and config.memory:
            trusted = anchor_predictions(engine.hooks, engine.anchor_cycle.read_beside())
        result = InfluenceResult.from_statistics(
            engine.visits, engine.predictions, config, read_counters(engine), describe_scope(engine), trusted
        )
        _warn_of_wrong_loops(engine, result)
        if engine.features is None or engine.predictions is None:
            return result
        return judge_by_features(engine.features, engine.predictions.read().labels, engine.n_classes, result)


def _warn_of_wrong_loops(engine: Engine, result: InfluenceResult) -> None:
    """Warn if there is no influence, if outputs were not finite, or if few of the examples were seen."""
    closed = len({segment.epoch for segment in engine.visits.closed})
    epochs = max(closed, engine.steps // max(engine.epoch_steps, 1))  # end_epoch() may have been forgotten
    seen, not_finite = int(result.visited.sum()), int(result.counters["nan_batches"])
    if epochs and not engine.checks:
        interval, wanted = engine.parts.directions.schedule.interval, engine.config.solve_every
        by_budget = f"set hvp_budget larger, which allows a check every {interval} steps, or train for more epochs"
        warnings.warn(
            f"no check was made in {engine.steps} steps, so all influences are 0; "
            + (by_budget if interval > wanted else "set solve_every below the number of steps"),
            stacklevel=5,
        )
    elif epochs and not result.score.any():
        warnings.warn(
            f"all influences are 0 after {engine.steps} steps (checks made: {engine.checks}): train for more epochs, "
            "or set solve_every lower; if that does not help, set damping larger",
            stacklevel=5,
        )
    if not_finite > MOST_NOT_FINITE * engine.steps:
        warnings.warn(
            f"{not_finite:,} of {engine.steps:,} steps had outputs that are not finite. These visits do not count, and "
            f"{engine.n_examples - seen:,} of {engine.n_examples:,} examples have no other visit. Did the "
            "training diverge, or are there missing values among the inputs?",
            stacklevel=5,
        )
    if epochs > 1 and seen < LEAST_SEEN * engine.n_examples:
        warnings.warn(
            f"only {seen:,} of {engine.n_examples:,} examples were watched in {epochs} epochs; is index the position "
            "in the training set, and not in the batch?",
            stacklevel=5,
        )


def judge_by_features(
    memory: FeatureMemory, labels: Tensor, n_classes: int, result: InfluenceResult
) -> InfluenceResult:
    """Return a result whose log-odds and margins come from heads that have not seen the example.

    The influence is that of the trained head, which has learnt a part of the wrong labels by heart, so it counts less.
    With fewer than `MIN_EXAMPLES_PER_CLASS` examples a class, or if all have the same features, the result is returned
    as it is.

    Args:
        memory: Features of the examples.
        labels: Labels, shape [N]; they count where an example was visited.
        n_classes: Number of classes.
        result: What the trained head says.
    """
    features, visited = memory.read()
    labels, visited = labels[visited].cpu(), visited.cpu()
    used, place = labels.unique(return_inverse=True)  # a head may be made for more classes
    if len(features) < MIN_EXAMPLES_PER_CLASS * max(len(used), 1) or bool((features == features[0]).all()):
        return result
    with tf32_products(enabled=False):
        found = read_held_out_heads(FeatureMatrix(features), place, len(used), seed=0)
    scattered = found.noise_entropy**SCATTERED_POWER
    factors = (SEEN_INFLUENCE_WEIGHT * scattered, SCATTERED_WEIGHT * scattered)
    _, weights = weigh_signals(result.score[visited], found.margin, found.log_odds.unsqueeze(0), factors)
    log_odds, margin = torch.zeros(len(visited)), torch.zeros(len(visited))
    log_odds[visited], margin[visited] = found.log_odds, found.margin
    return replace(
        result,
        log_odds=log_odds,
        margin=margin,
        excess=torch.zeros(len(visited)),
        transition=with_unused_classes(found.transition, used, n_classes),
        noise_entropy=found.noise_entropy,
        weights=weights,
    )


def read_counters(engine: Engine) -> dict[str, float]:
    """Return what the run has cost and met so far; waits for the device."""
    engine.stream.synchronise()
    directions = engine.parts.directions
    restarts, triggers = directions.events.tolist()
    events = dict(zip(EVENTS, engine.parts.events.tolist(), strict=True))
    return {
        "steps": engine.steps,
        "checks": engine.checks,
        "hvps": directions.hvps,
        "hvps_per_step": directions.hvps / max(engine.steps, 1),
        "restarts": restarts,
        "triggers": triggers,
        **{name: events[name] for name in REPORTED_EVENTS},
        "temperature": float(engine.temperature()),
    }


def read_diagnostics(engine: Engine) -> CheckDiagnostics:
    """Return what the last check found, without waiting for the device."""
    controller = engine.parts.controller
    with engine.stream.run():
        return CheckDiagnostics(
            step=engine.steps,
            checks=engine.checks,
            hvps=engine.parts.directions.hvps,
            residual=controller.residual.mean(),
            confidence=controller.confidence.mean(),
            tolerance=controller.tolerance.clone(),
            step_size=controller.step_size.mean(),
            lambda_min=engine.parts.anchors.lambda_min.clone(),
        )


def read_contributions(
    engine: Engine, index: Tensor, labels: Tensor, features: Tensor, logits: Tensor
) -> tuple[Tensor, Tensor]:
    """Split the scores of a batch by anchor: contributions, shape [n, K], and a mask of the finite examples, [n]."""
    engine.stream.synchronise()
    batch = engine.hooks.head_batch(features, logits, index, labels, engine.temperature())
    weights = engine.parts.controller.anchor_weights() * engine.parts.anchors.prior()
    return -batch.dot(engine.parts.directions.phi.nan_to_num(0.0)) * weights, batch.valid


def describe_scope(engine: Engine) -> dict[str, Any]:
    """Return the layers in scope, the parameters left out, and the sizes of the problem."""
    return {
        "layers": list(engine.hooks.layers),
        "left_out": engine.hooks.left_out,
        "dimension": engine.hooks.space.dim,
        "curvature": engine.config.curvature,
        "anchors": engine.parts.anchors.count,
    }
