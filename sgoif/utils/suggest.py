"""Suggest the names a user may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def suggest(wrong: object, known: Iterable[str]) -> str:
    """Return a hint for an error message about an unknown name.

    Args:
        wrong: What the user wrote.
        known: The valid names.

    Returns:
        `did you mean a or b?` with up to three similar names, upper and lower case alike, or `there are: …` with all.
    """
    names = {name.lower(): name for name in known}
    close = [names[name] for name in difflib.get_close_matches(str(wrong).lower(), names, n=3, cutoff=0.5)]
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"there are: {', '.join(sorted(names.values(), key=str.lower)) or 'none'}"
