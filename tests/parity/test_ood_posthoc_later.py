"""Post-hoc OOD scores that the paper's table does not have, against pytorch-ood, scikit-learn and loops by hand."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pytorch_ood import detector as reference
from pytorch_ood.detector.fdbd import fDBD
from sklearn.covariance import EmpiricalCovariance
from torch import nn

from baselines.ood.ash import ASH
from baselines.ood.fdbd import FDBD
from baselines.ood.gen import GEN
from baselines.ood.mds_ensemble import MDSEnsemble
from baselines.ood.neco import NECO
from baselines.ood.nnguide import NNGuide
from baselines.ood.odin import ODIN
from baselines.ood.relation import Relation
from baselines.ood.scale import SCALE
from baselines.ood.she import SHE
from sgoif.bench.methods.ood.class_gaussians import ClassGaussians, whitening
from sgoif.bench.methods.ood.features import largest
from tests.helpers.digit_tasks import ood_task

N, D, K = 300, 24, 7


class World:
    """Training and test features, one of them always 0; the last layer; labels that the layer mostly predicts."""

    def __init__(self):
        g = torch.Generator().manual_seed(5)
        mixing = torch.randn(D, D, generator=g)
        self.w = torch.randn(K, D, generator=g) / 5
        self.train = (torch.randn(N, D, generator=g) @ mixing).relu()
        self.test = (1.5 * torch.randn(50, D, generator=g) @ mixing).relu()
        self.train[:, 3], self.test[:, 3] = 0, 0
        self.b = -(self.train @ self.w.T).mean(0)  # so that every class is predicted
        self.labels = torch.where(
            torch.rand(N, generator=g) < 0.8, self.head(self.train).argmax(1), torch.arange(N) % K
        )

    def head(self, z):
        return z @ self.w.T + self.b


@pytest.fixture(scope="module")
def world():
    return World()


@pytest.mark.parametrize(("gamma", "m"), [(0.1, 100), (0.5, 3)])
def test_gen(world, gamma, m):
    logits = world.head(world.test) / 4  # not so sure that pytorch-ood clamps
    expected = reference.GEN.score(logits, gamma, m) * min(m, K)  # a mean there, the paper's sum here
    torch.testing.assert_close(GEN.from_logits(logits, gamma, m).float(), expected, rtol=1e-3, atol=1e-4)


def small_net():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return nn.Sequential(nn.Conv2d(2, 6, 3), nn.Tanh(), nn.Flatten(), nn.Linear(6 * 9, 4)).eval()


@pytest.mark.parametrize("temperature", [1.0, 1000.0])
def test_odin(temperature):
    net, x = small_net(), torch.randn(9, 2, 5, 5, generator=torch.Generator().manual_seed(2))
    std = torch.tensor([0.2, 0.5])
    oracle = reference.ODIN(net, eps=0.05, temperature=temperature, norm_std=std.tolist()).predict(x)
    ours = ODIN.after_step(net, x, 0.05 / std.view(1, 2, 1, 1), temperature)
    torch.testing.assert_close(ours.float(), oracle, rtol=1e-5, atol=1e-6)
    still = -(net(x) / temperature).softmax(1).amax(1)
    assert (ours <= still + 1e-7).all() and not torch.allclose(ours.float(), still)  # the step raises the confidence


def test_mds_and_rmds(world):
    """Against scikit-learn's covariances, as OpenOOD takes them: a unit that is always 0 makes them singular."""
    from sklearn.covariance import EmpiricalCovariance

    z, y, test = world.train.numpy(), world.labels.numpy(), world.test.numpy()
    means = np.stack([z[y == k].mean(0) for k in range(K)])

    def distance(rows, centre, centred):
        precision = EmpiricalCovariance().fit(centred.astype(np.float32)).precision_
        return np.einsum("nd,de,ne->n", rows - centre, precision, rows - centre)

    within = np.concatenate([z[y == k] - means[k] for k in range(K)])
    classes = np.stack([distance(test, m, within) for m in means], 1)
    whole = distance(test, z.mean(0), z - z.mean(0))
    gaussians = ClassGaussians(K, D)
    for rows, labels in zip(world.train.split(77), world.labels.split(77), strict=True):
        gaussians.add(rows, labels)
    gaussians.finish()
    np.testing.assert_allclose(gaussians.distances(world.test), classes, rtol=1e-3)
    np.testing.assert_allclose(gaussians.background(world.test), whole, rtol=1e-3)
    alive = world.train[:, torch.arange(D) != 3], world.test[:, torch.arange(D) != 3]
    oracle = reference.RMD(None).fit_features(alive[0], world.labels).predict_features(alive[1])
    ours = gaussians.distances(world.test).amin(1) - gaussians.background(world.test)
    torch.testing.assert_close(ours.float() / N, oracle, rtol=1e-2, atol=1e-4)  # a sum there, not a mean


