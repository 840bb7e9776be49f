"""Draws mutants: every place of the listed files with the same chance, and one mutation of each drawn place.

Places are ordered by a hash of the seed and of what they are, not of their line. So the same seed draws the same
mutants, a larger count adds to them, and an edit elsewhere leaves them as they were.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from tests.mutants.sites import Mutant, SourceFile

METHOD = ("gradients", "curvature", "solvers", "anchors", "scores", "label_noise", "scopes", "applications")
TARGETS = (
    *(f"sgoif/{name}" for name in METHOD),
    "sgoif/backend/linalg.py",
    "sgoif/result.py",
    "sgoif/influence.py",
    "sgoif/_engine.py",
    "sgoif/bench/evaluation",
    "sgoif/bench/data/noise",
    "baselines/noisy",
    "baselines/ood",
)


def target_files(root: Path, only: Sequence[str] = ()) -> list[str]:
    """List the files to mutate.

    Args:
        root: The project.
        only: Files or folders; without any, all of `TARGETS`.

    Raises:
        FileNotFoundError: If one of them is not there.
    """
    found = set()
    for name in only or TARGETS:
        path = root / name
        if not path.exists():
            raise FileNotFoundError(f"mutants: no file or folder {name} in {root}: name it as in {TARGETS[0]}")
        found.update([path] if path.is_file() else path.rglob("*.py"))
    return sorted(path.relative_to(root).as_posix() for path in found)


def draw(root: Path, count: int, seed: int, only: Sequence[str] = ()) -> list[Mutant]:
    """Draw mutants.

    Args:
        root: The project.
        count: How many; fewer if there are no more places.
        seed: Another seed draws others.
        only: Files or folders to draw from; without any, all of `TARGETS`.
    """
    return list(islice(_all_mutants(root, seed, target_files(root, only)), count))


def _all_mutants(root: Path, seed: int, names: Sequence[str]) -> Iterator[Mutant]:
    sources = [SourceFile(name, (root / name).read_text()) for name in names]
    places = []
    for source in sources:
        for site in source.sites():
            number = int(hashlib.sha256(f"{seed}:{site.identity}".encode()).hexdigest(), 16)
            places.append((number, source, site))
    for number, source, site in sorted(places, key=lambda place: place[0]):
        mutant = source.mutant(site, number % 1009)
        if mutant is not None:
            yield mutant
