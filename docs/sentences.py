"""Sentences of README and the pages of results whose numbers come from what is published."""

import textwrap
from collections import Counter
from collections.abc import Iterator

from records import (
    FASTIF,
    GIVEN,
    GRID,
    OWN,
    PAPER,
    PARTS,
    TRUSTED,
    TWICE,
    WATCHED_GLC,
    Measured,
    Score,
    Where,
    counted,
    listed,
    short,
    speed,
    summary,
)
from unfinished import ablation_losses, missing, missing_briefly, papers_score, seeds_in_words

EAGER = "1.01 to 1.06, small networks on a CPU up to 1.16"  # by hand: lab-notebook/outside-the-recipe.md
NEAR = 3.5  # points by which an estimated share of wrong labels may be off and still be called near
NAMED = 3  # rivals that a sentence names
WIDTH = 190


def paragraph(*parts: str) -> str:
    return textwrap.fill(" ".join(parts), WIDTH, break_long_words=False, break_on_hyphens=False)


def bullet(*parts: str) -> str:
    lines = textwrap.wrap(" ".join(parts), WIDTH - 2, break_long_words=False, break_on_hyphens=False)
    return "* " + "\n  ".join(lines)


def leads(
    measured: Measured, own: Score = (OWN, ""), rivals: list[str] | None = None
) -> dict[Where, tuple[float, str]]:
    """How far a ranking is ahead of the rival that is most ahead of it, and which that is, by setting that has both."""
    chosen = measured.rivals if rivals is None else rivals
    found = {where: measured.closest(where, own, chosen) for where in measured.settings}
    return {where: lead for where, lead in found.items() if lead is not None}


def first(found: dict[Where, tuple[float, str]]) -> int:
    return sum(lead > 0 for lead, _ in found.values())


def ahead(points: float) -> str:
    """A mean difference in words."""
    return f"{abs(points):.1f} points {'behind' if points < 0 else 'ahead of'} it"


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
    words.append(f"Its ablations lose {min(printed):.0f} to {max(printed):.0f} points of AUC-PR on CIFAR-10,")
    most = "less than 0.1" if max(here) < 0.1 else f"at most {max(here):.1f}"
    words.append(f"here {most}, and at most {max(hundred):.1f} on CIFAR-100.")
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


def in_every_seed(measured: Measured) -> dict[int, tuple[int, int, int]]:
    """By seed: in how many settings SG-OIF is first without clean labels, of how many, and beside how many at most."""
    found: dict[int, list[tuple[bool, int]]] = {}
    for where in measured.settings:
        for seed, own in measured.seeds_of(where, OWN).items():
            if best := measured.best_of_seed(where, seed):
                rivals = sum(seed in measured.seeds_of(where, m) for m in measured.blind)
                found.setdefault(seed, []).append((own >= best[0], rivals))
    return {
        seed: (sum(won for won, _ in pairs), len(pairs), max(n for _, n in pairs))
        for seed, pairs in sorted(found.items())
    }


def mean_in_words(measured: Measured) -> str:
    """The mean over CIFAR-10, beside the next best method without clean labels that has all of its settings."""
    places = [w for w in measured.settings if w[0] == "cifar10"]
    value = {m: mean for m in measured.blind if (mean := measured.mean(places, m)) is not None}
    if not value:
        return ""
    second, own = max(value, key=value.__getitem__), measured.mean(places, OWN)
    return f"Mean of CIFAR-10's {len(places)}: {own:.1f}; next {short(second)} with {value[second]:.1f}."


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


def gains(measured: Measured) -> dict[Where, float]:
    """What a second training by the corrected loss gains, over the seeds of the tables."""
    return {w: found - measured(w, OWN) for w in measured.settings if (found := measured(w, TWICE)) is not None}


def twice_briefly(measured: Measured) -> str:
    """Two trainings beside one and beside the rivals, for README; nothing if they are not measured."""
    gain, without = gains(measured), leads(measured, (TWICE, ""), measured.blind)
    worse = [w for w in gain if gain[w] < 0]
    if not gain:
        return ""
    words = f"Two trainings, at twice the cost, are first among these in {first(without)} of {len(without)}"
    if not worse:
        return f"{words}."
    worst, mean = min(worse, key=gain.__getitem__), sum(gain.values()) / len(gain)
    words += f", worse than one in {len(worse)}, by up to {-gain[worst]:.1f} ({measured.settings[worst]}),"
    return f"{words} and {_gain(mean)} in the mean."


