"""The result of one check on the paper's numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

CONSISTENT = "consistent"
INCONSISTENT = "inconsistent"
NOTABLE = "notable"
NOT_VERIFIED = "not verified"
OUTCOMES = (INCONSISTENT, NOTABLE, NOT_VERIFIED, CONSISTENT)  # in the order of reading
TOLERANCE = 1e-9  # numbers with one or two decimals are not exact in binary


@dataclass(frozen=True)
class Finding:
    """What one check found in one place of the paper.

    Attributes:
        check: Name of the check.
        tables: Names of the tables whose numbers were used.
        outcome: One of `OUTCOMES`.
        statement: The finding as a sentence with numbers.
        numbers: What was computed, by name, in the units of the table.
    """

    check: str
    tables: tuple[str, ...]
    outcome: str
    statement: str
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """Return the finding as it is written to ledger.json."""
        return {**asdict(self), "tables": list(self.tables), "numbers": dict(self.numbers)}
