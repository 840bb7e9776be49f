"""Sentences of the README whose numbers come from what is published."""

from collections import Counter
from collections.abc import Iterator
from statistics import mean

from records import (
    FASTIF,
    GIVEN,
    OWN,
    TRUSTED,
    TWICE,
    WATCHED_GLC,
    Measured,
    Where,
    counted,
    listed,
    short,
    speed,
    summary,
)
from sentences import bullet, first, gain_in_words, gains, in_every_seed, leads, paragraph
from unfinished import ablation_losses, missing_briefly, seeds_in_words

EAGER = "1.01 to 1.06, small networks on a CPU up to 1.16"  # by hand: lab-notebook/outside-the-recipe.md


def paper(measured: Measured) -> Iterator[str]:
    """What came of the paper's numbers."""
    verdicts = measured.verdicts()
    judged = {v: verdicts[v] for v in ("reproduced", "differs", "inconclusive")}
    table1 = [c for c in measured.ledger if c["table"] == "Table 1"]
    proved = sum(any(s["status"] == "proved" for s in c["sources"]) for c in table1)
    printed, here = ablation_losses(measured, "Table 4")
    _, hundred = ablation_losses(measured, "Table 5")
    words = [
        "Influence that is kept up to date during training finds wrong labels, at little cost. On asymmetric and human",
        "noise most of the lead is due to a class model that is not in the paper. Its numbers mostly do not come out.",
        f"Of {sum(judged.values())} that are measured as defined so far,",
        f"{_are(judged['reproduced'])} reproduced, {judged['differs']} differ and {_are(judged['inconclusive'])} open;",
        f"{verdicts['not run']} more are not run.",
        f"{proved} of the {len(table1)} numbers in its Table 1 equal test accuracies published with",
        "confident learning.",
    ]
    lose = f"Its ablations lose {min(printed):.0f} to {max(printed):.0f} points of AUC-PR on CIFAR-10"
    if here and hundred:
        most = "less than 0.1" if max(here) < 0.1 else f"at most {max(here):.1f}"
        words.append(f"{lose}, here {most}, and at most {max(hundred):.1f} on CIFAR-100.")
    else:
        words.append(f"{lose}; here they have to be [run again](docs/lab-notebook/ablations.md).")
    yield paragraph(*words)


def _are(count: int) -> str:
    return {0: "none is", 1: "1 is"}.get(count, f"{count} are")


def standing(measured: Measured) -> Iterator[str]:
    """Where SG-OIF wins and where it loses."""
    found, without = leads(measured), leads(measured, rivals=measured.blind)
    yield bullet(
        f"**Wins**: first in {first(without)} of {counted(len(without), 'setting')} among methods without clean",
        f"labels, in {first(found)} if FastIF counts, too{seed_by_seed(measured)}.",
        *([second] if (second := twice_briefly(measured)) else []),
        mean_in_words(measured),
    )
    yield bullet(f"**Loses**: {losses(measured)}")


def seed_by_seed(measured: Measured) -> str:
    """In how many settings SG-OIF is first by single seeds, as a part of a sentence; nothing if there is one seed."""
    counts = in_every_seed(measured)
    if len(counts) < 2:
        return ""
    others = sorted({n for *_, n in counts.values()})
    first_seed, *later = counts
    words = f" (seed {first_seed}: {counts[first_seed][0]} of {counts[first_seed][1]}"
    of_later = [counts[seed] for seed in later]
    won, there = (sum(one[i] for one in of_later) for i in (0, 1))
    fewer = f", beside at most {max(n for *_, n in of_later)} of {max(others)} rivals"
    return f"{words}; seeds {listed([str(seed) for seed in later])}{fewer}: {won} of {there})"


def mean_in_words(measured: Measured) -> str:
    """The mean over CIFAR-10, beside the next best method without clean labels that has all of its settings."""
    places = [w for w in measured.settings if w[0] == "cifar10"]
    value = {m: mean for m in measured.blind if (mean := measured.mean(places, m)) is not None}
    if not value:
        return ""
    second, own = max(value, key=value.__getitem__), measured.mean(places, OWN)
    return f"Mean of CIFAR-10's {len(places)}: {own:.1f}; next {short(second)} {value[second]:.1f}."


