"""Checks numbers that stand in several tables, columns computed from others, and outliers."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence

from sgoif.bench.paper.checks.check_detection import EXTENDED
from sgoif.bench.paper.checks.finding import CONSISTENT, INCONSISTENT, NOTABLE, TOLERANCE, Finding
from sgoif.bench.paper.printed import Paper, PrintedNumber

FULL_METHOD = ("SG-OIF (ours)", "SG-OIF (Full)", "Full (SG-OIF)")
PLAIN_NAMES = {
    "p_at_1": "P@1%", "auc_pr": "AUPR", "auroc:overall": "OOD AUROC", "aupr_out_ap:overall": "OOD AUPR",
    "overhead_standalone": "overhead", "tau_top1": "τ of the top 1%",
}  # fmt: skip


def _ours(paper: Paper) -> dict[str, list[PrintedNumber]]:
    """Numbers of the full method by dataset, under like conditions (20% noise, sparsity 0, where stated)."""
    found: dict[str, list[PrintedNumber]] = defaultdict(list)
    for number in (n for table in paper.values() for n in table if n.row.name in FULL_METHOD):
        column = number.column
        if column.metric in PLAIN_NAMES and column.noise in (None, 0.2) and column.sparsity in (None, 0.0):
            found[column.dataset].append(number)
    return found


def same_quantity(paper: Paper) -> Iterator[Finding]:
    """Compare quantities of the full method that several tables print."""
    for dataset, numbers in _ours(paper).items():
        for metric, name in PLAIN_NAMES.items():
            same = [c for c in numbers if c.column.metric == metric]
            if len({c.table for c in same}) < 2:
                continue
            apart = max(c.value for c in same) - min(c.value for c in same)
            agree = apart <= 2 * same[0].half_digit + TOLERANCE
            yield Finding(
                "one quantity, several tables",
                tuple(c.table for c in same),
                CONSISTENT if agree else INCONSISTENT,
                f"{dataset}, full method, {name}: {', '.join(f'{c.text} in {c.table}' for c in same)}.",
                {"values": [c.value for c in same], "apart": apart},
            )


def other_name(paper: Paper) -> Iterator[Finding]:
    """Find numbers of the full method that stand under two names."""
    for dataset, numbers in _ours(paper).items():
        for a, b in itertools.combinations(numbers, 2):
            if a.text == b.text and a.column.metric != b.column.metric:
                yield Finding(
                    "one number, two names",
                    tuple(dict.fromkeys((a.table, b.table))),
                    NOTABLE,
                    f"{dataset}, full method: {a.text} is {PLAIN_NAMES[a.column.metric]} in {a.table} and "
                    f"{PLAIN_NAMES[b.column.metric]} in {b.table}.",
                    {"value": a.value},
                )


def noise_and_ood(paper: Paper) -> Iterator[Finding]:
    """Compare AUPR of wrong labels with AUPR of OOD images over the variants of a table."""
    for name in EXTENDED:
        table = paper[name]
        apart = {r.name: abs(table.value(r.name, "AUPR") - table.value(r.name, "OOD AUPR")) for r in table.rows}
        largest = max(apart.values())
        yield Finding(
            "AUPR and OOD AUPR",
            (name,),
            NOTABLE if largest < 1 else CONSISTENT,
            f"{table.columns[0].dataset}: AUPR (wrong labels) and OOD AUPR (other images) differ by at most "
            f"{largest:.1f} points over {len(apart)} variants"
            + (", although they rank different things." if largest < 1 else "."),
            {"largest_difference": largest, "equal": sum(v < TOLERANCE for v in apart.values())},
        )


def averages(paper: Paper) -> Iterator[Finding]:
    """Recompute columns that are means of others: "Avg." of the OOD table, and the unified summary."""
    ood, summary = paper["Table 3"], paper["Table 11"]
    for metric in ("AUROC", "AUPR"):
        parts = [f"{d} · {metric}" for d in ("MNIST", "CIFAR-10", "CIFAR-100", "ImageNet")]
        rows = [(ood.number(r.name, f"Avg. · {metric}"), [ood.number(r.name, p) for p in parts]) for r in ood.rows]
        yield _means("Table 3", f"Avg. {metric}", rows)
    sources = {"Mean · τ": "τ@Top1%", "Mean · Time×GPU": "Time×GPU", "Mean · CHVP/step": "CHVP/step"}
    for title, part in sources.items():
        rows = [
            (summary.number(r.name, title), [paper[t].number(r.name, part) for t in EXTENDED]) for r in summary.rows
        ]
        yield _means("Table 11", title.replace(" · ", " "), rows)
    full = summary.number(summary.rows[0].name, "Mean · Time×GPU")
    off = {}
    for row in summary.rows:
        time = summary.number(row.name, "Mean · Time×GPU")
        cost = summary.number(row.name, "Norm. Cost")
        low = (time.value - time.half_digit) / (full.value + full.half_digit)
        high = (time.value + time.half_digit) / (full.value - full.half_digit)
        if not low - cost.half_digit - TOLERANCE <= cost.value <= high + cost.half_digit + TOLERANCE:
            off[row.name] = time.value / full.value
    yield _agreement("Table 11", "Norm. Cost (mean time over that of the full method)", len(summary.rows), off)


def _means(table: str, what: str, rows: Sequence[tuple[PrintedNumber, list[PrintedNumber]]]) -> Finding:
    off = {}
    for number, parts in rows:
        mean = sum(p.value for p in parts) / len(parts)
        if abs(mean - number.value) > number.half_digit + max(p.half_digit for p in parts) + TOLERANCE:
            off[number.row.name] = mean
    return _agreement(table, f"{what} (mean of four numbers)", len(rows), off)


def _agreement(table: str, what: str, rows: int, off: dict[str, float]) -> Finding:
    listed = "; ".join(f"{row}: {value:.3g}" for row, value in off.items())
    return Finding(
        "computed columns",
        (table,),
        INCONSISTENT if off else CONSISTENT,
        f"{what}: {rows - len(off)} of {rows} rows agree to rounding"
        + (f"; computed instead: {listed}." if off else "."),
        {"rows": rows, "agree": rows - len(off), **off},
    )


def outlier(paper: Paper) -> Iterator[Finding]:
    """Find a method whose P@1% over AUC-PR is far from that of all others; it may be a misprint."""
    table = paper["Table 2"]
    for dataset in ("CIFAR-100", "WebVision", "Clothing1M"):
        precision, area = table.column(f"{dataset} · P@1%"), table.column(f"{dataset} · AUC-PR")
        ratio = {r: precision[r] / area[r] for r in precision}
        order = sorted(ratio, key=ratio.__getitem__)
        last, next_to_last, first = ratio[order[-1]], ratio[order[-2]], ratio[order[0]]
        alone = last - next_to_last > next_to_last - first
        yield Finding(
            "outlier",
            ("Table 2",),
            NOTABLE if alone else CONSISTENT,
            f"{dataset}: P@1% over AUC-PR is {first:.2f} to {next_to_last:.2f}, and {last:.2f} for {order[-1]} "
            f"({precision[order[-1]]} over {area[order[-1]]}).",
            {"smallest": first, "second_largest": next_to_last, "largest": last, "row": order[-1]},
        )


CHECKS = (same_quantity, other_name, noise_and_ood, averages, outlier)
