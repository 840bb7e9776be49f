"""The examples of a scan: names, labels and a way to open each image, whatever the source."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sgoif.errors import UserError
from sgoif.scan.decode import with_white

if TYPE_CHECKING:
    from PIL.Image import Image

MIN_IMAGES_PER_CLASS = 5  # fewer make no anchor that could judge a label
MAX_NAMED_CLASSES = 5  # in an error message


@dataclass
class Listing:
    """Examples in a fixed order; `names` identify them in every file that a scan writes.

    Attributes:
        kind: "folder", "csv" or "dataset".
        source: The source as the user named it.
        names: Name of each example, a path relative to `base` where there is one.
        labels: Class of each example, a position in `classes`.
        classes: Names of the classes.
        open: Opens the image at a position, not yet decoded.
        base: Folder that the names are relative to; None where the examples are not files.
        left_out: (name, reason) of the examples that are not used.
        shown_names: What the page calls a class, where the user has said so.
        white: The value that is shown white in images of more than eight bits a pixel; 0 while nothing is known.
    """

    kind: str
    source: str
    names: list[str]
    labels: list[int]
    classes: list[str]
    open: Callable[[int], Image]
    base: Path | None = None
    left_out: list[tuple[str, str]] = field(default_factory=list)
    shown_names: dict[str, str] = field(default_factory=dict)
    white: float = 0.0

    def __len__(self) -> int:
        return len(self.names)

    def digest(self) -> str:
        """Return a hash of the names and labels and, for files, of their sizes and modification times."""
        h = hashlib.sha256(repr((self.kind, self.classes)).encode())
        for name, label in zip(self.names, self.labels, strict=True):
            h.update(repr((name, label, self.base and _file_state(self.base / name))).encode())
        return h.hexdigest()[:16]

    def subset(self, rows: Sequence[int]) -> Listing:
        """Return the examples at `rows`, with only the classes that still have examples."""
        used = sorted({self.labels[i] for i in rows})
        number = {old: new for new, old in enumerate(used)}
        return Listing(
            kind=self.kind,
            source=self.source,
            names=[self.names[i] for i in rows],
            labels=[number[self.labels[i]] for i in rows],
            classes=[self.classes[c] for c in used],
            open=lambda i: self.open(rows[i]),
            base=self.base,
            left_out=list(self.left_out),
            shown_names=self.shown_names,
            white=self.white,
        )

    def keep_to(self, white: float) -> None:
        """Open images of more than eight bits a pixel in one range from now on; 0 changes nothing."""
        self.open, self.white = with_white(self.open, white), white

    def rows_of_large_classes(self, skip_tiny: bool) -> list[int]:
        """Find the examples whose label can be judged: those of classes with enough images.

        Examples of smaller classes are added to `left_out`.

        Args:
            skip_tiny: Leave examples of smaller classes out instead of raising an error.

        Returns:
            Positions of the examples of classes with at least `MIN_IMAGES_PER_CLASS` images.

        Raises:
            UserError: If a class is too small and `skip_tiny` is off, or if fewer than two classes are left.
        """
        counts = Counter(self.labels)
        tiny = {c for c in range(len(self.classes)) if counts[c] < MIN_IMAGES_PER_CLASS}
        if tiny and not skip_tiny and len(self.classes) > 1:
            raise UserError(self._too_few_images(sorted(tiny), counts))
        if len(self.classes) - len(tiny) < 2:
            left = [name for c, name in enumerate(self.classes) if c not in tiny]
            found = f"one class, {left[0]!r}" if left else f"no class of {MIN_IMAGES_PER_CLASS} images"
            raise UserError(f"{self.source} has {found}; a wrong label can only be seen between two classes or more")
        for name, c in zip(self.names, self.labels, strict=True):
            if c in tiny:
                reason = f"class {self.classes[c]!r} has fewer than {MIN_IMAGES_PER_CLASS} images"
                self.left_out.append((name, reason))
        return [i for i, c in enumerate(self.labels) if c not in tiny]

    def _too_few_images(self, tiny: list[int], counts: Counter[int]) -> str:
        named = ", ".join(f"{self.classes[c]!r} ({counts[c]})" for c in tiny[:MAX_NAMED_CLASSES])
        more = f" and {len(tiny) - MAX_NAMED_CLASSES} more" if len(tiny) > MAX_NAMED_CLASSES else ""
        return (
            f"too few images to judge the labels of {named}{more}: at least {MIN_IMAGES_PER_CLASS} a class are "
            "needed; add images, or leave such classes out with --skip-tiny"
        )


def _file_state(path: Path) -> tuple[int, int] | None:
    """Return (size, modification time), or None for a broken link."""
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_size, state.st_mtime_ns
