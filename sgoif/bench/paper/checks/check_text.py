"""Checks sentences of the paper that state a number or an order against its tables."""

from __future__ import annotations

from collections.abc import Iterator

from sgoif.bench.paper.checks.check_detection import EXTENDED
from sgoif.bench.paper.checks.finding import CONSISTENT, INCONSISTENT, NOTABLE, TOLERANCE, Finding
from sgoif.bench.paper.printed import Paper, read

OURS = "SG-OIF (ours)"


def stated_numbers(paper: Paper) -> Iterator[Finding]:
    """Check the claims of claims.yaml: a stated number is a printed one, or the difference of two."""
    for claim in read("claims.yaml")["claims"]:
        numbers = [paper[table].number(row, column) for table, row, column in claim["cells"]]
        computed = numbers[0].value - numbers[1].value if len(numbers) == 2 else numbers[0].value
        agree = abs(computed - claim["stated"]) <= claim.get("within", 0.0) + TOLERANCE
        yield Finding(
            "text",
            tuple(dict.fromkeys(c.table for c in numbers)),
            CONSISTENT if agree else INCONSISTENT,
            f"{claim['says']}: stated {claim['stated']}, {' - '.join(c.text for c in numbers)}"
            + (f" = {computed:.4g}" if len(numbers) == 2 else "")
            + " in the table.",
            {"stated": claim["stated"], "computed": computed},
        )


def margins(paper: Paper) -> Iterator[Finding]:
    """Check that the lead over the second best is about 3% at 20% noise, and grows with noise."""
    table = paper["Table 1"]
    by_noise = {}
    for noise in (20, 40, 70):
        titles = [c.title for c in table.columns if c.noise == noise / 100]
        margin = []
        for title in titles:
            column = table.column(title)
            margin.append(column.pop(OURS) - max(column.values()))
        by_noise[noise] = margin
    means = {noise: sum(m) / len(m) for noise, m in by_noise.items()}
    best = by_noise[20][-1]  # the column of 91.3, the number in the sentence
    yield Finding(
        "text",
        ("Table 1",),
        CONSISTENT if abs(best - 3) < 0.5 else INCONSISTENT,
        f"91.3% at 20% noise is said to surpass the second best by about 3%: {best:.1f} in that column "
        f"({', '.join(f'{m:.1f}' for m in by_noise[20])} over the four).",
        {"stated": 3, "computed": best, "all": by_noise[20]},
    )
    rising = means[20] < means[40] < means[70]
    yield Finding(
        "text",
        ("Table 1",),
        CONSISTENT if rising else INCONSISTENT,
        "The lead is said to grow with noise: on average "
        + ", ".join(f"{m:.1f} at {n}%" for n, m in means.items())
        + ".",
        {f"{n}%": m for n, m in means.items()},
    )


def sparsity(paper: Paper) -> Iterator[Finding]:
    """Check that other methods degrade from sparsity 0 to 0.6, and SG-OIF does not."""
    table = paper["Table 1"]
    change = {}
    for row in table.rows:
        for noise in (20, 40, 70):
            ends = [table.value(row.name, f"Sparsity (Noise {noise}%) · {s}") for s in ("0.0", "0.6")]
            change[row.name, noise] = ends[1] - ends[0]
    others = {k: v for k, v in change.items() if k[0] != OURS}
    rises = {k: v for k, v in others.items() if v > 0}
    ours = [change[OURS, n] for n in (20, 40, 70)]
    listed = ", ".join(f"{row} {noise}% {v:+.1f}" for (row, noise), v in rises.items())
    yield Finding(
        "text",
        ("Table 1",),
        INCONSISTENT if rises else CONSISTENT,
        f"Other methods are said to lose from sparsity 0.0 to 0.6: {len(rises)} of {len(others)} rows gain ({listed}); "
        f"SG-OIF changes by {', '.join(f'{v:+.1f}' for v in ours)} at 20, 40, 70% noise.",
        {"gain": len(rises), "of": len(others), "ours": ours},
    )


