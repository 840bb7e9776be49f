"""The page that says how many mutants were noticed, which were not, and why those do not matter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from tests.mutants.campaign import KILLED, SURVIVED, TIMEOUT, UNTESTED
from tests.mutants.survivors import Survivor, reason_for


def killed_share(records: Sequence[Mapping]) -> float:
    """Return the share of mutants that some test noticed; one that ran into its time limit was noticed."""
    return sum(record["outcome"] in (KILLED, TIMEOUT) for record in records) / max(len(records), 1)


def page(
    records: Sequence[dict],
    facts: Mapping[str, str],
    survivors: Sequence[Survivor],
    noticed: Sequence[Survivor] = (),
) -> str:
    """Write the Markdown page of a campaign.

    Args:
        records: What became of each mutant.
        facts: How they were drawn (`command`), and when and where they ran (`occasion`).
        survivors: The changes that do not matter, with their reasons.
        noticed: The changes for which a test was added since; their reason is its file.
    """
    outcomes = Counter(record["outcome"] for record in records)
    counts = ", ".join(f"{outcomes[name]} {name}" for name in (KILLED, TIMEOUT, SURVIVED, UNTESTED))
    rest = [record for record in records if record["outcome"] in (SURVIVED, UNTESTED)]
    explained = [record for record in rest if reason_for(record, survivors)]
    tested = [record for record in rest if record not in explained and reason_for(record, noticed)]
    lines = [
        "# Mutants",
        "",
        f"`{facts['command']}`, {facts['occasion']}. One place of the code is changed at a time (an operator, a "
        "number, a sign, an axis, a dropped statement), and the tests nearest to it are run; CONTRIBUTING says how.",
        "",
        f"{len(records)} mutants: {counts}. **{killed_share(records):.1%} were noticed.** "
        f"Of the {len(rest)} others {len(explained)} have no effect that a test could see, "
        f"{len(tested)} have got a test since, {len(rest) - len(explained) - len(tested)} are gaps.",
        "",
        "| drawn from | mutants | noticed |",
        "|---|---|---|",
    ]
    for name in sorted({drawn_from(record) for record in records}):
        part = [record for record in records if drawn_from(record) == name]
        lines.append(f"| `{name}` | {len(part)} | {killed_share(part):.0%} |")
    gaps = [record for record in rest if record not in explained and record not in tested]
    late = [record for record in records if record["outcome"] == TIMEOUT]
    sections = (
        ("Not noticed: gaps", gaps),
        ("Not noticed then: a test was added", tested),
        ("Not noticed: no effect", explained),
        ("Ran into the time limit", late),
    )
    for title, chosen in sections:
        lines += ["", f"## {title}"] if chosen else []
        for record in sorted(chosen, key=lambda r: (r["file"], r["line"])):
            lines += mutant_lines(record, reason_for(record, [*survivors, *noticed]))
    return "\n".join(lines) + "\n"


def mutant_lines(record: Mapping, reason: str) -> list[str]:
    """Return a mutant's place and change, and why it does not matter or which tests did not notice it."""
    place = f"`{record['file']}:{record['line']}` {record['function']} ({record['kind']})".replace("  ", " ")
    ran = "Ran: " + (", ".join(f"`{test}`" for test in record["ran"]) or "nothing")
    return [
        "",
        f"{place}: {reason}" if reason else place,
        "",
        "```text",
        *record["diff"],
        "```",
        *([] if reason else ["", ran]),
    ]


def drawn_from(record: Mapping) -> str:
    """Return the package a mutant's file is in."""
    return record["file"].rsplit("/", 1)[0]
