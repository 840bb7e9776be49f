"""What of a measurement is there: its seeds, and what is not run yet, in words."""

from records import BESIDE, DATASETS, FROZEN, LEFT_OUT, OWN, PAPER, Measured, Score, Where, counted, listed, name

SPELLED = {2: "two", 3: "three"}
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


def printed_ablations(measured: Measured, table: str) -> dict[str, float]:
    """AUC-PR that the paper prints for the full method, which is first, and its ablations, by its names."""
    return {c["row"]: c["printed"] for c in measured.ledger if c["table"] == table and c["column"] == "AUPR"}


def ablated(measured: Measured, table: str, part: str = "") -> dict[str, list[float]]:
    """AUC-PR in percent of the full method and its ablations, or of a part of them, one value a seed that all have."""
    rows = printed_ablations(measured, table)
    found = {row: measured.seeds_of(ABLATED[table], VARIANTS[row], variant=part) for row in rows}
    found = {row: by_seed for row, by_seed in found.items() if by_seed}
    shared = sorted(set.intersection(*map(set, found.values()))) if found else []
    return {row: [100 * by_seed[seed] for seed in shared] for row, by_seed in found.items()}


def ablation_losses(measured: Measured, table: str, part: str = "") -> list[float]:
    """Points of AUC-PR that each ablation loses at most, of all draws of the noise."""
    found = ablated(measured, table, part)
    full = found.pop(next(iter(VARIANTS)), [])
    return [max(own - value for own, value in zip(full, other, strict=True)) for other in found.values() if full]


def draws_of_ablations(measured: Measured) -> str:
    """Of how many draws of the noise the ablations are, in words; nothing if of one."""
    many = max(len(values) for table in ABLATED for values in ablated(measured, table).values())
    return f"{SPELLED.get(many, str(many))} draws" if many > 1 else ""


def papers_score(measured: Measured) -> tuple[Score, str]:
    """The paper's algorithm and score alone where it was run, else the influence of SG-OIF, and its name."""
    if any(measured(where, PAPER) is not None for where in measured.settings):
        return (PAPER, ""), "the paper's algorithm and score alone"
    return (OWN, "influence"), "its influence alone"


def seeds_compared(measured: Measured) -> dict[str, int]:
    """How many seeds all rows have, by data set; a head on frozen features counts apart."""
    places: dict[str, list[Where]] = {}
    for where in measured.settings:
        title = DATASETS[where[0]] + (", frozen" if where in FROZEN else "")
        places.setdefault(title, []).append(where)
    return {title: min(len(measured.compared(w)) for w in found) for title, found in places.items()}


def seeds_in_words(measured: Measured) -> str:
    """How many seeds are compared, where it is another number, and that others are there."""
    counts = seeds_compared(measured)
    fewest = min(counts.values())
    more = [f"{title}: {n}" for title, n in counts.items() if n > fewest]
    own = max(len(measured.seeds_of(w, OWN)) for w in measured.settings)
    others = f" ({'; '.join(more)})" if more else ""
    words = f"the tables show {counted(fewest, 'seed')}{others}, which all rows have"
    if own > fewest:
        words += f"; SG-OIF and some rivals have {own}; counts of first places and means over seeds use these"
    return words


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
    return [] if ablation_losses(measured, "Table 4") else ["ablations"]


def _plain_name(method: str) -> str:
    return name(method).replace("↳ ", "SG-OIF's ").replace(" (1,000 clean labels)", " with clean labels")
