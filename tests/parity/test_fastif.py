"""FastIF against exact inverses, autograd Hessians, actual re-training and captum."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from baselines.noisy import fastif
from baselines.noisy.fastif import FastIF
from sgoif.bench.evaluation.metrics import detection
from sgoif.errors import UserError
from sgoif.training.learner import Diverged
from tests.helpers.digit_tasks import noisy_task


def problem(n=60, d=3, k=3, seed=0):
    """A softmax regression that is not separable: a [n, d+1] with the constant, labels, in double precision."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=g, dtype=torch.float64)
    y = (x @ torch.randn(d, k, generator=g, dtype=torch.float64) + torch.randn(n, k, generator=g)).argmax(1)
    return F.pad(x, (0, 1), value=1.0), y


def loss(theta, a, y, c=1.0, weights=None):
    losses = F.cross_entropy(c * a @ theta.T, y, reduction="none")
    return (losses if weights is None else weights * losses).mean()


def optimum(a, y, k, ridge, weights=None):
    """Newton's method on the mean loss + ridge/2 |theta|^2."""
    theta = torch.zeros(k, a.shape[1], dtype=torch.float64)
    for _ in range(30):
        f = lambda t: loss(t, a, y, weights=weights) + ridge / 2 * t.square().sum()  # noqa: E731
        g, h = torch.func.grad(f)(theta).flatten(), torch.func.hessian(f)(theta).reshape(theta.numel(), -1)
        theta = theta - torch.linalg.solve(h, g).view_as(theta)
    return theta


def gradients(theta, a, y, c=1.0):
    errors = (c * a @ theta.T).softmax(1) - F.one_hot(y, len(theta))
    return c * torch.einsum("nk,nd->nkd", errors, a)


@pytest.mark.parametrize("c", [1.0, 0.125])
def test_hessian_vector_product_and_its_largest_eigenvalue(c):
    a, y = problem()
    theta = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    p = (c * a @ theta.T).softmax(1)
    h = torch.func.hessian(lambda t: loss(t, a, y, c))(theta).reshape(12, 12)
    v = torch.randn(5, 3, 4, dtype=torch.float64)
    torch.testing.assert_close(fastif.hvp(p, a, v, c).reshape(5, 12), v.reshape(5, 12) @ h)
    top = torch.linalg.eigvalsh(h)[-1].item()
    assert fastif.largest_eigenvalue(p, a, c, steps=200) == pytest.approx(top, rel=1e-3)
    assert fastif.largest_eigenvalue(p, a, c) <= top * (1 + 1e-9)


def test_lissa_is_the_damped_inverse_on_softmax_regression():
    a, y = problem()
    theta = optimum(a, y, 3, ridge=1e-2)
    p, g = (a @ theta.T).softmax(1), gradients(theta, a, y)[:7]
    h = torch.func.hessian(lambda t: loss(t, a, y))(theta).reshape(12, 12)
    scale, damp = 2 * torch.linalg.eigvalsh(h)[-1].item(), 5e-3
    exact = torch.linalg.solve(h + damp * scale * torch.eye(12), g.reshape(7, 12).T).T.reshape(7, 3, 4)
    full = fastif.lissa(p, a, g, 1.0, damp, scale, steps=4000, batch=60, seed=0)
    torch.testing.assert_close(full, exact, rtol=1e-6, atol=1e-9)
    sampled = torch.stack([fastif.lissa(p, a, g, 1.0, damp, scale, 1000, 16, seed) for seed in range(8)]).mean(0)
    assert torch.corrcoef(torch.stack([sampled.flatten(), exact.flatten()]))[0, 1] > 0.98


def test_lissa_is_its_recurrence_over_the_drawn_minibatches():
    a, y = problem()
    theta, c, damp, scale = optimum(a, y, 3, ridge=1e-2), 0.5, 0.01, 3.0
    p, g = (a @ theta.T).softmax(1), gradients(theta, a, y)[:4]
    draw, h = torch.Generator().manual_seed(5), g
    for _ in range(6):  # one minibatch after the other
        n = torch.randint(len(a), (16,), generator=draw)
        bent = torch.diag_embed(p[n]) - p[n][:, :, None] * p[n][:, None]
        h = g + (1 - damp) * h - c**2 / (16 * scale) * torch.einsum("nkl,mld,nd,ne->mke", bent, h, a[n], a[n])
    torch.testing.assert_close(fastif.lissa(p, a, g, c, damp, scale, steps=6, batch=16, seed=5), h / scale)


