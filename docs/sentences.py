"""Sentences of README and the pages of results whose numbers come from what is published."""

import textwrap
from collections import Counter
from collections.abc import Iterator

from records import (
    DATASETS,
    FASTIF,
    GRID,
    LEFT_OUT,
    OWN,
    PAPER,
    TRUSTED,
    Measured,
    Where,
    counted,
    listed,
    name,
    short,
    speed,
    summary,
)

EAGER = "1.01 to 1.05"  # measured by hand: docs/lab-notebook/outside-the-recipe.md
NEAR = 3.5  # points by which an estimated share of wrong labels may be off and still be called near
ABLATED = "[in an older run](docs/lab-notebook/ablations.md) at most 0.3."  # until CIFAR has ablations of this method
NAMED = 3  # rivals that a sentence names
WIDTH = 175


def paragraph(*parts: str) -> str:
    return textwrap.fill(" ".join(parts), WIDTH, break_long_words=False, break_on_hyphens=False)


def bullet(*parts: str) -> str:
    lines = textwrap.wrap(" ".join(parts), WIDTH - 2, break_long_words=False, break_on_hyphens=False)
    return "* " + "\n  ".join(lines)


def leads(measured: Measured, method: str = OWN, rivals: list[str] | None = None) -> dict[Where, float]:
    """How far a ranking is ahead of the best rival, by setting that has both."""
    found = {}
    for where in measured.settings:
        own, best = measured(where, method), measured.best(where, "auc_pr", rivals)
        if own is not None and best is not None:
            found[where] = own - best[0]
    return found


def first(found: dict[Where, float]) -> int:
    return sum(lead > 0 for lead in found.values())


def ablation_losses(measured: Measured, table: str) -> tuple[list[float], list[float]]:
    """Points of AUC-PR that each ablation loses: printed, and measured."""
    cells = [c for c in measured.ledger if c["table"] == table and c["column"] == "AUPR"]
    full = next(c for c in cells if "Full" in c["row"])
    others = [c for c in cells if c is not full]
    here = [full["measured"] - c["measured"] for c in others if None not in (c["measured"], full["measured"])]
    return [full["printed"] - c["printed"] for c in others], here


def paper(measured: Measured) -> Iterator[str]:
    """What came of the paper's numbers."""
    verdicts = measured.verdicts()
    judged = {v: verdicts[v] for v in ("reproduced", "differs", "inconclusive")}
    table1 = [c for c in measured.ledger if c["table"] == "Table 1"]
    proved = sum(any(s["status"] == "proved" for s in c["sources"]) for c in table1)
    printed, here = ablation_losses(measured, "Table 4")
    words = [
        "Its idea holds: influence that is kept up to date during training finds wrong labels, at little cost.",
        f"Its numbers mostly do not come out. Of {sum(judged.values())} that could be measured as defined,",
        f"{_are(judged['reproduced'])} reproduced, {judged['differs']} differ and {_are(judged['inconclusive'])} open;",
        f"{verdicts['not run']} more are not run.",
        f"{proved} of the {len(table1)} numbers in its Table 1 equal test accuracies published with",
        "confident learning.",
    ]
    words.append(f"Its ablations lose {min(printed):.0f} to {max(printed):.0f} points of AUC-PR on CIFAR-10,")
    words.append(f"here at most {max(here):.1f}." if here else ABLATED)
    yield paragraph(*words)


def _are(count: int) -> str:
    return {0: "none is", 1: "1 is"}.get(count, f"{count} are")


def standing(measured: Measured) -> Iterator[str]:
    """Where SG-OIF wins and where it loses."""
    found, without = leads(measured), leads(measured, rivals=measured.blind)
    won = {w: lead for w, lead in without.items() if lead > 0}
    closest = min(won, key=won.__getitem__)
    yield bullet(
        f"**Wins**: first in {first(found)} of the {counted(len(found), 'setting')} measured, and in {first(without)}",
        f"among methods that see no clean label. The smallest lead is {won[closest]:.2f}",
        f"({measured.settings[closest]}).",
    )
    paper_first = first(leads(measured, PAPER))
    yield bullet(
        f"**Loses**: {losses(measured)} The **paper's algorithm and score alone** is first in {paper_first};",
        "the class model is ours.",
    )


def losses(measured: Measured) -> str:
    """Which rivals are ahead of SG-OIF, in how many settings, and by how much at most."""
    ahead: Counter[str] = Counter()
    most: dict[str, tuple[float, Where]] = {}
    for where in measured.settings:
        for rival in measured.rivals:
            value = measured(where, rival)
            if value is not None and value >= measured(where, OWN):
                ahead[rival] += 1
                most[rival] = max(most.get(rival, (0.0, where)), (value - measured(where, OWN), where))
    if not ahead:
        return "nowhere in these settings."
    words = [
        f"{_told(rival)} is ahead in {count}, by up to {most[rival][0]:.1f} points"
        f" ({measured.settings[most[rival][1]]})"
        for rival, count in ahead.most_common(NAMED)
    ]
    others = [short(rival) for rival, _ in ahead.most_common()[NAMED:]]
    more = f" So {'is' if len(others) == 1 else 'are'} {listed(others)} somewhere." if others else ""
    return f"{'. '.join(words)}.{more}"


def _told(rival: str) -> str:
    return "FastIF with 100 clean labels" if rival == FASTIF else short(rival)


