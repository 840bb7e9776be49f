"""What retraining says: random halves, and leaving out one example of a convex model, exactly, or of the network.

Trainings of convolutional networks take long, so the margins of a few halves at a time are kept in files of their own.
Several processes may share them out (`train_halves`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif.bench.fidelity.image_networks import retrain_images
from sgoif.bench.fidelity.problem import AttributionProblem
from sgoif.bench.fidelity.retrain import NetworkRecipe, margins, train_many
from sgoif.errors import UserError
from sgoif.utils.files import load_npz, save_npz

NEWTON_STEPS = 50
TOLERANCE = 1e-9
MIN_LENGTH = 2.0**-10  # of a Newton step, at which rounding is all that is left
LEAVE_ONE_OUT_STEPS = 100  # of Newton's method with the curvature of all examples
NETWORKS_AT_ONCE = 128
HALVES_A_FILE = 8  # of convolutional networks


def compute_truth(problem: AttributionProblem, spec: dict[str, Any], folder: Path) -> dict[str, np.ndarray]:
    """Retrain, and return what the measurement needs.

    Args:
        problem: The problem.
        spec: The measurement's part of the configuration.
        folder: Where margins of convolutional networks are kept while the rest is trained.

    Returns:
        `masks` [S, N] (which examples are in a half) and `margins` [R, S, M] of the targets, one for each repeat. For
        perceptrons also `convex` [N, M]: how much leaving out an example raises each target's loss by logistic
        regression, and with `leave_one_out: true`, `network` [N, M]: the same for the network, from the same start with
        the same batches.
    """
    masks = random_halves(problem, spec["subsets"])
    found = {"masks": masks.cpu().numpy().astype(np.uint8)}
    if problem.images:
        train_halves(problem, spec, folder)
        return found | {"margins": _kept_margins(spec, folder)}
    repeats = [half_margins(problem, masks, repeat) for repeat in range(spec["repeats"])]
    found |= {
        "margins": torch.stack(repeats).cpu().numpy(),
        "convex": exact_leave_one_out(problem.convex()).cpu().numpy(),
    }
    if spec["leave_one_out"]:
        found["network"] = network_leave_one_out(problem).cpu().numpy()
    return found


def train_halves(
    problem: AttributionProblem,
    spec: dict[str, Any],
    folder: Path,
    worker: int = 0,
    workers: int = 1,
    go_on: Callable[[], bool] = lambda: True,
) -> None:
    """Train convolutional networks on the halves whose margins are not in `folder` yet.

    Args:
        problem: The problem.
        spec: The measurement's part of the configuration.
        folder: Where the margins go, a file for every few halves.
        worker: Number of this process.
        workers: Number of processes that share the halves.
        go_on: Asked before every file; on False the rest is left to the next call.
    """
    masks = random_halves(problem, spec["subsets"])
    for number, (repeat, start) in enumerate(_files(spec)):
        path = _margin_file(folder, repeat, start)
        if number % workers != worker or path.is_file():
            continue
        if not go_on():
            return
        rows = range(start, min(start + HALVES_A_FILE, spec["subsets"]))
        seeds = [_half_seed(problem, repeat) + row for row in rows]
        found, _ = _retrain_images(problem, masks[start : rows.stop], seeds)
        save_npz(path, margins=found.numpy())


def _files(spec: dict[str, Any]) -> list[tuple[int, int]]:
    """Return repeat and first half of every file of margins."""
    return [(r, start) for start in range(0, spec["subsets"], HALVES_A_FILE) for r in range(spec["repeats"])]


def missing_files(spec: dict[str, Any], folder: Path) -> list[Path]:
    """Return the files of margins that `train_halves` has not written yet."""
    paths = [_margin_file(folder, repeat, start) for repeat, start in _files(spec)]
    return [path for path in paths if not path.is_file()]


def _margin_file(folder: Path, repeat: int, start: int) -> Path:
    return Path(folder) / f"halves{start}-repeat{repeat}.npz"


def _kept_margins(spec: dict[str, Any], folder: Path) -> np.ndarray:
    """Return the margins of all halves, shape [R, S, M], from their files."""
    found: list[list[np.ndarray]] = [[] for _ in range(spec["repeats"])]
    for repeat, start in _files(spec):
        found[repeat].append(load_npz(_margin_file(folder, repeat, start))["margins"])
    return np.stack([np.concatenate(parts) for parts in found])


def random_halves(problem: AttributionProblem, count: int) -> Tensor:
    """Return 1 for the examples of each of `count` random halves, else 0, shape [S, N]."""
    generator = problem.generator("subsets")
    masks = torch.zeros(count, problem.n)
    for mask in masks:
        mask[torch.randperm(problem.n, generator=generator)[: problem.n // 2]] = 1
    return masks.to(problem.x.device)


def retrain(problem: AttributionProblem, masks: Tensor, seed: int, same_start: bool = False) -> tuple[Tensor, Tensor]:
    """Train on each subset; return margins and predicted classes of the targets, both of shape [S, M]."""
    if problem.images:
        return _retrain_images(problem, masks, [seed + (0 if same_start else row) for row in range(len(masks))])
    parts = []
    for number, chunk in enumerate(masks.split(NETWORKS_AT_ONCE)):
        shift = 0 if same_start else number
        layers = train_many(
            problem.x, problem.labels, problem.n_classes, chunk, problem.recipe, seed + 10**6 * shift, same_start
        )
        parts.append(margins(layers, problem.target_x, problem.target_y))
    return torch.cat([m for m, _ in parts]), torch.cat([p for _, p in parts])


def half_margins(problem: AttributionProblem, masks: Tensor, repeat: int) -> Tensor:
    """Return the targets' margins after training on each half, from other initial weights in every repeat, [S, M]."""
    return retrain(problem, masks, _half_seed(problem, repeat))[0]