def _gain(points: float) -> str:
    return f"{'lose' if points < 0 else 'gain'} {abs(points):.1f}"


def two_trainings(measured: Measured) -> Iterator[str]:
    """Where a second training is better and where it is worse."""
    gain, without = gains(measured), leads(measured, (TWICE, ""), measured.blind)
    if not gain:
        yield "Not run yet."
        return
    best, mean = max(gain, key=gain.__getitem__), sum(gain.values()) / len(gain)
    worse = [f"{measured.settings[w]} (by {-gain[w]:.1f})" for w in sorted(gain, key=gain.__getitem__) if gain[w] < 0]
    yield paragraph(
        f"They are better than one in {len(gain) - len(worse)} of {len(gain)} settings, by up to {gain[best]:.1f}",
        f"({measured.settings[best]}), and {_gain(mean)} in the mean.",
        *([f"They are worse at {listed(worse)}."] if worse else []),
        f"Among methods without clean labels they are first in {first(without)} of {len(without)}.",
    )


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


def not_yet(measured: Measured) -> Iterator[str]:
    """What of the plan is not measured, in a sentence."""
    told = missing(measured)
    yield bullet(f"**Not run yet**: {told}. What is compared has {seeds_in_words(measured)}.")


def most_wrong(measured: Measured) -> Iterator[str]:
    """Where 70% of all labels are wrong: the best rival, and how many are counted."""
    yield "| setting | SG-OIF | best without clean labels | FastIF, 100 clean labels | wrong | counted |"
    yield "|---|---:|---:|---:|---:|---:|"
    for where in [w for w in measured.among(GRID) if w[1].startswith("n70")]:
        best, clean = measured.best(where, "auc_pr", measured.blind), measured(where, FASTIF)
        yield (
            f"| {GRID[where]} | {measured(where, OWN):.1f} | {best[0]:.1f} ({short(best[1])}) |"
            f" {'–' if clean is None else f'{clean:.1f}'} | {measured(where, '', 'base_rate'):.1f} |"
            f" {measured(where, OWN, 'extra:estimated_noise'):.1f} |"
        )


def cleaned(measured: Measured) -> Iterator[str]:
    """Test accuracy after cleaning, counted."""
    metric = "test_accuracy"
    there = [w for w in measured.settings if measured(w, OWN, metric) is not None]
    there = [w for w in there if measured.best(w, metric, measured.blind) is not None]

    def best_in(places: list[Where], method: str, rivals: list[str]) -> int:
        return sum(measured(w, method, metric) > measured.best(w, metric, rivals)[0] for w in places)

    grid, other = [w for w in there if w in GRID], [w for w in there if w not in GRID]
    pairs = {w: (measured(w, OWN, metric), measured(w, "plain", metric)) for w in measured.settings}
    worse = [measured.settings[w] for w, pair in pairs.items() if None not in pair and pair[0] < pair[1]]
    again = {m: [w for w in there if measured.seeds_of(w, m, "seconds_retrain")] for m in measured.blind}
    everywhere = [short(m) for m, places in again.items() if any(w in other for w in places)]
    in_grid = [short(m) for m, places in again.items() if places and not any(w in other for w in places)]
    trained = [f"SG-OIF{', ' * bool(everywhere)}{', '.join(everywhere)}"]
    trained += [f"in the grid also {listed(in_grid)}"] if in_grid else []
    yield bullet(
        "Among models trained without clean labels, SG-OIF's is the best in",
        f"{best_in(grid, OWN, measured.blind)} of the {len(grid)} settings of the grid"
        + (f" and in {best_in(other, OWN, measured.blind)} of the {len(other)} others." if other else "."),
        f"Trained again without what they suspect: {'; '.join(trained)}. The others are robust trainers,",
        "whose model is their own, or have none.",
    )
    trusted = [w for w in there if measured(w, TRUSTED, metric) is not None]
    if trusted:
        yield bullet(
            f"With 1,000 clean labels it is the best of all in {best_in(trusted, TRUSTED, measured.rivals)} of",
            f"{len(trusted)}.",
        )
    if worse:
        yield bullet(f"Cleaning does harm at {listed(worse)}: it is worse than plain training on all labels.")
    off = {w: abs(measured(w, OWN, "extra:estimated_noise") - measured(w, "", "base_rate")) for w in measured.settings}
    far = sorted((w for w in off if off[w] > NEAR), key=lambda w: -off[w])
    worst = [f"{measured.settings[w]} (by {off[w]:.1f})" for w in far[:NAMED]]
    yield bullet(
        f"The estimated share of wrong labels is within {NEAR} points in {len(off) - len(far)} of {len(off)}",
        "settings." + (f" It is furthest off at {listed(worst)}." if far else ""),
    )


