"""Where a number of the paper also occurs in public, and under which name.

* `proved`: the source was read and prints the same number to the paper's precision.
* `differs`: the source was read and prints another number there.
* `not verified`: the source should hold the number, but was not read.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple, TypedDict

from sgoif.bench.paper.printed import PrintedNumber, read

PROVED = "proved"
DIFFERS = "differs"
NOT_VERIFIED = "not verified"
ROUNDING = 1e-9  # 28.45 and 28.4 are 0.05 apart, but not in binary
TABLE1_COLUMNS = [f"Sparsity (Noise {n}%) · {s}" for n in (20, 40, 70) for s in ("0.0", "0.2", "0.4", "0.6")]


class PublicSource(TypedDict):
    """A public source of a printed number, as written to ledger.json."""

    name: str
    value: float | None  # None where the source was not read
    status: str


def sources(number: PrintedNumber) -> list[PublicSource]:
    """List the public sources of a printed number; empty where none is known."""
    if number.table == "Table 1":
        return _confident_learning_sources(number)
    if number.table == "Table 3":
        return _openood_sources(number)
    return []


def same(number: PrintedNumber, value: float) -> bool:
    """Tell whether `value`, rounded as the paper rounds, gives the printed number."""
    return abs(number.value - value) <= number.half_digit + ROUNDING


@cache
def confident_learning() -> dict[str, Any]:
    """Read cl_paper.yaml, the test accuracies of the confident-learning repository.

    Returns:
        The file's content with `values`: row -> numbers in the order of `TABLE1_COLUMNS`.
    """
    raw = read("cl_paper.yaml")
    rows = {row: [float(v) for v in about["values"].split()] for row, about in raw["rows"].items()}
    return {**raw, "values": rows}


@cache
def openood() -> dict[str, Any]:
    """Read openood.yaml, the leaderboard of OpenOOD.

    Returns:
        The file's content with `values`: row -> column -> number or None.
    """
    raw = read("openood.yaml")
    rows = {
        row: {c: None if v == "-" else float(v) for c, v in zip(raw["columns"], values.split(), strict=True)}
        for row, values in raw["rows"].items()
    }
    return {**raw, "values": rows}


class PublishedAuroc(NamedTuple):
    """An AUROC of OpenOOD's leaderboard, as a fraction.

    Attributes:
        mean: Mean over its trainings.
        std: Standard deviation over its trainings, None where the leaderboard gives none.
    """

    mean: float
    std: float | None


@cache
def leaderboard() -> dict[str, dict[str, PublishedAuroc]]:
    """Return what OpenOOD publishes on CIFAR of all methods of this project: method in lower case -> column -> AUROC.

    Columns are those of openood.yaml, `CIFAR-10 near` to `CIFAR-100 far`.
    """
    public = openood()
    columns = [name for name in public["columns"] if name.startswith("CIFAR") and name.endswith(("near", "far"))]
    found: dict[str, dict[str, PublishedAuroc]] = {}
    for method, values in {**public["rows"], **public["more_rows"]}.items():
        means, spreads = values.split()[: len(columns)], public["spread"][method].split()
        found[method.lower()] = {
            column: PublishedAuroc(float(mean) / 100, None if std == "-" else float(std) / 100)
            for column, mean, std in zip(columns, means, spreads, strict=True)
        }
    return found


def _source(number: PrintedNumber, name: str, value: float | None) -> PublicSource:
    if value is None:
        return {"name": name, "value": None, "status": NOT_VERIFIED}
    return {"name": name, "value": value, "status": PROVED if same(number, value) else DIFFERS}


def _confident_learning_sources(number: PrintedNumber) -> list[PublicSource]:
    public = confident_learning()
    position = TABLE1_COLUMNS.index(number.column.title)
    rows = public["matches"][number.row.name]
    if not rows:
        return [_source(number, f"confident-learning article, Table 2: {number.row.name}, test accuracy", None)]
    value = max(public["values"][row][position] for row in rows)
    best = next(row for row in rows if public["values"][row][position] == value)
    words = best if len(rows) == 1 else f"{best} (the largest of {len(rows)} CL variants)"
    return [_source(number, f"{public['name']}: {words}", value)]


def _openood_sources(number: PrintedNumber) -> list[PublicSource]:
    if number.row.name == "SG-OIF (ours)" or number.column.group == "Avg.":
        return []
    if number.column.name == "Acc.":
        return _openood_accuracy(number)
    public = openood()
    row, group = number.row.name, number.column.group
    reading = {"AUROC": "near", "AUPR": "far"}[number.column.name]
    value = public["values"].get(row, {}).get(f"{group} {reading}")
    found = [] if value is None else [_source(number, f"{public['name']}: {reading}-OOD AUROC", value)]
    if row in public["no_script"].get(group, ()):
        return found
    return [*found, _source(number, f"{public['article_v10']}: {reading}-OOD AUROC", None)]


def _openood_accuracy(number: PrintedNumber) -> list[PublicSource]:
    """Sources of a classification accuracy: the method's own, and that of the classifier many methods share."""
    public = openood()
    row = number.row.name
    accuracy = public["values"].get(row, {}).get("CIFAR-100 ID accuracy")
    found = [] if accuracy is None else [_source(number, f"{public['name']}: CIFAR-100 ID accuracy", accuracy)]
    if row in public["values"] and accuracy == public["values"]["EBO"]["CIFAR-100 ID accuracy"]:
        shared = public["classifier_v05"]
        found.append(_source(number, shared["name"], shared["value"]))
    return found
