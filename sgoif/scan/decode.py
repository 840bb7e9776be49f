"""Decoding of any image file into bytes: orientation, transparency, depth and colour space are settled here."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from sgoif.errors import UserError
from sgoif.utils.image_ops import fit_square

if TYPE_CHECKING:
    from PIL.Image import Image

    Opener = Callable[[int], Image]

K = TypeVar("K")
WIDE_MODES = ("I", "I;16", "I;16L", "I;16B", "I;16N", "F")  # PIL modes of more than eight bits a pixel
GREY_MODES = ("1", "L", "LA", "La", *WIDE_MODES)
ALPHA_MODES = ("RGBA", "LA", "PA", "La", "RGBa")


class Unreadable(Exception):
    """The file is not an image that can be decoded; the message gives the reason."""


def inspect_header(open: Opener, i: int) -> tuple[int, bool, float]:
    """Read the header of an image, and of one with more than eight bits a pixel all of it.

    Args:
        open: Opens the image at a position.
        i: Position of the image.

    Returns:
        The shorter side in pixels, whether the image is grey, and its largest value; 0 of eight bits.

    Raises:
        Unreadable: If the file is not an image.
    """
    with _as_unreadable(), open(i) as picture:
        top = float(_wide_values(picture).max(initial=0.0)) if picture.mode in WIDE_MODES else 0.0
        return min(picture.size), picture.mode in GREY_MODES, top


def white_level(top: float) -> float:
    """Return the value that is shown white: the largest one of the bits that `top` needs, 1 at least."""
    return float(2 ** max(math.ceil(top).bit_length(), 1) - 1)


def with_white(open: Callable[[K], Image], white: float) -> Callable[[K], Image]:
    """Give all images of a scan one range, so that equal values are equally bright.

    Args:
        open: Opens an image.
        white: The value that is shown white in images of more than eight bits a pixel, as are larger ones; 0: each
            image has a range of its own.

    Returns:
        What opens an image, one of more than eight bits a pixel already as bytes.
    """
    from PIL import ImageOps

    def open_bytes(key: K) -> Image:
        picture = open(key)
        if picture.mode not in WIDE_MODES:
            return picture
        with picture:
            return _to_bytes(ImageOps.exif_transpose(picture), white)

    return open_bytes if white else open


def decode_square(open: Opener, i: int, size: int, channels: int) -> np.ndarray:
    """Decode the centre square of an image: the first frame, upright, over white.

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
    """Decode a whole image (not cropped) at most `side` pixels wide and high.

    Raises:
        Unreadable: If the image cannot be decoded.
    """
    with _as_unreadable(), open(i) as picture:
        small = to_upright(picture, 3, side)
        small.thumbnail((side, side))
        return small


def to_upright(picture: Image, channels: int, size: int) -> Image:
    """Return the image turned as its EXIF data says, over white, in mode RGB (3 channels) or L (1 channel).

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


def _to_bytes(picture: Image, white: float = 0) -> Image:
    """Scales a grey image of more than eight bits a pixel to 0..255; without `white` by its own largest value."""
    from PIL import Image

    wide = _wide_values(picture)
    white = white or white_level(float(wide.max(initial=0.0)))
    return Image.fromarray(np.round(np.minimum(wide / white, 1) * 255).astype(np.uint8))


def _wide_values(picture: Image) -> np.ndarray:
    values = np.asarray(picture, np.float64)
    if values.min(initial=0.0) < 0 or not np.isfinite(values).all():
        raise Unreadable("pixel values are negative or not finite")
    return values


@contextlib.contextmanager
def _as_unreadable() -> Iterator[None]:
    """Turn whatever a decoder raises into `Unreadable` with a message of one line."""
    from PIL import UnidentifiedImageError

    try:
        yield
    except (Unreadable, UserError, MemoryError):
        raise
    except UnidentifiedImageError:
        raise Unreadable("not an image") from None
    except Exception as e:  # decoders raise anything: OSError, SyntaxError, struct.error, DecompressionBombError, …
        raise Unreadable(" ".join(str(e).split())[:160] or type(e).__name__) from None
