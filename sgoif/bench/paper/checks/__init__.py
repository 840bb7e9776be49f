"""Do the paper's numbers agree with each other, with its text and with public numbers? Arithmetic, nothing measured.

Each check is a function of the paper's tables that returns findings. A finding has numbers in it, computed here from
the printed ones. `inconsistent`: no rounding of the printed numbers can make them agree. `notable`: possible, and worth
knowing. `not verified`: the other number was not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from sgoif.bench.paper.printed import Paper

CONSISTENT, INCONSISTENT, NOTABLE, NOT_VERIFIED = "consistent", "inconsistent", "notable", "not verified"
OUTCOMES = (INCONSISTENT, NOTABLE, NOT_VERIFIED, CONSISTENT)  # in the order of reading
TOLERANCE = 1e-9  # numbers with one or two decimals are not exact in binary


@dataclass(frozen=True)
class Finding:
    """What one check says of one place. `numbers`: what was computed, by name, in the units of the table."""

    check: str
    tables: tuple[str, ...]
    outcome: str
    statement: str
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        return {**asdict(self), "tables": list(self.tables), "numbers": dict(self.numbers)}


def findings(paper: Paper) -> list[Finding]:
    """All checks on all tables."""
    from sgoif.bench.paper.checks import check_cost, check_detection, check_public_numbers, check_tables, check_text

    parts = (check_detection, check_tables, check_cost, check_text, check_public_numbers)
    return [f for part in parts for check in part.CHECKS for f in check(paper)]