def overhead(measured: Measured) -> Iterator[str]:
    """What watching costs, in three places."""
    head = speed("influence_overhead")["head"]
    ratios = [
        record["mean"]
        for (_, setting, method, metric, variant), record in summary("embedded").items()
        if (method, metric, variant) == (OWN, "overhead_standalone", "") and not setting.startswith(("tune", "clean"))
    ]
    yield bullet(
        f"**Costs**: {head['watching']:.2f} times plain training in the benchmark's captured step on an H200,",
        f"{head['all_of_it']:.2f} with reading the scores and counting. In an eager loop of your own",
        f"[{EAGER}](docs/lab-notebook/outside-the-recipe.md#cost-in-an-eager-loop), and in the small run on a CPU",
        f"up to {max(ratios):.1f}.",
    )


def terms(measured: Measured) -> Iterator[str]:
    """Under which conditions the README's table was measured."""
    yield bullet(
        f"**Terms**: ResNet-9, 16 epochs{_hundred(measured)}, one H200,",
        f"[{seeds_in_words(measured)}](docs/results/measured.md#seeds).",
        f"Not run yet: {missing(measured)}.",
        "SG-OIF was tuned on other noise of the same images in",
        "[more than 150 configurations](docs/lab-notebook/defaults.md); rivals run at their papers' values.",
        "Clean labels are of test images.",
    )


def _hundred(measured: Measured) -> str:
    there = {dataset for dataset, _ in measured.settings}
    words = ["CIFAR-100: 24"] if "cifar100" in there else []
    words += ["Imagenette: a ResNet-18, 20"] if "imagenette" in there else []
    return f" ({'; '.join(words)})" if words else ""


def seeds_in_words(measured: Measured) -> str:
    """Which seeds are compared, and that others are there."""
    compared = {len(measured.compared(w)) for w in measured.settings}
    more = any(len(measured.seeds_of(w, OWN)) > len(measured.compared(w)) for w in measured.settings)
    low, high = min(compared), max(compared)
    words = "one seed with its own draw of noise" if high == 1 else f"{low} to {high} seeds, each with its own noise"
    if low == high > 1:
        words = f"{high} seeds, each with its own draw of noise"
    return words + (" (SG-OIF and some rivals have more)" if more else "")


def missing(measured: Measured) -> str:
    """What of the plan is not there: methods, datasets, seeds and ablations."""
    config = measured.config
    planned = [m for m in config["noisy"]["cifar10"]["methods"] if "@" not in m and m not in LEFT_OUT]
    words = [name(m) for m in planned if m not in measured.detectors]
    for dataset, title in DATASETS.items():
        settings = config["noisy"][dataset]["settings"]
        there = sum(w[0] == dataset for w in measured.settings)
        if not there:
            words.append(title)
        elif there < len(settings):
            words.append(f"{len(settings) - there} settings of {title}")
    whole = len(config["noisy"]["cifar10"]["seeds"])
    if any(len(measured.compared(w)) < whole for w in measured.settings):
        words.append(f"the other seeds of {whole}")
    if not ablation_losses(measured, "Table 4")[1]:
        words.append("ablations")
    return listed(words) if words else "nothing"


def not_yet(measured: Measured) -> Iterator[str]:
    """What of the plan is not measured, in a sentence."""
    told = missing(measured)
    yield bullet(f"**Not run yet**: {told}. Compared is {seeds_in_words(measured)}.")


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

    def best_in(places: list[Where], method: str, rivals: list[str]) -> int:
        return sum(measured(w, method, metric) > measured.best(w, metric, rivals)[0] for w in places)

    grid, other = [w for w in there if w in GRID], [w for w in there if w not in GRID]
    worse = [measured.settings[w] for w in there if measured(w, OWN, metric) < measured(w, "plain", metric)]
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
    far = [measured.settings[w] for w in off if off[w] > NEAR]
    yield bullet(
        f"The estimated share of wrong labels is within {NEAR} points in {len(off) - len(far)} of {len(off)}",
        "settings." + (f" It is further off at {', '.join(far)}." if far else ""),
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


def paper_alone(measured: Measured) -> Iterator[str]:
    """How far SG-OIF is ahead of or behind the paper's algorithm and score."""
    there = [w for w in measured.settings if measured(w, PAPER) is not None]
    gain = {w: measured(w, OWN) - measured(w, PAPER) for w in there}
    for title, places in (("the grid", [w for w in there if w in GRID]), ("", [w for w in there if w not in GRID])):
        if places:
            where = title or f"the other {counted(len(places), 'setting')}"
            change = sum(gain[w] for w in places) / len(places)
            yield bullet(f"Over {where} SG-OIF is {change:+.1f} points from the paper's algorithm and score alone.")
    loses = sorted((w for w, g in gain.items() if g < -0.05), key=lambda w: gain[w])
    if loses:
        spans = [f"{measured.settings[w]} (by {-gain[w]:.1f})" for w in loses]
        yield bullet(f"The paper's score alone is better at {listed(spans)}.")
    alone, without = leads(measured, PAPER), leads(measured, PAPER, measured.blind)
    yield bullet(
        f"It is first in {first(alone)} of {len(alone)}, and in {first(without)} among methods without clean labels."
    )


def reproduced(measured: Measured) -> Iterator[str]:
    """The verdicts in words, and those of Table 1 under another reading."""
    table1 = [c for c in measured.ledger if c["table"] == "Table 1"]
    again = [a["verdict"] for c in table1 for a in c["also"]]
    verdicts = measured.verdicts()
    yield paragraph(
        f"{verdicts['not defined']} numbers are not defined well enough to be measured,",
        f"{verdicts['stand-in']} were measured on stand-ins, and {verdicts['not run']} are not run.",
        "One seed cannot reproduce a number, only differ from it or leave it open.",
        "The numbers of Table 1 are called P@1% and look like test accuracies. Read so,",
        f"{again.count('reproduced')} of {len(again)} come out, {again.count('differs')} differ and"
        f" {again.count('inconclusive')} are open.",
    )
