"""Sentences of the README whose numbers come from what is published."""

from collections.abc import Iterator
from statistics import stdev

from records import FASTIF, GIVEN, GRID, OWN, PAPER, TRUSTED, Measured, Where, counted, listed, short, speed
from sentences import first, gains, gains_by_seed, leads, long_standing, of_one_seed
from unfinished import SPELLED, ablation_losses, draws_of_ablations, printed_ablations

# by hand, from docs/lab-notebook/outside-the-recipe.md; a test compares them
EAGER = "0.97 to 1.07, on a CPU 1.04 to 1.16 with small convolutional networks and 1.22 to 1.84 with perceptrons"
NAMED = 2  # rivals of one draw that a sentence names
CLOSE = 0.1  # points of AUC-PR, a lead that says little
SAME_LABELS = {"imagenette"}  # data sets whose wrong labels are published: all seeds have the same


def in_short(measured: Measured) -> Iterator[str]:
    """What a reader should know after ten seconds: how well, beside the next best, and at what cost."""
    watching = speed("influence_overhead")["head"]["watching"]
    cost = f"Watching adds {100 * (watching - 1):.1f}% to the time of training (ResNet-9, H200)."
    yield f"**{mean_in_words(measured)} {cost}**"


def bullet(*parts: str) -> str:
    """An item of a list on one line, as README has them."""
    return f"* {' '.join(parts)}"


def mean_in_words(measured: Measured) -> str:
    """The mean over CIFAR-10, beside the next best method without clean labels that has the same settings and draws."""
    places = [w for w in measured.settings if w[0] == "cifar10"]
    value = {m: mean for m in measured.blind if (mean := measured.over_own_seeds(places, m)) is not None}
    if not value:
        return ""
    second, own = max(value, key=value.__getitem__), measured.over_own_seeds(places, OWN)
    seeds = max(len(measured.seeds_of(w, OWN)) for w in places)
    settings, rivals = counted(len(places), "setting"), counted(len(value), "rival")
    return (
        f"On CIFAR-10 it finds wrong labels with a mean AUC-PR of {own:.1f}% ({settings} of noise,"
        f" {counted(seeds, 'seed')} each). The best of {rivals} without clean labels on the same seeds,"
        f" {short(second)}, has {value[second]:.1f}%."
    )


def paper(measured: Measured) -> Iterator[str]:
    """What came of the paper's algorithm and of its numbers."""
    verdicts, (_, judged) = measured.verdicts(), of_one_seed(measured)
    table1 = [c for c in measured.ledger if c["table"] == "Table 1"]
    proved = sum(any(s["status"] == "proved" for s in c["sources"]) for c in table1)
    alone, ours = (leads(measured, score, measured.blind) for score in ((PAPER, ""), (OWN, "")))
    words = [
        f"Its algorithm and score alone are first in {first(alone)} of {counted(len(alone), 'setting')} among methods",
        f"without clean labels; with the class model and margins, which are ours, SG-OIF is first in {first(ours)}.",
        f"Of its {sum(verdicts.values())} numbers {judged} were measured as defined: {verdicts['reproduced']} are",
        f"reproduced, {verdicts['differs']} differ and {verdicts['inconclusive']} are open. The others are not defined",
        f"well enough ({verdicts['not defined']}), measured on stand-ins ({verdicts['stand-in']}) or not run",
        f"({verdicts['not run']}). {proved} of the {len(table1)} numbers of its Table 1, printed as P@1%, equal test",
        "accuracies that were published with confident learning.",
    ]
    yield " ".join([*words, ablations(measured)])


def ablations(measured: Measured) -> str:
    """What the paper's ablations lose: printed, and measured."""
    full, *printed = printed_ablations(measured, "Table 4").values()
    lose = f"Its ablations lose {full - max(printed):.0f} to {full - min(printed):.0f} points of AUC-PR on CIFAR-10"
    tables = ("Table 4", "Table 5")
    whole = [ablation_losses(measured, table) for table in tables]
    if not all(whole):
        return f"{lose}; here they have to be [run again](docs/lab-notebook/ablations.md)."
    ten, hundred = map(max, whole)
    draws = draws_of_ablations(measured)
    over = f" over {draws}" if draws else ""
    loss = "[the largest loss](docs/results/measured.md#the-papers-numbers)"
    return f"{lose}; here {loss}{over} is {ten:.1f}, on CIFAR-100 {hundred:.1f}."


