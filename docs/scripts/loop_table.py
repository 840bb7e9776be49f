"""The table of loops in docs/lab-notebook/outside-the-recipe.md, from benchmarks/measured/loop_variants_*.json."""

from collections.abc import Iterator
from statistics import mean

from markdown_table import rows
from records import Measured, speed

FILES = {"digits": "digits", "fashion": "Fashion-MNIST", "cifar": "CIFAR-10"}  # end of the file's name: data set
NOISE = {"sym20": "symmetric 20%", "pair40": "pair 40%", "cc40": "40% · 0.4", "human": "human"}
WITHIN = 0.3  # points that count as level, as in the grid of regimes


def loops(_measured: Measured) -> Iterator[str]:
    """AUC-PR of SG-OIF and its lead over the best plain score, means of the seeds, by variant, data and noise."""
    columns = {(file, noise): _by_variant(file, noise) for file in FILES for noise in NOISE}
    columns = {where: found for where, found in columns.items() if found}
    table = [["", *(f"{FILES[file]}, {NOISE[noise]}" for file, noise in columns)]]
    for variant in dict.fromkeys(variant for found in columns.values() for variant in found):
        cells = [_cell(found[variant]) if variant in found else "–" for found in columns.values()]
        table.append([variant, *cells])
    yield from rows(table)


def loops_counted(_measured: Measured) -> Iterator[str]:
    """In how many trainings SG-OIF is ahead or level, and where it is furthest behind."""
    leads = {}
    for file in FILES:
        for group, variants in speed(f"loop_variants_{file}").items():
            noise, seed = group.split(", seed ")
            for variant, found in variants.items():
                leads[FILES[file], NOISE[noise], seed, variant] = found["sgoif"] - found["best_plain"]
    level = sum(lead >= -WITHIN for lead in leads.values())
    data, noise, _, variant = where = min(leads, key=leads.__getitem__)
    yield (
        f"Ahead of the best plain score or within {WITHIN} of it in {level} of {len(leads)} trainings, "
        f"by {mean(leads.values()):.1f} in the mean; "
        f"{-leads[where]:.1f} behind at worst ({data}, {noise}, {variant})."
    )


def _by_variant(file: str, noise: str) -> dict[str, list[dict]]:
    """The figures of all seeds by variant."""
    found: dict[str, list[dict]] = {}
    for group, variants in speed(f"loop_variants_{file}").items():
        if group.split(", ")[0] == noise:
            for variant, figures in variants.items():
                found.setdefault(variant, []).append(figures)
    return found


def _cell(seeds: list[dict]) -> str:
    own, best = (mean(figures[key] for figures in seeds) for key in ("sgoif", "best_plain"))
    return f"{own:.1f} ({own - best:+.1f})".replace("-", "−")
