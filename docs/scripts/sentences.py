"""Sentences of the pages of results whose numbers come from what is published, and what sentences are made of."""

import textwrap
from collections.abc import Iterator
from statistics import mean

from records import (
    FASTIF,
    GRID,
    OWN,
    PAPER,
    PARTS,
    TRUSTED,
    TWICE,
    Measured,
    Score,
    Where,
    counted,
    listed,
    short,
)
from unfinished import missing, papers_score, seeds_in_words

JUDGED = ("reproduced", "differs", "inconclusive")
NEAR = 3.5  # points by which an estimated share of wrong labels may be off and still be called near
NAMED = 3  # rivals that a sentence names
MOST_NAMED = 5  # settings that it names
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
    if round(points, 1) == 0:
        return "level with it"
    return f"{abs(points):.1f} points {'behind' if points < 0 else 'ahead of'} it"


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


def gains_by_seed(measured: Measured) -> dict[Where, dict[int | None, float]]:
    """What a second training by the corrected loss gains, by setting and seed that has both."""
    found = {}
    for where in measured.settings:
        one, two = measured.seeds_of(where, OWN), measured.seeds_of(where, TWICE)
        if both := one.keys() & two.keys():
            found[where] = {seed: 100 * (two[seed] - one[seed]) for seed in both}
    return found


def gains(measured: Measured) -> dict[Where, float]:
    """The same, in the mean of the seeds that have both."""
    return {where: mean(by_seed.values()) for where, by_seed in gains_by_seed(measured).items()}


def gain_in_words(points: float) -> str:
    """A mean gain of two trainings, as the verb of a sentence."""
    if abs(points) < 0.05:
        return "gain under 0.1"
    return f"{'lose' if points < 0 else 'gain'} {abs(points):.1f}"


def two_trainings(measured: Measured) -> Iterator[str]:
    """Where a second training is better and where it is worse."""
    gain, without = gains(measured), leads(measured, (TWICE, ""), measured.blind)
    if not gain:
        yield "Not run yet."
        return
    best = max(gain, key=gain.__getitem__)
    worse = [f"{measured.settings[w]} (by {-gain[w]:.1f})" for w in sorted(gain, key=gain.__getitem__) if gain[w] < 0]
    single = {(w, seed): g for w, by_seed in gains_by_seed(measured).items() for seed, g in by_seed.items()}
    where, seed = min(single, key=single.__getitem__)
    yield paragraph(
        f"They are better than one in {len(gain) - len(worse)} of {len(gain)} settings, by up to {gain[best]:.1f}",
        f"({measured.settings[best]}), and {gain_in_words(mean(gain.values()))} in the mean.",
        *([f"They are worse {where_most(worse)}."] if worse else []),
        f"Of {len(single)} single trainings the worst loses {-single[where, seed]:.1f}"
        f" ({measured.settings[where]}, seed {seed})."
        if single[where, seed] < 0
        else "None of the single trainings loses.",
        f"Among methods without clean labels they are first in {first(without)} of {len(without)}.",
    )


def where_most(places: list[str]) -> str:
    """Places in words; of many their number and the first ones."""
    return (
        f"at {listed(places)}"
        if len(places) <= MOST_NAMED
        else f"in {len(places)}, most at {listed(places[:MOST_NAMED])}"
    )


def long_standing(measured: Measured) -> tuple[str, str, str]:
    """SG-OIF after 100 epochs in words: in how many settings it is first, where it leads, and where it is behind."""
    long = measured.other("measurement-long")
    chosen = leads(long, rivals=long.blind)
    ahead_of, behind = (_named(long, {w: lead for w, lead in chosen.items() if (lead[0] > 0) == won}) for won in (1, 0))
    return f"first in {first(chosen)} of {len(chosen)}", ahead_of, behind


def long_training(measured: Measured) -> Iterator[str]:
    """SG-OIF after 100 epochs: how many settings it leads, where not, and how many labels it holds for wrong."""
    long = measured.other("measurement-long")
    best = _beside_best_scores(long)
    losses = _named(long, {w: lead for w, lead in best.items() if lead[0] <= 0})
    counts = {w: (long(w, "", "base_rate"), long(w, OWN, "extra:estimated_noise")) for w in long.settings}
    told = [f"{long.settings[w]} {there:.0f} / {said:.0f}" for w, (there, said) in counts.items()]
    standing, ahead_of, behind = long_standing(measured)
    yield bullet(
        f"Among methods without clean labels SG-OIF is {standing}" + (f": {ahead_of}." if ahead_of else "."),
        *([f"It is behind at {behind}."] if behind else []),
    )
    yield bullet(
        "Beside the best of all scores that each of them has, chosen with the truth, it is first in"
        f" {first(best) or 'none'}" + (f": behind at {losses}." if losses else "."),
    )
    yield bullet(f"Wrong labels, true / estimated (%): {', '.join(told)}.")


def _beside_best_scores(measured: Measured) -> dict[Where, tuple[float, str]]:
    """The leads of SG-OIF over the best score of any rival without clean labels, whichever it is ranked by."""
    scores = {(k[2], k[4]) for k in measured.values if k[2] in measured.blind and k[3] == "auc_pr"}
    found = {}
    for where in measured.settings:
        own = measured(where, OWN)
        theirs = [(v, m) for m, variant in sorted(scores) if (v := measured(where, m, variant=variant)) is not None]
        if theirs:
            value, rival = max(theirs)
            found[where] = (own - value, rival)
    return found


