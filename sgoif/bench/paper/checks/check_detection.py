"""Checks what precision, recall and average precision of one ranking imply about each other.

With N examples of which a share `noise` has a wrong label, the top k (a share of N) holds P@k * k * N wrong labels, so

    Recall@k = P@k * k / noise

Hence Recall@k <= k / noise, and P@k * k / Recall@k is the noise rate, which is the same for every method.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from sgoif.bench.paper.checks.finding import CONSISTENT, INCONSISTENT, NOTABLE, TOLERANCE, Finding
from sgoif.bench.paper.printed import Paper, PrintedNumber, PrintedRow, PrintedTable

EXTENDED = ("Table 7", "Table 8", "Table 9", "Table 10")
DEPTHS = (0.01, 0.05, 0.10)
# Estimates from the literature on these datasets, not verified here: beside the implied rates, for orientation only.
ESTIMATES = {"WebVision": "about 20%", "Clothing1M": "about 38%"}
RECALL_STEPS = 1000


def recall_bound(paper: Paper) -> Iterator[Finding]:
    """Compute the largest noise rate that the printed recalls allow: noise <= k / Recall@k."""
    for table, row in _variants(paper, first_only=True):
        recalls = _recalls(table, row)
        bounds = [100 * k / (r.value - r.half_digit) * 100 for k, r in zip(DEPTHS, recalls, strict=True)]
        largest, dataset = min(bounds), table.columns[0].dataset
        at20 = [100 * k / 0.20 for k in DEPTHS]
        known = f"; published estimates: {ESTIMATES[dataset]}" if dataset in ESTIMATES else ""
        yield Finding(
            "recall bound",
            (table.name,),
            NOTABLE if largest < 20 else CONSISTENT,
            f"{dataset}, {row.name}: Recall@1/5/10% of {_slashed(recalls)} needs at most {largest:.1f}% wrong labels. "
            f"At 20%, the rate of the CIFAR experiments, it cannot exceed {'/'.join(f'{b:.0f}' for b in at20)}{known}.",
            {"recall": [r.value for r in recalls], "largest_noise": largest, "largest_recall_at_20": at20},
        )


def implied_noise(paper: Paper) -> Iterator[Finding]:
    """Compute noise = 1% * P@1% / Recall@1% of every variant; one dataset has one noise rate."""
    full = {}
    for name in EXTENDED:
        table = paper[name]
        dataset = table.columns[0].dataset
        rates = {r.name: _noise(table.number(r.name, "P@1%"), _recalls(table, r)[0]) for r in table.rows}
        middle = {row: rate for row, (rate, _, _) in rates.items()}
        full[dataset] = middle[table.rows[0].name]
        agree = max(low for _, low, _ in rates.values()) <= min(high for _, _, high in rates.values()) + TOLERANCE
        yield Finding(
            "implied noise rate",
            (name,),
            CONSISTENT if agree else INCONSISTENT,
            f"{dataset}: P@1% and Recall@1% imply a share of wrong labels from {min(middle.values()):.2f}% to "
            f"{max(middle.values()):.2f}%, depending on the variant; the share is a property of the data, and "
            f"{'rounding explains the spread' if agree else 'rounding does not explain the spread'}.",
            {"noise": middle, "lowest": min(middle.values()), "highest": max(middle.values())},
        )
    listed = ", ".join(f"{d} {v:.2f}%" for d, v in full.items())
    spread = max(full.values()) - min(full.values())
    yield Finding(
        "implied noise rate",
        EXTENDED,
        NOTABLE,
        f"The full method's rows imply nearly the same share of wrong labels in four unrelated datasets: {listed}.",
        {**full, "spread": spread},
    )


def largest_aupr(paper: Paper) -> Iterator[Finding]:
    """Compute the largest average precision, and interpolated area, that a row's own P@1% and recalls allow."""
    for table, row in _variants(paper):
        precision, recalls = table.number(row.name, "P@1%"), _recalls(table, row)
        claimed = table.number(row.name, "AUPR")
        average, interpolated = 0.0, 0.0
        for signs in itertools.product((-1, 1), repeat=4):  # printed numbers stand for a range: take the best corner
            p, *r = ((c.value + s * c.half_digit) / 100 for c, s in zip((precision, *recalls), signs, strict=True))
            average = max(average, 100 * _largest_average(p, r))
            interpolated = max(interpolated, 100 * _largest_interpolated(p, r))
        least = claimed.value - claimed.half_digit
        if least > interpolated:
            outcome, verb = INCONSISTENT, "is above both"
        elif least > average:
            outcome, verb = NOTABLE, "is above the first, not the second"
        else:
            outcome, verb = CONSISTENT, "is possible"
        yield Finding(
            "largest possible AUPR",
            (table.name,),
            outcome,
            f"{table.columns[0].dataset}, {row.name}: P@1% {precision.text} and Recall@1/5/10% {_slashed(recalls)} "
            f"allow an average precision of at most {average:.1f} (interpolated: {interpolated:.1f}); the printed "
            f"{claimed.text} {verb}.",
            {"printed": claimed.value, "largest": average, "largest_interpolated": interpolated},
        )