def test_lissa_diverges_below_the_largest_eigenvalue():
    a, y = problem()
    p, g = torch.full((60, 3), 1 / 3, dtype=torch.float64), gradients(torch.zeros(3, 4, dtype=torch.float64), a, y)[:1]
    top = fastif.largest_eigenvalue(p, a, steps=200)
    norm = {s: fastif.lissa(p, a, g, 1.0, 0.005, s * top, 400, 60, 0).norm() for s in (1.0, 0.4)}
    assert norm[1.0] < 1e3 * g.norm() / top < norm[0.4]


def test_sign_and_size_are_those_of_retraining_with_a_heavier_example():
    """-g_v.(H + ridge)^-1 g_i is d(loss of v) / d(weight of i): positive for harmful examples."""
    a, y = problem(n=40, d=1, k=2)  # logistic regression in one variable
    a_v, y_v = problem(n=6, d=1, k=2, seed=0)
    ridge, eps = 0.05, 1e-4
    theta = optimum(a, y, 2, ridge)
    p, g, g_v = (a @ theta.T).softmax(1), gradients(theta, a, y), gradients(theta, a_v, y_v).mean(0, keepdim=True)
    scale = 2 * fastif.largest_eigenvalue(p, a, steps=200)
    s = fastif.lissa(p, a, g_v, 1.0, ridge / scale, scale, steps=4000, batch=40, seed=0)[0]
    influence = -(g * s).sum((1, 2))
    for i in (0, 7, 21):
        weights = torch.ones(40, dtype=torch.float64)
        weights[i] += eps * 40  # the mean gains eps * loss_i
        change = (loss(optimum(a, y, 2, ridge, weights), a_v, y_v) - loss(theta, a_v, y_v)) / eps
        assert influence[i].item() == pytest.approx(change.item(), rel=2e-2)
    assert influence.min() < 0 < influence.max()


def test_opposite_sign_to_captum():
    """captum gives g_i.H^-1 g_v without the minus (positive = helpful), here on the same damped Hessian."""
    from captum.influence._core.influence_function import NaiveInfluenceFunction
    from torch.utils.data import TensorDataset

    a, y = problem(n=40)
    theta = optimum(a, y, 3, ridge=1e-2)
    model = torch.nn.Sequential(torch.nn.Linear(3, 3)).double()
    with torch.no_grad():
        model[0].weight.copy_(theta[:, :3])
        model[0].bias.copy_(theta[:, 3])
    theirs = NaiveInfluenceFunction(
        model,
        TensorDataset(a[:, :3], y),
        checkpoint="unused",
        checkpoints_load_func=lambda model, path: 1.0,
        loss_fn=torch.nn.CrossEntropyLoss(reduction="none"),
        batch_size=40,
        projection_dim=12,
        hessian_reg=1e-2,
        hessian_inverse_tol=0.0,
    ).influence((a[:5, :3], y[:5]))
    p = (a @ theta.T).softmax(1)
    scale = 2 * fastif.largest_eigenvalue(p, a, steps=200)
    s = fastif.lissa(p, a, gradients(theta, a, y)[:5], 1.0, 1e-2 / scale, scale, 4000, 40, 0)
    ours = -torch.einsum("nkd,vkd->vn", gradients(theta, a, y), s)
    correlation = torch.corrcoef(torch.stack([ours.flatten(), theirs.flatten().double()]))[0, 1]
    assert correlation < -0.99


def test_nearest_in_blocks_is_nearest():
    g = torch.Generator().manual_seed(0)
    anchors, features = torch.randn(4, 5, generator=g), torch.randn(53, 5, generator=g)
    expected = torch.cdist(anchors, features).argsort(1)
    for k, block in ((7, 10), (7, 3), (53, 10), (20, 100)):
        torch.testing.assert_close(fastif.nearest(anchors, features, k, block), expected[:, :k])


def test_ties_are_broken_among_the_unjudged_alone():
    scores = np.array([0.0, 3e-9, 0.0, -2e-9, 0.0, 5.0])
    judged = scores != 0
    out = fastif.break_ties(scores, judged, np.random.default_rng(0))
    np.testing.assert_array_equal(out[judged], scores[judged])
    assert len(np.unique(out)) == 6 and np.abs(out[~judged]).max() < 2e-9
    judged[0] = True  # a judged score of exactly 0 leaves no gap of 0
    out = fastif.break_ties(scores, judged, np.random.default_rng(0))
    assert out[0] == 0 and len(np.unique(out)) == 6 and 0 < np.abs(out[~judged]).max() < 2e-9
    nobody = fastif.break_ties(np.zeros(50), np.zeros(50, dtype=bool), np.random.default_rng(0))
    assert len(np.unique(nobody)) == 50 and -0.5 <= nobody.min() < -0.4 and 0.4 < nobody.max() < 0.5


