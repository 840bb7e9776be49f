"""From any image file to a square of bytes: orientation, transparency, depth and colour space settled once."""

from __future__ import annotations

import contextlib

import numpy as np

from sgoif.errors import UserError
from sgoif.utils.image_ops import fit_square

GREY = ("1", "L", "LA", "La", "I", "I;16", "I;16L", "I;16B", "I;16N", "F")
WIDE = ("I", "I;16", "I;16L", "I;16B", "I;16N", "F")  # more than eight bits a pixel


class Unreadable(Exception):
    """The file is not an image that can be decoded; the message says why."""


def look(open, i: int) -> tuple[int, bool]:
    """(shorter side, is it grey) from the header alone."""
    with _told(), open(i) as picture:
        return min(picture.size), picture.mode in GREY


def square(open, i: int, size: int, channels: int) -> np.ndarray:
    """uint8 [size, size, channels]: the first frame, upright, over white, shorter side to `size`, centre square."""
    with _told(), open(i) as picture:
        pixels = fit_square(upright(picture, channels, size), size)
    return pixels.reshape(size, size, channels)


def thumbnail(open, i: int, side: int):
    """A PIL image of at most `side` pixels, whole (not cropped)."""
    with _told(), open(i) as picture:
        small = upright(picture, 3, side)
        small.thumbnail((side, side))
        return small


def upright(picture, channels: int, size: int):
    """The picture in mode RGB or L, turned as its EXIF says."""
    from PIL import Image, ImageOps

    mode = "RGB" if channels == 3 else "L"
    if picture.format == "JPEG":
        picture.draft(None, (size, size))  # decode at a fraction of the resolution, never below `size`
    picture = ImageOps.exif_transpose(picture)
    if picture.mode in WIDE:
        wide = np.asarray(picture, np.float64)
        top = wide.max(initial=0.0)
        if wide.min(initial=0.0) < 0 or not np.isfinite(top):
            raise Unreadable("pixel values are negative or not finite")
        scale = 1 if 1 < top <= 255 else 255 if top <= 1 else 255 / 65535 if top <= 65535 else 255 / top
        picture = Image.fromarray(np.round(wide * scale).astype(np.uint8))
    if picture.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in picture.info:
        layer = picture.convert("RGBA")
        picture = Image.new("RGBA", layer.size, "white")
        picture.alpha_composite(layer)
    return picture.convert(mode)


@contextlib.contextmanager
def _told():
    """Whatever the decoder raises becomes `Unreadable` with one line."""
    from PIL import UnidentifiedImageError

    try:
        yield
    except (Unreadable, UserError, MemoryError):
        raise
    except UnidentifiedImageError:
        raise Unreadable("not an image") from None
    except Exception as e:  # decoders raise anything: OSError, SyntaxError, struct.error, DecompressionBombError, …
        raise Unreadable(" ".join(str(e).split())[:160] or type(e).__name__) from None
