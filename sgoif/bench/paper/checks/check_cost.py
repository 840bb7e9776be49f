"""Checks overheads and times: below 1, equal for different work, or changed by removing one scalar."""

from __future__ import annotations

from collections.abc import Iterator

from sgoif.bench.paper.checks.finding import CONSISTENT, NOTABLE, Finding
from sgoif.bench.paper.printed import Paper

TRAININGS = {  # plain trainings that a method's published procedure amounts to, by its own description
    "Co-Teaching": (2, "two networks"),
    "CL": (3, "four folds, each on three quarters of the data"),
    "INCV": (4, "rounds of cross-validation, then two networks"),
}


def overhead(paper: Paper) -> Iterator[Finding]:
    """Check the overheads of Table 2 and of the two short ablations."""
    table = paper["Table 2"]
    columns = [c.title for c in table.columns if c.name == "Overhead"]
    below = [table.number(r.name, c) for r in table.rows for c in columns if table.value(r.name, c) < 1]
    yield Finding(
        "overhead",
        ("Table 2",),
        NOTABLE if below else CONSISTENT,
        f"{len(below)} overheads are below 1 ({', '.join(f'{c.row.name} {c.column.group} {c.text}' for c in below)}): "
        "less time than the plain training they are relative to, although the method trains the same model and more.",
        {c.name: c.value for c in below},
    )
    web, cloth = table.column("WebVision · Overhead"), table.column("Clothing1M · Overhead")
    equal = sum(web[r] == cloth[r] for r in web)
    yield Finding(
        "overhead",
        ("Table 2",),
        NOTABLE if equal == len(web) else CONSISTENT,
        f"{equal} of {len(web)} methods have the same overhead on WebVision and on Clothing1M.",
        {"equal": equal, "methods": len(web)},
    )
    for row, (times, why) in TRAININGS.items():
        printed = [table.value(row, c) for c in columns]
        yield Finding(
            "overhead",
            ("Table 2",),
            NOTABLE if max(printed) < times - 0.5 else CONSISTENT,
            f"{row}: printed {min(printed):.2f} to {max(printed):.2f}; its published procedure ({why}) trains about "
            f"{times} times as much as plain training.",
            {"smallest": min(printed), "largest": max(printed), "trainings": times},
        )
    for name in ("Table 4", "Table 5"):
        full = paper[name].number("SG-OIF (Full)", "Overhead")
        without = paper[name].number("w/o Temperature", "Overhead")
        yield Finding(
            "overhead",
            (name,),
            NOTABLE if full.value - without.value > 0.1 else CONSISTENT,
            f"{full.column.dataset}: without the temperature, a division by one number, the overhead is {without.text} "
            f"instead of {full.text}.",
            {"full": full.value, "without": without.value},
        )


def time(paper: Paper) -> Iterator[Finding]:
    """Compare Time×GPU of two datasets whose sizes the paper gives."""
    small = paper["Table 9"].value("Full (SG-OIF)", "Time×GPU")
    large = paper["Table 10"].value("Full (SG-OIF)", "Time×GPU")
    yield Finding(
        "time",
        ("Table 9", "Table 10"),
        NOTABLE,
        f"Time×GPU of ImageNet is {large / small:.1f} times that of MNIST; by the paper's own counts ImageNet has "
        f"{1_280_000 / 70_000:.1f} times as many images, each far larger. No unit is given.",
        {"ratio": large / small, "images": 1_280_000 / 70_000},
    )


CHECKS = (overhead, time)
