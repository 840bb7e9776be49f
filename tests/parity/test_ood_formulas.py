"""Formulas of the OOD baselines on inputs small enough to be worked out by hand."""

import math
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from baselines.ood import arpl, csi, cutpaste, draem, ebo, logitnorm, mos, msp, opengan, pixmix, udg


def rows(*values):
    return torch.tensor(values, dtype=torch.float32)


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("method", [msp.MSP, logitnorm.LogitNorm])
def test_least_confident_is_most_out_of_distribution(method):
    p = rows((0.7, 0.2, 0.1), (0.3, 0.4, 0.3))
    assert method.from_logits(p.log() + 5).tolist() == pytest.approx([-0.7, -0.4])


def test_logitnorm_loss_by_hand():
    """Norm 5: f / (0.1 * 5) = (6, 8, 0)."""
    expected = math.log(math.exp(6) + math.exp(8) + 1) - 6
    assert logitnorm.LogitNorm.loss(rows((3, 4, 0)), torch.tensor([0]), 0.1).item() == pytest.approx(expected, rel=1e-5)
    zero = logitnorm.LogitNorm.loss(torch.zeros(1, 3), torch.tensor([0]), 0.04)
    assert zero.item() == pytest.approx(math.log(3))


def test_energy_has_no_temperature_unless_told():
    f = rows((1, 2, 3))
    torch.testing.assert_close(ebo.EBO.from_logits(f), -f.logsumexp(1))


@pytest.mark.parametrize("score", ["ensemble", "class_head"])
def test_csi_answers_by_the_mean_of_four_rotations_or_by_its_class_head(score):
    from sgoif.training.cost.compute_counter import COMPUTE
    from sgoif.training.images import ImageSet

    torch.manual_seed(0)
    images = ImageSet((torch.rand(3, 4, 4) * 255).to(torch.uint8).numpy(), (0.5,), (0.5,))
    method = csi.CSI(score=score)
    method.net = SimpleNamespace(features=lambda x: x.flatten(1))
    method.heads = csi.Heads(16, 2)
    x = images.batch(torch.arange(3))
    turned = [method.heads.joint(torch.rot90(x, r, (2, 3)).flatten(1))[:, 2 * r : 2 * r + 2] for r in range(4)]
    expected = {"ensemble": sum(turned) / 4, "class_head": method.heads.linear(x.flatten(1))}
    COMPUTE.reset()
    torch.testing.assert_close(method.logits(images), expected[score])
    assert COMPUTE.forward_passes == 12
    for name, scores in method.scores(images).items():
        torch.testing.assert_close(scores, -expected[name].softmax(1).amax(1))


def test_arpl_scores_by_the_largest_distance_or_its_softmax():
    method = arpl.ARPL()
    method.logits = lambda images: rows((1, 3, 2))
    found = method.scores(None)
    assert found["distance"].tolist() == [-3]
    assert found["softmax"].item() == pytest.approx(-1 / (1 + math.exp(-1) + math.exp(-2)))


def test_csi_heads_are_taught_class_rotation_and_both():
    torch.manual_seed(0)
    heads, z, y = csi.Heads(5, 3), torch.randn(8, 5), torch.tensor([2, 0])
    turn = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3])
    expected = F.cross_entropy(heads.linear(z[:2]), y) + F.cross_entropy(heads.rotation(z), turn)
    expected = expected + F.cross_entropy(heads.joint(z), torch.tensor([2, 0, 5, 3, 8, 6, 11, 9]))
    torch.testing.assert_close(heads.loss(z, y, 3), expected)


def test_mos_has_at_least_two_groups_and_at_most_twenty():
    assert [mos.default_groups(k) for k in (2, 14, 15, 99, 100, 105, 1000)] == [2, 2, 3, 19, 20, 20, 20]