def standing(measured: Measured) -> Iterator[str]:
    """Where SG-OIF wins, where it loses, and how much of that is the draw of the noise."""
    without = leads(measured, rivals=measured.blind)
    close = sum(0 < lead <= CLOSE for lead, _ in without.values())
    yield bullet(
        f"**Ahead**: first in {first(without)} of {counted(len(without), 'setting')} among methods without clean",
        f"labels{f' (in {close} by {CLOSE} or less)' if close else ''}, each rival compared over shared seeds.",
        long_training(measured),
    )
    yield bullet(f"**Behind**: {losses(measured)}")
    yield from one_draw(measured)
    yield from draws(measured)


def long_training(measured: Measured) -> str:
    """Where SG-OIF stands after 100 epochs."""
    standing, _, behind = long_standing(measured)
    return (
        f"After [100 epochs of a ResNet-18](docs/results/measured.md#long-training) it is {standing}"
        + (f" and behind at {behind}" if behind else "")
        + "; few rivals that train a network of their own were run there."
    )


def draws(measured: Measured) -> Iterator[str]:
    """The setting in which SG-OIF's results differ most from draw to draw; nothing if there is one draw."""
    found = {w: by_seed for w in measured.settings if len(by_seed := measured.seeds_of(w, OWN)) > 1}
    if found:
        where = max(found, key=lambda w: stdev(found[w].values()))
        values = [f"{100 * found[where][seed]:.1f}" for seed in sorted(found[where])]
        many = SPELLED.get(len(values), str(len(values)))
        lowest = min(found[where], key=found[where].__getitem__)
        best = measured.best_of_seed(where, lowest)
        beside = f"; in the worst of them {short(best[1])} has {100 * best[0]:.1f}" if best else ""
        yield bullet(
            f"**Depends on the draw**: at {measured.settings[where]} it has {listed(values)} in {many} draws of the",
            f"noise{beside}. Where most labels of a class are wrong, the labels alone hardly say which class is meant.",
            *second_training(measured),
        )


def second_training(measured: Measured) -> Iterator[str]:
    """Where a second training costs most: in one draw of the noise, and where all seeds have the same labels."""
    by_seed = gains_by_seed(measured)
    drawn = {(w, seed): g for w, values in by_seed.items() if w[0] not in SAME_LABELS for seed, g in values.items()}
    same = {w: gain for w, gain in gains(measured).items() if w[0] in SAME_LABELS}
    words = []
    if drawn and min(drawn.values()) < 0:
        where, seed = min(drawn, key=drawn.__getitem__)
        words.append(f"{-drawn[where, seed]:.1f} in one draw of {measured.settings[where]}")
    if same and min(same.values()) < 0:
        where = min(same, key=same.__getitem__)
        words.append(f"{-same[where]:.1f} at {measured.settings[where]}")
    gain = gains(measured)
    worse = sum(points < 0 for points in gain.values())
    if words:
        yield f"Two trainings cost twice as much, are worse than one in {worse} of {len(gain)} settings, and lose"
        yield f"{listed(words)}."


def losses(measured: Measured) -> str:
    """In how many settings rivals are ahead of SG-OIF, with clean labels and without, and by how much."""
    sentences = []
    if blind := _behind(measured, measured.blind):
        points, title, rival = _largest(measured, blind)
        ahead = f"rivals without clean labels are ahead in {len(blind)}"
        sentences.append(f"{ahead}, by up to {points} ({rival}, {title}).")
    if clean := _behind(measured, [FASTIF]):
        points, title, _ = _largest(measured, clean)
        ahead = f"FastIF, with 100 clean labels, is ahead in {len(clean)} of {len(leads(measured, rivals=[FASTIF]))}"
        sentences.append(f"{ahead}, by up to {points} ({title}).")
    both = leads(measured, (TRUSTED, ""), list(GIVEN))
    if clean := {where: lead for where, lead in both.items() if lead[0] < 0}:
        points, title, _ = _largest(measured, clean)
        names = listed(sorted({short(rival) for _, rival in clean.values()}))
        ahead = f"With 1,000 clean labels for both, {names} is ahead in {len(clean)} of {len(both)}"
        sentences.append(f"{ahead}, by up to {points} ({title}).")
    return " ".join(sentences) or "nowhere in these settings."


