"""Gram, PatchCore, CutPaste and DRAEM against brute force, scikit-learn and hand-computed cases."""

import math

import numpy as np
import pytest
import torch

from baselines.ood.cutpaste import CutPaste
from baselines.ood.draem import DRAEM, TwoNets, defects, draw, focal, perlin, ssim
from baselines.ood.gram import Gram
from baselines.ood.patchcore import PatchCore
from sgoif.errors import UserError
from tests.helpers.digit_tasks import ood_task


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


# --- Gram -----------------------------------------------------------------------------------------------------------


def test_gram_statistics_by_the_definition():
    maps = torch.randn(3, 4, 2, 5, generator=gen())  # signs matter
    ours = Gram.statistics(maps, (1, 2, 3, 5))
    f = maps.flatten(2).double()
    for j, p in enumerate((1, 2, 3, 5)):
        r = (f**p @ (f**p).transpose(1, 2)).sum(2)  # the C x C matrix, formed
        torch.testing.assert_close(ours[:, j].double(), r.sign() * r.abs() ** (1 / p), rtol=1e-4, atol=1e-4)


def test_gram_statistics_do_not_overflow():
    small = torch.rand(2, 3, 2, 2, generator=gen())
    large = Gram.statistics(1e6 * small, (5,))
    torch.testing.assert_close(large, 1e12 * Gram.statistics(small, (5,)))


def test_gram_deviation_by_hand():
    low, high = torch.tensor([[[2.0, 0.0]]]), torch.tensor([[[4.0, 10.0]]])
    g = torch.tensor([[[3.0, 5.0]], [[1.0, 5.0]], [[6.0, 15.0]]])
    torch.testing.assert_close(Gram.deviation(g, low, high), torch.tensor([0.0, 0.5, 0.5 + 0.5]), rtol=1e-5, atol=0)


def test_gram_streams_the_same_bounds_as_all_at_once():
    task, images, _ = ood_task()
    method = Gram()
    method.fit(task)
    from sgoif.training.seeds import numpy_generator

    order = numpy_generator(task.seed, "gram").permutation(len(task.train))
    rest, held = torch.from_numpy(order[80:]), torch.from_numpy(order[:80])
    net, deltas, norms = method.net, [], []
    test_class = task.predict(net, images)[0].argmax(1)
    held_class = task.predict(net, task.train, held)[0].argmax(1)
    for stage in range(3):
        body = torch.nn.Sequential(*list(net.backbone)[: stage + 1])

        def statistics(x, body=body):
            with torch.no_grad():
                return Gram.statistics(body(x), (1, 2, 3, 4, 5))

        g = statistics(task.train.batch(rest))
        low = torch.stack([g[task.labels[rest] == k].amin(0) for k in range(6)])
        high = torch.stack([g[task.labels[rest] == k].amax(0) for k in range(6)])
        torch.testing.assert_close(method.low[stage], low, rtol=1e-4, atol=1e-5)
        norms.append(Gram.deviation(statistics(task.train.batch(held)), low[held_class], high[held_class]).mean())
        inside = statistics(images.batch(torch.arange(len(images))))
        deltas.append(Gram.deviation(inside, low[test_class], high[test_class]))
    confidence = task.predict(net, images)[0].softmax(1).amax(1)
    expected = sum(d / n for d, n in zip(deltas, norms, strict=True)) / confidence
    torch.testing.assert_close(method.score(images), expected, rtol=2e-2, atol=1e-3)


def test_gram_class_without_images_gets_the_bounds_of_all():
    method = Gram()
    method.low = [torch.tensor([[[1.0]], [[torch.inf]], [[3.0]]])]
    method.high = [torch.tensor([[[2.0]], [[-torch.inf]], [[5.0]]])]
    method._fill_unseen()
    assert method.low[0][1].item() == 1.0 and method.high[0][1].item() == 5.0


# --- PatchCore ------------------------------------------------------------------------------------------------------


def test_patchcore_middle_stages():
    assert PatchCore.middle((1, 2, 3, 4)) == [2, 3]
    assert PatchCore.middle((1, 2, 3)) == [2, 3]
    assert PatchCore.middle((1, 2)) == [1, 2]
    assert PatchCore.middle((1,)) == [1]


def test_patchcore_patches_by_hand():
    first = torch.arange(32.0).view(1, 2, 4, 4)
    second = torch.full((1, 3, 2, 2), 9.0)
    out = PatchCore.patches([first, second])
    assert out.shape == (1, 16, 5)
    assert out[0, 5, 0] == first[0, 0, :3, :3].mean()  # position (1, 1): its 3 x 3 neighbourhood
    assert torch.allclose(out[0, :, 2:], torch.tensor(4.0))  # a corner of the padded 2 x 2 map sees 4 of 9 values


