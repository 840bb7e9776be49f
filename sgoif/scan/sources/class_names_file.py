"""Names of the classes from a file, for the page: labels are often numbers or codes."""

from __future__ import annotations

import json
from pathlib import Path

from sgoif.errors import UserError
from sgoif.scan.sources.regular_files import require_no_special

KINDS = "a line `label,name` for each class, a name a line in the order of the classes, or JSON"
SEPARATORS = (",", ";", "\t", ":", " ")  # between label and name, the same in all lines


def read_class_names(path: Path, classes: list[str]) -> dict[str, str]:
    """Read what the classes are called.

    A line has the label and its name (`n01440764,tench`), or a name alone: then there are as many lines as classes, in
    their order (numbers by value, others by the alphabet). JSON is an object of names by label, or a list of names.
    Labels may hold blanks and commas. Once every class has a name, labels that are not scanned are ignored.

    Args:
        path: The file.
        classes: The classes.

    Returns:
        Names by class; a class may be missing.

    Raises:
        UserError: If the file cannot be read, does not name any of the classes, or has a line without a
            label while a class has no name.
    """
    require_no_special(path, f"name a file with {KINDS}")
    if not path.is_file():
        raise UserError(f"--classes {path}: no such file")
    try:
        text = path.read_text(encoding="utf-8-sig")
        found = json.loads(text) if path.suffix == ".json" else _lines(path, text, classes)
    except ValueError as e:  # not UTF-8, or not JSON
        raise UserError(f"--classes {path} cannot be read ({e}); expected {KINDS}, in UTF-8") from None
    if isinstance(found, list):
        return _in_order(path, [str(name).strip() for name in found], classes)
    if not isinstance(found, dict):
        raise UserError(f"--classes {path}: expected {KINDS}")
    names = {label: str(found[label]).strip() for label in classes if str(found.get(label, "")).strip()}
    if not names:
        raise UserError(f"--classes {path} names none of the classes, as {classes[0]!r}; expected {KINDS}")
    return names


def _lines(path: Path, text: str, classes: list[str]) -> dict[str, str] | list[str]:
    """Return names by label where lines begin with labels, else all lines."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    known = set(classes)
    ways = {separator: [_split(line, separator, known) for line in lines] for separator in SEPARATORS}
    separator = max(ways, key=lambda s: len({pair[0] for pair in ways[s] if pair is not None}))
    found = ways[separator]
    named = dict(pair for pair in found if pair is not None)
    missing = [label for label in classes if label not in named]
    for i, (line, pair) in enumerate(zip(lines, found, strict=True)):
        header = i == 0 and separator != " " and separator in line
        if named and missing and pair is None and not header:
            raise UserError(
                f"--classes {path}: {line!r} begins with no label, and {missing[0]!r} gets no name; expected {KINDS}"
            )
    return named or lines


def _split(line: str, separator: str, known: set[str]) -> tuple[str, str] | None:
    """Return the longest label that a line begins with, which may hold the separator, and the name behind it."""
    parts = line.split(separator)
    for n in range(len(parts) - 1, 0, -1):
        label = separator.join(parts[:n]).strip()
        for spelling in (label, label.strip('"')):
            if spelling in known:
                return spelling, separator.join(parts[n:]).strip().strip('"')
    return None


def _in_order(path: Path, names: list[str], classes: list[str]) -> dict[str, str]:
    if len(names) != len(classes):
        raise UserError(f"--classes {path} has {len(names)} names for {len(classes)} classes; expected {KINDS}")
    numbers = all(label.isdecimal() for label in classes)
    return dict(zip(sorted(classes, key=int) if numbers else sorted(classes), names, strict=True))
