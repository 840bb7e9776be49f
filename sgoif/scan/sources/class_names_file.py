"""Names of the classes from a file, for the page: labels are often numbers or codes."""

from __future__ import annotations

import json
import re
from pathlib import Path

from sgoif.errors import UserError
from sgoif.scan.sources.regular_files import require_no_special

KINDS = "a line `label,name` for each class, a name a line in the order of the classes, or JSON"
SEPARATOR = re.compile(r"\s*[,;:\t ]\s*")


def read_class_names(path: Path, classes: list[str]) -> dict[str, str]:
    """Reads what the classes are called.

    A line has the label and its name (`n01440764,tench`), or a name alone: then there are as many lines as classes, in
    their order (numbers by value, others by the alphabet). JSON is an object of names by label, or a list of names.
    Labels that are not scanned are ignored.

    Args:
        path: The file.
        classes: The classes.

    Returns:
        Names by class; a class may be missing.

    Raises:
        UserError: If the file cannot be read, or does not name any of the classes.
    """
    require_no_special(path, f"name a file with {KINDS}")
    if not path.is_file():
        raise UserError(f"--classes {path}: no such file")
    try:
        text = path.read_text(encoding="utf-8-sig")
        found = json.loads(text) if path.suffix == ".json" else _lines(text, classes)
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


def _lines(text: str, classes: list[str]) -> dict[str, str] | list[str]:
    """Returns names by label where lines begin with labels, else all lines."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    known, named = set(classes), {}
    for line in lines:
        parts = SEPARATOR.split(line, maxsplit=1)
        if len(parts) == 2 and parts[0] in known:
            named[parts[0]] = parts[1].strip('"')
    return named or lines


def _in_order(path: Path, names: list[str], classes: list[str]) -> dict[str, str]:
    if len(names) != len(classes):
        raise UserError(f"--classes {path} has {len(names)} names for {len(classes)} classes; expected {KINDS}")
    numbers = all(label.isdecimal() for label in classes)
    return dict(zip(sorted(classes, key=int) if numbers else sorted(classes), names, strict=True))