def removed(measured: Measured) -> Iterator[str]:
    """Precision and recall of what is removed, by kind of noise."""
    yield "| noise | precision | recall |"
    yield "|---|---:|---:|"
    people = {("cifar10", "aggre"), ("cifar10", "random1"), ("cifar10", "worse"), ("cifar100", "human")}
    for title, places in (
        ("grid, 20% and 40%", {w for w in GRID if not w[1].startswith("n70")}),
        ("grid, 70%", {w for w in GRID if w[1].startswith("n70")}),
        ("human labels", people),
    ):
        there = [w for w in measured.settings if w in places]
        if not there:
            continue
        spans = []
        for metric in ("removal_precision", "removal_recall"):
            values = [measured(w, OWN, metric) for w in there]
            spans.append(f"{min(values):.0f} to {max(values):.0f}%")
        yield f"| {title} | {' | '.join(spans)} |"


def parts_alone(measured: Measured) -> Iterator[str]:
    """How far SG-OIF is ahead of or behind its parts, and the paper's algorithm and score."""
    scores = {(OWN, part): title.removeprefix("↳ ") for part, title in PARTS.items()}
    if papers_score(measured)[0] == (PAPER, ""):
        scores[PAPER, ""] = "the paper's algorithm and score alone"
    for score, title in scores.items():
        there = [w for w in measured.settings if measured(w, score[0], variant=score[1]) is not None]
        gain = {w: measured(w, OWN) - measured(w, score[0], variant=score[1]) for w in there}
        grid, rest = [gain[w] for w in there if w in GRID], [gain[w] for w in there if w not in GRID]
        others = f"over the other {counted(len(rest), 'setting')}"
        means = [f"{ahead(sum(g) / len(g))} {of}" for g, of in ((grid, "over the grid"), (rest, others)) if g]
        worst, better = min(gain, key=gain.__getitem__), sum(round(g, 1) < 0 for g in gain.values())
        most = f", by up to {-gain[worst]:.1f} ({measured.settings[worst]})" if better else ""
        yield bullet(
            f"**{title[0].upper()}{title[1:]}**: SG-OIF is {listed(means)}. It is better than SG-OIF in",
            f"{better or 'none'} of {len(gain)} settings{most}.",
            f"It is first of all in {first(leads(measured, score))}, and in",
            f"{first(leads(measured, score, measured.blind))} among methods without clean labels.",
        )


def reproduced(measured: Measured) -> Iterator[str]:
    """The verdicts in words, and those of Table 1 under another reading."""
    table1 = [c for c in measured.ledger if c["table"] == "Table 1"]
    again = [a["verdict"] for c in table1 for a in c["also"]]
    verdicts, one_seed = measured.verdicts(), max(len(measured.compared(w)) for w in measured.settings) == 1
    yield paragraph(
        f"{verdicts['not defined']} numbers are not defined well enough to be measured,",
        f"{verdicts['stand-in']} were measured on stand-ins, and {verdicts['not run']} are not run.",
        *(["One seed cannot reproduce a number, only differ from it or leave it open."] if one_seed else []),
        "The numbers of Table 1 are called P@1% and look like test accuracies. Read so,",
        f"{again.count('reproduced')} of {len(again)} come out, {again.count('differs')} differ and"
        f" {again.count('inconclusive')} are open.",
    )
