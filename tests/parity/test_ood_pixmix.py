"""PixMix and its fractals against pytorch-ood and PIL, else against what their formulas say."""

import numpy as np
import pytest
import torch

from baselines.ood import pixmix
from sgoif.bench.methods.ood.fractals import fractals


def test_pixmix_add_and_multiply_are_pytorch_oods(monkeypatch):
    from pytorch_ood.augment.img import pixmix as theirs

    x, m = torch.rand(3, 8, 8), torch.rand(3, 8, 8)
    x[0, 0, 0] = m[0, 0, 0] = 0
    for a, b in ((0.8, 0.3), (1.4, -0.3)):
        monkeypatch.setattr(theirs, "get_ab", lambda beta, a=a, b=b: (a, b))
        for ours, reference in ((pixmix.add, theirs.add), (pixmix.multiply, theirs.multiply)):
            assert torch.allclose(ours(x, m, a, b), reference(x, m, 3), rtol=1e-4)


def test_pixmix_coefficients_have_the_beta_moments():
    torch.manual_seed(0)
    a, b = pixmix.coefficients(40_000, 3.0)
    plus = b >= 0
    assert abs(plus.float().mean() - 0.5) < 0.02
    # Beta(3, 1) has mean 3/4, Beta(1, 3) has mean 1/4
    means = [t.mean().item() for t in (a[plus], b[plus], a[~plus], b[~plus])]
    assert means == pytest.approx([0.75, 0.25, 1.25, -0.25], abs=0.01)
    assert a[plus].var().item() == pytest.approx(3 / 80, abs=0.002)


def pixmixed(x, m):
    return pixmix.mixed(x, pixmix.augmented(x, 5, 3.0), m, pixmix.choices(len(x), 4, 3.0))


@pytest.mark.parametrize("channels", [1, 3])
def test_pixmix_stays_in_range_and_mixes(channels):
    x, m = torch.rand(64, channels, 8, 8), torch.rand(64, channels, 8, 8)
    x[:, :, 0] = m[:, :, 1] = 0
    torch.manual_seed(0)
    out = pixmixed(x, m)
    assert torch.isfinite(out).all() and out.min() >= 0 and out.max() <= 1
    same = (out == x).flatten(1).all(1).float().mean()
    assert 0 < same < 0.3  # one in ten is neither augmented nor mixed; a few operations change nothing
    torch.manual_seed(0)
    assert torch.equal(out, pixmixed(x, m))


def kind(name):
    return torch.tensor([pixmix.GEOMETRY.index(name)])


def test_pixmix_operations_are_pils():
    """The operations with a fixed strength against Pillow, which the original uses."""
    from PIL import Image, ImageEnhance, ImageFilter, ImageOps

    rng = np.random.default_rng(0)
    picture = (30 + 190 * rng.random((24, 24, 3)) ** 2).astype(np.uint8)
    pil = Image.fromarray(picture)
    x = torch.from_numpy(picture).permute(2, 0, 1)[None].float() / 255
    level = torch.tensor([2.0])
    factor = 2.0 * 0.18 + 0.1
    zoom = {"resample": Image.BILINEAR}
    shear_x, shear_y = (1, 0.06, 0, 0, 1, 0), (1, 0, 0, 0.06, 1, 0)
    cases = {
        "autocontrast": ImageOps.autocontrast(pil),
        "equalize": ImageOps.equalize(pil),
        "posterize": ImageOps.posterize(pil, 4),
        "solarize": ImageOps.solarize(pil, 256 - 51),
        "color": ImageEnhance.Color(pil).enhance(factor),
        "contrast": ImageEnhance.Contrast(pil).enhance(factor),
        "brightness": ImageEnhance.Brightness(pil).enhance(factor),
        "sharpness": Image.blend(pil.filter(ImageFilter.SMOOTH), pil, factor),
        "rotate": pil.rotate(6, **zoom),
        "shear_x": pil.transform((24, 24), Image.AFFINE, shear_x, **zoom),
        "shear_y": pil.transform((24, 24), Image.AFFINE, shear_y, **zoom),
    }
    for name, expected in cases.items():
        if name in pixmix.GEOMETRY:
            ours = pixmix.geometry(kind(name), x, level, torch.tensor([1.0]))
        else:
            ours = (pixmix.tone if name in pixmix.TONE else pixmix.blend)(name, x, level)
        difference = (ours[0].permute(1, 2, 0) * 255 - torch.from_numpy(np.array(expected)).float()).abs()
        inner = difference[3:21, 3:21] if name in pixmix.GEOMETRY else difference  # borders are drawn otherwise
        assert inner.max() < 2.1, name
        assert (ours - x).abs().max() > 0.02, name


def test_pixmix_translation_moves_whole_pixels():
    x = torch.rand(1, 1, 20, 20)
    right = pixmix.geometry(kind("translate_x"), x, torch.tensor([3.0]), torch.tensor([1.0]))  # 3 * 20 / 30 = 2 pixels
    assert torch.allclose(right[..., :-2], x[..., 2:], atol=1e-4) and (right[..., -2:] == 0).all()
    down = pixmix.geometry(kind("translate_y"), x, torch.tensor([3.0]), torch.tensor([-1.0]))
    assert torch.allclose(down[:, :, 2:], x[:, :, :-2], atol=1e-4) and (down[:, :, :2] == 0).all()


def test_fractals_are_pictures_of_their_seed_alone():
    a = fractals(20, 16, 3, seed=1)
    assert a.shape == (20, 16, 16, 3) and a.dtype == torch.uint8
    assert torch.equal(a, fractals(20, 16, 3, seed=1)) and not torch.equal(a, fractals(20, 16, 3, seed=2))
    assert (a.float().std((1, 2)).mean(1) > 3).all()  # none is empty
    assert len({picture.numpy().tobytes() for picture in a}) == 20
    assert fractals(3, 9, 1).shape == (3, 9, 9, 1)
    where = pixmix.places(50, a, 12)
    cut = pixmix.crops(a, where, 12)
    pick, row, col = where[:, 7]
    assert torch.equal(cut[7].permute(1, 2, 0) * 255, a[pick, row : row + 12, col : col + 12].float())
    assert cut.shape == (50, 3, 12, 12) and 0 <= cut.min() and cut.max() <= 1
