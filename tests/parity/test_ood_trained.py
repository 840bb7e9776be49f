"""The trained OOD baselines against pytorch-ood where it has the method, else against cases worked out by hand."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from baselines.ood import arpl, csi, godin, logitnorm, mos, opengan, udg, vos
from sgoif.bench.methods.ood.kmeans import kmeans
from sgoif.errors import UserError
from sgoif.training.learner import Learner
from sgoif.training.models import Network
from tests.helpers.digit_tasks import ood_task


def rows(*values):
    return torch.tensor(values, dtype=torch.float32)


# --- LogitNorm --------------------------------------------------------------------------------------------------------


def test_logitnorm_loss_is_pytorch_oods():
    from pytorch_ood.loss import LogitNorm as Theirs

    f, y = 7 * torch.randn(20, 5), torch.randint(5, (20,))
    assert torch.allclose(logitnorm.LogitNorm.loss(f, y, 0.04), Theirs(t=0.04)(f, y))


def test_logitnorm_loss_forgets_the_norm_but_its_score_does_not():
    f, y = torch.randn(20, 5), torch.randint(5, (20,))
    loss, score = logitnorm.LogitNorm.loss, logitnorm.LogitNorm.from_logits
    assert torch.allclose(loss(f, y, 0.04), loss(10 * f, y, 0.04), rtol=1e-4)
    assert (score(10 * f) < score(f) - 1e-3).all()


# --- VOS --------------------------------------------------------------------------------------------------------------


def test_vos_energy_and_loss_are_pytorch_oods():
    from pytorch_ood.detector import WeightedEBO
    from pytorch_ood.loss import VOSRegLoss

    f, y = 3 * torch.randn(12, 4), torch.tensor([0, 1, 2, 3, 0, 1, 2, 3, -1, -1, -1, -1])
    ours = vos.VirtualOutliers(4, 2, 8)
    with torch.no_grad():
        ours.weights[2] = -0.3  # a negative weight counts as 0
    assert torch.allclose(vos.weighted_energy(f, ours.weights), WeightedEBO.score(f, ours.weights), atol=1e-5)

    weights = nn.Linear(4, 1)
    weights.weight.data = ours.weights.data[None]
    theirs = VOSRegLoss(ours.phi, weights, alpha=0.1)
    loss = F.cross_entropy(f[:8], y[:8]) + 0.1 * ours.loss(f[:8], f[8:])
    assert torch.allclose(loss, theirs(f, y), atol=1e-6)


def test_vos_regulariser_reaches_classifier_weights_and_phi():
    outliers, f = vos.VirtualOutliers(3, 2, 4), torch.randn(6, 3, requires_grad=True)
    outliers.loss(f[:3], f[3:]).backward()
    for gradient in (f.grad, outliers.weights.grad, outliers.phi.weight.grad):
        assert gradient.abs().sum() > 0


def test_vos_queues_keep_the_newest_of_each_class():
    outliers = vos.VirtualOutliers(2, 3, 1)
    values = torch.arange(1.0, 9.0)[:, None]
    outliers.push(values[:3], torch.tensor([0, 1, 0]))
    assert not outliers.full
    outliers.push(values[3:], torch.tensor([0, 0, 0, 0, 1]))  # four of class 0 in one step, three places
    assert sorted(outliers.features[0].flatten().tolist()) == [5, 6, 7]
    assert not outliers.full  # class 1 has 2 of 3
    outliers.push(values[:2] + 10, torch.tensor([1, 1]))
    assert outliers.full and sorted(outliers.features[1].flatten().tolist()) == [8, 11, 12]


def test_vos_outliers_are_the_least_likely_of_the_candidates():
    """Against drawing all candidates and sorting by density, as the paper says: the same distances on average."""
    torch.manual_seed(0)
    d, n, k = 3, 400, 40  # 40 classes with the same features: 40 draws at once
    features = torch.randn(n, d) @ rows((2, 0, 0), (0.5, 1, 0), (0, 0, 0.3)) + 5
    outliers = vos.VirtualOutliers(k, n, d)
    outliers.features[:] = features
    drawn = outliers.sample(2000, 1)
    mean = features.mean(0)
    covariance = (features - mean).T @ (features - mean) / n + 1e-4 * torch.eye(d)
    gaussian = torch.distributions.MultivariateNormal(mean, covariance)
    brute = gaussian.log_prob(gaussian.sample((2000, k))).amin(0)
    ours = gaussian.log_prob(drawn)
    assert drawn.shape == (k, d)
    assert ours.max() < gaussian.log_prob(gaussian.sample((2000,))).quantile(0.02)
    assert abs(ours.mean() - brute.mean()) < 4 * (ours.var() / k + brute.var() / k).sqrt()
    assert (drawn - mean).mean(0).norm() < 4  # every direction, not one


# --- ARPL -------------------------------------------------------------------------------------------------------------


def test_arpl_logits_and_loss_by_hand():
    head = arpl.ReciprocalPoints(2, 2)
    head.points.data, head.radius.data = rows((1, 0), (0, 2)), rows(0.5)
    z, y = rows((3, 1)), torch.tensor([0])
    # distances: ((2^2 + 1) / 2, (3^2 + 1) / 2) = (2.5, 5); products: (3, 2)
    assert torch.allclose(head.distance(z), rows((2.5, 5)))
    assert torch.allclose(head(z), rows((-0.5, 3)))
    expected = np.log(1 + np.exp(3.5)) + 0.1 * (2.5 - 0.5 + 1)
    assert arpl.ARPL.loss(head, z, y, arpl.ARPL.Params()).item() == pytest.approx(expected, rel=1e-5)


def test_arpl_margin_is_the_ranking_loss_of_the_paper():
    head, z, y = arpl.ReciprocalPoints(8, 3), torch.randn(10, 8), torch.randint(3, (10,))
    own = head.distance(z)[torch.arange(10), y]
    ranking = nn.MarginRankingLoss(margin=1.0)(head.radius.expand(10), own, torch.ones(10))
    expected = F.cross_entropy(head(z), y) + 0.1 * ranking
    assert torch.allclose(arpl.ARPL.loss(head, z, y, arpl.ARPL.Params()), expected)


# --- G-ODIN -----------------------------------------------------------------------------------------------------------


def test_godin_is_the_quotient_of_cosine_and_sigmoid():
    head = godin.QuotientHead(6, 3).eval()
    z = torch.randn(5, 6)
    h = F.cosine_similarity(z[:, None], head.h[None], dim=2)
    linear, norm = head.g[0], head.g[1]
    scaled = (linear(z) - norm.running_mean) / (norm.running_var + norm.eps).sqrt() * norm.weight + norm.bias
    assert torch.allclose(head.cosine(z), h, atol=1e-3)  # 1e-4 is added to the norms
    assert torch.allclose(head(z), head.cosine(z) * (1 + torch.exp(-scaled)), atol=1e-5)


def test_godin_perturbation_raises_h_and_not_the_quotient_by_eps_over_std():
    torch.manual_seed(1)
    net = Network(nn.Sequential(nn.Flatten(), nn.Linear(32, 8), nn.Tanh()), godin.QuotientHead(8, 3), []).eval()
    x, step = torch.randn(6, 2, 4, 4), 0.01 / torch.tensor([0.2, 0.5]).view(1, 2, 1, 1)
    moved = godin.GODIN.perturbed(net, x, step)
    assert torch.allclose((moved - x).abs(), step.expand_as(x), atol=1e-6)
    before, after = (net.head.cosine(net.features(v)).amax(1) for v in (x, moved))
    assert (after > before).all()
    x.requires_grad_()
    (of_quotient,) = torch.autograd.grad(net(x).amax(1).sum(), x)
    assert (of_quotient.sign() != (moved - x).sign()).any()


def test_godin_leaves_h_undecayed():
    task, _, _ = ood_task(plain=False)
    net = Network(nn.Flatten(), godin.QuotientHead(64, 6), [])
    learner = Learner.for_batches(task.recipe, 6, task.batches(), 0, network=net, undecayed=("head.h",))
    decays = {id(p): g["weight_decay"] for g in learner.optimizer.param_groups for p in g["params"]}
    assert decays[id(net.head.h)] == 0 and decays[id(net.head.g[0].weight)] == task.recipe.weight_decay


# --- CSI --------------------------------------------------------------------------------------------------------------


def test_csi_contrast_by_brute_force():
    u, labels, t = F.normalize(torch.randn(7, 4), dim=1), torch.tensor([0, 0, 1, 1, 1, 2, 3]), 0.3
    terms = []
    for i in range(7):
        others = [l for l in range(7) if l != i]
        positives = [j for j in others if labels[j] == labels[i]]
        bottom = sum(torch.exp(u[i] @ u[l] / t) for l in others)
        own = sum(torch.log(torch.exp(u[i] @ u[j] / t) / bottom) for j in positives)
        terms.append(-own / (len(positives) + 1))  # the released mask keeps the image itself
    assert torch.allclose(csi.supcon(u, labels, t), sum(terms) / 7, atol=1e-5)


def test_csi_with_two_views_and_no_labels_is_half_of_nt_xent():
    a, b = (F.normalize(torch.randn(5, 4), dim=1) for _ in range(2))
    u = torch.cat([a, b])
    similarity = (u @ u.T / 0.5).fill_diagonal_(-torch.inf)
    expected = F.cross_entropy(similarity, torch.arange(10).roll(5))
    assert torch.allclose(2 * csi.supcon(u, torch.arange(5).repeat(2), 0.5), expected, atol=1e-5)


def test_csi_rotations_are_classes_of_their_own():
    x, y = torch.arange(8.0).view(2, 1, 2, 2), torch.tensor([0, 2])
    turned, labels = csi.rotations(x), csi.shifted_labels(y, 3)
    assert labels.tolist() == [0, 2, 3, 5, 6, 8, 9, 11]
    assert turned[2].flatten().tolist() == [1, 3, 0, 2]  # image 0 by 90 degrees, counter-clockwise
    assert torch.equal(turned[4:6].flip(2, 3), x)


def test_csi_ensemble_takes_from_each_rotation_its_own_block():
    heads = csi.Heads(4, 2)
    heads.joint.weight.data, heads.joint.bias.data = torch.zeros(8, 4), torch.tensor([1.0, 0, 10, 0, 100, 0, 1000, 0])
    out = heads.ensemble(torch.randn(12, 4))
    assert torch.allclose(out, rows((1111 / 4, 0)).expand(3, 2))
    heads.joint.weight.data[2] = torch.ones(4)  # class 0 under rotation 1 listens to the features
    z = torch.zeros(12, 4)
    z[3:6] = rows((1, 1, 1, 1), (2, 2, 2, 2), (3, 3, 3, 3))  # features of the images in rotation 1
    assert torch.allclose(heads.ensemble(z)[:, 0] - 1111 / 4, rows(1, 2, 3), atol=1e-4)


@pytest.mark.parametrize("channels", [1, 3])
def test_csi_views_stay_in_range_and_differ(channels):
    torch.manual_seed(0)
    x = torch.rand(16, channels, 8, 8)
    a, b = (csi.view(x, torch.rand(csi.numbers(channels), 16), 0.08) for _ in range(2))
    assert a.shape == x.shape and a.min() >= 0 and a.max() <= 1 and not torch.allclose(a, b)
    grey = torch.full((16, channels, 8, 8), 0.5)
    assert (
        csi.view(grey, torch.rand(csi.numbers(channels), 16), 1.0).std((1, 2, 3)).max() < 2e-3
    )  # no colour to turn, nothing to crop


# --- MOS --------------------------------------------------------------------------------------------------------------


def test_mos_groups_labels_loss_and_score_by_hand():
    groups = mos.Groups([torch.tensor([0, 2]), torch.tensor([1])])  # logits: others, 0, 2 | others, 1
    y = torch.tensor([2, 1])
    assert [t.tolist() for t in groups.targets(y)] == [[2, 0], [0, 1]]
    f = torch.tensor([[0.5, 0.25, 0.25, 0.9, 0.1], [0.2, 0.7, 0.1, 0.3, 0.7]]).log()
    expected = -(np.log(0.25) + np.log(0.2)) / 2 - (np.log(0.9) + np.log(0.7)) / 2
    assert groups.loss(f, y).item() == pytest.approx(expected, rel=1e-5)
    other = torch.tensor([1, 1])
    mixed = groups.mixed_loss(f, y, other, torch.tensor([0.7, 0.3]))
    assert mixed.item() == pytest.approx(0.7 * expected + 0.3 * groups.loss(f, other).item(), rel=1e-5)
    assert torch.allclose(groups.score(f), rows(0.5, 0.2))
    assert torch.allclose(groups.classes(f).exp(), rows((0.25, 0.1, 0.25), (0.7, 0.7, 0.1)))


def test_mos_groups_classes_that_lie_together():
    torch.manual_seed(0)
    means = rows((0, 0), (9, 9), (0.1, 0), (9, 9.1), (0, 0.1), (9.1, 9))
    members = sorted(m.tolist() for m in mos.Groups.of_means(means, 2).members)
    assert members == [[0, 2, 4], [1, 3, 5]]
    assert [mos.default_groups(k) for k in (6, 10, 100)] == [2, 2, 20]


# --- OpenGAN ----------------------------------------------------------------------------------------------------------


def test_opengan_shapes_and_which_way_each_player_pulls():
    torch.manual_seed(0)
    gan = opengan.FeatureGAN(12, 7)
    real, fake = torch.randn(16, 12) + 3, gan.generator(torch.randn(16, 7))
    assert fake.shape == (16, 12) and gan.logit(real).shape == (16,)
    assert sum(isinstance(m, nn.Linear) for m in gan.generator) == 5
    d = torch.optim.Adam(gan.discriminator.parameters(), lr=1e-3)
    generator_before = gan.generator[0].weight.clone()
    for _ in range(60):
        opengan.OpenGAN._step(d, gan.discriminator_loss(real, fake))
    assert (gan.logit(real) > 0).all() and (gan.logit(fake) < 0).all()  # real is up, generated is down
    assert torch.equal(gan.generator[0].weight, generator_before)
    expected = F.binary_cross_entropy_with_logits(gan.logit(real), torch.ones(16))
    expected += F.binary_cross_entropy_with_logits(gan.logit(fake), torch.zeros(16))
    assert torch.allclose(gan.discriminator_loss(real, fake), expected, atol=1e-6)
    g, start = torch.optim.Adam(gan.generator.parameters(), lr=1e-3), gan.generator_loss(fake).item()
    discriminator_before = gan.discriminator[0].weight.clone()
    for _ in range(60):
        opengan.OpenGAN._step(g, gan.generator_loss(gan.generator(torch.randn(16, 7))))
    assert gan.generator_loss(gan.generator(torch.randn(16, 7))) < start
    assert torch.equal(gan.discriminator[0].weight, discriminator_before)


# --- UDG --------------------------------------------------------------------------------------------------------------


def test_udg_groups_by_purity():
    none = udg.UNLABELLED
    cluster = torch.tensor([0] * 10 + [1] * 10 + [2] * 5 + [3] * 5)
    labels = torch.tensor([0] * 9 + [none] + [1] * 8 + [none] * 2 + [none] * 5 + [1] + [none] * 4)
    # shares: 0.9 of class 0; 0.8 of class 1 (not above 0.8); all unlabelled; 0.8 unlabelled (not above)
    given, weight = udg.dual_groups(cluster, labels, labels, 3, purity=0.8, heavy=2.0)
    assert given[9] == 0 and (given[18:25] == none).all() and (given[26:] == none).all()
    assert torch.equal(given[labels != none], labels[labels != none])
    assert (weight[20:25] == 2).all() and (weight[25:] == 1).all() and (weight[:20] == 1).all()


def test_udg_counts_the_labels_of_the_epoch_before():
    """Six of ten are labelled, three more were in the epoch before: pure. A label not given again is lost."""
    none = udg.UNLABELLED
    cluster = torch.tensor([0] * 10 + [1] * 5)
    labels = torch.tensor([0] * 6 + [none] * 4 + [none] * 5)
    before = torch.tensor([0] * 9 + [none] + [2] * 2 + [none] * 3)
    given, _ = udg.dual_groups(cluster, labels, before, 3, purity=0.8, heavy=1.0)
    assert given.tolist() == [0] * 10 + [none] * 5
    assert udg.dual_groups(cluster, labels, labels, 3, purity=0.8, heavy=1.0)[0].tolist() == labels.tolist()


def test_udg_loss_by_hand():
    p = rows((0.7, 0.2, 0.1), (0.2, 0.5, 0.3), (0.6, 0.2, 0.2))
    y, weight = torch.tensor([0, -1, -1]), rows(1.0, 2.0, 1.0)
    uniform = [-np.log(row).mean() for row in p.double().numpy()]
    expected = -np.log(0.7) + 0.5 * (2 * uniform[1] + uniform[2]) / 2
    assert udg.UDG.loss(p.log(), y, weight, 0.5).item() == pytest.approx(expected, rel=1e-5)


def test_udg_whitening_and_clusters():
    torch.manual_seed(0)
    z = torch.randn(600, 5) @ torch.randn(5, 5)
    z = torch.cat([z, z[:, :1]], 1)  # a direction without variance of its own
    centred = z - z.mean(0)
    w = udg.whiten(z)
    assert torch.allclose(w.norm(dim=1), torch.ones(600), atol=1e-4)
    mahalanobis = centred @ torch.linalg.pinv(centred.T @ centred / 600, rtol=1e-5, hermitian=True) @ centred.T
    norm = mahalanobis.diag().sqrt()
    assert torch.allclose(w @ w.T, mahalanobis / norm[:, None] / norm, atol=1e-2)
    blobs = torch.cat([torch.randn(50, 2) * 0.1 + torch.tensor(c) for c in ((0.0, 0.0), (5.0, 0.0), (0.0, 5.0))])
    cluster = kmeans(blobs, 3).view(3, 50)
    assert (cluster == cluster[:, :1]).all() and len(set(cluster[:, 0].tolist())) == 3


def test_udg_says_what_it_lacks():
    task, _, _ = ood_task(plain=False)
    task.auxiliary = None
    with pytest.raises(UserError, match="auxiliary"):
        udg.UDG().fit(task)
