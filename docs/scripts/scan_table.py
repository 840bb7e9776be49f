"""Tables of docs/scan.md: `sgoif.find_label_issues` beside cleanlab, from scan-*.json and tables-*.json."""

from collections.abc import Iterator
from statistics import mean

from records import Measured, counted, measured_at, speed

METHODS = {
    "sgoif": "`find_label_issues`",
    "cleanlab": "cleanlab, logistic regression",
    "cleanlab_standardised": "cleanlab, the same, standardised",
    "cleanlab_head": "cleanlab, our head",
}
RANKED = ("auc_pr", "precision", "recall")  # bold where best
HEADING = ("data", "wrong (%)", "method", "AUC-PR", "flagged (%)", "precision", "recall", "CPU s")


def scan_beside_cleanlab(_measured: Measured) -> Iterator[str]:
    """A row for each method on each set; the best of a set is bold."""
    yield f"| {' | '.join(HEADING)} |"
    yield "|" + "---|" * len(HEADING)
    for case, figures in speed("scan").items():
        present = [key for key in METHODS if key in figures]
        best = {name: max(figures[key][name] for key in present) for name in RANKED}
        for row, key in enumerate(present):
            found = figures[key]
            cells = {name: f"{found[name]:.1f}" for name in (*RANKED, "flagged", "cpu_seconds")}
            cells |= {name: f"**{cells[name]}**" for name in RANKED if found[name] == best[name]}
            first = (case, f"{figures['wrong']:.1f}") if row == 0 else ("", "")
            order = ("auc_pr", "flagged", "precision", "recall", "cpu_seconds")
            yield f"| {' | '.join((*first, METHODS[key], *(cells[name] for name in order)))} |"


COMPARED = ("sgoif", "cleanlab_linear", "cleanlab_forest")  # in a cell of the table of tables
NOISE = ("symmetric 5%", "symmetric 20%", "next class 20%")
LEVEL = 0.3  # points of AUC-PR


def tables_beside_cleanlab(_measured: Measured) -> Iterator[str]:
    """A row for each table, three methods in a cell, and how often `find_label_issues` is ahead."""
    figures = speed("tables")
    yield f"| table | examples | {' | '.join(NOISE)} | flagged without noise (%) |"
    yield "|---|---:|" + "---:|" * (len(NOISE) + 1)
    rows = {name: _cells(found) for name, found in figures.items()}
    for name, cells in rows.items():
        written = [_in_bold(cells[noise]) for noise in NOISE]
        yield f"| {name} | {figures[name]['none']['examples']:,} | {' | '.join(written)} | {_three(cells['none'])} |"
    means = {
        noise: [mean(column) for column in zip(*(r[noise] for r in rows.values()), strict=True)]
        for noise in rows["letter"]
    }
    yield f"| mean | | {' | '.join(_in_bold(means[noise]) for noise in NOISE)} | {_three(means['none'])} |"
    every = [cells[noise] for cells in rows.values() for noise in NOISE]
    ahead = [
        sum(own >= max(others) - LEVEL for own, *others in every),
        sum(own >= one - LEVEL for own, one, _ in every),
    ]
    yield ""
    yield (
        f"It is ahead of both or within {LEVEL} in {ahead[0]} of {counted(len(every), 'training')}, of the logistic"
        f" regression in {ahead[1]}; {max(max(others) - own for own, *others in every):.1f} behind at worst."
    )
    yield f"{measured_at('tables')}"


def _cells(found: dict) -> dict[str, list[float]]:
    """AUC-PR of the methods by noise, and without noise what they flag."""
    quality = {noise: [found[noise][method]["auc_pr"] for method in COMPARED] for noise in NOISE}
    return quality | {"none": [found["none"][method]["flagged"] for method in COMPARED]}


def _three(values: list[float]) -> str:
    return " / ".join(f"{value:.1f}" for value in values)


def _in_bold(values: list[float]) -> str:
    """Three numbers, the largest of them bold."""
    shown = [f"{value:.1f}" for value in values]
    best = max(shown, key=float)
    return " / ".join(f"**{value}**" if value == best else value for value in shown)
