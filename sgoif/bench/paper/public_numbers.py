"""Where a number of the paper also occurs in public, and under which name.

`proved`: the source was read and prints the same number to the paper's precision. `differs`: it was read and prints
another number there. `not verified`: the source is said to hold the number and was not read.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from sgoif.bench.paper.printed import Cell, read

PROVED, DIFFERS, NOT_VERIFIED = "proved", "differs", "not verified"
ROUNDING = 1e-9  # 28.45 and 28.4 are 0.05 apart, but not in binary


def sources(cell: Cell) -> list[dict[str, Any]]:
    """[{name, value, status}] of a printed number; empty where no public twin is known."""
    if cell.table == "Table 1":
        return _confident_learning(cell)
    if cell.table == "Table 3":
        return _openood(cell)
    return []


def same(cell: Cell, value: float) -> bool:
    """Does `value`, rounded as the paper rounds, give the printed number?"""
    return abs(cell.value - value) <= cell.half + ROUNDING


def _source(cell: Cell, name: str, value: float | None) -> dict[str, Any]:
    status = NOT_VERIFIED if value is None else PROVED if same(cell, value) else DIFFERS
    return {"name": name, "value": value, "status": status}


@cache
def confident_learning() -> dict[str, Any]:
    raw = read("cl_paper.yaml")
    rows = {row: [float(v) for v in about["values"].split()] for row, about in raw["rows"].items()}
    return {**raw, "values": rows}


@cache
def openood() -> dict[str, Any]:
    raw = read("openood.yaml")
    rows = {
        row: {c: None if v == "-" else float(v) for c, v in zip(raw["columns"], values.split(), strict=True)}
        for row, values in raw["rows"].items()
    }
    return {**raw, "values": rows}


COLUMNS = [f"Sparsity (Noise {n}%) · {s}" for n in (20, 40, 70) for s in ("0.0", "0.2", "0.4", "0.6")]


def _confident_learning(cell: Cell) -> list[dict[str, Any]]:
    public, position = confident_learning(), COLUMNS.index(cell.column.title)
    rows = public["matches"][cell.row.name]
    if not rows:
        return [_source(cell, f"confident-learning article, Table 2: {cell.row.name}, test accuracy", None)]
    value = max(public["values"][row][position] for row in rows)
    best = next(row for row in rows if public["values"][row][position] == value)
    words = best if len(rows) == 1 else f"{best} (the largest of {len(rows)} CL variants)"
    return [_source(cell, f"{public['name']}: {words}", value)]


def _openood(cell: Cell) -> list[dict[str, Any]]:
    public, row, group = openood(), cell.row.name, cell.column.group
    if row == "SG-OIF (ours)" or group == "Avg.":
        return []
    if cell.column.name == "Acc.":
        accuracy = public["values"].get(row, {}).get("CIFAR-100 ID accuracy")
        shared = public["classifier_v05"]
        found = [] if accuracy is None else [_source(cell, f"{public['name']}: CIFAR-100 ID accuracy", accuracy)]
        uses_shared = row in public["values"] and accuracy == public["values"]["EBO"]["CIFAR-100 ID accuracy"]
        return found + ([_source(cell, shared["name"], shared["value"])] if uses_shared else [])
    reading = {"AUROC": "near", "AUPR": "far"}[cell.column.name]
    value = public["values"].get(row, {}).get(f"{group} {reading}")
    found = [] if value is None else [_source(cell, f"{public['name']}: {reading}-OOD AUROC", value)]
    if row in public["no_script"].get(group, ()):
        return found
    return [*found, _source(cell, f"{public['article_v10']}: {reading}-OOD AUROC", None)]
