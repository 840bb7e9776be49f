"""Tables of wrong labels found, for README and the page of results, as Markdown; what is not run yet is said so."""

from collections.abc import Collection, Iterator
from statistics import median, stdev

import readme_sentences
import sentences
from markdown_table import bold, rows
from records import (
    BESIDE,
    FASTIF,
    FROZEN,
    GIVEN,
    GRID,
    GROUPS,
    HUNDRED,
    ONCE,
    OTHER,
    OWN,
    PAPER,
    PARTS,
    SCRATCH,
    THOUSAND,
    TRUSTED,
    TWICE,
    WATCHED_GLC,
    WITH_CLEAN_LABELS,
    Measured,
    Score,
    Where,
    listed,
    name,
    short,
)

NOT_YET = "Not run yet."
WATCHING = {"sgoif@gce": "gce", "sgoif@elr": "elr"}  # SG-OIF that watches another training
SHORTER = {  # titles of rows in README
    "latent": "↳ class model alone",
    PAPER: "↳ paper's algorithm",
    TWICE: "SG-OIF, two trainings",
    WATCHED_GLC: "SG-OIF on GLC ‡",
}
WHOLE = "CIFAR-10"  # column of all its settings
USUAL = "confident_learning"  # the rival that most people know
Line = tuple[str, str, str]  # method, variant, title


def lines(methods: list[str]) -> list[Line]:
    """SG-OIF, its parts, the paper's algorithm and two trainings, then these methods, those with clean labels last."""
    own = [(OWN, "", name(OWN)), *((OWN, part, title) for part, title in PARTS.items())]
    own += [(m, "", name(m)) for m in BESIDE]
    blind = [m for m in methods if m not in WITH_CLEAN_LABELS and m != OWN]
    return own + [(m, "", name(m)) for m in (*blind, *(m for m in WITH_CLEAN_LABELS if m in methods))]


def by_method(measured: Measured, columns: dict[str, list[Where]], shown: list[Line] | None = None) -> Iterator[str]:
    """AUC-PR over the seeds that all rows have, or but one; a column is the mean of its settings."""
    every = lines(measured.detectors)
    values = {(m, part): [measured.mean(p, m, variant=part) for p in columns.values()] for m, part, _ in every}
    places = [where for column in columns.values() for where in column]
    fewer = {m for m in ONCE if any(measured.lacks_seeds(where, m) for where in places)}
    named = [(m, part, f"{title} (1 seed)" if m in fewer else title) for m, part, title in shown or every]
    yield from in_columns(list(columns), values, named, (*THOUSAND, *fewer)) if columns else [NOT_YET]


def over_seeds(measured: Measured) -> Iterator[str]:
    """AUC-PR over all seeds of SG-OIF; rivals that have them on CIFAR-10, by their mean there."""
    values = of_all_seeds(measured)
    there = [m for m in measured.detectors if values[m, ""][0] is not None]
    yield from in_columns([WHOLE, *groups(measured)], values, lines(sorted(there, key=lambda m: -values[m, ""][0])))


def of_all_seeds(measured: Measured) -> dict[Score, list[float | None]]:
    """AUC-PR over all seeds that SG-OIF has, on all of CIFAR-10 and by column of the README; None where one lacks."""
    columns = [[w for w in measured.settings if w[0] == "cifar10"], *groups(measured).values()]
    every = lines(measured.detectors)
    return {(m, part): [measured.over_own_seeds(places, m, part) for places in columns] for m, part, _ in every}


def in_columns(
    titles: list[str], values: dict[Score, list[float | None]], shown: list[Line], apart: Collection[str] = THOUSAND
) -> Iterator[str]:
    """Rows of values. Bold: the best of all rows but those that stand `apart`, even if it is not shown."""
    competing = [column for (method, _), column in values.items() if method not in apart]
    best = [max((round(c[n], 1) for c in competing if c[n] is not None), default=0.0) for n in range(len(titles))]
    table = [["", *titles]]
    for method, part, title in shown:
        line = values[method, part]
        if any(v is not None for v in line):
            competes, pairs = method not in apart, zip(line, best, strict=True)
            cells = ["–" if v is None else bold(f"{v:.1f}", competes and round(v, 1) >= top) for v, top in pairs]
            table.append([title, *cells])
    yield from rows(table)


