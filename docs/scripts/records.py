"""Reads what is published: records of runs on a GPU, the ledger of the paper's numbers, and benchmarks of speed."""

import json
from functools import cached_property
from pathlib import Path
from statistics import mean

from sgoif.bench.config import load_config
from sgoif.bench.paper.comparison import NOT_RUN, VERDICTS
from sgoif.bench.sharing.records_file import read_parts
from sgoif.bench.tables import names
from sgoif.utils.packed_json import read_packed_json

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = ROOT / "results" / "published"
Where = tuple[str, str]  # dataset and setting
Score = tuple[str, str]  # method and variant

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
    ("cifar100", "sym20"): "CIFAR-100 symmetric 20%",
    ("cifar100", "cc40"): "CIFAR-100 40% · 0.4",
    ("cifar100", "human"): "CIFAR-100N",
}
SCRATCH: dict[Where, str] = {("imagenette", f"noisy{rate}"): f"Imagenette {rate}%" for rate in (1, 5, 25, 50)}
FROZEN: dict[Where, str] = {
    ("imagenette", f"frozen_noisy{rate}"): f"Imagenette {rate}%, frozen" for rate in (1, 5, 25, 50)
}
EVERYWHERE = {**GRID, **OTHER, **HUNDRED, **SCRATCH, **FROZEN}
GROUPS = {  # columns of the README: settings of one kind
    "20%": [w for w in GRID if w[1].startswith("n20")],
    "40%": [w for w in GRID if w[1].startswith("n40")],
    "70%": [w for w in GRID if w[1].startswith("n70")],
    "asymmetric": [("cifar10", "asym20"), ("cifar10", "asym40")],
    "symmetric": [("cifar10", "sym20"), ("cifar10", "sym50")],
    "human": [("cifar10", "aggre"), ("cifar10", "random1"), ("cifar10", "worse")],
    "CIFAR-100": list(HUNDRED),
    "Imagenette": list(SCRATCH),
    "frozen": list(FROZEN),
}
DATASETS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "imagenette": "Imagenette"}

OWN, PAPER, TRUSTED, FASTIF, ALL_CLEAN = "sgoif", "sgoif@paper", "sgoif_trusted", "fastif", "fastif@all_trusted"
WATCHED_GLC, TWICE = "sgoif_glc", "sgoif@twice"
PARTS = {"influence": "↳ its influence alone", "latent": "↳ its class model alone"}  # scores of SG-OIF, by their names
NAMES = {
    "coteaching": "Co-Teaching",
    "sce": "SCE",
    "mentornet": "MentorNet",
    "mixup": "Mixup",
    "incv": "INCV",
    "confident_learning": "Confident learning",
    "oof_self_confidence": "out-of-fold self-confidence",
    "tracin": "TracIn",
    "gce": "GCE",
    "elr": "ELR",
    "sop": "SOP",
    "cores": "CORES²",
    "dividemix": "DivideMix",
    "aum": "AUM",
    "aum@all": "AUM, all of training",
    "margin": "last-epoch margin",
    "loss": "last-epoch loss",
    "mean_loss": "mean loss",
    "cartography": "Dataset Cartography",
    "cartography@all": "Dataset Cartography, all of training",
    "el2n": "EL2N",
    "simifeat": "SimiFeat",
    "inrun_shapley": "In-Run Shapley (1,000 clean labels)",
    "glc": "GLC (1,000 clean labels)",
    "trusted_probe": "probe (1,000 clean labels)",
    FASTIF: "FastIF (100 clean labels)",
    ALL_CLEAN: "FastIF (1,000 clean labels)",
    OWN: "SG-OIF",
    PAPER: "↳ the paper's algorithm and score alone",
    TWICE: "↳ two trainings",
    TRUSTED: "SG-OIF (1,000 clean labels)",
    WATCHED_GLC: "SG-OIF watching GLC (1,000 clean labels)",
}
GIVEN = (ALL_CLEAN, "inrun_shapley", "glc", "trusted_probe")  # rivals that are given all clean labels
THOUSAND = (*GIVEN, TRUSTED, WATCHED_GLC)  # stand apart
WITH_CLEAN_LABELS = (FASTIF, *THOUSAND)
LEFT_OUT = ("plain", "folds", "random")  # no detectors
BESIDE = (PAPER, TWICE)  # rows of SG-OIF that are no rivals of it
ONCE = ("incv", "dividemix")  # planned with one seed, because of what they cost
TWO_NETWORKS = ("coteaching", "dividemix", "incv")