def _half_seed(problem: AttributionProblem, repeat: int) -> int:
    return problem.seed_of("halves") + 10**9 * (repeat + 1)


def _retrain_images(problem: AttributionProblem, masks: Tensor, seeds: list[int]) -> tuple[Tensor, Tensor]:
    assert problem.images is not None
    return retrain_images(problem.images, masks, seeds, problem.target_x, problem.target_y)


def network_leave_one_out(problem: AttributionProblem) -> Tensor:
    """Return by how much leaving out an example raises each target's loss, shape [N, M], all else equal."""
    everything = torch.ones(1, problem.n, device=problem.x.device)
    masks = torch.cat([everything, 1 - torch.eye(problem.n, device=problem.x.device)])
    loss = F.softplus(-retrain(problem, masks, problem.seed_of("run"), same_start=True)[0])
    return loss[1:] - loss[:1]


def convex_optimum(problem: AttributionProblem) -> tuple[Tensor, Tensor]:
    """Return weights [d + 1, C] of logistic regression at its optimum, and the curvature there, in double precision."""
    a, onehot = _augmented(problem.x), F.one_hot(problem.labels, problem.n_classes).double()
    weights = a.new_zeros(a.shape[1], problem.n_classes)
    decay = problem.recipe.weight_decay

    def objective(w: Tensor) -> Tensor:
        return F.cross_entropy(a @ w, problem.labels) + decay / 2 * w.square().sum()

    for _ in range(NEWTON_STEPS):
        p = (a @ weights).softmax(1)
        gradient = a.T @ (p - onehot) / len(a) + decay * weights
        curvature = _curvature(a, p, problem.recipe)
        if gradient.norm() < TOLERANCE:
            return weights, curvature
        step = torch.linalg.solve(curvature, gradient.flatten()).view_as(weights)
        length = 1.0
        while objective(weights - length * step) > objective(weights) and length > MIN_LENGTH:
            length /= 2
        weights = weights - length * step
    raise UserError(
        f"logistic regression: Newton's method did not converge in {NEWTON_STEPS} steps; raise weight_decay"
    )


def exact_leave_one_out(problem: AttributionProblem) -> Tensor:
    """Return by how much leaving out an example raises each target's loss by logistic regression, shape [N, M].

    All N optima are found at once: Newton's method from the common optimum, with the curvature of all examples.
    """
    start, curvature = convex_optimum(problem)
    factor = torch.linalg.cholesky(curvature)
    a, onehot = _augmented(problem.x), F.one_hot(problem.labels, problem.n_classes).double()
    n = len(a)
    weights = start.expand(n, -1, -1).clone()
    for _ in range(LEAVE_ONE_OUT_STEPS):
        error = (a @ weights).softmax(2) - onehot  # [N models, N examples, C]
        error.diagonal(dim1=0, dim2=1).zero_()  # model i has no example i
        gradient = a.T @ error / (n - 1) + problem.recipe.weight_decay * weights
        step = torch.cholesky_solve(gradient.flatten(1).T, factor).T
        weights = weights - step.view_as(weights)
        if step.abs().max() < TOLERANCE:
            break
    else:
        raise UserError("leave-one-out of logistic regression did not converge; raise weight_decay")
    targets = _augmented(problem.target_x)

    def losses(w: Tensor) -> Tensor:
        log_p = (targets @ w).log_softmax(-1)
        own = problem.target_y.expand(*log_p.shape[:-1]).unsqueeze(-1)
        return -log_p.gather(-1, own).squeeze(-1)

    return losses(weights) - losses(start)


def _augmented(x: Tensor) -> Tensor:
    return F.pad(x.double(), (0, 1), value=1.0)


def _curvature(a: Tensor, p: Tensor, recipe: NetworkRecipe) -> Tensor:
    """Return the Hessian of the regularised mean loss, shape [(d + 1) C, (d + 1) C]."""
    outputs = torch.diag_embed(p) - p.unsqueeze(2) * p.unsqueeze(1)
    products = torch.einsum("nd,nce,nf->dcfe", a, outputs, a) / len(a)
    size = a.shape[1] * p.shape[1]
    eye = torch.eye(size, dtype=a.dtype, device=a.device)
    return products.reshape(size, size) + recipe.weight_decay * eye
