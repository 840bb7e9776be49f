"""Post-hoc OOD scores against pytorch-ood, scikit-learn and autograd, on random features and logits."""

import numpy as np
import pytest
import torch
from pytorch_ood import detector as reference

from baselines.ood.dice import DICE
from baselines.ood.ebo import EBO
from baselines.ood.gradnorm import GradNorm
from baselines.ood.klm import KLM
from baselines.ood.knn import KNN
from baselines.ood.mls import MLS
from baselines.ood.msp import MSP
from baselines.ood.react import ReAct
from baselines.ood.vim import ViM
from sgoif.bench.methods.ood.features import as_map, finite, nearest, percentile, stage_outputs
from sgoif.errors import UserError
from tests.helpers.digit_tasks import ood_task

N, D, K = 300, 24, 7


@pytest.fixture
def world():
    """Training features [N, D], test features [50, D], last layer W [K, D], b [K]."""
    g = torch.Generator().manual_seed(5)
    mixing = torch.randn(D, D, generator=g)
    train = (torch.randn(N, D, generator=g) @ mixing).relu()
    test = (1.5 * torch.randn(50, D, generator=g) @ mixing).relu()
    return train, test, torch.randn(K, D, generator=g) / 5, torch.randn(K, generator=g)


def known(n):
    return torch.zeros(n, dtype=torch.long)


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_energy(world, temperature):
    _, z, w, b = world
    logits = 30 * (z @ w.T + b)  # far beyond what exp holds in float16
    expected = reference.EnergyBased.score(logits, t=temperature)
    torch.testing.assert_close(EBO.from_logits(logits, temperature), expected)


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_max_softmax(world, temperature):
    _, z, w, b = world
    logits = z @ w.T + b
    expected = reference.MaxSoftmax.score(logits / temperature)
    torch.testing.assert_close(MSP.from_logits(logits, temperature).float(), expected)
    sure = torch.tensor([[20.0, 0.0], [21.0, 0.0]])
    first, second = MSP.from_logits(sure)
    assert first > second  # float32 would tie them at 1


def test_max_logit(world):
    _, z, w, b = world
    logits = z @ w.T + b
    torch.testing.assert_close(MLS.from_logits(logits), reference.MaxLogit.score(logits))


def test_kl_matching(world):
    train, z, w, b = world
    val, logits = train @ w.T + b, z @ w.T + b
    assert val.argmax(1).unique().numel() < K  # pytorch-ood leaves such classes out, ours are one-hot
    oracle = reference.KLMatching(None).fit_logits(val)
    torch.testing.assert_close(KLM.from_logits(logits, KLM.templates(val)), oracle.predict_logits(logits))


def test_kl_matching_direction_and_empty_class():
    val = torch.tensor([[2.0, 0.0, -1.0], [1.0, 0.5, -3.0], [0.0, 4.0, 0.0]])  # class 2 is never predicted
    templates = KLM.templates(val)
    torch.testing.assert_close(templates[0], val[:2].softmax(1).mean(0))
    assert templates[2].tolist() == [0.0, 0.0, 1.0]
    logits = torch.tensor([[0.3, 0.1, -0.2]])
    p = logits.softmax(1)
    by_hand = min(float((p * (p / d).log()).sum()) for d in templates[:2])
    assert KLM.from_logits(logits, templates).item() == pytest.approx(by_hand, rel=1e-5)
    sure = torch.tensor([[-200.0, -200.0, 200.0]])  # exactly the one-hot
    assert KLM.from_logits(sure, templates).item() == pytest.approx(0.0, abs=1e-6)


def test_react(world):
    train, z, w, b = world
    oracle = reference.ReAct(None, lambda x: x @ w.T + b, percentile=0.9).fit_feature_maps(train, known(N))
    c = percentile(train, 90.0)
    assert c == pytest.approx(oracle.threshold)
    ours = -ReAct.clipped_logits(z, c, w, b).logsumexp(1)
    torch.testing.assert_close(ours, oracle.predict_feature_maps(z))


