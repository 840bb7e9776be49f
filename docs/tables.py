"""Tables of the GPU run for README and the pages of results, as Markdown."""

from collections.abc import Iterator
from statistics import mean, median

import sentences
from records import (
    ALL_CLEAN,
    COLUMNS,
    FASTIF,
    GRID,
    HUNDRED,
    OTHER,
    OWN,
    PARTS,
    SETTINGS,
    TRUSTED,
    WITH_CLEAN_LABELS,
    Measured,
    Where,
    name,
    short,
    speed,
)

OOD_SETS = {"MNIST": "MNIST", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
OOD_NAMES = {
    "sgoif": "SG-OIF (shift sentinel)", "ebo": "Energy", "mls": "MLS", "msp": "MSP", "knn": "KNN", "vim": "ViM",
    "dice": "DICE", "react": "ReAct", "gradnorm": "GradNorm", "gram": "Gram", "klm": "KLM", "patchcore": "PatchCore",
    "cutpaste": "CutPaste", "draem": "DRAEM", "godin": "G-ODIN", "csi": "CSI", "arpl": "ARPL", "mos": "MOS",
    "opengan": "OpenGAN", "vos": "VOS", "logitnorm": "LogitNorm", "udg": "UDG", "pixmix": "PixMix",
}  # fmt: skip


def bold(text: str, best: bool) -> str:
    return f"**{text}**" if best else text


def rows(table: list[list[str]], numbers: bool = True) -> Iterator[str]:
    """Markdown; the first row is the heading, all columns but the first hold numbers."""
    for number, row in enumerate(table):
        yield f"| {' | '.join(row)} |"
        if number == 0:
            yield "|---|" + ("---:|" if numbers else "---|") * (len(row) - 1)


Line = tuple[str, str, str]  # method, variant, title


def lines(measured: Measured, methods: list[str]) -> list[Line]:
    """SG-OIF and its parts, then these methods, those with clean labels last."""
    own = [(OWN, "", name(OWN)), *((OWN, part, f"↳ {title}") for part, title in PARTS.items())]
    blind = [m for m in methods if m not in WITH_CLEAN_LABELS and m != OWN]
    return own + [(m, "", name(m)) for m in (*blind, *(m for m in WITH_CLEAN_LABELS if m in methods))]


def by_method(measured: Measured, columns: dict[str, list[Where]], shown: list[Line] | None = None) -> Iterator[str]:
    """AUC-PR; a column is the mean of its settings. Bold: the best of all rows but those with all clean labels."""
    every = lines(measured, measured.detectors())
    values = {line: [measured.mean(p, line[0], variant=line[1]) for p in columns.values()] for line in every}
    competing = [values[line] for line in every if line[0] not in (TRUSTED, ALL_CLEAN)]
    best = [max(round(v, 1) for v in column if v is not None) for column in zip(*competing, strict=True)]
    table = [["", *columns]]
    for line in shown or every:
        if any(v is not None for v in values[line]):
            competes = line[0] not in (TRUSTED, ALL_CLEAN)
            pairs = zip(values[line], best, strict=True)
            cells = ["–" if v is None else bold(f"{v:.1f}", competes and round(v, 1) >= top) for v, top in pairs]
            table.append([line[2], *cells])
    yield from rows(table)


def strongest(measured: Measured, count: int = 4) -> list[str]:
    """The rivals without clean labels that have the best mean over the columns, and the best of every column."""
    blind = [m for m in measured.rivals() if m not in WITH_CLEAN_LABELS]
    value = {m: [measured.mean(places, m) for places in COLUMNS.values()] for m in blind}
    value = {m: found for m, found in value.items() if None not in found}
    ordered = sorted(value, key=lambda m: -mean(value[m]))
    leaders = {max(value, key=lambda m: value[m][column]) for column in range(len(COLUMNS))}
    return [m for place, m in enumerate(ordered) if place < count or m in leaders]


def overview(measured: Measured) -> Iterator[str]:
    """The README's table: SG-OIF and its parts, the strongest rivals, and two rows with clean labels."""
    yield from by_method(measured, COLUMNS, lines(measured, [*strongest(measured), FASTIF, TRUSTED]))
    yield ""
    yield from sentences.standing(measured)
    yield from sentences.overhead(measured)


def each(places: dict[Where, str]) -> dict[str, list[Where]]:
    return {title: [where] for where, title in places.items()}


def detection_20(measured: Measured) -> Iterator[str]:
    yield from by_method(measured, each({w: t for w, t in GRID.items() if t.startswith("20")}))


def detection_40(measured: Measured) -> Iterator[str]:
    yield from by_method(measured, each({w: t for w, t in GRID.items() if t.startswith("40")}))


def detection_70(measured: Measured) -> Iterator[str]:
    yield from by_method(measured, each({w: t for w, t in GRID.items() if t.startswith("70")}))


def detection_other(measured: Measured) -> Iterator[str]:
    yield from by_method(measured, each(OTHER))


def detection_100(measured: Measured) -> Iterator[str]:
    yield from by_method(measured, each(HUNDRED))


def seeds(measured: Measured) -> Iterator[str]:
    """Number of seeds of each method, and how far they spread."""
    table = [["method", "grid", "other CIFAR-10", "CIFAR-100", "spread: median", "spread: largest"]]
    for method in [OWN, *(m for m in measured.detectors() if m != OWN)]:
        line = [name(method)]
        for places in (GRID, OTHER, HUNDRED):
            found = sorted({r["n_seeds"] for w in places if (r := measured.record(w, method))})
            line.append(" to ".join(str(n) for n in found) or "–")
        spread = [100 * r["std"] for w in SETTINGS if (r := measured.record(w, method)) and "std" in r]
        table.append([*line, f"{median(spread):.2f}", f"{max(spread):.1f}"] if spread else [*line, "–", "–"])
    yield from rows(table)


def top(measured: Measured) -> Iterator[str]:
    """P@1% where SG-OIF or the best other is below 99."""
    table = [["setting", "SG-OIF", "best other", "SG-OIF (1,000 clean labels)"]]
    for where, title in SETTINGS.items():
        own, (other, who), clean = (
            measured(where, OWN, "p_at_1"),
            measured.best(where, "p_at_1"),
            measured(where, TRUSTED, "p_at_1"),
        )
        if min(own, other) < 99:
            lead, behind = round(own, 1) >= round(other, 1), round(other, 1) >= round(own, 1)
            table.append(
                [title, bold(f"{own:.1f}", lead), bold(f"{other:.1f}", behind) + f" ({short(who)})", f"{clean:.1f}"]
            )
    yield from rows(table)


def cleaning(measured: Measured) -> Iterator[str]:
    """What SG-OIF removes, and what training without it gives."""
    heading = ["setting", "wrong", "estimated", "removed: precision", "recall"]
    heading += ["test acc.: plain", "SG-OIF", "best other", "SG-OIF (1,000 clean labels)"]
    table = [heading]
    for where, title in SETTINGS.items():
        accuracy, (other, who) = measured(where, OWN, "test_accuracy"), measured.best(where, "test_accuracy")
        lead, behind = round(accuracy, 1) >= round(other, 1), round(other, 1) >= round(accuracy, 1)
        table.append(
            [
                title,
                f"{measured(where, '', 'base_rate'):.1f}",
                *(
                    f"{measured(where, OWN, m):.1f}"
                    for m in ("extra:estimated_noise", "removal_precision", "removal_recall")
                ),
                f"{measured(where, 'plain', 'test_accuracy'):.1f}",
                bold(f"{accuracy:.1f}", lead),
                bold(f"{other:.1f}", behind) + f" ({short(who)})",
                f"{measured(where, TRUSTED, 'test_accuracy'):.1f}",
            ]
        )
    yield from rows(table)


def clean_labels(measured: Measured) -> Iterator[str]:
    """SG-OIF and FastIF with the same 1,000 clean labels, in the settings of the grid."""
    table = [["setting", "AUC-PR: SG-OIF", "FastIF", "test acc.: SG-OIF", "FastIF"]]
    for where, title in GRID.items():
        pairs = [(measured(where, TRUSTED, m), measured(where, ALL_CLEAN, m)) for m in ("auc_pr", "test_accuracy")]
        table.append([title, *(bold(f"{v:.1f}", v == max(pair)) for pair in pairs for v in pair)])
    yield from rows(table)


def out_of_distribution(measured: Measured) -> Iterator[str]:
    """AUROC near and far by ID set, best mean first; in the last column the seeds."""
    methods = {k[2] for k in measured.found if k[3] == "auroc:near"}
    value = {
        m: [measured((d, "clean"), m, f"auroc:{part}") for d in OOD_SETS for part in ("near", "far")] for m in methods
    }
    best = [max(round(v, 1) for v in column) for column in zip(*value.values(), strict=True)]
    table = [["", *(f"{t} {part}" for t in OOD_SETS.values() for part in ("near", "far")), "mean", "seeds"]]
    for m in sorted(methods, key=lambda m: -mean(value[m])):
        cells = [bold(f"{v:.1f}", round(v, 1) >= top) for v, top in zip(value[m], best, strict=True)]
        count = measured.record(("cifar10", "clean"), m, "auroc:near")["n_seeds"]
        table.append([OOD_NAMES.get(m, m), *cells, f"{mean(value[m]):.1f}", str(count)])
    yield from rows(table)


def verdicts(measured: Measured) -> Iterator[str]:
    """Verdicts of the ledger by table of the paper."""
    kinds = list(measured.verdicts())
    names = dict.fromkeys(c["table"] for c in measured.ledger)
    table = [["table of the paper", *kinds]]
    table += [[t, *(str(measured.verdicts(t).get(kind, 0)) for kind in kinds)] for t in names]
    table.append(["all", *(str(count) for count in measured.verdicts().values())])
    yield from rows(table)


def ablations(measured: Measured) -> Iterator[str]:
    """AUC-PR of the ablations of Tables 4 and 5: printed, and measured here."""
    cells = [c for c in measured.ledger if c["table"] in ("Table 4", "Table 5") and c["column"] == "AUPR"]
    heading = ["variant", "CIFAR-10: printed", "measured", "CIFAR-100: printed", "measured"]
    table = [heading]
    for variant in dict.fromkeys(c["row"] for c in cells):
        line = [variant]
        for where in ("Table 4", "Table 5"):
            cell = next(c for c in cells if (c["table"], c["row"]) == (where, variant))
            line += [f"{cell['printed']:.1f}", "failed" if cell["measured"] is None else f"{cell['measured']:.1f}"]
        table.append(line)
    yield from rows(table)


def cost(measured: Measured) -> Iterator[str]:
    """Watched over plain training, run in turns in one process."""
    head = speed("influence_overhead")["head"]
    steps = {
        "watching": "watched",
        "with_reading": "and the scores read",
        "with_estimate": "and the number of wrong labels estimated",
        "all_of_it": "and setting up",
    }
    yield from rows([["", "times plain training"], *([text, f"{head[key]:.3f}"] for key, text in steps.items())])


def growth(measured: Measured) -> Iterator[str]:
    """How watching grows with the data, the classes and the network."""
    table = [["", "plain epoch (s)", "watched (s)", "ratio"]]
    titles = {"n": "{} images", "K": "{} classes", "model": "{}"}
    for axis, points in speed("scaling").items():
        for key, point in points.items():
            seconds = [f"{point[k]:.3f}" for k in ("plain_epoch_seconds", "watched_epoch_seconds")]
            shown = f"{int(key):,}" if key.isdigit() else key
            table.append([titles.get(axis, "{}").format(shown), *seconds, f"{point['ratio']:.2f}"])
    yield from rows(table)


def packages(measured: Measured) -> Iterator[str]:
    """Seconds to score all training images: SG-OIF's added time beside packages that score after training."""
    found = speed("influence_overhead_packages")["score_all"]
    table = [["scores of all 50,000 training images", "seconds", "times SG-OIF"]]
    for title, one in found.items():
        note = f" (from {one['extrapolated_from']:,} images)" if "extrapolated_from" in one else ""
        table.append([title + note, f"{one['seconds']:.2f}", f"{one.get('times_sgoif', 1):.1f}"])
    yield from rows(table)