def groups(measured: Measured) -> dict[str, list[Where]]:
    """The columns of the README, with the settings that are measured."""
    there = {title: [w for w in places if w in measured.settings] for title, places in GROUPS.items()}
    return {title: places for title, places in there.items() if places}


def strongest(values: dict[Score, list[float | None]], methods: Collection[str], always: str = "") -> list[str]:
    """The methods that are the best of a column as printed, and one that is always shown, by the first column."""
    found = {m: [None if v is None else round(v, 1) for v in values[m, ""]] for m in methods}
    shown = {always} & found.keys()
    for column in zip(*found.values(), strict=True):
        there = {m: v for m, v in zip(found, column, strict=True) if v is not None}
        if there and max(there.values()) not in {there.get(m) for m in shown}:
            shown |= {max(there, key=there.__getitem__)}
    return sorted((m for m in methods if m in shown), key=lambda m: -(values[m, ""][0] or 0))


def overview(measured: Measured) -> Iterator[str]:
    """The README's table and what it shows: SG-OIF without its influence alone, and the best rivals of each column."""
    values = of_all_seeds(measured)
    titles = [WHOLE, *groups(measured)]
    whole = [m for m in measured.detectors if values[m, ""][0] is not None]
    rivals = strongest(values, [m for m in measured.blind if m in whole], always=USUAL)
    shown = [line for line in lines(rivals) if line[1] != "influence"]
    yield from in_columns(titles, values, [_shortened(line) for line in shown], WITH_CLEAN_LABELS)
    if clean := [m for m in (FASTIF, *GIVEN, TRUSTED) if m in whole]:
        yield f"| *{unbroken('with clean labels')}* |{' |' * len(titles)}"
        _, _, *rest = in_columns(titles, values, [_shortened((m, "", name(m))) for m in clean], measured.detectors)
        yield from rest
    yield ""
    yield from readme_sentences.standing(measured)
    yield from readme_sentences.overhead(measured)
    yield from readme_sentences.terms(measured)


def _shortened(line: Line) -> Line:
    return (*line[:2], shorter(*line))


def one_draw(measured: Measured) -> Iterator[str]:
    """What was run with one draw of the noise on CIFAR-10, beside SG-OIF on the same draw."""
    columns = {title: places for title, places in groups(measured).items() if places[0][0] == "cifar10"}
    once = methods_of_one_draw(measured)
    blind = [m for m in once if m not in WITH_CLEAN_LABELS]
    shown = [OWN, TWICE, *blind, TRUSTED, *(m for m in once if m not in blind)]
    values = {(m, ""): [measured.of_seed(places, m, 0) for places in columns.values()] for m in shown}
    yield from in_columns(list(columns), values, [(m, "", name(m)) for m in shown])


def methods_of_one_draw(measured: Measured) -> list[str]:
    """Methods that lack a seed of SG-OIF on CIFAR-10, without variants that were made for a few settings."""
    places = [w for w in measured.settings if w[0] == "cifar10"]
    return [m for m in measured.detectors if "@" not in m and measured.over_own_seeds(places, m) is None]


def shorter(method: str, part: str, title: str) -> str:
    """The title of a row where many columns leave it little room."""
    if method in WITH_CLEAN_LABELS:
        title = f"{short(method)} {'†' if method == FASTIF else '‡'}"
    return unbroken(SHORTER.get(part or method, title))


def unbroken(title: str) -> str:
    return title.replace(" ", "\N{NO-BREAK SPACE}")


def each(measured: Measured, places: dict[Where, str]) -> dict[str, list[Where]]:
    return {title: [where] for where, title in measured.among(places).items()}


