"""Gradients, curvatures, inverses and scores against dense float64 matrices, on small models."""

import pytest
import torch
from torch import nn

from sgoif import InfluenceConfig, OnlineInfluence
from sgoif.curvature import Curvature
from sgoif.solvers.operator import Operator
from tests.helpers.networks import (
    Net,
    blobs,
    caught,
    convnet,
    linear_net,
    mlp,
    per_example_gradients,
    quick,
    watch_once,
    watched_batch,
)

TIGHT = {"rtol": 1e-8, "atol": 1e-10}


def images(n=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 1, 8, 8, generator=generator, dtype=torch.float64), torch.randint(
        3, (n,), generator=generator
    )


def tokens(n=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 5, 6, generator=generator, dtype=torch.float64), torch.randint(3, (n,), generator=generator)


class TokenBody(nn.Module):
    """A Linear used at every token, then a mean."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 4)

    def forward(self, x):
        return torch.tanh(self.layer(x)).mean(1)


CASES = {
    "linear head": (linear_net, blobs, "head"),
    "scaled logits": (lambda: linear_net(scale=8.0), blobs, "head"),
    "mlp all": (mlp, blobs, "all"),
    "mlp block": (mlp, blobs, "blocks:^body"),
    "tokens": (lambda: Net(TokenBody(), 4, 3), tokens, "all"),
    "convnet all": (convnet, images, "all"),
    "convnet block": (convnet, images, r"blocks:body\.2"),
}


@pytest.fixture(params=CASES, ids=list(CASES))
def case(request):
    make, data, scope = CASES[request.param]
    torch.manual_seed(3)
    model = make().double()
    x, y = data()
    x, y = x[:8], y[:8]
    scale = model.scale if scope == "head" else 1.0
    config = InfluenceConfig(scope=scope, temperature=1.0)
    return caught(model, x, y, config), per_example_gradients(model, x, y, config) * scale


def test_factored_gradients_are_the_gradients(case):
    batch, dense = case
    directions = torch.randn(4, dense.shape[1], dtype=torch.float64)
    torch.testing.assert_close(batch.dot(directions), dense @ directions.T, **TIGHT)
    materialised, weights = batch.materialised(), torch.randn(len(dense), 3, dtype=torch.float64)
    torch.testing.assert_close(materialised.dot(directions), dense @ directions.T, **TIGHT)
    torch.testing.assert_close(materialised.weighted_sum(weights), weights.T @ dense, **TIGHT)
    torch.testing.assert_close(
        materialised.matvec(directions, "fisher"), directions @ dense.T @ dense / len(dense), **TIGHT
    )
    gram = sum(layer.gram() for layer in materialised.layers)
    torch.testing.assert_close(gram, dense @ dense.T, **TIGHT)
    squares = batch.space.join([layer.sum_of_squares()[None] for layer in materialised.layers])[0]
    torch.testing.assert_close(squares, dense.square().sum(0), **TIGHT)


def test_scale_of_the_loss_cancels_outside_head_scope():
    torch.manual_seed(0)
    model, (x, y) = mlp().double(), blobs(8)
    config = InfluenceConfig(scope="all", temperature=1.0)
    influence = OnlineInfluence(model, 8, config=config)
    directions = torch.randn(2, influence.dimension, dtype=torch.float64)
    found = []
    for factor, reduction in ((1.0, "mean"), (1.0, "sum"), (65536.0, "mean")):
        with influence.watch(torch.arange(8), y):
            (factor * nn.functional.cross_entropy(model(x), y, reduction=reduction)).backward()
        found.append(watched_batch(influence).dot(directions))
    torch.testing.assert_close(found[0], found[1])
    torch.testing.assert_close(found[0], found[2])


def softened_ggn(model, x, y, temperature):
    """Dense Gauss-Newton of T CE(f / T) in the head: mean_i (diag p - p p') / T (x) a a'."""
    probs = torch.softmax(model(x) / temperature, 1).detach()
    a = torch.cat([model.body(x), torch.ones(len(x), 1, dtype=x.dtype)], 1).detach()
    blocks = [
        torch.kron((torch.diag(p) - torch.outer(p, p)) / temperature, torch.outer(v, v))
        for p, v in zip(probs, a, strict=True)
    ]
    return torch.stack(blocks).mean(0)


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_softened_head_gradient_and_gauss_newton(temperature):
    torch.manual_seed(1)
    model, (x, y) = mlp().double(), blobs(20)
    config = InfluenceConfig(temperature=temperature)
    batch, dense = caught(model, x, y, config), per_example_gradients(model, x, y, config)
    directions = torch.randn(3, dense.shape[1], dtype=torch.float64)
    torch.testing.assert_close(batch.dot(directions), dense @ directions.T, **TIGHT)
    torch.testing.assert_close(
        batch.matvec(directions, "ggn"), directions @ softened_ggn(model, x, y, temperature), **TIGHT
    )


def backend(name, batch, **changes):
    config = InfluenceConfig(curvature=name, damping=0.1, **changes)
    curvature = Curvature.registry[name](batch.space, config, batch.closed_form, torch.float64)
    for _ in range(20):  # a standing stream: the running averages are the batch's own
        curvature.update(batch, 0.9)
        curvature.refresh()
    return curvature


def assert_inverse(curvature, dense, damping):
    """solve and matvec against the dense damped matrix, and the damping operator against its definition."""
    dim = len(dense)
    rows = torch.randn(4, dim, dtype=torch.float64)
    matrix = dense + damping
    torch.testing.assert_close(curvature.matvec(rows), rows @ matrix, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(curvature.solve(rows), torch.linalg.solve(matrix, rows.T).T, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(curvature.damp(rows), rows @ damping, rtol=1e-6, atol=1e-10)
    spectrum = torch.linalg.eigvalsh(matrix)
    assert curvature.condition() >= 0.999 * spectrum[-1] / spectrum[0]
    torch.testing.assert_close(curvature.mean_eigenvalue(), spectrum.mean(), rtol=1e-6, atol=1e-12)


def test_kfac_is_exact_where_probabilities_do_not_depend_on_the_input():
    model, (x, y) = linear_net().double(), blobs(30)
    nn.init.zeros_(model.head.weight)
    nn.init.zeros_(model.head.bias)
    batch = caught(model, x, y, InfluenceConfig())
    dense = softened_ggn(model, x, y, 4.0)
    a = batch.layers[0].a
    left, right = a.T @ a / len(a), (torch.eye(3, dtype=torch.float64) / 3 - 1 / 9) / 4.0
    torch.testing.assert_close(torch.kron(right, left), dense, **TIGHT)
    eye = torch.eye(len(left), dtype=torch.float64)
    damped = torch.kron(
        right + 0.1 * right.trace() / 3 * torch.eye(3, dtype=torch.float64), left + 0.1 * left.trace() / len(left) * eye
    )
    assert_inverse(backend("kfac", batch), dense, damped - dense)


def test_kfac_outside_the_head_is_exact_for_one_example():
    torch.manual_seed(2)
    model, (x, y) = mlp().double(), blobs(1)
    batch = caught(model, x, y, InfluenceConfig(scope="blocks:^body", temperature=1.0)).materialised()
    layer = batch.layers[0]
    left, right = layer.a.T @ layer.a, layer.e.T @ layer.e
    dense = torch.kron(right, left)
    eyes = [0.1 * m.trace() / len(m) * torch.eye(len(m), dtype=torch.float64) for m in (right, left)]
    assert_inverse(backend("kfac", batch), dense, torch.kron(right + eyes[0], left + eyes[1]) - dense)


@pytest.mark.parametrize("scope", ["head", "all"])
def test_diagonal_is_the_diagonal(scope):
    torch.manual_seed(4)
    model, (x, y) = mlp().double(), blobs(20)
    config = InfluenceConfig(scope=scope, temperature=1.0)
    batch = caught(model, x, y, config).materialised()
    gradients = per_example_gradients(model, x, y, config)
    full = softened_ggn(model, x, y, 1.0) if scope == "head" else gradients.T @ gradients / len(x)
    dense = torch.diag(full.diagonal())
    assert_inverse(
        backend("diagonal", batch), dense, 0.1 * dense.trace() / len(dense) * torch.eye(len(dense), dtype=torch.float64)
    )


@pytest.mark.parametrize("scope", ["head", "all"])
def test_fisher_is_the_empirical_fisher(scope):
    torch.manual_seed(5)
    model, (x, y) = mlp().double(), blobs(20)
    config = InfluenceConfig(scope=scope, temperature=1.0)
    batch, gradients = caught(model, x, y, config).materialised(), per_example_gradients(model, x, y, config)
    dense = gradients.T @ gradients / len(x)
    eye = torch.eye(len(dense), dtype=torch.float64)
    assert_inverse(backend("fisher", batch, probe_examples=20), dense, 0.1 * dense.trace() / len(dense) * eye)


def test_lowrank_is_exact_when_the_curvature_has_that_rank():
    torch.manual_seed(6)
    model, (x, y) = mlp().double(), blobs(5)
    config = InfluenceConfig(scope="all", temperature=1.0)
    batch, gradients = caught(model, x, y, config).materialised(), per_example_gradients(model, x, y, config)
    dense = gradients.T @ gradients / len(x)
    curvature = backend("lowrank", batch, rank=5)
    assert_inverse(curvature, dense, 0.1 * dense.trace() / len(dense) * torch.eye(len(dense), dtype=torch.float64))
    rows = torch.randn(2, len(dense), dtype=torch.float64)
    inside = curvature.basis @ curvature.matvec(curvature.basis).T
    coordinates = torch.linalg.solve(inside, (rows @ curvature.basis.T).T).T
    rest = curvature.solve(rows) - coordinates @ curvature.basis  # the basis solves its own part exactly
    torch.testing.assert_close(rest @ curvature.basis.T, torch.zeros(2, 5, dtype=torch.float64), rtol=0, atol=1e-7)


@pytest.mark.parametrize("solver", ["pcg", "richardson", "neumann"])
@pytest.mark.parametrize("curvature", ["kfac", "diagonal", "fisher", "lowrank"])
def test_directions_and_scores_reach_the_dense_damped_inverse(curvature, solver):
    """On a standing model every solver ends at (H + D)^-1 g_v, and the scores at the dense influence."""
    torch.manual_seed(7)
    model, (x, y) = mlp(classes=3).double(), blobs(40)
    config = quick(
        trigger=False,
        curvature=curvature,
        solver=solver,
        damping=1.0,
        depth=30,
        refine_steps=12,
        rank=4,
        weighting="uniform",
        probe_examples=40,
    )
    influence = OnlineInfluence(model, 40, config=config)
    for _ in range(60):
        watch_once(influence, model, x, y)
        influence.step()
    batch = caught(model, x, y, config)
    gradients = per_example_gradients(model, x, y, config)
    parts = influence._engine.parts
    eye = torch.eye(gradients.shape[1], dtype=torch.float64)
    matrix = Operator(batch, parts.curvature)(eye)
    share = torch.softmax(model(x), 1).detach()[torch.arange(40), y]
    targets = torch.stack([(share[y == v, None] * gradients[y == v]).sum(0) / share[y == v].sum() for v in range(3)])
    torch.testing.assert_close(parts.anchors.targets(), targets, rtol=1e-6, atol=1e-9)
    exact = torch.linalg.solve(matrix, targets.T).T
    torch.testing.assert_close(parts.directions.phi, exact, rtol=2e-3, atol=2e-4 * exact.abs().max().item())
    influence.end_epoch()
    watch_once(influence, model, x, y)
    influence.step()
    share_of_class = torch.bincount(y, minlength=3).double() / len(y)  # anchors count by the share of their class
    expected = -gradients @ (share_of_class @ exact)
    scores = influence.scores().epoch_scores[-1].double()
    torch.testing.assert_close(scores, expected, rtol=1e-2, atol=2e-3 * expected.abs().max().item())