def test_opengan_networks_are_the_published_ones():
    torch.manual_seed(0)
    gan = opengan.FeatureGAN(400, 100)
    for net, widths, slope, without_norm in (
        (gan.generator, [100, 512, 256, 128, 256, 400], 0.0, 0),
        (gan.discriminator, [400, 512, 256, 128, 64, 1], 0.2, 1),  # its first layer
    ):
        linear = [m for m in net if isinstance(m, nn.Linear)]
        assert [m.in_features for m in linear] == widths[:-1] and [m.out_features for m in linear] == widths[1:]
        assert [m.bias is None for m in linear] == [True] * 4 + [net is gan.discriminator]
        assert all(abs(m.weight.std() - 0.02) < 0.005 for m in linear)
        assert all(abs(m.weight.mean()) < 0.005 for m in linear)
        norms = [m for m in net if isinstance(m, nn.BatchNorm1d)]
        assert [m.num_features for m in norms] == widths[1 + without_norm : -1]
        assert all(abs(m.weight.mean() - 1) < 0.01 and 0.01 < m.weight.std() < 0.03 for m in norms)
        assert {m.negative_slope for m in net if isinstance(m, nn.LeakyReLU)} == {slope}
        kinds = [type(m) for m in net]
        normed = [nn.Linear, nn.BatchNorm1d, nn.LeakyReLU] * (4 - without_norm)
        assert kinds == [nn.Linear, nn.LeakyReLU] * without_norm + normed + [nn.Linear]


# --- UDG --------------------------------------------------------------------------------------------------------------


def test_udg_keeps_the_leading_components():
    """Variances 9, 4 and 1 along the axes: with two components the third is gone, and both have unit variance."""
    z = torch.tensor([[a, b, c] for a in (-3.0, 3.0) for b in (-2.0, 2.0) for c in (-1.0, 1.0)]) + 7
    two = udg.whiten(z, 2)
    signs = (z - 7)[:, :2].sign() / math.sqrt(2)
    torch.testing.assert_close(two @ two.T, signs @ signs.T)
    assert two.shape == (8, 2) and udg.whiten(z, 3).shape == udg.whiten(z).shape == (8, 3)
    assert torch.isfinite(udg.whiten(torch.ones(4, 3))).all()


def test_udg_loss_of_a_batch_without_labels_or_without_outliers():
    f, weight = rows((1, 2), (0, 1)), rows(1, 2)
    uniform = -f.log_softmax(1).mean(1) * weight
    none = torch.full((2,), udg.UNLABELLED)
    assert udg.UDG.loss(f, none, weight, 0.5).item() == pytest.approx(0.5 * uniform.mean().item())
    y = torch.tensor([0, 1])
    torch.testing.assert_close(udg.UDG.loss(f, y, weight, 0.5), F.cross_entropy(f, y))


def test_udg_renews_its_auxiliary_head_without_momentum():
    torch.manual_seed(0)
    head, other = nn.Linear(16, 40), nn.Linear(16, 40)
    optimizer = torch.optim.SGD([*head.parameters(), *other.parameters()], lr=0.1, momentum=0.9)
    (head(torch.ones(3, 16)).sum() + other(torch.ones(3, 16)).sum()).backward()
    optimizer.step()
    before, kept = head.weight.detach().clone(), optimizer.state[other.weight]["momentum_buffer"].clone()
    udg.UDG._renew(head, optimizer)
    assert abs(head.weight.std() - 0.01) < 0.001 and abs(head.weight.mean()) < 0.001 and not head.bias.any()
    for weight in head.parameters():
        assert (optimizer.state[weight]["momentum_buffer"] == 0).all()
    assert not torch.equal(before, head.weight) and torch.equal(optimizer.state[other.weight]["momentum_buffer"], kept)


# --- CutPaste ---------------------------------------------------------------------------------------------------------


def test_cutpaste_boxes_reach_every_border():
    boxes = cutpaste.CutPaste.boxes(3000, 6, (0.02, 0.15), (0.3, 3.33), gen())
    for side, corner in ((0, 2), (1, 3), (0, 4), (1, 5)):
        last = boxes[:, side] + boxes[:, corner]
        assert boxes[:, corner].min() == 0 and last.max() == 6
        ones = boxes[boxes[:, side] == 1, corner]
        counts = torch.bincount(ones, minlength=6)
        assert len(counts) == 6 and counts.min() > 0.7 * counts.max()  # every place alike


# --- DRAEM ------------------------------------------------------------------------------------------------------------


def test_draem_scales_are_the_papers_with_two_pixels_a_cell():
    assert [draem.max_exponent(size) for size in (1, 2, 4, 8, 28, 32, 64, 256, 2048)] == [0, 0, 1, 2, 3, 4, 5, 5, 5]


