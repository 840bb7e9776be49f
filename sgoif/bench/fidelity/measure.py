"""How well effects agree with retraining: linear datamodeling score, leave-one-out, counterfactual removal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif.bench.fidelity.methods import Attribution
from sgoif.bench.fidelity.problem import AttributionProblem
from sgoif.bench.fidelity.truth import retrain

JACKKNIFE_GROUPS = 16


@dataclass(frozen=True)
class WithError:
    """A number and its standard error, which is None where there is none."""

    value: float
    error: float | None = None


def average_ranks(values: Tensor) -> Tensor:
    """Return the rank of each value in its column, shape [n, m]; equal values have the mean of their ranks."""
    columns = values.double().T.contiguous()
    in_order = columns.sort(1).values
    below, up_to = (torch.searchsorted(in_order, columns, right=right) for right in (False, True))
    return ((below + up_to + 1) / 2).double().T


def rank_correlation(a: Tensor, b: Tensor) -> Tensor:
    """Return Spearman's correlation of each column, shape [m], of two tensors [n, m]; 0 where one is constant."""
    left, right = (ranks - ranks.mean(0) for ranks in (average_ranks(a), average_ranks(b)))
    return ((left * right).sum(0) / (left.norm(dim=0) * right.norm(dim=0))).nan_to_num(0)


def spearman(a: Tensor | Sequence[float], b: Tensor | Sequence[float]) -> float:
    """Return the rank correlation of two vectors; 0 where one of them is constant."""
    return rank_correlation(*(torch.as_tensor(values)[:, None] for values in (a, b))).item()


def lds(effects: Tensor, masks: Tensor, outcome: Tensor) -> WithError:
    """Return the linear datamodeling score: the rank correlation over subsets, mean over targets.

    The standard error has two parts: of the subsets, by a jackknife over groups of them, and of the targets.

    Args:
        effects: Shape [M, N].
        masks: 1 for the examples in a subset, shape [S, N].
        outcome: The larger, the better the target is predicted after training on the subset, shape [S, M].
    """
    predicted = masks.double() @ effects.double().T
    of_targets = rank_correlation(predicted, outcome)
    group = torch.arange(len(masks)) % JACKKNIFE_GROUPS
    left_out = [rank_correlation(predicted[group != g], outcome[group != g]).mean() for g in range(JACKKNIFE_GROUPS)]
    spread = torch.stack(left_out).var(correction=0) * (JACKKNIFE_GROUPS - 1)
    if outcome.shape[1] > 1:
        spread = spread + of_targets.var() / outcome.shape[1]
    return WithError(of_targets.mean().item(), math.sqrt(spread.item()))


def ceiling(margins: Tensor) -> float | None:
    """Return the LDS that the mean of the repeats, free of noise, would have; None with one repeat.

    Between two repeats the correlation r is that of two noisy measurements. The mean of R repeats has the reliability
    R r / (1 + (R - 1) r), and its root is the highest correlation that a perfect prediction reaches.

    Args:
        margins: Shape [R, S, M].
    """
    repeats = len(margins)
    if repeats < 2:
        return None
    pairs = [rank_correlation(margins[i], margins[j]).mean() for i in range(repeats) for j in range(i)]
    r = max(0.0, torch.stack(pairs).mean().item())
    return math.sqrt(repeats * r / (1 + (repeats - 1) * r))


def agreement(effects: Tensor, changes: Tensor) -> WithError:
    """Return the rank correlation over examples of effects [M, N] with changed losses [N, M], mean over targets."""
    found = rank_correlation(effects.T.double(), changes.double())
    return WithError(found.mean().item(), (found.std() / math.sqrt(len(found))).item())


def removal(effects: Tensor, problem: AttributionProblem, spec: Mapping[str, Any]) -> WithError:
    """Return how often a right prediction changes if the examples that support it most are left out.

    Compared are trainings from the same start with the same batches.
    """
    seed = problem.seed_of("removal")
    device = problem.x.device
    everything = torch.ones(1, problem.n, device=device)
    _, before = retrain(problem, everything, seed, same_start=True)
    right = (before[0] == problem.target_y).nonzero().flatten()[: spec["removal_targets"]]
    masks = torch.ones(len(right), problem.n, device=device)
    most = effects[right.cpu()].topk(spec["removed"], dim=1).indices.to(device)
    masks.scatter_(1, most, 0)
    _, after = retrain(problem, masks, seed, same_start=True)
    own = torch.arange(len(right), device=device)
    changed = (after[own, right] != before[0, right]).double()
    share = changed.mean().item()
    return WithError(share, math.sqrt(share * (1 - share) / len(right)))


def measure(
    attribution: Attribution,
    convex: Attribution | None,
    problem: AttributionProblem,
    truth: Mapping[str, np.ndarray],
    spec: Mapping[str, Any],
) -> dict[str, WithError]:
    """Compare the effects of a method with retraining.

    Args:
        attribution: Effects for the network.
        convex: Effects for logistic regression; None if the method has none of single targets.
        problem: The problem.
        truth: What `compute_truth` returned.
        spec: The measurement's part of the configuration.

    Returns:
        Numbers by metric; a metric that the method has no answer to is left out.
    """
    masks, margins = torch.tensor(truth["masks"]), torch.tensor(truth["margins"])
    outcome = margins.mean(0)
    mean_loss = F.softplus(-margins).mean((0, 2)).unsqueeze(1)
    found = {"lds_mean": lds(attribution.effects.sum(0, keepdim=True), masks, -mean_loss)}
    if attribution.per_target:
        found["lds"] = lds(attribution.effects, masks, outcome)
        if spec["removal_targets"]:
            found["removal"] = removal(attribution.effects, problem, spec)
        if "network" in truth:
            found["loo_network"] = agreement(attribution.effects, torch.tensor(truth["network"]))
    if convex is not None:
        found["loo"] = agreement(convex.effects, torch.tensor(truth["convex"]))
    found["passes"] = WithError(attribution.passes / (problem.n * problem.recipe.epochs * 3))
    found["seconds"] = WithError(attribution.seconds)
    return found