def best_everywhere(paper: Paper) -> Iterator[Finding]:
    """Check the tables in which SG-OIF is said to be ahead of all baselines on all datasets.

    Of Table 3 the text also says that the results on CIFAR-100 are competitive: a lead lost there is no contradiction.
    """
    for name, skip in (("Table 1", ()), ("Table 2", ()), ("Table 3", ("Acc.",))):
        table = paper[name]
        not_ahead = []
        columns = [c for c in table.columns if c.name not in skip]
        for c in columns:
            column = table.column(c.title)
            ours, sign = column.pop(OURS), -1 if c.name == "Overhead" else 1
            for row, value in column.items():
                if sign * value >= sign * ours:
                    not_ahead.append(f"{row} {value} against {ours} in {c.title}")
        outcome = CONSISTENT
        if not_ahead:
            outcome = NOTABLE if name == "Table 3" else INCONSISTENT
        yield Finding(
            "text",
            (name,),
            outcome,
            f"{name}: SG-OIF is said to be ahead of every baseline; it is ahead in all of {len(columns)} columns"
            + (f" but where {'; '.join(not_ahead)}." if not_ahead else "."),
            {"columns": len(columns), "not_ahead": not_ahead},
        )


def counts(paper: Paper) -> Iterator[Finding]:
    """Check how many methods the text says it compares with."""
    noisy, ood = len(paper["Table 1"].rows) - 1, len(paper["Table 3"].rows) - 1
    groups = len({r.group for r in paper["Table 3"].rows if r.group})
    for stated, counted, what, table in (
        (7, noisy, "noisy-label baselines", "Table 1"),
        (21, ood, "OOD baselines", "Table 3"),
        (5, groups, "groups of OOD baselines", "Table 3"),
    ):
        yield Finding(
            "text",
            (table,),
            CONSISTENT if stated == counted else INCONSISTENT,
            f"{stated} {what} are announced; {table} has {counted}.",
            {"stated": stated, "computed": counted},
        )


def ablated_cost(paper: Paper) -> Iterator[Finding]:
    """Check what the text says about ablations: cost without low rank, preconditioning and trigger."""
    full = "Full (SG-OIF)"
    times = [paper[name].column("Time×GPU") for name in EXTENDED]
    hvps = [paper[name].column("CHVP/step") for name in EXTENDED]
    recalls = [paper[name].column("Recall@1/5/10% · 1%") for name in EXTENDED]
    worst = [
        max(t, key=t.__getitem__) == max(h, key=h.__getitem__) == "w/o LowRank"
        for t, h in zip(times, hvps, strict=True)
    ]
    slower = [t["w/o Precond"] > t[full] for t in times]
    faster = [t["w/o Trigger"] < t[full] for t in times]
    recall = [r["w/o Trigger"] < r[full] for r in recalls]
    for what, holds in (
        ("without low rank the time and the HVPs are the largest", worst),
        ("without preconditioning the run is slower", slower),
        ("without the trigger the run is faster", faster),
        ("without the trigger Recall@1% is lower", recall),
    ):
        yield Finding(
            "text",
            EXTENDED,
            CONSISTENT if all(holds) else INCONSISTENT,
            f"It is said that {what}: so in {sum(holds)} of {len(holds)} tables.",
            {"holds": sum(holds), "tables": len(holds)},
        )


def confidence_gain(paper: Paper) -> Iterator[Finding]:
    """Compare the stated gain of 23.7% AUPR over moving-average gating with the ablation tables."""
    apart = {
        t: paper[t].value("SG-OIF (Full)", "AUPR") - paper[t].value("w/o Moving-Avg Gate", "AUPR")
        for t in ("Table 4", "Table 5")
    }
    yield Finding(
        "text",
        tuple(apart),
        NOTABLE,
        "A gain of 23.7% AUPR over moving-average gating is stated for a figure; the ablation rows of that name differ "
        f"by {' and '.join(f'{v:.1f}' for v in apart.values())} points.",
        {"stated": 23.7, **apart},
    )


CHECKS = (stated_numbers, margins, sparsity, best_everywhere, counts, ablated_cost, confidence_gain)