def test_small_variances_are_left_out_where_scikit_learn_does():
    """The covariance of float32 features is in float64 there: variances of 1e-7 of the largest count."""
    x = torch.randn(4000, 64, generator=torch.Generator().manual_seed(0)) * torch.logspace(0, -3.5, 64)
    x[:, 5] = 0.25  # a dead unit
    covariance = EmpiricalCovariance().fit(x.numpy())
    root = whitening(torch.from_numpy(covariance.covariance_))
    assert root.shape[1] == 63
    torch.testing.assert_close(root @ root.T, torch.from_numpy(covariance.precision_), rtol=1e-6, atol=1e-3)


def test_mds_ensemble():
    """Layer by layer against pytorch-ood: distances without a step, and the step of its one-layer detector."""
    task, images, _ = ood_task()
    method = MDSEnsemble()
    method.fit(task)
    every, net = torch.arange(len(task.train)), method.net
    blocks = list(net.backbone[:-1])  # stages of `small_cnn`; its features are the mean of the last, which counts once
    assert method.layers == blocks
    n, x = len(every), images.batch(torch.arange(40))
    oracle = reference.MultiMahalanobis(blocks)
    seen, z = [], task.train.batch(every)
    with torch.no_grad():
        for block in blocks:
            z = block(z)
            seen.append(z.mean((2, 3)))
    oracle.fit_structured(seen, task.labels)
    outputs, z = [], x
    with torch.no_grad():
        for block in blocks:
            z = block(z)
            outputs.append(z.mean((2, 3)))
    still = method.after_steps(x, torch.zeros(1, 1, 1, 1))
    torch.testing.assert_close(still.float() / n, oracle.predict_structured(outputs), rtol=1e-2, atol=1e-3)
    last = reference.MahalanobisODIN(net.features, eps=0.01).fit_features(seen[-1], task.labels)
    method.layers, method.gaussians = method.layers[-1:], method.gaussians[-1:]
    moved = method.after_steps(x, torch.full((1, 1, 1, 1), 0.01))
    torch.testing.assert_close(moved.float() / n, last.predict(x).detach(), rtol=1e-2, atol=1e-3)
    assert (moved < method.after_steps(x, torch.zeros(1, 1, 1, 1))).all()


def test_she(world):
    right = world.head(world.train).argmax(1) == world.labels
    assert not right.all() and world.labels[right].unique().numel() == K  # pytorch-ood needs a right one of each
    oracle = reference.SHE(None, world.head).fit_features(world.train, world.labels).predict_features(world.test)
    patterns = SHE.patterns(world.train, world.labels, right, K)
    torch.testing.assert_close(SHE.from_features(world.test, world.head(world.test), patterns), oracle)
    none = SHE.patterns(world.train, world.labels, right & (world.labels != 2), K)
    torch.testing.assert_close(none[2], world.train[world.labels == 2].mean(0))


@pytest.mark.parametrize("form", ["P", "B", "S"])
@pytest.mark.parametrize("percent", [65.0, 90.0])
def test_ash(world, form, percent):
    oracle = reference.ASH(None, lambda x: world.head(x.flatten(1)), f"ash-{form.lower()}", percent / 100)
    ours = -world.head(ASH.shaped(world.test, percent, form)).logsumexp(1)
    torch.testing.assert_close(ours, oracle.predict_feature_maps(world.test[:, :, None, None]))


def test_scale(world):
    oracle = reference.SCALE(None, lambda x: world.head(x.flatten(1)), 0.85)
    ours = -world.head(SCALE.scaled(world.test, 85.0)).logsumexp(1)
    torch.testing.assert_close(ours, oracle.predict_feature_maps(world.test[:, :, None, None]))