@pytest.mark.parametrize("percent", [30.0, 90.0])
def test_dice(world, percent):
    train, z, w, b = world
    oracle = reference.DICE(None, w, b, p=percent / 100).fit_features(train, known(N))
    sparse = DICE.sparse_weight(w, train.mean(0), percent)
    assert (sparse != 0).float().mean().item() <= 1 - percent / 100 + 1 / w.numel()
    torch.testing.assert_close(-(z @ sparse.T + b).logsumexp(1), oracle.predict_features(z))


def test_vim_and_eigenvectors(world):
    train, z, w, b = world
    oracle = reference.ViM(None, d=10, w=w, b=b).fit_features(train, known(N))
    origin = -(torch.linalg.pinv(w) @ b)
    space = ViM.residual_space(train, origin, 10)
    residual = ViM.virtual_logit(train, origin, space)
    alpha = ((train @ w.T + b).amax(1).mean() / residual.mean()).item()
    assert alpha == pytest.approx(oracle.alpha, rel=1e-4)
    ours = alpha * ViM.virtual_logit(z, origin, space) - (z @ w.T + b).logsumexp(1)
    torch.testing.assert_close(ours, oracle.predict_features(z), rtol=1e-4, atol=1e-3)
    x = (train - origin).double().numpy()
    values, vectors = np.linalg.eigh(x.T @ x)
    small = vectors[:, np.argsort(values)[: D - 10]]
    np.testing.assert_allclose((space @ space.T).numpy(), small @ small.T, atol=1e-5)


@pytest.mark.parametrize(("width", "dim"), [(2048, 1000), (768, 512), (512, 256), (84, 42), (64, 32), (1, 1)])
def test_vim_dimension_rule(width, dim):
    assert ViM.principal_dim(width) == dim


@pytest.mark.parametrize("name", ["msp", "ebo", "gradnorm"])
def test_the_temperature_of_the_sentinel_is_offered_to_its_rivals(name):
    from sgoif.applications import ShiftSentinel
    from sgoif.bench.methods.ood.features import features_and_logits
    from sgoif.bench.methods.registry import load

    task, images, _ = ood_task()
    method = load("ood", name)()
    method.fit(task)
    features, logits = features_and_logits(method.net, images, name)
    found = method.scores(images)
    for candidate, temperature in (("published", 1.0), ("softened", ShiftSentinel(task.n_classes).temperature)):
        if name == "gradnorm":
            expected = GradNorm.closed_form(features, logits, temperature)
        else:
            expected = type(method).from_logits(logits, temperature)
        torch.testing.assert_close(found[candidate], expected, rtol=1e-4, atol=1e-5)


def test_react_clips_at_its_percentile_of_the_validation_features():
    task, _, _ = ood_task()
    features = task.predict(task.plain.network(), task.val, features=True)[1]
    for percent in (90.0, 99.0):
        method = ReAct(percentile=percent)
        method.fit(task)
        assert method.threshold == pytest.approx(np.percentile(features.numpy(), percent), rel=1e-5)
    assert ReAct().params.percentile == 90


@pytest.mark.parametrize(("classes", "k"), [(2, 50), (10, 50), (11, 200), (100, 200), (101, 1000), (1000, 1000)])
def test_knn_takes_the_papers_k(classes, k):
    assert KNN.published_k(classes) == k
    task, _, _ = ood_task()
    for method, expected in ((KNN(), 50), (KNN(k=7), 7)):
        method.fit(task)
        assert method.k == expected


@pytest.mark.parametrize("k", [1, 50])
def test_knn(world, k):
    train, z, _, _ = world
    oracle = reference.KNN(None, k=k).fit_features(train, known(N)).predict_features(z)
    torch.testing.assert_close(KNN.kth_distance(z, train, k), oracle.float(), rtol=1e-5, atol=1e-6)


