"""Blocks of the fidelity table on the certificate: coverage of the intervals, and what tells which score is off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sgoif.bench.evaluation.significance import mean_std
from sgoif.bench.fidelity.certificate import LEVELS, MEASURES
from sgoif.bench.fidelity.measure import spearman
from sgoif.bench.tables.model import Block, Column, Entry, Row

LEVEL_METRICS = tuple(f"coverage_{round(100 * level)}" for level in LEVELS)
COVERAGE_COLUMNS = (
    *(
        Column("intervals that hold the exact influence (%)", f"{round(100 * level)}%", metric, "", "percent")
        for level, metric in zip(LEVELS, LEVEL_METRICS, strict=True)
    ),
    Column("half-width at 95%", "ours", "width", "", "number2"),
    Column("half-width at 95%", "the paper's", "paper_width", "", "number2"),
    Column("score", "error", "error", "", "number2"),
    Column("score", "rank correlation", "correlation", "", "fraction"),
)
MEASURE_COLUMNS = (
    Column("rank correlation with the error", "of examples in a run", "within", "", "fraction"),
    Column("rank correlation with the error", "of runs", "across", "", "fraction"),
    Column("highest scores whose label is wrong (%)", "upper half", "upper", "", "percent"),
    Column("highest scores whose label is wrong (%)", "lower half", "lower", "", "percent"),
)
TITLES = {
    "confidence": "confidence",
    "residual": "residual",
    "standard_error": "standard error over visits",
    "size": "absolute score",
    "width": "half-width",
}
ALL_PROBLEMS = "all of them"
FEWEST_RUNS = 5  # for a correlation of runs
Found = Sequence[Mapping[str, Mapping[str, Any]]]  # of each seed: title of a problem -> what was measured


def certificate_blocks(title: str, found: Found) -> list[Block]:
    """Build the blocks of one measurement.

    Args:
        title: The measurement's title.
        found: What `measure_certificate` returned, for every seed and problem.
    """
    return [_coverage(title, found), _measures(title, found)]


def _coverage(title: str, found: Found) -> Block:
    rows = [Row("", "", problem, _coverage_entries([one[problem] for one in found])) for problem in found[0]]
    if len(rows) > 1:
        every = [one[problem] for one in found for problem in one]
        rows.append(Row("", "", ALL_PROBLEMS, _coverage_entries(every)))
    footer = (
        "Exact: mean over all steps of the score window, with the exact Gauss-Newton matrix of the last layer and "
        "anchors of all examples. Half-width (median) and error (root mean square) are over the standard deviation of "
        "the exact influence. ± is the standard deviation over runs."
    )
    return Block(f"{title}: the interval of a score", list(COVERAGE_COLUMNS), rows, footer=footer)


def _coverage_entries(runs: Sequence[Mapping[str, Any]]) -> list[Entry]:
    by_metric = {metric: [run["coverage"][i] for run in runs] for i, metric in enumerate(LEVEL_METRICS)}
    by_metric |= {c.metric: [run[c.metric] for run in runs] for c in COVERAGE_COLUMNS if c.metric not in by_metric}
    return [_entry(by_metric[column.metric]) for column in COVERAGE_COLUMNS]


def _measures(title: str, found: Found) -> Block:
    runs = [one[problem] for one in found for problem in one]
    errors = [run["error"] for run in runs]
    rows = []
    for measure in MEASURES:
        means = [run["means"][measure] for run in runs]
        across = spearman(means, errors) if len(runs) >= FEWEST_RUNS else None
        halves = [[run["right"][measure][i] for run in runs if run["right"][measure][i] is not None] for i in (0, 1)]
        entries = [_entry([run["ranks"][measure] for run in runs]), Entry(across, None, len(runs))]
        rows.append(Row("", "", TITLES[measure], [*entries, *map(_entry, halves)]))
    footer = (
        "All problems and seeds. Of runs: between the mean of a run and the root mean square of its errors, both over "
        "the standard deviation of the exact influence where they have a scale. ± is the standard deviation over runs."
    )
    return Block(f"{title}: what tells which score is off", list(MEASURE_COLUMNS), rows, footer=footer)


def _entry(values: Sequence[float]) -> Entry:
    return Entry(*mean_std(values), len(values)) if values else Entry()
