"""Decoding of any image file into bytes: orientation, transparency, depth and colour space are settled here."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from sgoif.errors import UserError
from sgoif.utils.image_ops import fit_square

if TYPE_CHECKING:
    from PIL.Image import Image

    Opener = Callable[[int], Image]

WIDE_MODES = ("I", "I;16", "I;16L", "I;16B", "I;16N", "F")  # PIL modes of more than eight bits a pixel
GREY_MODES = ("1", "L", "LA", "La", *WIDE_MODES)
ALPHA_MODES = ("RGBA", "LA", "PA", "La", "RGBa")


class Unreadable(Exception):
    """The file is not an image that can be decoded; the message gives the reason."""


def inspect_header(open: Opener, i: int) -> tuple[int, bool]:
    """Reads the header of an image.

    Args:
        open: Opens the image at a position.
        i: Position of the image.

    Returns:
        The shorter side in pixels, and whether the image is grey.

    Raises:
        Unreadable: If the file is not an image.
    """
    with _as_unreadable(), open(i) as picture:
        return min(picture.size), picture.mode in GREY_MODES


def decode_square(open: Opener, i: int, size: int, channels: int) -> np.ndarray:
    """Decodes the centre square of an image: the first frame, upright, over white.

    Args:
        open: Opens the image at a position.
        i: Position of the image.
        size: Side of the result in pixels.
        channels: 1 for grey, 3 for colour.

    Returns:
        The pixels as uint8, shape [size, size, channels].

    Raises:
        Unreadable: If the image cannot be decoded.
    """
    with _as_unreadable(), open(i) as picture:
        pixels = fit_square(to_upright(picture, channels, size), size)
    return pixels.reshape(size, size, channels)


def make_thumbnail(open: Opener, i: int, side: int) -> Image:
    """Decodes a whole image (not cropped) at most `side` pixels wide and high.

    Raises:
        Unreadable: If the image cannot be decoded.
    """
    with _as_unreadable(), open(i) as picture:
        small = to_upright(picture, 3, side)
        small.thumbnail((side, side))
        return small


def to_upright(picture: Image, channels: int, size: int) -> Image:
    """Returns the image turned as its EXIF data says, over white, in mode RGB (3 channels) or L (1 channel).

    Large JPEG files are decoded at a fraction of their resolution, never below `size`.
    """
    from PIL import Image, ImageOps

    if picture.format == "JPEG":
        picture.draft(None, (size, size))
    picture = ImageOps.exif_transpose(picture)
    if picture.mode in WIDE_MODES:
        picture = _to_bytes(picture)
    if picture.mode in ALPHA_MODES or "transparency" in picture.info:
        layer = picture.convert("RGBA")
        picture = Image.new("RGBA", layer.size, "white")
        picture.alpha_composite(layer)
    return picture.convert("RGB" if channels == 3 else "L")


def _to_bytes(picture: Image) -> Image:
    """Scales a grey image of more than eight bits a pixel to 0..255."""
    from PIL import Image

    wide = np.asarray(picture, np.float64)
    top = float(wide.max(initial=0.0))
    if wide.min(initial=0.0) < 0 or not np.isfinite(top):
        raise Unreadable("pixel values are negative or not finite")
    return Image.fromarray(np.round(wide * _byte_scale(top)).astype(np.uint8))


def _byte_scale(top: float) -> float:
    """Returns the factor that brings values up to `top` into 0..255, from the range that they most likely have."""
    if top <= 1:
        return 255
    if top <= 255:
        return 1
    if top <= 65535:
        return 255 / 65535
    return 255 / top


@contextlib.contextmanager
def _as_unreadable() -> Iterator[None]:
    """Turns whatever a decoder raises into `Unreadable` with a message of one line."""
    from PIL import UnidentifiedImageError

    try:
        yield
    except (Unreadable, UserError, MemoryError):
        raise
    except UnidentifiedImageError:
        raise Unreadable("not an image") from None
    except Exception as e:  # decoders raise anything: OSError, SyntaxError, struct.error, DecompressionBombError, …
        raise Unreadable(" ".join(str(e).split())[:160] or type(e).__name__) from None
