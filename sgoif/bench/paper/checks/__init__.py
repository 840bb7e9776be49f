"""Checks whether the paper's numbers agree with each other, with its text and with public numbers.

Way in: `findings(paper)`. Every check is a function of the printed tables that yields `Finding`s; it computes with
printed numbers only, nothing is measured. Outcomes:

* `inconsistent`: no rounding of the printed numbers can make them agree.
* `notable`: possible, and worth knowing.
* `not verified`: the public number was not read.

Reads the printed tables and claims.yaml; writes nothing (`paper.comparison` puts the findings into the ledger).
"""

from __future__ import annotations

from sgoif.bench.paper.checks import check_cost, check_detection, check_public_numbers, check_tables, check_text
from sgoif.bench.paper.checks.finding import Finding
from sgoif.bench.paper.printed import Paper

MODULES = (check_detection, check_tables, check_cost, check_text, check_public_numbers)


def findings(paper: Paper) -> list[Finding]:
    """Run all checks on all tables of the paper."""
    return [finding for module in MODULES for check in module.CHECKS for finding in check(paper)]