def test_nnguide(world):
    oracle = reference.NNGuide(None, world.head, k=9).fit_features(world.train, world.labels)
    bank = NNGuide.bank(world.train, world.head(world.train))
    ours = NNGuide.guided(world.test, world.head(world.test), bank, 9)
    torch.testing.assert_close(ours, oracle.predict_features(world.test))
    assert NNGuide.guided(world.test, world.head(world.test), bank[:4], 9).isfinite().all()  # fewer than k


def test_the_bank_of_nnguide_is_a_share_of_the_training_images():
    task, _, _ = ood_task()
    sizes = []
    for params in ({}, {"minimum": 5}, {"minimum": 5, "share": 0.1}):
        method = NNGuide(**params)
        method.fit(task)
        sizes.append(len(method.fitted))
    assert sizes == [500, 8, 80]


def test_fdbd(world):
    head = nn.Linear(D, K)
    with torch.no_grad():
        head.weight.copy_(world.w)
        head.bias.copy_(world.b)
    oracle = fDBD(None, head).fit_features(world.train).predict_features(world.test)
    ours = FDBD.from_features(world.test, world.head(world.test), world.w, world.train.mean(0))
    torch.testing.assert_close(ours, oracle.detach())


@pytest.mark.parametrize("variance", [0.5, 0.9, 1.0])
def test_neco(world, variance):
    """Scaler, components and share of length with scikit-learn, the authors' tools."""
    from sklearn.decomposition import PCA
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(world.train.numpy())
    train, test = (scaler.transform(z.numpy()) for z in (world.train, world.test))
    pca = PCA().fit(train)
    dim = int(np.searchsorted(np.cumsum(pca.explained_variance_ratio_), variance - 1e-6) + 1)
    expected = np.linalg.norm(pca.transform(test)[:, :dim], axis=1) / np.linalg.norm(test, axis=1)
    space = NECO.components(torch.from_numpy(train), variance)
    assert space.shape == (D, dim)
    np.testing.assert_allclose(NECO.share_of_length(torch.from_numpy(test), space), expected, rtol=1e-4)


@pytest.mark.parametrize("max_logit", [False, True])
def test_neco_standardises_by_the_training_images_and_may_weigh_by_the_largest_logit(max_logit):
    task, images, _ = ood_task()
    method = NECO(max_logit=max_logit)
    method.fit(task)
    logits, z = task.predict(method.net, images, features=True)
    train = task.plain.features
    z = (z - train.mean(0)) / train.std(0, correction=0)
    expected = (z @ method.space).norm(dim=1) / z.norm(dim=1) * (logits.amax(1) if max_logit else 1.0)
    torch.testing.assert_close(method.score(images), -expected, rtol=1e-3, atol=1e-4)
    assert method.extras()["neco_dim"] < 64


def test_relation(world):
    """One pair at a time."""
    p, q = world.head(world.test).softmax(1), world.head(world.train).softmax(1)
    for power in (1.0, 2.0):
        expected = []
        for i in range(len(p)):
            total = 0.0
            for j in range(N):
                related = max(float(F.cosine_similarity(world.test[i], world.train[j], 0)), 0) * float(p[i] @ q[j])
                total += related**power if related > 0.03 else 0.0
            expected.append(-total)
        method = Relation(power=power)
        method.units, method.probabilities, method.net = F.normalize(world.train), q, None
        r = method.relations(world.test, world.head(world.test), method.units, method.probabilities)
        ours = -torch.where(r > 0.03, r, 0.0).pow(power).sum(1)
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-4)


def test_relation_scores_in_blocks(monkeypatch):
    task, images, _ = ood_task()
    method = Relation(power=2.0, threshold=0.1)
    method.fit(task)
    logits, z = task.predict(method.net, images, features=True)
    r = method.relations(z, logits, method.units, method.probabilities)
    expected = -(r * (r > 0.1)).square().sum(1)
    monkeypatch.setattr("baselines.ood.relation.ENTRIES", 5 * len(method.units))
    torch.testing.assert_close(method.score(images), expected, rtol=1e-4, atol=1e-4)


def test_largest_keeps_a_whole_number_and_one_at_least(world):
    for percent, kept in ((0, 24), (65, 8), (90, 2), (99, 1)):
        mask = largest(world.test, percent)
        assert (mask.sum(1) == kept).all()
        smallest_kept = world.test.masked_fill(~mask, torch.inf).amin(1)
        assert (smallest_kept >= world.test.masked_fill(mask, -torch.inf).amax(1)).all()