def one_draw(measured: Measured) -> Iterator[str]:
    """How the rivals that were run with one draw stand beside SG-OIF on it, in the mean of the grid."""
    places = [w for w in measured.settings if w in GRID]
    value = {m: measured.of_seed(places, m, 0) for m in (OWN, TRUSTED, *measured.detectors)}
    lacking = [m for m in measured.detectors if measured.over_own_seeds(places, m) is None and value[m] is not None]
    blind = sorted((m for m in lacking if m in measured.blind), key=lambda m: -value[m])[:NAMED]
    clean = sorted((m for m in lacking if m in GIVEN), key=lambda m: -value[m])[:1]
    if value[OWN] is None or not blind:
        return
    told = listed([f"{short(m)} has {value[m]:.1f}" for m in blind])
    whole = [m for m in measured.blind if m not in lacking and value[m]]
    beside = [OWN, *sorted(whole, key=lambda m: -value[m])[:1]]
    with_clean = listed([f"{short(m)} {value[m]:.1f}" for m in (*clean, TRUSTED)]) if clean and value[TRUSTED] else ""
    yield bullet(
        "**Rivals that lack draws**: in the mean of the first twelve settings of",
        f"[seed 0](docs/results/measured.md#one-draw) {told},",
        listed([f"{short(m)} {value[m]:.1f}" for m in beside])
        + (f" ({with_clean} with 1,000 clean labels each)." if with_clean else "."),
    )


def _largest(measured: Measured, found: dict[Where, tuple[float, str]]) -> tuple[str, str, str]:
    """The largest of some losses in points, its setting and the rival."""
    where = min(found, key=found.__getitem__)
    points, rival = found[where]
    return f"{-points:.1f}", measured.settings[where], short(rival.split("@")[0])


def _behind(measured: Measured, rivals: list[str]) -> dict[Where, tuple[float, str]]:
    """The leads of SG-OIF over some rivals in the settings where it is not first."""
    return {where: lead for where, lead in leads(measured, rivals=rivals).items() if lead[0] <= 0}


def overhead(measured: Measured) -> Iterator[str]:
    """What watching costs."""
    head = speed("influence_overhead")["head"]
    yield bullet(
        f"**Costs**: {head['watching']:.2f} times plain training in the benchmark's step, a CUDA graph, on an H200,",
        f"{head['all_of_it']:.2f} with reading the scores and counting. In an eager loop of your own",
        f"[{EAGER}](docs/lab-notebook/outside-the-recipe.md#cost-in-an-eager-loop).",
        "Small runs [cost more](docs/results/measured.md#cost).",
    )


def terms(measured: Measured) -> Iterator[str]:
    """Under which conditions the README's tables were measured."""
    yield bullet(
        f"**Conditions**: ResNet-9, 16 epochs{_hundred(measured)}; an H200 (frozen features in part: a",
        "[CPU](docs/lab-notebook/measurement.md#frozen-features-on-a-cpu)); each seed has its own draw of the noise",
        "([spread](docs/results/measured.md#seeds)).",
        "SG-OIF was tuned over [several hundred rules](docs/lab-notebook/measurement.md#what-was-changed) on the same",
        "images with other noise. Rivals have published settings, and each is ranked by its score that was best on",
        "digits.",
    )


def _hundred(measured: Measured) -> str:
    there = {dataset for dataset, _ in measured.settings}
    words = ["CIFAR-100: 24"] if "cifar100" in there else []
    words += ["Imagenette: a ResNet-18, 20"] if "imagenette" in there else []
    return f" ({'; '.join(words)})" if words else ""