def _named(measured: Measured, found: dict[Where, tuple[float, str]]) -> str:
    """Settings with a lead, without its sign, and the rival."""
    return listed([f"{measured.settings[w]} (by {abs(lead):.1f}, {short(who)})" for w, (lead, who) in found.items()])


def not_yet(measured: Measured) -> Iterator[str]:
    """What of the plan is not measured, in a sentence."""
    seeds = seeds_in_words(measured)
    yield bullet(f"**Not run yet**: {missing(measured)}. {seeds[0].upper()}{seeds[1:]}.")


def most_wrong(measured: Measured) -> Iterator[str]:
    """Where 70% of all labels are wrong: the best rival, and how many are counted."""
    yield "| setting | SG-OIF | best without clean labels | FastIF, 100 clean labels | wrong | counted, by seed |"
    yield "|---|---:|---:|---:|---:|---:|"
    for where in [w for w in measured.among(GRID) if w[1].startswith("n70")]:
        best, clean = measured.best(where, "auc_pr", measured.blind), measured(where, FASTIF)
        shares = measured.seeds_of(where, OWN, "extra:estimated_noise")
        yield (
            f"| {GRID[where]} | {measured(where, OWN):.1f} | {best[0]:.1f} ({short(best[1])}) |"
            f" {'–' if clean is None else f'{clean:.1f}'} | {measured(where, '', 'base_rate'):.1f} |"
            f" {', '.join(f'{100 * shares[seed]:.1f}' for seed in sorted(shares))} |"
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
        f"Networks were trained again without the suspected labels for {'; '.join(trained)}. The others are robust",
        "trainers, whose model is their own, or have none.",
    )
    trusted = [w for w in there if measured(w, TRUSTED, metric) is not None]
    if trusted:
        yield bullet(
            f"With 1,000 clean labels it is the best of all in {best_in(trusted, TRUSTED, measured.rivals)} of",
            f"{len(trusted)}.",
        )
    if worse:
        yield bullet(f"Cleaning does harm at {listed(worse)}: it is worse than plain training on all labels.")
    yield bullet(estimates(measured))


def estimates(measured: Measured) -> str:
    """How near the estimated share of wrong labels is to the true one, in all trainings."""
    found = {w: measured.seeds_of(w, OWN, "extra:estimated_noise") for w in measured.settings}
    rates = {w: measured.seeds_of(w, "", "base_rate") for w in found}
    off = {
        where: {
            seed: 100 * (share - rates[where].get(seed, mean(rates[where].values()))) for seed, share in by_seed.items()
        }
        for where, by_seed in found.items()
    }
    every = [points for by_seed in off.values() for points in by_seed.values()]
    furthest = {where: max(by_seed.values(), key=abs) for where, by_seed in off.items() if by_seed}
    worst = sorted((w for w in furthest if abs(furthest[w]) > NEAR), key=lambda w: -abs(furthest[w]))[:NAMED]
    words = [
        f"{measured.settings[w]} ({abs(furthest[w]):.1f} too {'many' if furthest[w] > 0 else 'few'})" for w in worst
    ]
    near = sum(abs(points) <= NEAR for points in every)
    return f"The estimated share of wrong labels is within {NEAR} points in {near} of {len(every)} trainings." + (
        f" It is furthest off in single draws of {listed(words)}." if words else ""
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
        found = {w: measured.lead(w, (OWN, ""), score) for w in measured.settings}
        gain = {w: lead for w, lead in found.items() if lead is not None}
        grid, rest = [gain[w] for w in gain if w in GRID], [gain[w] for w in gain if w not in GRID]
        others = f"over the {counted(len(rest), 'setting')} outside the grid"
        means = [f"{ahead(sum(g) / len(g))} {of}" for g, of in ((grid, "over the grid"), (rest, others)) if g]
        worst, better = min(gain, key=gain.__getitem__), sum(round(g, 1) < 0 for g in gain.values())
        most = f", by up to {-gain[worst]:.1f} ({measured.settings[worst]})" if better else ""
        yield bullet(
            f"**{title[0].upper()}{title[1:]}**: SG-OIF is {listed(means)}. {title[0].upper()}{title[1:]} is better in",
            f"{better or 'none'} of {len(gain)} settings{most}.",
            f"It is first of all in {first(leads(measured, score))}, and in",
            f"{first(leads(measured, score, measured.blind))} among methods without clean labels.",
        )


def of_one_seed(measured: Measured) -> tuple[int, int]:
    """How many of the paper's numbers are judged by one seed, and how many are judged at all."""
    judged = [c for c in measured.ledger if c["verdict"] in JUDGED]
    return sum(c["seeds"] == 1 for c in judged), len(judged)


def reproduced(measured: Measured) -> Iterator[str]:
    """The verdicts in words, and those of Table 1 under another reading."""
    table1 = [c for c in measured.ledger if c["table"] == "Table 1"]
    again = [a["verdict"] for c in table1 for a in c["also"]]
    verdicts, (single, judged) = measured.verdicts(), of_one_seed(measured)
    one_seed = (
        f"A number measured with one seed ({single} of {judged}) is judged as differing or open, never as reproduced."
    )
    yield paragraph(
        f"{verdicts['not defined']} numbers are not defined well enough to be measured,",
        f"{verdicts['stand-in']} were measured on stand-ins, and {verdicts['not run']} are not run.",
        one_seed,
        "The numbers of Table 1 are called P@1% and look like test accuracies. Read so,",
        f"{again.count('reproduced')} of {len(again)} come out, {again.count('differs')} differ and"
        f" {again.count('inconclusive')} are open.",
    )
