"""Numbers that stand in several tables, columns computed from others, and a number unlike its neighbours."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence

from sgoif.bench.paper.checks import CONSISTENT, INCONSISTENT, NOTABLE, TOLERANCE, Finding
from sgoif.bench.paper.checks.check_detection import EXTENDED
from sgoif.bench.paper.printed import Cell, Paper

FULL = ("SG-OIF (ours)", "SG-OIF (Full)", "Full (SG-OIF)")
PLAIN_NAMES = {
    "p_at_1": "P@1%", "auc_pr": "AUPR", "auroc:overall": "OOD AUROC", "aupr_out_ap:overall": "OOD AUPR",
    "overhead_standalone": "overhead", "tau_top1": "τ of the top 1%",
}  # fmt: skip


def _ours(paper: Paper) -> dict[str, list[Cell]]:
    """Numbers of the full method by dataset, under like conditions (20% noise, sparsity 0, where stated)."""
    found = defaultdict(list)
    for cell in (c for table in paper.values() for c in table if c.row.name in FULL):
        column = cell.column
        if column.metric in PLAIN_NAMES and column.noise in (None, 0.2) and column.sparsity in (None, 0.0):
            found[column.dataset].append(cell)
    return found


def same_quantity(paper: Paper) -> Iterator[Finding]:
    """A quantity of the full method that two tables print should be one number."""
    for dataset, cells in _ours(paper).items():
        for metric, name in PLAIN_NAMES.items():
            same = [c for c in cells if c.column.metric == metric]
            if len({c.table for c in same}) < 2:
                continue
            apart = max(c.value for c in same) - min(c.value for c in same)
            agree = apart <= 2 * same[0].half + TOLERANCE
            yield Finding(
                "one quantity, several tables",
                tuple(c.table for c in same),
                CONSISTENT if agree else INCONSISTENT,
                f"{dataset}, full method, {name}: {', '.join(f'{c.text} in {c.table}' for c in same)}.",
                {"values": [c.value for c in same], "apart": apart},
            )


def other_name(paper: Paper) -> Iterator[Finding]:
    """The same number of the full method under two names."""
    for dataset, cells in _ours(paper).items():
        for a, b in itertools.combinations(cells, 2):
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
    """AUPR of wrong labels and AUPR of OOD images, side by side over the variants of a table."""
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
    """Columns that are means of others: "Avg." of the OOD table, and the unified summary."""
    ood, summary = paper["Table 3"], paper["Table 11"]
    for metric in ("AUROC", "AUPR"):
        parts = [f"{d} · {metric}" for d in ("MNIST", "CIFAR-10", "CIFAR-100", "ImageNet")]
        rows = [(ood.cell(r.name, f"Avg. · {metric}"), [ood.cell(r.name, p) for p in parts]) for r in ood.rows]
        yield _means("Table 3", f"Avg. {metric}", rows)
    sources = {"Mean · τ": "τ@Top1%", "Mean · Time×GPU": "Time×GPU", "Mean · CHVP/step": "CHVP/step"}
    for title, part in sources.items():
        rows = [(summary.cell(r.name, title), [paper[t].cell(r.name, part) for t in EXTENDED]) for r in summary.rows]
        yield _means("Table 11", title.replace(" · ", " "), rows)
    full = summary.cell(summary.rows[0].name, "Mean · Time×GPU")
    off = {}
    for row in summary.rows:
        time, cost = summary.cell(row.name, "Mean · Time×GPU"), summary.cell(row.name, "Norm. Cost")
        low, high = (
            (time.value - time.half) / (full.value + full.half),
            (time.value + time.half) / (full.value - full.half),
        )
        if not low - cost.half - TOLERANCE <= cost.value <= high + cost.half + TOLERANCE:
            off[row.name] = time.value / full.value
    yield _agreement("Table 11", "Norm. Cost (mean time over that of the full method)", len(summary.rows), off)


def _means(table: str, what: str, rows: Sequence[tuple[Cell, list[Cell]]]) -> Finding:
    off = {}
    for cell, parts in rows:
        mean = sum(p.value for p in parts) / len(parts)
        if abs(mean - cell.value) > cell.half + max(p.half for p in parts) + TOLERANCE:
            off[cell.row.name] = mean
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
    """P@1% over AUC-PR of each method on one dataset: a number far from all others may be a slip."""
    table = paper["Table 2"]
    for dataset in ("CIFAR-100", "WebVision", "Clothing1M"):
        precision, area = table.column(f"{dataset} · P@1%"), table.column(f"{dataset} · AUC-PR")
        ratio = {r: precision[r] / area[r] for r in precision}
        order = sorted(ratio, key=ratio.get)
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