def test_nearest_is_exact_in_blocks(world):
    from sklearn.neighbors import NearestNeighbors

    train, z, _, _ = world
    queries = torch.cat([z, train[:20] + 1e-4])  # some almost on a key, where the product formula has no digits left
    expected = NearestNeighbors(n_neighbors=9).fit(train.double()).kneighbors(queries.double())[0]
    for entries in (2**25, 1500, 1):
        np.testing.assert_allclose(nearest(queries, train, 9, entries), expected, rtol=1e-4)
    assert nearest(queries, train[:3], 9).shape == (len(queries), 3)


@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_gradnorm_closed_form_is_the_gradient(world, temperature):
    _, z, w, b = world
    weight = w.clone().requires_grad_()
    expected = []
    for row in z:
        loss = -((row @ weight.T + b) / temperature).log_softmax(0).mean()
        (gradient,) = torch.autograd.grad(loss, weight)
        expected.append(-gradient.abs().sum())
    ours = GradNorm.closed_form(z, z @ w.T + b, temperature)
    torch.testing.assert_close(ours, torch.stack(expected), rtol=1e-4, atol=1e-5)


# --- the shared helpers ---------------------------------------------------------------------------------------------


def test_finite_names_what_is_not():
    assert finite(torch.ones(3), "x").sum() == 3
    with pytest.raises(ValueError, match=r"vim: training features: 2 of 3"):
        finite(torch.tensor([1.0, torch.nan, torch.inf]), "vim: training features")


POST_HOC = """ebo gradnorm react mls klm dice vim knn gram patchcore sgoif
gen odin mds mds_ensemble rmds she ash scale nnguide fdbd neco relation""".split()


@pytest.mark.parametrize("name", POST_HOC)
def test_a_network_with_nan_features_is_an_error(name):
    from sgoif.bench.methods.registry import load

    task, images, _ = ood_task()
    method = load("ood", name)()
    method.fit(task)
    with torch.no_grad():
        next(method.net.backbone.parameters()).fill_(torch.nan)
    with pytest.raises(ValueError, match=f"^{name}: .*NaN"):
        method.score(images)


def test_stage_outputs_stream_and_leave_no_hook():
    task, images, _ = ood_task()
    net = task.plain.network()
    seen = list(stage_outputs(net, images, "test", batch_size=100))
    assert [tuple(m.shape) for m in seen[0].maps] == [(100, 16, 8, 8), (100, 32, 4, 4), (100, 64, 2, 2)]
    assert torch.equal(torch.cat([s.index for s in seen]), torch.arange(len(images)))
    logits = torch.cat([s.logits for s in seen])
    torch.testing.assert_close(logits, task.predict(net, images)[0])
    w, b = net.linear()
    torch.testing.assert_close(seen[0].maps[-1].mean((2, 3)) @ w.T + b, logits[:100], rtol=1e-4, atol=1e-4)
    assert not any(m._forward_hooks for m in net.modules())


def test_as_map_takes_tokens_and_vectors():
    tokens = torch.randn(2, 17, 5)  # one prefix token and 4 x 4
    assert torch.equal(as_map(tokens)[0, :, 1, 2], tokens[0, 1 + 6])
    assert as_map(torch.randn(2, 5)).shape == (2, 5, 1, 1)


@pytest.mark.parametrize(
    ("method", "params", "field"),
    [(EBO, {"temperature": 0}, "ebo.temperature"), (KNN, {"k": 0}, "knn.k"), (ReAct, {"percentile": 0}, "react.p")],
)
def test_wrong_hyper_parameters_are_named(method, params, field):
    with pytest.raises(UserError, match=f"params.{field}"):
        method(**params)


def test_vim_refuses_a_space_as_wide_as_the_features():
    with pytest.raises(UserError, match=r"vim\.dim: must be below the 64"):
        ViM(dim=64).fit(ood_task()[0])


def test_react_and_dice_report_the_logits_they_score_with():
    task, images, _ = ood_task()
    for method in (ReAct(), DICE()):
        method.fit(task)
        changed = method.logits(images)
        assert not torch.allclose(changed, task.predict(method.net, images)[0])
        torch.testing.assert_close(method.score(images), -changed.logsumexp(1))