def grid_part(measured: Measured, noise: str) -> Iterator[str]:
    yield from by_method(measured, each(measured, {w: t for w, t in GRID.items() if t.startswith(noise)}))


def detection_20(measured: Measured) -> Iterator[str]:
    yield from grid_part(measured, "20")


def detection_40(measured: Measured) -> Iterator[str]:
    yield from grid_part(measured, "40")


def detection_70(measured: Measured) -> Iterator[str]:
    yield from grid_part(measured, "70")


def detection_other(measured: Measured) -> Iterator[str]:
    yield from by_method(measured, each(measured, OTHER))


def detection_100(measured: Measured) -> Iterator[str]:
    yield from by_method(measured, each(measured, HUNDRED))


def detection_photos(measured: Measured) -> Iterator[str]:
    yield from by_method(measured, each(measured, {**SCRATCH, **FROZEN}))


def detection_long(measured: Measured) -> Iterator[str]:
    """After 100 epochs of a ResNet-18."""
    long = measured.other("measurement-long")
    yield from by_method(long, each(long, long.settings))


def watching(measured: Measured) -> Iterator[str]:
    """SG-OIF on trainings by other losses, beside what those trainings rank by themselves."""
    there = {m: [w for w in measured.settings if measured(w, m) is not None] for m in WATCHING}
    places = {w: t for w, t in measured.settings.items() if any(w in found for found in there.values())}
    if not places:
        yield NOT_YET
        return
    columns = [(OWN, "SG-OIF")]
    for method, loss in WATCHING.items():
        if there[method]:
            columns += [(loss, name(loss)), (method, f"SG-OIF watching {name(loss)}")]
    table = [["setting", *(title for _, title in columns)]]
    for where, title in places.items():
        values = [measured(where, m) for m, _ in columns]
        top = max(round(v, 1) for v in values if v is not None)
        table.append([title, *("–" if v is None else bold(f"{v:.1f}", round(v, 1) >= top) for v in values)])
    yield from rows(table)


def seeds(measured: Measured) -> Iterator[str]:
    """Which methods have more than one seed, and how far they spread."""
    several = [
        m for m in [OWN, *BESIDE, *measured.detectors] if any(_several(measured, w, m) for w in measured.settings)
    ]
    several = list(dict.fromkeys(several))
    if not several:
        yield "One seed of everything so far, seed 0 with its own draw of noise. How far seeds spread is not known yet."
        return
    table = [["method", "settings with several seeds", "seeds", "spread: median", "spread: largest"]]
    for method in several:
        found = [s for w in measured.settings if (s := _several(measured, w, method))]
        spread = [100 * stdev(values) for values in found]
        counts = sorted({len(values) for values in found})
        line = [name(method).removeprefix("↳ "), str(len(found)), " to ".join(map(str, counts))]
        table.append([*line, f"{median(spread):.2f}", f"{max(spread):.1f}"])
    yield from rows(table)
    others = [name(m) for m in measured.detectors if m not in several]
    if others:
        yield ""
        yield sentences.paragraph(f"One seed: {listed(others)}.")


def every_seed(measured: Measured) -> Iterator[str]:
    """SG-OIF in each seed, beside the best method without clean labels that has that seed."""
    seeds = sorted({seed for w in measured.settings for seed in measured.seeds_of(w, OWN)})
    if len(seeds) < 2:
        yield NOT_YET
        return
    table = [["", *(f"seed {seed}" for seed in seeds)]]
    for where, title in measured.settings.items():
        table.append([title, *(_beside_best(measured, where, seed) for seed in seeds)])
    yield from rows(table)
    yield ""
    counts = sentences.in_every_seed(measured)
    told = [f"{won} of {there} with seed {seed}, beside at most {n} rivals" for seed, (won, there, n) in counts.items()]
    yield sentences.paragraph(f"SG-OIF is first in {'; '.join(told)}.")