def test_draem_textures_are_waves_over_fractal_noise():
    """Three octaves of weight 1, 1/2, 1/4; frequency from 0.5 to 3; a phase for every colour."""
    d = draem.draw(4, 3, 16, gen(2))
    mask, texture = draem.defects(16, d)
    noise = draem.perlin(16, d.cells, d.angles, d.turn)
    assert torch.equal(mask[:, 0], (noise[:4] > 0.5).float())
    fractal = noise[4:8] + noise[8:12] / 2 + noise[12:] / 4
    for i in range(4):
        for colour in range(3):
            wave = (0.5 + 2.5 * d.frequency[i].item()) * fractal[i] + d.phase[i, colour].item()
            torch.testing.assert_close(texture[i, colour], (1 + torch.sin(2 * math.pi * wave)) / 2)


def test_draem_networks_double_their_width_up_to_eight_times():
    for skips in (True, False):
        net = draem.UNet(3, 2, 4, 5, skips)
        widths = [4, 8, 16, 32, 32, 32]
        assert [level[0].in_channels for level in net.down] == [3, *widths[:-1]]
        assert [level[0].out_channels for level in net.down] == widths
        joined = [a + b if skips else b for a, b in pairwise(widths)]
        assert [level[0].in_channels for level in net.up] == joined
        assert [level[3].out_channels for level in net.up] == widths[:-1]
    two = draem.TwoNets(3, 32, 2)
    assert two.discriminate.down[0][0].in_channels == 6 and two.discriminate.down[0][0].out_channels == 16
    assert two.discriminate.out.out_channels == 2 and two.reconstruct.out.out_channels == 3
    assert two.discriminate.skips and not two.reconstruct.skips
    assert draem.TwoNets(1, 8, 1).discriminate.down[0][0].out_channels == 8  # at least


def test_draem_draws_every_scale():
    d = draem.draw(300, 3, 16, gen(1))
    assert d.cells.shape == (1200, 2) and set(d.cells[:300].unique().tolist()) == {1, 2, 4, 8}
    coarse, middle, fine = d.cells[300:600], d.cells[600:900], d.cells[900:]
    assert torch.equal(middle, (2 * coarse).clamp_max(8)) and torch.equal(fine, (4 * coarse).clamp_max(8))
    assert d.angles.shape == (1200, 8, 8) and d.turn.shape == (1200, 1, 1)
    assert d.phase.shape == (300, 3, 1, 1) and d.frequency.shape == d.spoiled.shape == d.opacity.shape == (300, 1, 1, 1)


def test_draem_perlin_by_hand():
    """One cell, no turn: at the corners of the lattice the noise is 0, between them the faded mean of four slopes."""
    noise = draem.perlin(2, torch.tensor([[1, 1]]), torch.zeros(1, 1, 1), torch.full((1, 1, 1), 0.5))[0]
    # every gradient points along x: at (y, x) the left corners say x, the right ones x - 1
    fade = [6 * t**5 - 15 * t**4 + 10 * t**3 for t in (0.25, 0.75)]
    expected = [math.sqrt(2) * (x + (x - 1 - x) * f) for x, f in zip((0.25, 0.75), fade, strict=True)]
    torch.testing.assert_close(noise, rows(expected, expected))
    turned = draem.perlin(2, torch.tensor([[1, 1]]), torch.full((1, 1, 1), 0.25), torch.full((1, 1, 1), 0.5))[0]
    torch.testing.assert_close(turned, noise.T)  # gradients along y


def test_draem_spoils_by_the_formula():
    x = torch.rand(6, 1, 8, 8, generator=gen(3))
    d = draem.draw(6, 1, 8, gen(4))._replace(spoiled=torch.tensor([0.0, 0.49, 0.5, 0.9, 0.1, 0.2]).view(6, 1, 1, 1))
    spoiled, mask = draem.DRAEM.spoil(x, 0.8, d)
    where, texture = draem.defects(8, d)
    assert (mask[2:4] == 0).all() and torch.equal(mask[:2], where[:2]) and mask.sum() > 0
    beta = 0.8 * d.opacity
    torch.testing.assert_close(spoiled, torch.where(mask > 0, (1 - beta) * texture + beta * x, x))


