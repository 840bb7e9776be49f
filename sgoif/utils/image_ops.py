"""Operations on images that the scan and the benchmark share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from PIL.Image import Image


def fit_square(picture: Image, size: int) -> np.ndarray:
    """Resizes the shorter side to `size` pixels (bilinear, antialiased) and cuts out the centre square.

    Args:
        picture: A PIL image in mode L or RGB.
        size: Side of the result in pixels.

    Returns:
        The pixels as uint8, shape [size, size] for grey and [size, size, 3] for colour images.
    """
    from PIL import Image

    width, height = picture.size
    if (width, height) != (size, size):
        shorter = min(width, height)
        width, height = size * width // shorter, size * height // shorter
        picture = picture.resize((width, height), Image.Resampling.BILINEAR)
        left, top = round((width - size) / 2), round((height - size) / 2)
        picture = picture.crop((left, top, left + size, top + size))
    return np.asarray(picture, np.uint8)
