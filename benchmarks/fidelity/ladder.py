"""What each approximation of influence costs, by retraining: from the exact Hessian to the streamed scores.

    python -m benchmarks.fidelity.ladder --data data --out results/fidelity-ladder.json

One small network on the digits. The dampings are chosen on the second pool of images, the numbers are of the first. A
step of the ladder is one matrix at the last checkpoint, inverted with damping times its mean eigenvalue.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.common import run_command
from sgoif.bench.config.resolve import load_config
from sgoif.bench.fidelity.measure import lds
from sgoif.bench.fidelity.problem import AttributionProblem, build_problem
from sgoif.bench.fidelity.run import AnalysedRun, gradient_factors
from sgoif.bench.fidelity.truth import half_margins, random_halves
from sgoif.utils.files import atomic_write_json

CHOSEN_ON, REPORTED_ON = ("second", (101, 102)), ("first", (0, 1, 2))
DAMPINGS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
STEPS = ("hessian", "gauss_newton", "layer_blocks", "kronecker", "none", "last_layer")


def main() -> None:
    """Read the command line, choose the dampings, and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="data", help="folder of the prepared datasets")
    parser.add_argument("--out", default="results/fidelity-ladder.json", help="file of the results")
    parser.add_argument("--halves", type=int, default=192, help="halves that are trained on")
    args = parser.parse_args()
    tuned = [measured(args, CHOSEN_ON[0], seed) for seed in CHOSEN_ON[1]]
    chosen = {step: max(DAMPINGS, key=lambda d, step=step: sum(one[step][d][0] for one in tuned)) for step in STEPS}
    found = [measured(args, REPORTED_ON[0], seed) for seed in REPORTED_ON[1]]
    result: dict[str, Any] = {}
    for step in STEPS:
        values = [one[step][chosen[step]] for one in found]
        error = sum(e * e for _, e in values) ** 0.5 / len(values)
        result[step] = {"damping": chosen[step], "lds": sum(v for v, _ in values) / len(values), "error": error}
        print(f"{step:14s} damping {chosen[step]:<5} LDS {result[step]['lds']:.3f} ± {error:.3f}", flush=True)
    atomic_write_json(Path(args.out), result)


def measured(args: argparse.Namespace, pool: str, seed: int) -> dict[str, dict[float, tuple[float, float]]]:
    """Return LDS and standard error of each step of the ladder and each damping."""
    spec = load_config("configs/fidelity.yaml")["fidelity"]["digits"] | {"pool": pool}
    problem = build_problem(args.data, spec, seed)
    masks = random_halves(problem, args.halves)
    margins = half_margins(problem, masks, 0)
    model = AnalysedRun(problem).train()
    train, targets = (_rows(gradient_factors(model, *data)) for data in _data(problem))
    found: dict[str, dict[float, tuple[float, float]]] = {}
    for step in STEPS:
        matrix, rows = _matrix(step, problem, model)
        values, vectors = torch.linalg.eigh(matrix)
        left, right = targets[:, rows] @ vectors, train[:, rows] @ vectors
        found[step] = {}
        for damping in DAMPINGS:
            inverse = 1 / (values.clamp(min=0) + damping * values.clamp(min=0).mean())
            result = lds((left * inverse) @ right.T, masks, margins)
            found[step][damping] = result.value, result.error or 0.0
    return found


def _data(problem: AttributionProblem) -> list[tuple[Tensor, Tensor]]:
    return [(problem.x, problem.labels), (problem.target_x, problem.target_y)]


def _rows(factors: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Return the gradients of all layers, shape [n, P]; a layer's are [out, in + 1], in double precision."""
    return torch.cat([(e.unsqueeze(2) * a.unsqueeze(1)).flatten(1) for a, e in factors], 1).double()


def _matrix(step: str, problem: AttributionProblem, model: nn.Module) -> tuple[Tensor, slice]:
    """Return the matrix of a step of the ladder, and the parameters that it is of."""
    factors = gradient_factors(model, problem.x, problem.labels)
    sizes = [a.shape[1] * e.shape[1] for a, e in factors]
    total, ends = sum(sizes), torch.tensor(sizes).cumsum(0).tolist()
    if step == "none":
        return torch.eye(total, dtype=torch.float64), slice(None)
    if step == "hessian":
        return _hessian(problem, model), slice(None)
    jacobian = _jacobian(problem, model, total)
    p = model(problem.x).detach().double().softmax(1)
    outputs = torch.diag_embed(p) - p.unsqueeze(2) * p.unsqueeze(1)
    whole = torch.einsum("ncp,nce,neq->pq", jacobian, outputs, jacobian) / problem.n
    if step == "gauss_newton":
        return whole, slice(None)
    if step == "last_layer":
        last = slice(ends[-2], ends[-1])
        return whole[last, last], last
    blocks = [whole[end - size : end, end - size : end] for size, end in zip(sizes, ends, strict=True)]
    if step == "kronecker":
        blocks = [_kronecker(problem, model, layer) for layer in range(len(sizes))]
    return torch.block_diag(*blocks), slice(None)


def _kronecker(problem: AttributionProblem, model: nn.Module, layer: int) -> Tensor:
    """Return E[e e'] (x) E[a a'] of a layer, with output gradients of all labels weighted by their probability."""
    p = model(problem.x).detach().double().softmax(1)
    left = torch.zeros(0)
    for label in range(problem.n_classes):
        a, e = gradient_factors(model, problem.x, torch.full_like(problem.labels, label))[layer]
        part = torch.einsum("n,no,nq->oq", p[:, label], e.double(), e.double()) / problem.n
        left = part if label == 0 else left + part
    a = a.double()
    return torch.kron(left.contiguous(), (a.T @ a / problem.n).contiguous())


def _jacobian(problem: AttributionProblem, model: nn.Module, total: int) -> Tensor:
    """Return the derivatives of all logits, shape [N, C, P], in the order of `_rows`."""
    found = torch.zeros(problem.n, problem.n_classes, total, dtype=torch.float64)
    own = torch.softmax(model(problem.x), 1).detach().double()
    columns = [
        _rows(gradient_factors(model, problem.x, torch.full_like(problem.labels, c))) for c in range(problem.n_classes)
    ]
    stacked = torch.stack(columns, 1)  # J' (p - onehot_c): the logits' derivatives up to their mean under p
    mean = torch.einsum("nc,ncp->np", own, stacked)
    found.copy_(-(stacked - mean.unsqueeze(1)))
    return found


def _hessian(problem: AttributionProblem, model: nn.Module) -> Tensor:
    """Return the Hessian of the mean loss, in the order of `_rows` (each layer: weight and bias by output)."""
    linears = [module for module in model.modules() if isinstance(module, nn.Linear)]
    joined = [torch.cat([m.weight.detach(), m.bias.detach().unsqueeze(1)], 1).double() for m in linears]
    shapes, x = [w.shape for w in joined], problem.x.double()

    def loss(flat: Tensor) -> Tensor:
        value, start = x, 0
        for number, shape in enumerate(shapes):
            w = flat[start : start + shape.numel()].view(shape)
            start += shape.numel()
            value = F.pad(value, (0, 1), value=1.0) @ w.T
            value = value.relu() if number < len(shapes) - 1 else value
        return F.cross_entropy(value, problem.labels)

    flat = torch.cat([w.flatten() for w in joined])
    matrix: Tensor = torch.func.hessian(loss)(flat)
    return (matrix + matrix.T) / 2


if __name__ == "__main__":
    run_command(main)