class Measured:
    """Values by seed of a run, by dataset, setting, method, metric and variant; a call is the mean in percent.

    Methods are compared over the seeds that all of them have in a setting, but for those of `ONCE`.
    """

    def __init__(self, run: str = "measurement") -> None:
        self.run = run
        self.values: dict[tuple[str, str, str, str, str], dict[int | None, float]] = {}
        for _, part in read_parts([PUBLISHED / "records" / f"{run}.json.gz"]):
            for r in part["records"]:
                if r["value"] is not None and r["epoch"] is None:
                    key = (r["dataset"], r["setting"], r["method"], r["metric"], r["variant"])
                    self.values.setdefault(key, {})[r["seed"]] = r["value"]
        self._seeds: dict[Where, set[int | None]] = {}

    @cached_property
    def config(self) -> dict:
        """What is planned."""
        return load_config(ROOT / "configs" / f"{self.run}.yaml", skip_missing=False)

    @cached_property
    def provenance(self) -> dict:
        return json.loads((PUBLISHED / self.run / "provenance.json").read_text())

    def other(self, run: str) -> "Measured":
        """Another run that is published."""
        return Measured(run)

    @cached_property
    def ledger(self) -> list[dict]:
        """One cell for each number of the paper: of this run, and where it has none of the runs on OOD detection."""
        found = [_ledger(run) for run in dict.fromkeys((self.run, "openood", "ood-trained"))]
        return [next((c for c in cells if c["verdict"] != NOT_RUN), cells[0]) for cells in zip(*found, strict=True)]

    def seeds_of(self, where: Where, method: str, metric: str = "auc_pr", variant: str = "") -> dict:
        return self.values.get((*where, method, metric, variant), {})

    def compared(self, where: Where) -> set[int | None]:
        """The seeds that all detectors have in a setting; all there are, where they share none."""
        if where not in self._seeds:
            rows = [m for m in [*self.detectors, *BESIDE] if m not in ONCE]
            found = [set(seeds) for m in rows if (seeds := self.seeds_of(where, m))]
            self._seeds[where] = set.intersection(*found) if found else set()
        return self._seeds[where]

    def lacks_seeds(self, where: Where, method: str) -> bool:
        """Whether a method has numbers in a setting, but not of all seeds that are compared there."""
        found = self.seeds_of(where, method)
        return bool(found) and not self.compared(where) <= found.keys()

    def __call__(self, where: Where, method: str, metric: str = "auc_pr", variant: str = "") -> float | None:
        found, seeds = self.seeds_of(where, method, metric, variant), self.compared(where)
        kept = [value for seed, value in found.items() if seed in seeds or seed is None] or list(found.values())
        return 100 * mean(kept) if kept else None

    def mean(self, places: list[Where], method: str, metric: str = "auc_pr", variant: str = "") -> float | None:
        """The mean over settings; None if one is missing."""
        values = [self(where, method, metric, variant) for where in places]
        return None if None in values else mean(values)

    @cached_property
    def detectors(self) -> list[str]:
        """All methods with a ranking somewhere: those of `NAMES` in that order, then any others by name."""
        found = {k[2] for k in self.values if k[:2] in EVERYWHERE and k[3] == "auc_pr"}
        found = {m for m in found if m not in (*LEFT_OUT, *BESIDE) and (m in NAMES or "@" not in m)}
        return [m for m in NAMES if m in found] + sorted(found - set(NAMES))

    @cached_property
    def settings(self) -> dict[Where, str]:
        """The settings that are measured."""
        return {where: title for where, title in EVERYWHERE.items() if self(where, OWN) is not None}

    def among(self, places: dict[Where, str]) -> dict[Where, str]:
        return {where: title for where, title in places.items() if where in self.settings}

    @property
    def rivals(self) -> list[str]:
        """The other methods, without those that are given all clean labels."""
        return [m for m in self.detectors if m not in (OWN, *THOUSAND)]

    @property
    def blind(self) -> list[str]:
        """The rivals that see no clean label."""
        return [m for m in self.rivals if m not in WITH_CLEAN_LABELS]

    def best(self, where: Where, metric: str, methods: list[str] | None = None) -> tuple[float, str] | None:
        """The best of the rivals (or of these methods), the first of equals."""
        chosen = self.rivals if methods is None else methods
        found = [(v, m) for m in chosen if (v := self(where, m, metric)) is not None]
        return max(found, key=lambda one: round(one[0], 2), default=None)

    def closest(self, where: Where, own: Score, rivals: list[str]) -> tuple[float, str] | None:
        """The rival that is most ahead of a ranking, or least behind, with the lead of the ranking in points.

        Each rival is compared over the seeds that both have.
        """
        found = [(lead, rival) for rival in rivals if (lead := self.lead(where, own, (rival, ""))) is not None]
        return min(found, default=None)

    def lead(self, where: Where, own: Score, other: Score) -> float | None:
        """How far a ranking is ahead of another one, in points, over the seeds that both have; None without any."""
        mine, theirs = (self.seeds_of(where, method, variant=variant) for method, variant in (own, other))
        both = mine.keys() & theirs.keys()
        return 100 * mean(mine[seed] - theirs[seed] for seed in both) if both else None

    def over_own_seeds(self, places: list[Where], method: str, variant: str = "") -> float | None:
        """The mean of a method over all seeds that SG-OIF has in some settings; None if it lacks one."""
        wanted = [(where, seed) for where in places for seed in self.seeds_of(where, OWN)]
        found = [self.seeds_of(where, method, variant=variant).get(seed) for where, seed in wanted]
        return None if None in found else 100 * mean(found)

    def of_seed(self, places: list[Where], method: str, seed: int, variant: str = "") -> float | None:
        """The mean of a method over settings with one seed; None if it lacks one."""
        found = [self.seeds_of(where, method, variant=variant).get(seed) for where in places]
        return None if None in found else 100 * mean(found)

    def best_of_seed(self, where: Where, seed: int | None) -> tuple[float, str] | None:
        """The best AUC-PR (0 to 1) of one seed among rivals without clean labels that have it."""
        found = [(v, m) for m in self.blind if (v := self.seeds_of(where, m).get(seed)) is not None]
        return max(found, default=None)

    def verdicts(self, table: str | None = None) -> dict[str, int]:
        """How many numbers of the paper, or of one of its tables, have which verdict."""
        cells = [c["verdict"] for c in self.ledger if table in (None, c["table"])]
        return {kind: cells.count(kind) for kind in VERDICTS}


