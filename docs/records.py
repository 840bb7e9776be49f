"""Reads what is published: records of the GPU run, the ledger of the paper's numbers, and benchmarks of speed."""

import json
import re
from pathlib import Path
from statistics import mean

from sgoif.utils.packed_json import read_packed_json

ROOT = Path(__file__).resolve().parents[1]
PUBLISHED = ROOT / "results" / "published"
Where = tuple[str, str]  # dataset and setting

GRID: dict[Where, str] = {
    ("cifar10", f"n{noise}_s{sparsity}"): f"{noise}% · 0.{sparsity}"
    for noise in (20, 40, 70)
    for sparsity in (0, 2, 4, 6)
}
OTHER: dict[Where, str] = {
    ("cifar10", "asym20"): "asymmetric 20%",
    ("cifar10", "asym40"): "asymmetric 40%",
    ("cifar10", "sym20"): "symmetric 20%",
    ("cifar10", "sym50"): "symmetric 50%",
    ("cifar10", "aggre"): "CIFAR-10N aggregate",
    ("cifar10", "random1"): "CIFAR-10N random 1",
    ("cifar10", "worse"): "CIFAR-10N worst",
}
HUNDRED: dict[Where, str] = {
    ("cifar100", "superclass20"): "CIFAR-100 superclass 20%",
    ("cifar100", "human"): "CIFAR-100N",
}
SETTINGS = {**GRID, **OTHER, **HUNDRED}
COLUMNS = {  # of the README: groups of settings
    "20%": [w for w in GRID if w[1].startswith("n20")],
    "40%": [w for w in GRID if w[1].startswith("n40")],
    "70%": [w for w in GRID if w[1].startswith("n70")],
    "asymmetric": [("cifar10", "asym20"), ("cifar10", "asym40")],
    "symmetric": [("cifar10", "sym20"), ("cifar10", "sym50")],
    "CIFAR-10 human": [("cifar10", "aggre"), ("cifar10", "random1"), ("cifar10", "worse")],
    "CIFAR-100": list(HUNDRED),
}

OWN, TRUSTED, FASTIF, ALL_CLEAN = "sgoif", "sgoif_trusted", "fastif", "fastif@all_trusted"
# When these records were measured, anchors counted alike: SG-OIF's influence was what `sgoif@paper` is now.
PARTS = {"influence": "the paper's algorithm and score alone", "latent": "latent classes alone"}
NAMES = {
    "coteaching": "Co-Teaching",
    "sce": "SCE",
    "mentornet": "MentorNet",
    "mixup": "Mixup",
    "incv": "INCV",
    "confident_learning": "Confident learning",
    "tracin": "TracIn",
    "aum": "AUM",
    "margin": "last-epoch margin",
    "loss": "last-epoch loss",
    FASTIF: "FastIF (100 clean labels)",
    ALL_CLEAN: "FastIF (1,000 clean labels)",
    OWN: "SG-OIF",
    TRUSTED: "SG-OIF (1,000 clean labels)",
}
WITH_CLEAN_LABELS = (FASTIF, ALL_CLEAN, TRUSTED)
LEFT_OUT = ("plain", "random", "oof_self_confidence")  # no detectors, and one that ranks as confident learning does
PRINTED_OWN = ("Table 1", "SG-OIF (ours)")  # table and row of the ledger


class Measured:
    """Means over seeds, in percent, by dataset, setting, method, metric and variant."""

    def __init__(self, run: str = "measured") -> None:
        folder = PUBLISHED / run
        records = read_packed_json(folder / "summary.json.gz", "make published")
        keys = ("dataset", "setting", "method", "metric", "variant")
        self.found = {tuple(r.get(k, "") for k in keys): r for r in records if "mean" in r and "setting" in r}
        self.ledger = read_packed_json(folder / "ledger.json.gz", "make published")["cells"]
        printed = [c for c in self.ledger if (c["table"], c["row"]) == PRINTED_OWN]
        self.printed = {re.sub(r"Sparsity \(Noise (\d+%)\)", r"\1", c["column"]): c["printed"] for c in printed}

    def record(self, where: Where, method: str, metric: str = "auc_pr", variant: str = "") -> dict | None:
        return self.found.get((*where, method, metric, variant))

    def __call__(self, where: Where, method: str, metric: str = "auc_pr", variant: str = "") -> float | None:
        record = self.record(where, method, metric, variant)
        return None if record is None else 100 * record["mean"]

    def mean(self, places: list[Where], method: str, metric: str = "auc_pr", variant: str = "") -> float | None:
        """The mean over settings; None if one is missing."""
        values = [self(where, method, metric, variant) for where in places]
        return None if None in values else mean(values)

    def detectors(self) -> list[str]:
        """All methods with a ranking in the first setting: those above in that order, then any others by name."""
        first = next(iter(SETTINGS))
        found = {k[2] for k in self.found if k[:2] == first and k[3] == "auc_pr"}
        found = {m for m in found if m not in LEFT_OUT and (m in NAMES or "@" not in m)}
        return [m for m in NAMES if m in found] + sorted(found - set(NAMES))

    def rivals(self) -> list[str]:
        """The other methods, without those that are given all clean labels."""
        return [m for m in self.detectors() if m not in (OWN, TRUSTED, ALL_CLEAN)]

    def best(self, where: Where, metric: str, methods: list[str] | None = None) -> tuple[float, str]:
        """The best of the rivals (or of these methods), the first of equals."""
        found = [(v, m) for m in methods or self.rivals() if (v := self(where, m, metric)) is not None]
        return max(found, key=lambda one: round(one[0], 2))

    def verdicts(self, table: str | None = None) -> dict[str, int]:
        cells = [c["verdict"] for c in self.ledger if table in (None, c["table"])]
        return {verdict: cells.count(verdict) for verdict in sorted(set(cells))}


def name(method: str) -> str:
    return NAMES.get(method, method)


def short(method: str) -> str:
    return name(method).replace(" (100 clean labels)", "")


def speed(file: str) -> dict:
    """The figures of a benchmark in benchmarks/measured, by the beginning of its file's name; the newest file."""
    found = sorted((ROOT / "benchmarks" / "measured").glob(f"{file}-*.json"), key=lambda p: p.name[-15:])
    return json.loads(found[-1].read_text())["figures"]


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
