"""Sentences of README and the pages of results whose numbers come from what is published."""

import textwrap
from collections.abc import Iterator

from records import GRID, HUNDRED, OWN, SETTINGS, TRUSTED, WITH_CLEAN_LABELS, Measured, Where, speed

EAGER = "1.01 to 1.05"  # measured by hand: docs/lab-notebook/outside-the-recipe.md
NEAR = 3.5  # points by which an estimated share of wrong labels may be off and still be called near
WIDTH = 175


def paragraph(*parts: str) -> str:
    return textwrap.fill(" ".join(parts), WIDTH, break_long_words=False, break_on_hyphens=False)


def bullet(*parts: str) -> str:
    lines = textwrap.wrap(" ".join(parts), WIDTH - 2, break_long_words=False, break_on_hyphens=False)
    return "* " + "\n  ".join(lines)


def leads(
    measured: Measured, method: str = OWN, variant: str = "", rivals: list[str] | None = None
) -> dict[Where, float]:
    """How far a ranking is ahead of the best rival, by setting."""
    return {w: measured(w, method, variant=variant) - measured.best(w, "auc_pr", rivals)[0] for w in SETTINGS}


def first(found: dict[Where, float]) -> int:
    return sum(lead > 0 for lead in found.values())


def blind(measured: Measured) -> list[str]:
    """The rivals that see no clean label."""
    return [m for m in measured.rivals() if m not in WITH_CLEAN_LABELS]


def ablation_losses(measured: Measured, table: str) -> tuple[list[float], list[float]]:
    """Points of AUC-PR that each ablation loses: printed, and measured."""
    cells = [c for c in measured.ledger if c["table"] == table and c["column"] == "AUPR"]
    full = next(c for c in cells if "Full" in c["row"])
    others = [c for c in cells if c is not full]
    here = [full["measured"] - c["measured"] for c in others if c["measured"] is not None]
    return [full["printed"] - c["printed"] for c in others], here


def paper(measured: Measured) -> Iterator[str]:
    """What came of the paper's numbers."""
    verdicts = measured.verdicts()
    judged = {v: verdicts.get(v, 0) for v in ("reproduced", "differs", "inconclusive")}
    table1 = [c for c in measured.ledger if c["table"] == "Table 1"]
    proved = sum(any(s["status"] == "proved" for s in c["sources"]) for c in table1)
    printed, here = ablation_losses(measured, "Table 4")
    yield paragraph(
        "Its idea holds: influence that is kept up to date during training finds wrong labels, at little cost.",
        f"Its numbers mostly do not come out. Of {sum(judged.values())} that could be measured as defined,",
        f"{judged['reproduced']} is reproduced, {judged['differs']} differ and {judged['inconclusive']} are open.",
        f"{proved} of the {len(table1)} numbers in its Table 1 equal test accuracies published with",
        "confident learning.",
        f"Its ablations lose {min(printed):.0f} to {max(printed):.0f} points of AUC-PR on CIFAR-10,",
        f"here at most {max(here):.1f}.",
    )


def standing(measured: Measured) -> Iterator[str]:
    """Where SG-OIF wins and where it loses."""
    found, without = leads(measured), leads(measured, rivals=blind(measured))
    behind = {w: -lead for w, lead in found.items() if lead <= 0}
    worst, closest = max(behind, key=lambda w: behind[w]), min(without, key=lambda w: without[w])
    yield bullet(
        f"**Wins**: first in {first(found)} of the {len(found)} settings, and in {first(without)} among methods",
        f"that see no clean label. The smallest lead is {without[closest]:.2f} ({SETTINGS[closest]}).",
    )
    yield bullet(
        f"**Loses**: FastIF with 100 clean labels is ahead in {len(behind)}, by up to {behind[worst]:.0f} points",
        f"({SETTINGS[worst]}). The **paper's score alone**, the influence, is first in",
        f"{first(leads(measured, variant='influence'))}; the latent classes are ours.",
    )


def overhead(measured: Measured) -> Iterator[str]:
    """What watching costs, in four places."""
    head, embedded = speed("influence_overhead")["head"], Measured("embedded")
    ratios = [
        record["mean"]
        for (_, setting, method, metric, variant), record in embedded.found.items()
        if (method, metric, variant) == (OWN, "overhead_standalone", "") and not setting.startswith(("tune", "clean"))
    ]
    hundred = [measured(w, OWN, "overhead_standalone") / 100 for w in HUNDRED]
    yield bullet(
        f"**Costs**: {head['watching']:.2f} times plain training in the benchmark's captured step on an H200,",
        f"{head['all_of_it']:.2f} with reading the scores and counting ({min(hundred):.2f} to {max(hundred):.2f} on",
        "CIFAR-100). In an eager loop of your own",
        f"[{EAGER}](docs/lab-notebook/outside-the-recipe.md#cost-in-an-eager-loop), and in the small run on a CPU",
        f"up to {max(ratios):.1f}.",
    )


