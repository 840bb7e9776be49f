"""The page that says how many mutants were killed, and which were not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tests.mutants.campaign import KILLED, SURVIVED, TIMEOUT, UNTESTED


def killed_share(records: Sequence[dict]) -> float:
    """Return the share of mutants that some test noticed; one that ran into its time limit was noticed."""
    return sum(record["outcome"] in (KILLED, TIMEOUT) for record in records) / max(len(records), 1)


def page(records: Sequence[dict]) -> str:
    """Write the Markdown page of a campaign.

    Args:
        records: What became of each mutant.
    """
    outcomes = Counter(record["outcome"] for record in records)
    counts = ", ".join(f"{outcomes[name]} {name}" for name in (KILLED, TIMEOUT, SURVIVED, UNTESTED))
    lines = ["# Mutants", "", f"{len(records)} mutants: {counts}. {killed_share(records):.1%} were noticed."]
    lines += ["", "| drawn from | mutants | noticed |", "|---|---|---|"]
    for name in sorted({drawn_from(record) for record in records}):
        part = [record for record in records if drawn_from(record) == name]
        lines.append(f"| `{name}` | {len(part)} | {killed_share(part):.0%} |")
    for outcome, title in ((SURVIVED, "Survivors"), (UNTESTED, "No test ran"), (TIMEOUT, "Ran into the time limit")):
        chosen = [record for record in records if record["outcome"] == outcome]
        lines += ["", f"## {title}"] if chosen else []
        for record in sorted(chosen, key=lambda r: (r["file"], r["line"])):
            lines += ["", f"`{record['file']}:{record['line']}` {record['function']} ({record['kind']})", "", "```diff"]
            lines += [*record["diff"], "```", "", "Ran: " + (", ".join(f"`{t}`" for t in record["ran"]) or "nothing")]
    return "\n".join(lines) + "\n"


def drawn_from(record: dict) -> str:
    """Return the package a mutant's file is in."""
    return record["file"].rsplit("/", 1)[0]