# --- PixMix -----------------------------------------------------------------------------------------------------------


def test_pixmix_add_and_multiply_by_hand():
    x, m, a, b = (torch.tensor(v) for v in (0.75, 0.25, 0.8, 0.3))
    assert pixmix.add(x, m, a, b).item() == pytest.approx((0.8 * 0.5 + 0.3 * -0.5 + 1) / 2)
    assert pixmix.multiply(x, m, a, b).item() == pytest.approx(1.5**0.8 * 0.5**0.3 / 2)
    assert torch.isfinite(pixmix.multiply(x, torch.tensor(0.0), a, -b))


def test_pixmix_draws_from_none_to_all_rounds():
    torch.manual_seed(0)
    drawn = pixmix.choices(4000, 3, 3.0)
    assert drawn.shape == (2 + 4 * 3, 4000)
    assert torch.bincount(drawn[1].long()).tolist() == pytest.approx([1000] * 4, abs=120)
    for coin in (drawn[0], *drawn[2::4], *drawn[5::4]):
        assert set(coin.tolist()) == {0, 1} and abs(coin.mean() - 0.5) < 0.05
    for a, b in zip(drawn[3::4], drawn[4::4], strict=True):
        assert 0 <= a.min() and a.max() <= 2 and -1 <= b.min() and b.max() <= 1
    assert pixmix.choices(5, 0, 3.0).shape == (2, 5)


def test_pixmix_mixes_as_drawn():
    """Four images: left alone; a copy to begin with; the picture multiplied in; a copy and then the picture added."""
    x, copies, m = (torch.rand(*shape, 1, 2, 2, generator=gen(5)) for shape in ((4,), (3, 4), (4,)))
    a, b = 0.9, 0.2
    drawn = rows(
        (0, 1, 0, 0),  # start from a copy
        (0, 0, 1, 2),  # rounds
        (1, 1, 0, 1), (a, a, a, a), (b, b, b, b), (0, 0, 0, 1),  # take a copy, a, b, add
        (0, 0, 0, 0), (a, a, a, a), (b, b, b, b), (1, 1, 1, 1),
    )  # fmt: skip
    out = pixmix.mixed(x, copies, m, drawn)
    first = pixmix.add(x[3], copies[1, 3], a, b).clamp(0, 1)
    expected = [x[0], copies[0, 1], pixmix.multiply(x[2], m[2], a, b), pixmix.add(first, m[3], a, b)]
    torch.testing.assert_close(out, torch.stack(expected).clamp(0, 1))


def test_pixmix_cuts_from_every_place():
    torch.manual_seed(0)
    where = pixmix.places(500, torch.zeros(4, 9, 9, 3, dtype=torch.uint8), 8)
    assert set(where[0].tolist()) == {0, 1, 2, 3} and set(where[1].tolist()) == set(where[2].tolist()) == {0, 1}


def test_pixmix_augments_each_image_by_one_operation_of_its_own(monkeypatch):
    """The operations are replaced by their number, so that which one an image got can be read off."""
    torch.manual_seed(0)
    seen = []

    def numbered(name, x, level):
        seen.append((name, level))
        return x + 10 * (pixmix.OPERATIONS.index(name) + 1)

    def geometry(kind, x, level, sign):
        assert set(sign.tolist()) == {-1, 1}
        seen.append(("geometry", level))
        return x + 10 * (len(pixmix.TONE) + kind + 1).view(-1, 1, 1, 1)

    for name, replacement in (("tone", numbered), ("blend", numbered), ("geometry", geometry)):
        monkeypatch.setattr(pixmix, name, replacement)
    x = torch.arange(8.0).view(8, 1, 1, 1).expand(8, 1, 2, 2)
    out = pixmix.augmented(x, 200, 3.0)
    assert out.shape == (200, 8, 1, 2, 2)
    operation, image = out[:, :, 0, 0, 0].div(10).floor() - 1, out[:, :, 0, 0, 0] % 10
    assert (image == torch.arange(8.0)).all()  # every image keeps its place
    assert torch.bincount(operation.flatten().long(), minlength=13).min() > 80  # 1,600 / 13 = 123
    levels = torch.cat([level for _, level in seen])
    assert 0.1 <= levels.min() < 0.12 and 2.98 < levels.max() <= 3.0
