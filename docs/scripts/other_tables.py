"""Tables of everything else for the page of results: the run, OOD detection, cost, the paper's numbers, the goals."""

from collections.abc import Collection, Iterator
from statistics import mean

import sentences
import unfinished
from markdown_table import bold, rows
from records import (
    DATASETS,
    GIVEN,
    GRID,
    HUNDRED,
    OTHER,
    OWN,
    TRUSTED,
    TWICE,
    TWO_NETWORKS,
    WATCHED_GLC,
    Measured,
    listed,
    measured_at,
    speed,
    summary,
)

from sgoif.bench.methods import registry
from sgoif.bench.paper.comparison import VERDICTS

OOD_SETS = {"MNIST": "MNIST", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
PARTS = ("near", "far")
ABLATED_COLUMNS = ("printed", "measured", "influence alone")
OOD_NAMES = {
    "sgoif": "SG-OIF (shift sentinel)", "ebo": "Energy", "mls": "MLS", "msp": "MSP", "knn": "KNN", "vim": "ViM",
    "dice": "DICE", "react": "ReAct", "gradnorm": "GradNorm", "gram": "Gram", "klm": "KLM", "patchcore": "PatchCore",
    "cutpaste": "CutPaste", "draem": "DRAEM", "godin": "G-ODIN", "csi": "CSI", "arpl": "ARPL", "mos": "MOS",
    "opengan": "OpenGAN", "vos": "VOS", "logitnorm": "LogitNorm", "udg": "UDG", "pixmix": "PixMix",
}  # fmt: skip


def the_run(measured: Measured) -> Iterator[str]:
    """What was measured, with what, and how much of the plan it is."""
    found, config = measured.provenance, measured.config
    commits = listed(list(dict.fromkeys(commit[:7] for commit in found["commit"])))
    planned = sum(len(spec["settings"]) for d, spec in config["noisy"].items() if d in DATASETS)
    counts = [f"{title}: {sum(w[0] == d for w in measured.settings)} settings" for d, title in DATASETS.items()]
    yield from rows(
        [
            ["what", "value"],
            ["configuration", "`configs/measurement.yaml`"],
            ["commit", f"{commits}, {listed(found['date'])}, {found['cells']:,} cells"],
            ["settings", f"{len(measured.settings)} of {planned} that are planned ({'; '.join(counts)})"],
            ["seeds", unfinished.seeds_in_words(measured)],
            ["not run yet", unfinished.missing(measured)],
            ["provenance", "[provenance.json](../../results/published/measurement/provenance.json)"],
        ],
        numbers=False,
    )


def _auroc(run: dict, method: str, datasets: list[str]) -> list[float]:
    """AUROC near and far by dataset, as published: over the OOD sets of the configuration."""
    return [100 * run[d, "clean", method, f"auroc:{part}", ""]["mean"] for d in datasets for part in PARTS]


def _ood_methods(run: dict) -> set[str]:
    return {key[2] for key in run if key[3] == "auroc:near"}


def _ood_title(method: str) -> str:
    name, variant = registry.split_variant(method)
    title = OOD_NAMES.get(name) or registry.declaration("ood", name).title
    return f"{title}, {variant}" if variant else title


def _lack_seeds(run: dict, datasets: list[str]) -> set[str]:
    """Methods with fewer seeds than others on one of some datasets: a table marks none of them as the best."""
    counts = {
        m: [run[d, "clean", m, f"auroc:{part}", ""]["n_seeds"] for d in datasets for part in PARTS]
        for m in _ood_methods(run)
    }
    most = [max(column) for column in zip(*counts.values(), strict=True)]
    return {m for m, found in counts.items() if found != most}


def _auroc_table(
    value: dict[str, list[float]], columns: list[str], last: str, ends: dict[str, str], unmarked: Collection[str] = ()
) -> Iterator[str]:
    """A row for each method, best mean first; `ends` are the cells of the last column."""
    best = [max(round(v, 1) for v in column) for column in zip(*value.values(), strict=True)]
    table = [["", *(f"{title} {part}" for title in columns for part in PARTS), last]]
    for m in sorted(value, key=lambda m: (-mean(value[m]), m)):
        cells = [
            bold(f"{v:.1f}", round(v, 1) >= top and m not in unmarked) for v, top in zip(value[m], best, strict=True)
        ]
        table.append([_ood_title(m), *cells, ends[m]])
    yield from rows(table)


def out_of_distribution(measured: Measured) -> Iterator[str]:
    """AUROC near and far of the post-hoc detectors on OpenOOD's classifier."""
    run, datasets = summary("openood"), ["cifar10", "cifar100"]
    value = {m: _auroc(run, m, datasets) for m in _ood_methods(run)}
    ends = {m: f"{mean(v):.1f}" for m, v in value.items()}
    yield from _auroc_table(value, [OOD_SETS[d] for d in datasets], "mean", ends, _lack_seeds(run, datasets))


def ood_on_mnist(measured: Measured) -> Iterator[str]:
    """AUROC near and far of the post-hoc detectors on MNIST."""
    run = summary(measured.run)
    value = {m: _auroc(run, m, ["MNIST"]) for m in _ood_methods(run)}
    yield from _auroc_table(value, ["MNIST"], "seeds", _seeds_on_mnist(run))


def older_ood(measured: Measured) -> Iterator[str]:
    """What the run on MNIST lacks: methods that train a network of their own, beside the sentinel."""
    run = summary("ood-trained")
    value = {m: _auroc(run, m, list(OOD_SETS)) for m in {OWN} | _trained_alone(run, measured)}
    yield from _auroc_table(value, list(OOD_SETS.values()), "seeds", _seeds_on_mnist(run))


def _seeds_on_mnist(run: dict) -> dict[str, str]:
    return {m: str(run["MNIST", "clean", m, "auroc:near", ""]["n_seeds"]) for m in _ood_methods(run)}


def _trained_alone(older: dict, measured: Measured) -> set[str]:
    """Methods of the older run that the later run on MNIST lacks: OpenGAN, and those that train their own network."""
    return _ood_methods(older) - _ood_methods(summary(measured.run))


def verdicts(measured: Measured) -> Iterator[str]:
    """Verdicts of the ledger by table of the paper."""
    names = dict.fromkeys(c["table"] for c in measured.ledger)
    table = [["table of the paper", *VERDICTS]]
    table += [[t, *map(str, measured.verdicts(t).values())] for t in names]
    table.append(["all", *map(str, measured.verdicts().values())])
    yield from rows(table)


def ablations(measured: Measured) -> Iterator[str]:
    """AUC-PR of the ablations of Tables 4 and 5: printed, measured here, and that of their influence alone."""
    if not any(unfinished.ablation_losses(measured, where) for where in unfinished.ABLATED):
        yield "The ablations are not run yet."
        return
    if draws := unfinished.draws_of_ablations(measured):
        yield f"Means of {draws} of the noise; the README gives the largest loss in any draw."
        yield ""
    printed = {where: unfinished.printed_ablations(measured, where) for where in unfinished.ABLATED}
    found = [[unfinished.ablated(measured, where, part) for part in ("", "influence")] for where in printed]
    table = [["variant", *(f"{data}: {what}" for data in ("CIFAR-10", "CIFAR-100") for what in ABLATED_COLUMNS)]]
    for variant in printed["Table 4"]:
        line = [variant]
        for where, parts in zip(printed, found, strict=True):
            values = [part.get(variant) for part in parts]
            line += [f"{printed[where][variant]:.1f}", *(f"{mean(v):.2f}" if v else "not run" for v in values)]
        table.append(line)
    yield from rows(table)


def goals(measured: Measured) -> Iterator[str]:
    """What was aimed at, and what came of it, as far as it is measured."""
    planned = {**GRID, **OTHER, **HUNDRED}
    tables = measured.among(planned)
    wins = sum(_first_in_every_seed(measured, where) for where in tables)
    second = [w for w in tables if measured(w, TWICE) is not None]
    twice = sum(_first_in_every_seed(measured, where, TWICE) for where in second)
    trusted = [w for w in tables if measured(w, TRUSTED) is not None]
    others = [*measured.rivals, *GIVEN, OWN]
    clean, glc = (
        sum((measured.closest(w, (m, ""), others) or (0, ""))[0] > 0 for w in trusted) for m in (TRUSTED, WATCHED_GLC)
    )
    one = [m for m in measured.blind if m not in TWO_NETWORKS]
    grid = [w for w in measured.among(GRID) if measured(w, OWN, "test_accuracy") is not None]
    accurate = sum(measured(w, OWN, "test_accuracy") > measured.best(w, "test_accuracy", one)[0] for w in grid)
    beside_glc = sum(
        measured(w, OWN, "test_accuracy") > measured.best(w, "test_accuracy", [*one, "glc"])[0] for w in grid
    )
    firsts, sets = _ood_firsts(measured)
    head = speed("influence_overhead")["head"]["all_of_it"]
    ten = 10
    table = [
        ["goal", "reached", ""],
        ["first in AUC-PR in every setting of Tables 1 and 2, in every seed, among methods without clean labels",
         f"{wins} of {len(tables)} (with two trainings {twice} of {len(second)})",
         _met(wins == len(tables), len(tables) == len(planned))],
        ["with 1,000 clean labels first of all",
         f"{clean} of {len(trusted)} (watching GLC {glc})", _met(clean == len(trusted), len(trusted) == len(planned))],
        [f"test accuracy after cleaning above every one-network rival in {ten} of the {len(GRID)} settings of the grid",
         f"{accurate} of {len(grid)} (GLC with 1,000 clean labels counted: {beside_glc})",
         _met(accurate >= ten, not unfinished.missing_methods(measured, own=False))],
        ["the sentinel first on near and far sets of three ID sets", f"{firsts} of {sets}", _met(firsts == sets)],
        ["an overhead of at most 1.05, captured, ResNet-9 on all of CIFAR-10", f"{head:.2f}", _met(head <= 1.05)],
    ]  # fmt: skip
    yield from rows(table, numbers=False)


def _met(is_met: bool, is_whole: bool = True) -> str:
    return ("met" if is_whole else "met so far") if is_met else "missed"


def _first_in_every_seed(measured: Measured, where: tuple[str, str], method: str = OWN) -> bool:
    """Whether SG-OIF is ahead of every rival without clean labels in every seed that both have."""
    beside = [(own, measured.best_of_seed(where, seed)) for seed, own in measured.seeds_of(where, method).items()]
    return all(own > best[0] for own, best in beside if best is not None)


def _ood_firsts(measured: Measured) -> tuple[int, int]:
    """On how many of the six columns of OOD detection the sentinel is first: OpenOOD's classifier, and MNIST."""
    older, on_mnist = summary("ood-trained"), summary(measured.run)
    rivals = [_auroc(older, m, ["MNIST"]) for m in _trained_alone(older, measured)]
    found = []
    for run, datasets, further in (
        (on_mnist, ["MNIST"], rivals),
        (summary("openood"), ["cifar10", "cifar100"], []),
    ):
        others = [*further, *(_auroc(run, m, datasets) for m in _ood_methods(run) if m != OWN)]
        found += [mine >= max(v[i] for v in others) for i, mine in enumerate(_auroc(run, OWN, datasets))]
    return sum(found), len(found)


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
    yield from ("", measured_at("influence_overhead"))


def small_runs(measured: Measured) -> Iterator[str]:
    """What watching costs in the embedded run, where a training takes seconds."""
    ratios = {
        setting: record["mean"]
        for (_, setting, method, metric, variant), record in summary("embedded").items()
        if (method, metric, variant) == (OWN, "overhead_standalone", "") and not setting.startswith(("tune", "clean"))
    }
    frozen = [ratio for setting, ratio in ratios.items() if setting.startswith("frozen")]
    others = [ratio for setting, ratio in ratios.items() if not setting.startswith("frozen")]
    yield sentences.paragraph(
        "In the embedded run, whose trainings take seconds on a CPU, reading the scores and counting weigh more: up to",
        f"{max(others):.1f} times plain training in all, and {max(frozen):.1f} where only a head is trained.",
    )


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
    yield from ("", measured_at("scaling"))


def packages(measured: Measured) -> Iterator[str]:
    """Seconds to score all training images: SG-OIF's added time beside packages that score after training."""
    found = speed("influence_overhead_packages")["score_all"]
    table = [["scores of all 50,000 training images", "seconds", "times SG-OIF"]]
    for title, one in found.items():
        note = f" (from {one['extrapolated_from']:,} images)" if "extrapolated_from" in one else ""
        table.append([title + note, f"{one['seconds']:.2f}", f"{one.get('times_sgoif', 1):.1f}"])
    yield from rows(table)
    yield from ("", measured_at("influence_overhead_packages"))