def losses(measured: Measured) -> str:
    """In how many settings rivals are ahead of SG-OIF, with clean labels and without, which ones, and by how much."""
    sentences = []
    if clean := _behind(measured, [FASTIF]):
        worst = min(clean, key=clean.__getitem__)
        sentences.append(
            f"FastIF with 100 clean labels is ahead in {len(clean)}, by up to {-clean[worst][0]:.1f}"
            f" ({measured.settings[worst]})."
        )
    both = leads(measured, (TRUSTED, ""), list(GIVEN))
    if clean := {where: lead for where, lead in both.items() if lead[0] < 0}:
        worst, names = min(clean, key=clean.__getitem__), sorted({short(rival) for _, rival in clean.values()})
        sentences.append(
            f"With 1,000 each, {listed(names)} is ahead in {len(clean)} of {len(both)}, by up to"
            f" {-clean[worst][0]:.1f} ({measured.settings[worst]}){_behind_glc(measured)}."
        )
    if blind := _behind(measured, measured.blind):
        best = {where: short(rival.split("@")[0]) for where, (_, rival) in blind.items()}
        worst, counts = min(blind, key=blind.__getitem__), Counter(best.values())
        alike = {n: [rival for rival in counts if counts[rival] == n] for _, n in counts.most_common()}
        names = [f"{listed(found)} in {n}{' each' * (len(found) > 1)}" for n, found in alike.items()]
        sentences.append(
            f"Without clean labels others are first in {len(blind)}: {', '.join(names)}, by at most"
            f" {-blind[worst][0]:.1f} ({best[worst]}, {measured.settings[worst]})."
        )
    return " ".join(sentences) or "nowhere in these settings."


def _behind_glc(measured: Measured) -> str:
    """How far SG-OIF that watches GLC is behind it at most, as a part of a sentence; nothing if it nowhere is."""
    found = [lead for lead, _ in leads(measured, (WATCHED_GLC, ""), ["glc"]).values()]
    return f"; SG-OIF watching it is at most {-min(found):.1f} behind" if found and round(min(found), 1) < 0 else ""


def twice_briefly(measured: Measured) -> str:
    """Two trainings beside one and beside the rivals, for README; nothing if they are not measured."""
    gain, without = gains(measured), leads(measured, (TWICE, ""), measured.blind)
    worse = [w for w in gain if gain[w] < 0]
    if not gain:
        return ""
    words = f"Two trainings, at twice the cost, are first among these in {first(without)} of {len(without)}"
    if not worse:
        return f"{words}."
    worst = min(worse, key=gain.__getitem__)
    words += f", worse than one in {len(worse)}, by up to {-gain[worst]:.1f} ({measured.settings[worst]}),"
    return f"{words} and {gain_in_words(mean(gain.values()))} in the mean."


def _behind(measured: Measured, rivals: list[str]) -> dict[Where, tuple[float, str]]:
    """The leads of SG-OIF over some rivals in the settings where it is not first."""
    return {where: lead for where, lead in leads(measured, rivals=rivals).items() if lead[0] <= 0}


def overhead(measured: Measured) -> Iterator[str]:
    """What watching costs, in three places."""
    head = speed("influence_overhead")["head"]
    ratios = {
        setting: record["mean"]
        for (_, setting, method, metric, variant), record in summary("embedded").items()
        if (method, metric, variant) == (OWN, "overhead_standalone", "") and not setting.startswith(("tune", "clean"))
    }
    frozen = {setting: ratio for setting, ratio in ratios.items() if setting.startswith("frozen")}
    others = max(ratio for setting, ratio in ratios.items() if setting not in frozen)
    yield bullet(
        f"**Costs**: {head['watching']:.2f} times plain training in the benchmark's captured step on an H200,",
        f"{head['all_of_it']:.2f} with reading the scores and counting. In an eager loop of your own",
        f"[{EAGER}](docs/lab-notebook/outside-the-recipe.md#cost-in-an-eager-loop). The",
        f"small run on a CPU: up to {others:.1f} (only a head trained: {max(frozen.values()):.1f}).",
    )


def terms(measured: Measured) -> Iterator[str]:
    """Under which conditions the README's table was measured."""
    yield bullet(
        f"**Terms**: ResNet-9, 16 epochs{_hundred(measured)}, one H200 (SG-OIF on frozen features:",
        "[ARM](docs/lab-notebook/measurement.md)), in the table",
        f"[{seeds_in_words(measured)}](docs/results/measured.md#seeds).",
        f"[Not run yet](docs/results/measured.md#the-run): {missing_briefly(measured)}.",
        "SG-OIF was tuned on other noise of the same images in",
        "[several hundred rules](docs/lab-notebook/measurement.md#what-was-changed); rivals have published settings,",
        "and of their scores the one that was best on digits.",
    )


def _hundred(measured: Measured) -> str:
    there = {dataset for dataset, _ in measured.settings}
    words = ["CIFAR-100: 24"] if "cifar100" in there else []
    words += ["Imagenette: a ResNet-18, 20"] if "imagenette" in there else []
    return f" ({'; '.join(words)})" if words else ""
