"""Compares the paper's numbers with public ones: row by row for Table 1, by distance for the OOD table."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from sgoif.bench.paper.checks.finding import CONSISTENT, NOT_VERIFIED, NOTABLE, Finding
from sgoif.bench.paper.printed import Paper
from sgoif.bench.paper.public_numbers import NOT_VERIFIED as SOURCE_NOT_VERIFIED
from sgoif.bench.paper.public_numbers import PROVED, confident_learning, openood, sources


def table1_rows(paper: Paper) -> Iterator[Finding]:
    """Count the numbers of each row of Table 1 (named P@1%) that equal a published test accuracy."""
    table = paper["Table 1"]
    public = confident_learning()
    total = 0
    for row in table.rows:
        found = [sources(table.number(row.name, c.title))[0] for c in table.columns]
        equal = sum(s["status"] == PROVED for s in found)
        unread = sum(s["status"] == SOURCE_NOT_VERIFIED for s in found)
        total += equal
        matches = public["matches"][row.name]
        if unread:
            words = "expected in the confident-learning article's Table 2 under the same name; not verified"
        else:
            whose = f"the published test accuracy of {matches[0]}"
            if len(matches) > 1:
                whose = f"the largest published test accuracy of {len(matches)} variants of CL ({', '.join(matches)})"
            words = f"{equal} of {len(found)} equal, to the printed digit, {whose}"
        yield Finding(
            "public numbers",
            ("Table 1",),
            _row_outcome(equal, unread, len(found)),
            f"Row {row.name}, printed as P@1%: {words}.",
            {"equal": equal, "of": len(found), "not_verified": unread, "rows": matches},
        )
    yield Finding(
        "public numbers",
        ("Table 1",),
        NOTABLE,
        f"{total} of {len(table.numbers)} numbers of Table 1 are, to the printed digit, test accuracies in the public "
        "confident-learning repository (CIFAR-10, same noise and sparsity).",
        {"equal": total, "of": len(table.numbers)},
    )


def ood_pairs(paper: Paper) -> Iterator[Finding]:
    """Compare each pair of the OOD table with OpenOOD v1.5's near and far AUROC, and column Acc. with its accuracy."""
    table = paper["Table 3"]
    public = openood()
    for name, reading in (("AUROC", "near"), ("AUPR", "far")):
        apart = []
        for row, values in public["values"].items():
            for dataset in ("CIFAR-10", "CIFAR-100"):
                apart.append(abs(table.value(row, f"{dataset} · {name}") - values[f"{dataset} {reading}"]))
        close = sum(d <= 1 for d in apart)
        yield Finding(
            "public numbers",
            ("Table 3",),
            NOTABLE,
            f"CIFAR columns, printed as {name}: {close} of {len(apart)} are within 1 point of OpenOOD v1.5's "
            f"{reading}-OOD AUROC of the same method (median distance {median(apart):.2f}).",
            {"within_1": close, "of": len(apart), "median": median(apart)},
        )
    apart = [abs(table.value(row, "Acc.") - v["CIFAR-100 ID accuracy"]) for row, v in public["values"].items()]
    yield Finding(
        "public numbers",
        ("Table 3",),
        NOTABLE,
        f"Column Acc.: {sum(d <= 1 for d in apart)} of {len(apart)} are within 1 point of OpenOOD v1.5's CIFAR-100 "
        f"classification accuracy (median distance {median(apart):.2f}); the caption calls the column running time.",
        {"within_1": sum(d <= 1 for d in apart), "of": len(apart), "median": median(apart)},
    )


def _row_outcome(equal: int, unread: int, total: int) -> str:
    if unread:
        return NOT_VERIFIED
    return NOTABLE if equal == total else CONSISTENT


CHECKS = (table1_rows, ood_pairs)