def test_k_centre_is_the_greedy_choice():
    points = torch.randn(60, 5, generator=gen(1))
    chosen = PatchCore.k_centre(points, 12, start=7).tolist()
    expected = [7]
    for _ in range(11):
        distance = torch.cdist(points, points[expected]).amin(1)
        expected.append(int(distance.argmax()))
    assert chosen == expected
    assert len(set(PatchCore.k_centre(points[:5], 100).tolist())) == 5


def test_patchcore_weight_by_hand_and_without_overflow():
    d = torch.tensor([[1.0, 2.0, 3.0]])
    by_hand = (1 - math.exp(3) / (math.exp(1) + math.exp(2) + math.exp(3))) * 1.0
    assert PatchCore.weighted(d).item() == pytest.approx(by_hand, rel=1e-5)
    assert torch.isfinite(PatchCore.weighted(1e4 + d)).all()


def test_patchcore_score_by_brute_force():
    task, images, _ = ood_task()
    method = PatchCore(minimum=40, coreset=1e-6)
    method.fit(task)
    assert len(method.bank) == 40
    body = list(method.net.backbone)
    with torch.no_grad():
        second = body[1](body[0](images.batch(torch.arange(20))))
        patches = PatchCore.patches([second, body[2](second)])
    distances = torch.cdist(patches.double(), method.bank.double()).sort(2).values  # [20, 16, 40]
    worst = distances[torch.arange(20), distances[:, :, 0].argmax(1), :9]
    torch.testing.assert_close(method.score(images)[:20].double(), PatchCore.weighted(worst), rtol=1e-3, atol=1e-5)


def test_patchcore_pool_is_bounded():
    task, images, _ = ood_task()
    for pool in (100, 2000):  # fewer patches than images; two per image
        method = PatchCore(pool=pool, minimum=10**6, maximum=10**6, projection=8)
        method.fit(task)
        assert 0 < len(method.bank) <= pool
        assert torch.isfinite(method.score(images)).all()


# --- CutPaste -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [8, 32, 224])
def test_cutpaste_boxes_keep_area_aspect_and_the_image(size):
    boxes = CutPaste.boxes(4000, size, (0.02, 0.15), (0.3, 3.33), gen()).double()
    height, width = boxes[:, 0], boxes[:, 1]
    assert (boxes[:, :2] >= 1).all() and (boxes[:, 2:] >= 0).all()
    assert (boxes[:, [2, 4]] + height[:, None] <= size).all() and (boxes[:, [3, 5]] + width[:, None] <= size).all()
    slack = 0.5  # sides are whole pixels
    assert ((height - slack) * (width - slack) <= 0.15 * size**2).all()
    assert ((height + slack) * (width + slack) >= 0.02 * size**2).all()
    assert ((height - slack) / (width + slack) <= 3.33).all() and ((height + slack) / (width - slack) >= 0.3).all()
    if size == 224:  # where rounding is small: both bounds are reached, and aspect is log-uniform
        share, log_aspect = height * width / size**2, (height / width).log()
        assert share.min() < 0.022 and share.max() > 0.147
        assert abs(log_aspect.mean() - math.log(0.3 * 3.33) / 2) < 0.05
        assert abs(log_aspect.std() - math.log(3.33 / 0.3) / math.sqrt(12)) < 0.03
        assert boxes[:, 2:].amin() == 0


def test_cutpaste_pastes_by_a_loop():
    x = torch.randn(50, 3, 12, 12, generator=gen(2))
    boxes = CutPaste.boxes(50, 12, (0.02, 0.3), (0.3, 3.33), gen(3))
    expected = x.clone()
    for i, (h, w, r0, c0, r1, c1) in enumerate(boxes.tolist()):
        expected[i, :, r1 : r1 + h, c1 : c1 + w] = x[i, :, r0 : r0 + h, c0 : c0 + w]
    assert torch.equal(CutPaste.paste(x, boxes), expected)


@pytest.mark.parametrize("n", [15, 60, 500])
def test_ledoit_wolf_and_mahalanobis(n):
    from sklearn.covariance import LedoitWolf

    x = torch.randn(n, 20, generator=gen(4)) @ torch.randn(20, 20, generator=gen(5)) + 3
    mean, covariance, shrinkage = CutPaste.ledoit_wolf(x)
    oracle = LedoitWolf().fit(x.double().numpy())
    assert shrinkage == pytest.approx(oracle.shrinkage_, rel=1e-6)
    np.testing.assert_allclose(covariance, oracle.covariance_, rtol=1e-8, atol=1e-8)
    ours = CutPaste.mahalanobis(x, mean, torch.linalg.inv(covariance))
    np.testing.assert_allclose(ours.square(), oracle.mahalanobis(x.double().numpy()), rtol=1e-6)


