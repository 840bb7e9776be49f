"""Suggest the names a user may have meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable


def suggest(wrong: object, known: Iterable[str]) -> str:
    """Return a hint for an error message about an unknown name.

    Args:
        wrong: What the user wrote.
        known: The valid names.

    Returns:
        `did you mean a or b?` with up to three similar names, upper and lower case alike, or `there are: …` with all.
    """
    names = list(known)
    if close := nearest_names(wrong, names):
        return f"did you mean {' or '.join(close)}?"
    return f"there are: {', '.join(sorted(names, key=str.lower)) or 'none'}"


def hint_at_number(wrong: object) -> str:
    """Return how to write a number that was read as a text, as `1e-3` or in quotes; nothing for other values."""
    if not isinstance(wrong, str) or not re.fullmatch(r"[-+]?[0-9.]+(e[-+]?[0-9]{1,2})?", wrong, re.IGNORECASE):
        return ""
    if "e" not in wrong.lower():
        return "; write it without quotes"
    digits, _, exponent = wrong.lower().partition("e")
    number = f"{digits if '.' in digits else digits + '.0'}e{int(exponent):+d}"
    return f"; YAML takes {wrong} for a text, write {number}"


def nearest_names(wrong: object, known: Iterable[str]) -> list[str]:
    """Return up to three of the known names that are similar to a wrong one, upper and lower case alike."""
    names = {name.lower(): name for name in known}
    return [names[name] for name in difflib.get_close_matches(str(wrong).lower(), names, n=3, cutoff=0.5)]
