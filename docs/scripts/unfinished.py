"""What of a measurement is there: its seeds, and what is not run yet, in words."""

from records import BESIDE, DATASETS, LEFT_OUT, OWN, PAPER, Measured, Score, counted, listed, name

ABLATED = {  # tables of the paper: where they are measured here
    "Table 4": ("cifar10", "n20_s0"),
    "Table 5": ("cifar100", "superclass20"),
}
VARIANTS = {
    "SG-OIF (Full)": OWN,
    "w/o Stability Gate": "sgoif@no_gate",
    "w/o Moving-Avg Gate": "sgoif@moving_average",
    "w/o Sketch PCG": "sgoif@no_sketch",
    "w/o Confidence Calib.": "sgoif@no_calibration",
    "w/o Temperature": "sgoif@no_temperature",
}


def ablated(measured: Measured, table: str) -> dict[str, tuple[float, float | None]]:
    """AUC-PR of the full method and its ablations by the paper's name: printed, and measured over shared seeds."""
    cells = [c for c in measured.ledger if c["table"] == table and c["column"] == "AUPR"]
    return {c["row"]: (c["printed"], measured(ABLATED[table], VARIANTS[c["row"]])) for c in cells}


def ablation_losses(measured: Measured, table: str) -> tuple[list[float], list[float]]:
    """Points of AUC-PR that each ablation loses: printed, and measured."""
    found = ablated(measured, table)
    (full, own), *others = found.values()
    here = [own - value for _, value in others if None not in (value, own)]
    return [full - printed for printed, _ in others], here


def papers_score(measured: Measured) -> tuple[Score, str]:
    """The paper's algorithm and score alone where it was run, else the influence of SG-OIF, and its name."""
    if any(measured(where, PAPER) is not None for where in measured.settings):
        return (PAPER, ""), "the paper's algorithm and score alone"
    return (OWN, "influence"), "its influence alone"


def seeds_in_words(measured: Measured) -> str:
    """How many seeds are compared, where it is another number, and that others are there."""
    places = {title: [w for w in measured.settings if w[0] == dataset] for dataset, title in DATASETS.items()}
    counts = {title: min(len(measured.compared(w)) for w in found) for title, found in places.items() if found}
    fewest = min(counts.values())
    more = [f"{title}: {n}" for title, n in counts.items() if n > fewest]
    own = max(len(measured.seeds_of(w, OWN)) for w in measured.settings)
    words = counted(fewest, "seed") + (f" ({', '.join(more)})" if more else "")
    return words + (f"; SG-OIF and some rivals have {own}" if own > fewest else "")


def missing(measured: Measured) -> str:
    """What of the plan is not there: methods, datasets, methods of a dataset, seeds and ablations."""
    words = missing_methods(measured)
    for dataset, title in DATASETS.items():
        settings = measured.config["noisy"][dataset]["settings"]
        there = [w for w in measured.settings if w[0] == dataset]
        if not there:
            words.append(title)
        elif len(there) < len(settings):
            words.append(f"{len(settings) - len(there)} settings of {title}")
        if there and (absent := _absent_from(measured, dataset)):
            words.append(f"{listed([_plain_name(m) for m in absent])} on {title}")
        if there and (lacking := _partly_absent_from(measured, dataset)):
            parts = [f"{_plain_name(m)} in {counted(n, 'setting')}" for m, n in lacking.items()]
            words.append(f"{listed(parts)} of {title}")
    return "; ".join([*words, *_absent_parts(measured)]) or "nothing"


def missing_methods(measured: Measured, own: bool = True) -> list[str]:
    """Methods that are nowhere, by their names; without `own` rivals alone."""
    planned = [m for m in measured.config["noisy"]["cifar10"]["methods"] if "@" not in m and m not in LEFT_OUT]
    absent = [m for m in planned if m not in measured.detectors and (own or not m.startswith(OWN))]
    paper = ["the paper's algorithm alone"] if own and papers_score(measured)[0] != (PAPER, "") else []
    return [*map(_plain_name, absent), *paper]


def _absent_from(measured: Measured, dataset: str) -> list[str]:
    """Methods that are planned for a dataset and measured, but not on it."""
    places = [w for w in measured.settings if w[0] == dataset]
    planned = [m for m in measured.config["noisy"][dataset]["methods"] if m in (*measured.detectors, *BESIDE)]
    return [m for m in planned if all(measured(w, m) is None for w in places)]


def _partly_absent_from(measured: Measured, dataset: str) -> dict[str, int]:
    """In how many settings of a dataset a method is not measured that is measured in others and planned for all."""
    spec = measured.config["noisy"][dataset]
    for_some = {m for m, limits in (spec.get("restrict") or {}).items() if "settings" in limits}
    places = [w for w in measured.settings if w[0] == dataset]
    planned = [m for m in spec["methods"] if m in measured.detectors and m not in for_some]
    lacking = {m: sum(measured(w, m) is None for w in places) for m in planned}
    return {m: n for m, n in lacking.items() if 0 < n < len(places)}


def _absent_parts(measured: Measured) -> list[str]:
    whole = len(measured.config["noisy"]["cifar10"]["seeds"])
    words = []
    if any(len(measured.compared(w)) < whole for w in measured.settings):
        words.append(f"all {whole} seeds of some rivals")
    return words + _absent_ablations(measured)


def _absent_ablations(measured: Measured) -> list[str]:
    return [] if ablation_losses(measured, "Table 4")[1] else ["ablations"]


def _plain_name(method: str) -> str:
    return name(method).replace("↳ ", "SG-OIF's ").replace(" (1,000 clean labels)", " with clean labels")