def _ledger(run: str) -> list[dict]:
    return read_packed_json(PUBLISHED / run / "ledger.json.gz", "make published")["cells"]


def summary(run: str) -> dict[tuple[str, str, str, str, str], dict]:
    """The published means of a run, by dataset, setting, method, metric and variant."""
    keys = ("dataset", "setting", "method", "metric", "variant")
    records = read_packed_json(PUBLISHED / run / "summary.json.gz", "make published")
    return {tuple(r.get(k, "") for k in keys): r for r in records if "mean" in r and "setting" in r}


def name(method: str) -> str:
    return NAMES.get(method) or names.title("noisy", method)


def short(method: str) -> str:
    return name(method).split(" (1")[0]  # without "(100 clean labels)" or "(1,000 clean labels)"


def speed(file: str) -> dict:
    """The figures of a benchmark in benchmarks/measured, by the beginning of its file's name; the newest file."""
    return _benchmark(file)["figures"]


def measured_at(file: str) -> str:
    """Where and at which commit a benchmark was measured, in words."""
    found = _benchmark(file)
    commit = f"commit {found['commit'][:7]}" if found["commit"] else "commit not recorded"
    return f"{found['hardware'].get('gpu') or found['hardware']['cpu']}, {found['date'][:10]}, {commit}."


def _benchmark(file: str) -> dict:
    found = sorted((ROOT / "benchmarks" / "measured").glob(f"{file}-*.json"), key=lambda p: p.name[-15:])
    return json.loads(found[-1].read_text())


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def listed(words: list[str]) -> str:
    """Words as a sentence lists them: a, b and c."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