def below_random(paper: Paper) -> Iterator[Finding]:
    """Count the precisions below that of a random ranking, whose P@1% is the noise rate."""
    table = paper["Table 1"]
    for noise in (20, 40, 70):
        values = [c.value for c in table if c.column.noise == noise / 100]
        below = sum(v < noise for v in values)
        yield Finding(
            "random ranking",
            ("Table 1",),
            NOTABLE if below else CONSISTENT,
            f"At {noise}% noise {below} of {len(values)} entries ({min(values)} to {max(values)}) are below {noise}, "
            "the P@1% of a random ranking.",
            {"below": below, "entries": len(values), "smallest": min(values), "largest": max(values)},
        )


CHECKS = (recall_bound, implied_noise, largest_aupr, below_random)


def _variants(paper: Paper, first_only: bool = False) -> Iterator[tuple[PrintedTable, PrintedRow]]:
    for name in EXTENDED:
        for row in paper[name].rows[: 1 if first_only else None]:
            yield paper[name], row


def _recalls(table: PrintedTable, row: PrintedRow) -> list[PrintedNumber]:
    return [table.number(row.name, f"Recall@1/5/10% · {k}%") for k in (1, 5, 10)]


def _slashed(numbers: list[PrintedNumber]) -> str:
    return "/".join(n.text for n in numbers)


def _noise(precision: PrintedNumber, recall: PrintedNumber) -> tuple[float, float, float]:
    """Implied noise rate in percent, with the smallest and the largest that rounding allows."""
    return (
        precision.value / recall.value,
        (precision.value - precision.half_digit) / (recall.value + recall.half_digit),
        (precision.value + precision.half_digit) / (recall.value - recall.half_digit),
    )


def _segments(precision: float, recalls: list[float]) -> tuple[float, list[tuple[float, float, float]]]:
    """(noise, [(depth, recall there, recall at its end)]): between two depths the wrong labels come first at best."""
    return DEPTHS[0] * precision / recalls[0], list(zip(DEPTHS, recalls, [*recalls[1:], 1.0], strict=True))


def _largest_average(precision: float, recalls: list[float]) -> float:
    """Average precision when, in each segment, all wrong labels come first.

    In a segment from depth d and recall a, after t more wrong labels (as a share of all examples) the precision is
    (a*noise + t) / (d + t); its integral over recall, t = 0 … (b-a)*noise, is [t + (a*noise - d) ln(1 + t/d)] / noise.
    """
    noise, segments = _segments(precision, recalls)
    area = recalls[0]  # the first segment starts at depth 0: precision 1 while the wrong labels last
    for depth, a, b in segments:
        t = (b - a) * noise
        area += (t + (a * noise - depth) * math.log(1 + t / depth)) / noise
    return area


def _largest_interpolated(precision: float, recalls: list[float]) -> float:
    """The same with each precision replaced by the largest one at that recall or a higher one; never too small."""
    noise, segments = _segments(precision, recalls)
    recall = np.linspace(0.0, 1.0, RECALL_STEPS + 1)
    best = np.ones_like(recall)
    for depth, a, b in segments:
        inside = (recall > a) & (recall <= b)
        best[inside] = recall[inside] * noise / (depth + (recall[inside] - a) * noise)
    envelope = np.maximum.accumulate(best[::-1])[::-1]
    return float(envelope[:-1].mean())  # it never rises, so the left sum is not below the integral