def test_cutpaste_head_is_scaled_to_the_network():
    layers = [m for m in CutPaste().head(512) if isinstance(m, torch.nn.Linear)]
    assert [m.out_features for m in layers] == [512] * 8 + [128, 2]
    with pytest.raises(UserError, match=r"cutpaste\.area"):
        CutPaste(area=(0.3, 0.1))


# --- DRAEM ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [7, 8, 32])
def test_ssim_by_the_formula(size):
    a, b = torch.rand(2, 2, 3, size, size, generator=gen(6), dtype=torch.float64)
    window = min(11, size - 1 + size % 2)  # odd
    axis = np.arange(window) - window // 2
    weights = np.exp(-(axis[:, None] ** 2 + axis[None] ** 2) / (2 * 1.5**2))
    weights /= weights.sum()
    pad = [(0, 0), (0, 0), (window // 2,) * 2, (window // 2,) * 2]
    pa, pb = np.pad(a.numpy(), pad, "reflect"), np.pad(b.numpy(), pad, "reflect")
    values = []
    for i, j, r, c in np.ndindex(2, 3, size, size):
        x, y = pa[i, j, r : r + window, c : c + window], pb[i, j, r : r + window, c : c + window]
        mx, my = (weights * x).sum(), (weights * y).sum()
        vx, vy, cov = (weights * (x - mx) ** 2).sum(), (weights * (y - my) ** 2).sum(), 0.0
        cov = (weights * (x - mx) * (y - my)).sum()
        values.append((2 * mx * my + 1e-4) * (2 * cov + 9e-4) / ((mx**2 + my**2 + 1e-4) * (vx + vy + 9e-4)))
    assert ssim(a, b).item() == pytest.approx(np.mean(values), rel=1e-6)
    assert ssim(a, a).item() == pytest.approx(1.0)


def test_focal_loss_by_hand():
    logits = torch.tensor([[[[0.0, 2.0]], [[0.0, -1.0]]]])  # [1, 2, 1, 2]
    target = torch.tensor([[[[1.0, 0.0]]]])
    p = [0.5, 1 / (1 + math.exp(-3))]
    assert focal(logits, target).item() == pytest.approx(np.mean([-((1 - q) ** 2) * math.log(q) for q in p]), rel=1e-5)


def lattice(n: int):
    g = gen()
    return torch.rand(n, 8, 8, generator=g), torch.rand(n, 1, 1, generator=g)


def test_perlin_range_and_lattice():
    for cells in (1, 2, 8):
        noise = perlin(64, torch.full((200, 2), cells), *lattice(200))
        assert noise.abs().max() <= 1.0 and noise.std() > 0.1
        assert abs(noise.mean()) < 0.05
        steps = (noise[:, 1:] - noise[:, :-1]).abs().amax()
        assert steps < 8 * cells / 64  # continuous: a jump at a cell's border would be larger
    fine = perlin(64, torch.full((50, 2), 8), *lattice(50))
    coarse = perlin(64, torch.full((50, 2), 1), *lattice(50))
    assert (fine[:, 1:] - fine[:, :-1]).abs().mean() > 3 * (coarse[:, 1:] - coarse[:, :-1]).abs().mean()


@pytest.mark.parametrize("size", [8, 28, 32])
def test_defects(size):
    mask, texture = defects(size, draw(500, 3, size, gen(1)))
    assert set(mask.unique().tolist()) == {0.0, 1.0} and 0.02 < mask.mean() < 0.15
    assert texture.min() >= 0 and texture.max() <= 1 and texture.std((2, 3)).mean() > 0.1
    assert (texture[:, 0] - texture[:, 1]).abs().mean() > 0.1  # coloured
    clean = torch.rand(500, 3, size, size, generator=gen(3))
    spoiled, where = DRAEM.spoil(clean, 0.8, draw(500, 3, size, gen(4)))
    changed = (spoiled != clean).any(1, keepdim=True)
    assert not (changed & (where == 0)).any() and (changed | (where == 0)).float().mean() > 0.99
    assert 0.25 < where.amax((1, 2, 3)).mean() < 0.55  # half of the images, less the empty masks


@pytest.mark.parametrize(("size", "depth"), [(8, 1), (28, 2), (32, 3), (224, 5), (256, 5)])
def test_draem_is_sized_to_the_image(size, depth):
    assert DRAEM.depth(size) == depth
    if size <= 32:
        assert TwoNets(3, 8, depth)(torch.rand(2, 3, size, size)).shape == (2, 5, size, size)


def test_draem_pooled_maximum():
    one = torch.zeros(1, 8, 8)
    one[0, 4, 4] = 1.0
    assert DRAEM.pooled_max(one).item() == pytest.approx(1 / 9)  # 3 x 3 at 8 pixels
    wide = torch.zeros(1, 256, 256)
    wide[0, 100, 100] = 1.0
    assert DRAEM.pooled_max(wide).item() == pytest.approx(1 / 21**2)  # the paper's window
