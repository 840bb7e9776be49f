"""Whatever kind of image file: upright, over white, first frame, eight bits, square."""

import numpy as np
import pytest
from PIL import Image

from sgoif.scan import pixel_cache
from sgoif.scan.decode import Unreadable, decode_square, inspect_header, make_thumbnail, to_upright, white_level
from sgoif.scan.explain import open_image
from sgoif.scan.output_folder import image_opener
from sgoif.scan.pixel_cache import MappedImages, channel_moments, decode_all
from sgoif.training.images import ImageSet
from sgoif.utils.image_ops import fit_square
from tests.helpers.scan_folders import run


def opened(path):
    return lambda _: Image.open(path)


def test_colour_spaces_give_the_same_red(tmp_path):
    red = Image.new("RGB", (20, 20), (200, 30, 30))
    red.save(tmp_path / "rgb.png")
    red.convert("P", palette=Image.Palette.ADAPTIVE).save(tmp_path / "palette.png")
    red.convert("CMYK").save(tmp_path / "cmyk.jpg", quality=95)
    red.save(tmp_path / "a.webp", lossless=True)
    red.save(tmp_path / "a.bmp")
    red.save(tmp_path / "a.tif")
    for file in sorted(tmp_path.iterdir()):
        pixels = decode_square(opened(file), 0, 8, 3)
        assert pixels.shape == (8, 8, 3) and pixels.dtype == np.uint8
        assert np.abs(pixels.astype(int) - (200, 30, 30)).max() <= 8, file.name


def test_transparency_lies_over_white(tmp_path):
    hidden = Image.new("RGBA", (8, 8), (0, 0, 0, 0))
    hidden.save(tmp_path / "a.png")
    Image.new("LA", (8, 8), (0, 0)).save(tmp_path / "b.png")
    assert (decode_square(opened(tmp_path / "a.png"), 0, 8, 3) == 255).all()
    assert (decode_square(opened(tmp_path / "b.png"), 0, 8, 1) == 255).all()


def test_sixteen_bits_keep_their_contrast(tmp_path):
    ramp = np.linspace(0, 65535, 64).round().astype(np.uint16).reshape(8, 8)
    Image.fromarray(ramp).save(tmp_path / "a.png")
    pixels = decode_square(opened(tmp_path / "a.png"), 0, 8, 1)[..., 0]
    assert np.abs(pixels - ramp / 257).max() <= 0.5
    assert inspect_header(opened(tmp_path / "a.png"), 0) == (8, True, 65535)


@pytest.mark.parametrize(
    ("top", "white"),
    [(0, 1), (0.4, 1), (1, 1), (1.01, 3), (200, 255), (255, 255), (4000, 4095), (65535, 65535), (65536, 131071)],
)
def test_white_is_the_largest_value_of_the_bits_that_are_needed(top, white):
    assert white_level(top) == white


@pytest.mark.parametrize(("kind", "tops", "end"), [(np.float32, (0.95, 1.6), "tif"), (np.uint16, (900, 4000), "png")])
def test_images_of_many_bits_share_one_range_in_a_scan(tmp_path, monkeypatch, kind, tops, end):
    """In training, of checked images, and where one is explained; values above the range are white."""
    white, seen = white_level(tops[1]), {}
    for folder, number, scale in (("images", 12, 1), ("checked", 4, 1.2)):
        for i in range(number):
            path = tmp_path / folder / "ab"[i % 2] / f"{folder}{i}.{end}"
            path.parent.mkdir(parents=True, exist_ok=True)
            ramp = np.linspace(0.2, 1, 64).reshape(8, 8) * tops[i % 4 > 1] * scale
            Image.fromarray(ramp.astype(kind)).save(path)

    def decode_and_keep(listing, *how):
        pixels, rows = decode_all(listing, *how)
        seen.update({listing.base / listing.names[i]: np.array(pixels[i, ..., 0]) for i in rows})
        return pixels, rows

    monkeypatch.setattr(pixel_cache, "decode_all", decode_and_keep)
    words = ("--out", tmp_path / "out", "--checked", tmp_path / "checked", "--epochs", 2, "--gallery", 2)
    assert run("scan", tmp_path / "images", *words) == 0
    assert len(seen) == 16
    example = image_opener(tmp_path / "out")
    for path, pixels in seen.items():
        expected = np.minimum(np.asarray(Image.open(path), float) / white, 1) * 255
        assert np.abs(pixels - expected).max() <= 0.5
        assert (np.asarray(open_image(str(path), tmp_path / "out")) == pixels).all()
        if "images" in path.name:
            assert (np.asarray(example(f"{path.parent.name}/{path.name}")) == pixels).all()


