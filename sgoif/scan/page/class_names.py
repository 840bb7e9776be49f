"""Names of classes as people write them, from names of folders."""

from __future__ import annotations

import re
from collections.abc import Mapping

NUMBERING = re.compile(r"^(?:\d+|n\d{8})[.\-_ ]+(?=\D)")  # 001.Black_footed_Albatross, n02085620-Chihuahua


def readable_names(classes: list[str], given: Mapping[str, str] | None = None) -> list[str]:
    """Return what the page calls each class: without numbering, with blanks in the place of underscores.

    Names that the user has `given`, by class, come first. Names that would be empty or equal to another one stay as
    they are. Decisions and tables always have the names as they are.
    """
    given = given or {}
    better = [given.get(name) or " ".join(NUMBERING.sub("", name).replace("_", " ").split()) for name in classes]
    taken = [name.casefold() for name in better]
    return [new if new and taken.count(new.casefold()) == 1 else old for old, new in zip(classes, better, strict=True)]
