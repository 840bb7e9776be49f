"""The table of docs/scan.md: `sgoif.find_label_issues` beside cleanlab, from benchmarks/measured/scan-*.json."""

from collections.abc import Iterator

from records import Measured, speed

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