def cleaned(measured: Measured) -> Iterator[str]:
    """Test accuracy after cleaning, counted."""

    def best_in(places: list[Where], method: str, rivals: list[str]) -> int:
        return sum(measured(w, method, metric) > measured.best(w, metric, rivals)[0] for w in places)

    metric, other = "test_accuracy", [w for w in SETTINGS if w not in GRID]
    worse = [t for w, t in SETTINGS.items() if measured(w, OWN, metric) < measured(w, "plain", metric)]
    off = {w: abs(measured(w, OWN, "extra:estimated_noise") - measured(w, "", "base_rate")) for w in SETTINGS}
    far = [SETTINGS[w] for w in SETTINGS if off[w] > NEAR]
    yield bullet(
        "Among models trained without clean labels, SG-OIF's is the best in",
        f"{best_in(list(GRID), OWN, blind(measured))} of the {len(GRID)} settings of the grid and in",
        f"{best_in(other, OWN, blind(measured))} of the {len(other)} others. AUM, margin and loss were not retrained,",
        "so this leaves out the next best detectors.",
    )
    yield bullet(
        f"With 1,000 clean labels it is the best of all in {best_in(list(SETTINGS), TRUSTED, measured.rivals())} of",
        f"{len(SETTINGS)}.",
    )
    if worse:
        yield bullet(f"Cleaning does harm at {' and '.join(worse)}: it is worse than plain training on all labels.")
    yield bullet(
        f"The estimated share of wrong labels is within {NEAR} points in {len(SETTINGS) - len(far)} of {len(SETTINGS)}",
        f"settings. It is further off at {', '.join(far)}.",
    )


def removed(measured: Measured) -> Iterator[str]:
    """Precision and recall of what is removed, by kind of noise."""
    yield "| noise | precision | recall |"
    yield "|---|---:|---:|"
    for title, places in (
        ("grid, 20% and 40%", [w for w in GRID if not w[1].startswith("n70")]),
        ("grid, 70%", [w for w in GRID if w[1].startswith("n70")]),
        ("human labels", [("cifar10", "aggre"), ("cifar10", "random1"), ("cifar10", "worse"), ("cifar100", "human")]),
    ):
        spans = []
        for metric in ("removal_precision", "removal_recall"):
            values = [measured(w, OWN, metric) for w in places]
            spans.append(f"{min(values):.0f} to {max(values):.0f}%")
        yield f"| {title} | {' | '.join(spans)} |"


def influence_alone(measured: Measured) -> Iterator[str]:
    """What the parts are worth: by how much the whole is behind or ahead of the influence."""
    gain = {w: measured(w, OWN) - measured(w, OWN, variant="influence") for w in SETTINGS}
    rest = [gain[w] for w in SETTINGS if w not in GRID]
    grid = round(sum(gain[w] for w in GRID) / len(GRID), 1) + 0.0
    loses = sorted((w for w, g in gain.items() if g < -0.05), key=lambda w: gain[w])
    alone = leads(measured, variant="influence")
    without = leads(measured, variant="influence", rivals=blind(measured))
    yield bullet(
        f"Latent classes and margins change the mean of the grid by {grid:+.1f} points, and that of the other",
        f"{len(rest)} settings by {sum(rest) / len(rest):+.1f}.",
    )
    yield bullet(f"The influence alone is better at {', '.join(f'{SETTINGS[w]} (by {-gain[w]:.1f})' for w in loses)}.")
    yield bullet(
        f"The influence alone is first in {first(alone)} of {len(alone)}, and in {first(without)} among methods",
        "without clean labels. It is behind AUM or SCE on human labels and on symmetric noise.",
    )


def reproduced(measured: Measured) -> Iterator[str]:
    """The verdicts in words, and those of Table 1 under another reading."""
    table1 = [c for c in measured.ledger if c["table"] == "Table 1"]
    again = [a["verdict"] for c in table1 for a in c["also"]]
    yield paragraph(
        f"{measured.verdicts()['not defined']} numbers are not defined well enough to be measured.",
        f"{sum(c['stand_in'] for c in measured.ledger)} were measured on stand-ins, which counts as not run.",
        "The numbers of Table 1 are called P@1% and look like test accuracies. Read so,",
        f"{again.count('reproduced')} of {len(again)} come out and {again.count('inconclusive')} are open.",
    )