def _beside_best(measured: Measured, where: Where, seed: int) -> str:
    """One value, and in brackets the best of the others; bold where no other is higher."""
    own, best = measured.seeds_of(where, OWN).get(seed), measured.best_of_seed(where, seed)
    if own is None or best is None:
        return "–"
    return f"{bold(f'{100 * own:.1f}', own >= best[0])} ({short(best[1])} {100 * best[0]:.1f})"


def _several(measured: Measured, where: Where, method: str) -> list[float]:
    found = list(measured.seeds_of(where, method).values())
    return found if len(found) > 1 else []


def top(measured: Measured) -> Iterator[str]:
    """P@1% where SG-OIF or the best other is below 99."""
    table = [["setting", "SG-OIF", "best other", "SG-OIF (1,000 clean labels)"]]
    for where, title in measured.settings.items():
        own, best, clean = (
            measured(where, OWN, "p_at_1"),
            measured.best(where, "p_at_1"),
            measured(where, TRUSTED, "p_at_1"),
        )
        if best is not None and min(own, best[0]) < 99:
            table.append([title, *_beside(own, best), _number(clean)])
    yield from rows(table)


def _beside(own: float, best: tuple[float, str]) -> list[str]:
    """SG-OIF's number and that of the best other with its name, the better one bold."""
    other, who = best
    lead, behind = round(own, 1) >= round(other, 1), round(other, 1) >= round(own, 1)
    return [bold(f"{own:.1f}", lead), bold(f"{other:.1f}", behind) + f" ({short(who)})"]


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def cleaning(measured: Measured) -> Iterator[str]:
    """What SG-OIF removes, and what training without it gives."""
    table = [
        [
            "setting",
            "wrong",
            "estimated",
            "removed: precision",
            "recall",
            "test acc.: plain",
            "SG-OIF",
            "best other",
            name("glc"),
        ]
    ]
    for where, title in measured.settings.items():
        accuracy, best = measured(where, OWN, "test_accuracy"), measured.best(where, "test_accuracy")
        if accuracy is None:
            continue
        metrics = ("extra:estimated_noise", "removal_precision", "removal_recall")
        found = [measured(where, "", "base_rate"), *(measured(where, OWN, m) for m in metrics)]
        found.append(measured(where, "plain", "test_accuracy"))
        beside = [f"{accuracy:.1f}", "–"] if best is None else _beside(accuracy, best)
        table.append([title, *map(_number, found), *beside, _number(measured(where, "glc", "test_accuracy"))])
    yield from rows(table)


def clean_labels(measured: Measured) -> Iterator[str]:
    """SG-OIF beside each other method that is given the same 1,000 clean labels; their rows are in the tables."""
    pairs = [(TRUSTED, method) for method in GIVEN if method in measured.detectors]
    told = [line for own, other in [*pairs, (WATCHED_GLC, "glc")] if (line := _pair_in_words(measured, own, other))]
    yield from told or [NOT_YET]


def _pair_in_words(measured: Measured, own: str, other: str) -> str:
    """In how many settings one method is ahead of another and behind it, and by how much; nothing if none has both."""
    found = {w: measured.lead(w, (own, ""), (other, "")) for w in measured.settings}
    leads = {w: lead for w, lead in found.items() if lead is not None}
    if not leads:
        return ""
    best, worst = max(leads, key=leads.__getitem__), min(leads, key=leads.__getitem__)
    ahead, behind = sum(lead > 0.05 for lead in leads.values()), sum(lead < -0.05 for lead in leads.values())
    return sentences.bullet(
        f"**{short(own)} beside {short(other)}**: ahead in {ahead or 'none'} of {len(leads)} settings"
        + (f", by up to {leads[best]:.1f} ({measured.settings[best]})" if ahead else "")
        + f", and behind in {behind or 'none'}"
        + (f", by up to {-leads[worst]:.1f} ({measured.settings[worst]})." if behind else "."),
    )