def test_the_first_frame_of_an_animation(tmp_path):
    frames = [Image.new("RGB", (10, 10), c) for c in ("blue", "red", "green")]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert np.abs(decode_square(opened(tmp_path / "a.gif"), 0, 8, 3).astype(int) - (0, 0, 255)).max() <= 3


def test_exif_orientation(tmp_path):
    picture = Image.new("RGB", (16, 16), "white")
    picture.paste("black", (0, 0, 16, 8))  # the upper half is black
    exif = Image.Exif()
    exif[0x0112] = 6  # shown after a quarter turn to the right: black is on the right
    picture.save(tmp_path / "a.jpg", exif=exif, quality=95)
    pixels = decode_square(opened(tmp_path / "a.jpg"), 0, 16, 1)[..., 0]
    assert pixels[:, :6].min() > 200 and pixels[:, 10:].max() < 50


@pytest.mark.parametrize("shape", [(100, 10), (10, 100), (1, 50), (3, 3)])
def test_any_shape_becomes_a_square(tmp_path, shape):
    Image.new("L", shape, 77).save(tmp_path / "a.png")
    assert (decode_square(opened(tmp_path / "a.png"), 0, 8, 1) == 77).all()
    small = make_thumbnail(opened(tmp_path / "a.png"), 0, 20)
    assert max(small.size) <= 20 or max(shape) <= 20


def test_large_jpegs_are_decoded_at_a_fraction(tmp_path):
    noise = np.random.default_rng(0).integers(0, 255, (6, 8, 3)).astype(np.uint8)
    Image.fromarray(noise).resize((1600, 1200)).save(tmp_path / "a.jpg", quality=95)
    whole = fit_square(Image.open(tmp_path / "a.jpg").convert("RGB"), 32).astype(float)
    with Image.open(tmp_path / "a.jpg") as picture:
        assert to_upright(picture, 3, 32).size == (200, 150)
    assert np.abs(decode_square(opened(tmp_path / "a.jpg"), 0, 32, 3) - whole).max() < 8


@pytest.mark.parametrize("body", [b"", b"GIF89a", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0 text", b"BM" + bytes(50)])
def test_broken_files_say_why(tmp_path, body):
    (tmp_path / "a.png").write_bytes(body)
    with pytest.raises(Unreadable, match=r"\w"):
        decode_square(opened(tmp_path / "a.png"), 0, 8, 3)


def test_mapped_images_are_an_image_set():
    """The same pixels, plain, mirrored and shifted, whether gathered from disk or kept on the device."""
    import torch

    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (12, 9, 9, 3)).astype(np.uint8)
    rows = np.array([1, 3, 4, 7, 11])
    mean, std = channel_moments(pixels, rows)
    flat = pixels[rows].reshape(-1, 3) / 255
    assert np.allclose(mean, flat.mean(0)) and np.allclose(std, flat.std(0))
    mapped, plain = MappedImages(pixels, rows, mean, std, torch.device("cpu")), ImageSet(pixels[rows], mean, std)
    assert len(mapped) == 5 and mapped.size == 9 and mapped.channels == 3
    index, flip = torch.tensor([4, 0, 2]), torch.tensor([True, False, True])
    shift = torch.tensor([[0, 4], [2, 2], [3, 1]])
    assert torch.equal(mapped.batch(index), plain.batch(index))
    assert torch.allclose(mapped.batch(index, shift, None, 2), plain.batch(index, shift, None, 2), atol=1e-6)
    assert torch.allclose(mapped.batch(index, None, flip, 0), plain.batch(index, None, flip, 0), atol=1e-6)
    assert torch.allclose(mapped.batch(index, shift, flip, 2), plain.batch(index, shift, flip, 2), atol=1e-6)
