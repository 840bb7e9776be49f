"""Which images of an OOD set OpenOOD v1.5 keeps for an ID set: it takes out those that show classes of the ID set.

openood_lists.json holds the lists as bits, with their source and checksums. Sets that OpenOOD takes whole have none.
"""

from __future__ import annotations

import base64
import functools
from pathlib import Path
from typing import Any

import numpy as np

from sgoif.errors import UserError
from sgoif.utils.files import read_json

FILE = Path(__file__).parent / "catalogue" / "openood_lists.json"
SAME_ORDER = {"tinyimagenet9k": "tinyimagenet"}  # stand-ins that are the first images of an official set


def kept_images(name: str, id_set: str, n: int) -> np.ndarray | None:
    """Return the positions of the images that OpenOOD keeps.

    Args:
        name: The OOD set.
        id_set: The ID set.
        n: How many images of the OOD set there are here; the first n of a stand-in.

    Returns:
        Positions, int64, ascending; None where OpenOOD has no list, and so keeps all.

    Raises:
        UserError: If the images here are not those that the list numbers.
    """
    entry = _lists().get(SAME_ORDER.get(name, name), {}).get(id_set)
    if entry is None:
        return None
    if name not in SAME_ORDER and n != entry["of"]:
        raise UserError(
            f"{name} has {n:,} images here and {entry['of']:,} in OpenOOD's list for {id_set}, which goes by number; "
            "prepare the official archive, or set openood_lists: false"
        )
    bits = np.unpackbits(np.frombuffer(base64.b64decode(entry["bits"]), np.uint8), count=entry["of"])
    return np.flatnonzero(bits[:n])


@functools.cache
def _lists() -> dict[str, dict[str, dict[str, Any]]]:
    lists: dict[str, dict[str, dict[str, Any]]] = read_json(FILE)["lists"]
    return lists