@pytest.fixture(scope="module")
def digits_task():
    return noisy_task(n_train=600)


def test_whole_method_is_the_exact_influence(digits_task):
    """All anchors, all neighbours and full batches give -mean_v g_i.(H + damp scale)^-1 g_v of the last layer."""
    task, _ = digits_task
    found = FastIF(k=10**6, n_anchors=10**6, steps=250, damp=0.1, batch_size=10**6, score="knn").detect(task)
    net = task.plain.network()
    logits, z = task.predict(net, features=True)
    v_logits, v_z = task.predict(net, task.trusted[0], features=True)
    one = lambda z: F.pad(z, (0, 1), value=1.0).double()  # noqa: E731
    p, a = logits.double().softmax(1), one(z)
    blocks = torch.diag_embed(p) - torch.einsum("nk,nl->nkl", p, p)
    h = torch.einsum("nkl,nd,ne->kdle", blocks, a, a).reshape(650, 650) / 600
    g = torch.einsum("nk,nd->nkd", p - F.one_hot(task.labels, 10), a).reshape(600, 650)
    g_v = torch.einsum("nk,nd->nkd", v_logits.double().softmax(1) - F.one_hot(task.trusted[1], 10), one(v_z))
    assert found.extras["scale"] > 1.5 * torch.linalg.eigvalsh(h)[-1]
    damped = h + 0.1 * found.extras["scale"] * torch.eye(650)
    exact = -g @ torch.linalg.solve(damped, g_v.reshape(len(g_v), 650).mean(0))
    np.testing.assert_allclose(found.scores, exact.numpy(), atol=1e-3 * exact.abs().max().item())
    assert found.extras["coverage"] == 1.0
    np.testing.assert_allclose(found.variants["all"], exact.numpy(), atol=1e-3 * exact.abs().max().item())
    by_class = torch.stack([g_v[task.trusted[1] == k].mean(0) for k in range(10)]).mean(0).reshape(650)
    exact = -g @ torch.linalg.solve(damped, by_class)
    np.testing.assert_allclose(found.variants["balanced"], exact.numpy(), atol=1e-3 * exact.abs().max().item())


def test_soft_is_the_influence_for_logits_over_four(digits_task):
    """A network whose logits are a quarter gives the same by its ordinary, balanced score."""
    task, _ = digits_task
    options = {"n_anchors": 100, "steps": 60, "damp": 0.1, "batch_size": 10**6}
    soft = FastIF(**options).detect(task).scores
    network = task.plain.network()
    network.scale /= 4
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(task.plain), "network", lambda self, epoch=None: network)
        plain = FastIF(**options, score="balanced").detect(task).scores
    np.testing.assert_allclose(soft, plain, rtol=1e-3, atol=1e-4 * np.abs(plain).max())


def test_detects_wrong_digits_and_reports_coverage(digits_task):
    task, wrong = digits_task
    found = FastIF(steps=300, score="knn").detect(task)
    assert detection(found.scores, wrong)["auroc"] > 0.8
    assert wrong[found.remove].mean() > 0.6 and found.remove[wrong].mean() > 0.3
    few = FastIF(k=5, n_anchors=20, steps=50, score="knn").detect(task)
    assert 5 / 600 <= few.extras["coverage"] <= 100 / 600
    assert few.remove.mean() <= few.extras["coverage"] and few.extras["anchors"] == 20
    np.testing.assert_array_equal(few.scores, FastIF(k=5, n_anchors=20, steps=50, score="knn").detect(task).scores)
    best = FastIF(steps=300).detect(task)
    assert best.extras["coverage"] == 1.0 and detection(best.scores, wrong)["auroc"] > 0.9


def test_failures_are_told(digits_task):
    task, _ = digits_task
    with pytest.raises(Diverged, match="LiSSA"):
        FastIF(scale=1e-3, steps=300, n_anchors=2).detect(task)
    with pytest.raises(UserError, match=r"params\.fastif\.damp"):
        FastIF(damp=1.0)
    trusted, task.trusted = task.trusted, None
    try:
        with pytest.raises(UserError, match="trusted"):
            FastIF().detect(task)
    finally:
        task.trusted = trusted
