"""Writes the tables of the GPU run in README.md and docs/measurements.md from results/published/measured: `make docs`.

The lines between `<!-- NAME -->` and `<!-- /NAME -->` are replaced, nothing else. A test checks that both are current.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RUN = ROOT / "results" / "published" / "measured"
GRID = [(f"n{noise}_s{sparsity}", noise, sparsity) for noise in (20, 40, 70) for sparsity in (0, 2, 4, 6)]
SETTINGS = {  # (dataset, setting) -> its name in the README's heading, and on the page of measurements
    **{
        ("cifar10", setting): (f"{noise}% · 0" if sparsity == 0 else f".{sparsity}", f"{noise}% · 0.{sparsity}")
        for setting, noise, sparsity in GRID
    },
    ("cifar10", "asym20"): ("asym. 20%", "asymmetric 20%"),
    ("cifar10", "asym40"): ("40%", "asymmetric 40%"),
    ("cifar10", "sym20"): ("sym. 20%", "symmetric 20%"),
    ("cifar10", "sym50"): ("50%", "symmetric 50%"),
    ("cifar10", "aggre"): ("CIFAR-10N aggr.", "CIFAR-10N aggregate"),
    ("cifar10", "random1"): ("rand. 1", "CIFAR-10N random 1"),
    ("cifar10", "worse"): ("worst", "CIFAR-10N worst"),
    ("cifar100", "superclass20"): ("CIFAR-100 superclass", "CIFAR-100 superclass 20%"),
    ("cifar100", "human"): ("CIFAR-100N", "CIFAR-100N"),
}
OWN, TRUSTED = "sgoif", "sgoif_trusted"
PRINTED = ("Table 1", "SG-OIF (ours)")  # table and row in the ledger; its columns: "Sparsity (Noise 20%) · 0.0"
RIVALS = {
    "coteaching": "Co-Teaching",
    "sce": "SCE",
    "mentornet": "MentorNet",
    "mixup": "Mixup",
    "incv": "INCV",
    "confident_learning": "CL",
    "tracin": "TracIn",
    "fastif": "FastIF †",
    "aum": "AUM",
    "margin": "last-epoch margin",
    "loss": "last-epoch loss",
}


class Measured:
    """Means over seeds, in percent, by dataset, setting, method, metric and variant."""

    def __init__(self) -> None:
        records = json.loads((RUN / "summary.json").read_text())
        keys = ("dataset", "setting", "method", "metric", "variant")
        self.found = {tuple(r.get(k, "") for k in keys): r for r in records if "mean" in r and "setting" in r}
        ledger = json.loads((RUN / "ledger.json").read_text())["cells"]
        printed = [c for c in ledger if (c["table"], c["row"]) == PRINTED]
        self.printed = {re.sub(r"Sparsity \(Noise (\d+%)\)", r"\1", c["column"]): c["printed"] for c in printed}

    def __call__(self, where: tuple[str, str], method: str, metric: str = "auc_pr", variant: str = "") -> float | None:
        record = self.found.get((*where, method, metric, variant))
        return None if record is None else 100 * record["mean"]

    def deviation(self, where: tuple[str, str], method: str) -> float:
        return 100 * self.found[(*where, method, "auc_pr", "")]["std"]

    def best(self, where: tuple[str, str], metric: str) -> tuple[float, str]:
        """Of the other methods, the first of equals."""
        found = [(value, name) for m, name in RIVALS.items() if (value := self(where, m, metric)) is not None]
        return max(found, key=lambda one: round(one[0], 2))


def bold(text: str, best: bool) -> str:
    return f"**{text}**" if best else text


def rows(table: list[list[str]]) -> Iterator[str]:
    """Markdown; the first row is the heading."""
    for number, row in enumerate(table):
        yield f"| {' | '.join(row)} |"
        if number == 0:
            yield "|" + "---|" * len(row)


def detection(measured: Measured) -> Iterator[str]:
    """AUC-PR by method and setting; bold: the best of all rows but the one with all clean labels."""
    table = [["", *(short for short, _ in SETTINGS.values())]]
    for method, name in {OWN: "SG-OIF", **RIVALS, TRUSTED: "SG-OIF, trusted †"}.items():
        row = [name]
        for where in SETTINGS:
            value = measured(where, method)
            best = max(measured(where, OWN), measured.best(where, "auc_pr")[0])
            first = value is not None and method != TRUSTED and round(value, 1) >= round(best, 1)
            row.append("" if value is None else bold(f"{value:.1f}", first))
        table.append(row)
    yield from rows(table)


def settings(measured: Measured) -> Iterator[str]:
    """Everything about SG-OIF by setting, beside the best of the others."""
    yield from rows(
        [
            [
                "setting",
                "wrong",
                "SG-OIF",
                "best other",
                "alone",
                "estimated wrong",
                "test acc. after cleaning",
                "printed for SG-OIF",
                "best other acc.",
                "trusted †",
            ],
            *(_about(measured, where, name) for where, (_, name) in SETTINGS.items()),
        ]
    )


def _about(measured: Measured, where: tuple[str, str], name: str) -> list[str]:
    auc, top, accuracy = (measured(where, OWN, metric) for metric in ("auc_pr", "p_at_1", "test_accuracy"))
    best = {metric: measured.best(where, metric) for metric in ("auc_pr", "p_at_1", "test_accuracy")}
    own = [
        bold(f"{auc:.2f} ± {measured.deviation(where, OWN):.2f}", auc >= best["auc_pr"][0]),
        bold(f"{top:.1f}", round(top, 1) >= round(best["p_at_1"][0], 1)),
    ]
    others = [
        bold(f"{value:.{digits}f}", round(value, digits) >= round(mine, digits)) + f" ({who})"
        for (value, who), mine, digits in ((best["auc_pr"], auc, 2), (best["p_at_1"], top, 1))
    ]
    value, who = best["test_accuracy"]
    printed = measured.printed.get(name)
    trusted = [measured(where, TRUSTED, metric) for metric in ("auc_pr", "p_at_1", "test_accuracy")]
    return [
        name,
        f"{measured(where, '', 'base_rate'):.1f}",
        " / ".join(own),
        " / ".join(others),
        ", ".join(f"{measured(where, OWN, variant=part):.1f}" for part in ("influence", "latent")),
        f"{measured(where, OWN, 'extra:estimated_noise'):.1f}",
        bold(f"{accuracy:.1f}", round(accuracy, 1) >= round(value, 1)),
        "" if printed is None else f"{printed:.1f}",
        bold(f"{value:.1f}", round(value, 1) >= round(accuracy, 1)) + f" ({who})",
        f"{trusted[0]:.2f} / {trusted[1]:.1f}, {trusted[2]:.1f}",
    ]


PLACES = {"README.md": {"detection": detection}, "docs/measurements.md": {"settings": settings}}


def page(path: str, measured: Measured) -> str:
    text = (ROOT / path).read_text()
    for name, write in PLACES[path].items():
        begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        pattern = re.escape(begin) + ".*?" + re.escape(end)
        table = begin + "\n".join(write(measured)) + "\n" + end
        text, count = re.subn(pattern, lambda _, table=table: table, text, flags=re.S)
        if count != 1:
            raise SystemExit(f"error: {path} has {count} places for {name}, where one is expected")
    return text


if __name__ == "__main__":
    published = Measured()
    for path in PLACES:
        (ROOT / path).write_text(page(path, published))
        print(f"wrote the tables of {path}")
