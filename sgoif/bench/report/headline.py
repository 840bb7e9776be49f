"""The result of a run in a few sentences: who is first where, what is missing, how many seeds, what it costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from sgoif.bench.evaluation.regime_words import without_shared_words
from sgoif.bench.evaluation.summary_record import layouts
from sgoif.bench.evaluation.table_layout import Panel, TableLayout
from sgoif.bench.methods.registry import OURS, PLAIN, split_variant
from sgoif.bench.report.ledger import JUDGED
from sgoif.bench.tables.captions import describe_noise
from sgoif.bench.tables.names import is_ranked, title

MAX_NAMED = 4  # settings that a sentence lists
Key = tuple[str, str, str, str, str]  # dataset, setting, method, variant, metric


class Statement(NamedTuple):
    """One sentence of the result, with the word it begins with."""

    label: str
    text: str


def headline(
    records: Sequence[Mapping[str, Any]], failures: Sequence[Mapping[str, Any]], ledger: Mapping[str, Any] | None
) -> list[Statement]:
    """Return the result of a run in at most seven lines.

    Args:
        records: Records of the summary.
        failures: What has no result (`sections.failures_section`).
        ledger: The comparison with the paper (`sections.ledger_section`), or None.
    """
    numbers = {
        (r["dataset"], r["setting"], r["method"], r["variant"], r["metric"]): r
        for r in records
        if r["metric"] != "layout" and r["mean"] is not None
    }
    known = layouts(records).values()
    noisy = _panels(known, "noise_grid", "noise_sets")
    lines = [
        *_detection(numbers, noisy),
        *_regimes(numbers, _panels(known, "regimes")),
        *_ood(numbers, _panels(known, "ood")),
        *_cost(numbers, noisy),
        *_seeds(numbers, noisy),
        _missing(failures),
    ]
    if ledger is not None:
        lines.append(_paper(ledger))
    return lines


def _paper(ledger: Mapping[str, Any]) -> Statement:
    """How many numbers of the paper got which verdict, or how many have a number beside them that judges none."""
    counts = ", ".join(f"{n} {verdict}" for verdict, n in ledger["verdicts"].items())
    text = f"{counts.replace('differs', 'differ')}."
    if not any(verdict in ledger["verdicts"] for verdict in JUDGED):
        text = (
            f"none is measured as defined; {len(ledger['cells'])} of {ledger['total']} have a measurement beside them."
        )
    return Statement("Numbers of the paper", text)


def _panels(known: Any, *kinds: str) -> list[Panel]:
    """Panels of the tables of these kinds, each dataset and setting once."""
    found: dict[tuple[str, str], Panel] = {}
    layout: TableLayout
    for layout in known:
        if layout.kind in kinds:
            for panel in layout.panels:
                best = found.get((panel.dataset, panel.setting), panel)
                found[panel.dataset, panel.setting] = max(best, panel, key=lambda p: len(p.methods))
    return list(found.values())


def _strongest(
    numbers: Mapping[Key, Mapping[str, Any]], panel: Panel, task: str, metric: str, variant: str = ""
) -> tuple[str, float] | None:
    """The method that is most ahead of SG-OIF, or least behind it, and by how much; None if there is none.

    Its own variants do not count, nor do methods that do not compete. `variant` names a score of SG-OIF.
    """
    ours = numbers.get((panel.dataset, panel.setting, OURS, variant, metric))
    if ours is None:
        return None
    leads = {
        m: _lead(numbers[panel.dataset, panel.setting, m, "", metric], ours)
        for m in panel.methods
        if m != PLAIN
        and split_variant(m)[0] != OURS
        and is_ranked(task, m)
        and (panel.dataset, panel.setting, m, "", metric) in numbers
    }
    best = max(leads, key=leads.__getitem__, default=None)
    return None if best is None else (best, leads[best])


def _lead(other: Mapping[str, Any], ours: Mapping[str, Any]) -> float:
    """How far a mean is ahead of another over the seeds that both have; over all, where they share none."""
    own = dict(zip(ours["seeds"], ours["values"], strict=True))
    pairs = [(v, own[seed]) for seed, v in zip(other["seeds"], other["values"], strict=True) if seed in own]
    return fmean(v - o for v, o in pairs) if pairs else other["mean"] - ours["mean"]


def _detection(numbers: Mapping[Key, Mapping[str, Any]], panels: Sequence[Panel]) -> list[Statement]:
    """In how many settings SG-OIF, and its influence alone, find most wrong labels; and who does elsewhere."""
    first, alone, compared, parts, behind = 0, 0, 0, 0, []
    for panel in panels:
        best = _strongest(numbers, panel, "noisy", "auc_pr")
        if best is None:
            continue
        compared += 1
        method, lead = best
        if lead < 0:
            first += 1
        else:
            behind.append(f"{panel.title} {describe_noise(panel)}: {title('noisy', method)} by {100 * lead:.1f} points")
        influence = _strongest(numbers, panel, "noisy", "auc_pr", "influence")
        if influence is not None:
            parts += 1
            alone += influence[1] < 0
    if not compared:
        return []
    text = f"SG-OIF has the highest AUC-PR in {first} of {compared} settings"
    text += f"; its influence score alone would have it in {alone} of {parts}." if parts else "."
    if behind:
        more = f", and {len(behind) - MAX_NAMED} more" if len(behind) > MAX_NAMED else ""
        text += f" Ahead of it: {'; '.join(behind[:MAX_NAMED])}{more}."
    return [Statement("Wrong labels", text)]


def _regimes(numbers: Mapping[Key, Mapping[str, Any]], panels: Sequence[Panel]) -> list[Statement]:
    """In how many regimes SG-OIF finds most wrong labels, and where another leads by most."""
    first, behind = 0, {}
    _, titles = without_shared_words([panel.title for panel in panels])
    for panel, words in zip(panels, titles, strict=True):
        best = _strongest(numbers, panel, "noisy", "auc_pr")
        has_all = all((panel.dataset, panel.setting, m, "", "auc_pr") in numbers for m in panel.methods if m != PLAIN)
        if best is not None and has_all:  # the best of some would flatter SG-OIF
            behind[words] = (best[1], best[0])
            first += best[1] < 0
    if not behind:
        return []
    text = f"SG-OIF has the highest AUC-PR in {first} of the {len(behind)} cells that have all methods."
    worst = max(behind, key=lambda words: behind[words][0])
    lead, method = behind[worst]
    if lead > 0:
        text += f" The largest lead over it: {title('noisy', method)} by {100 * lead:.1f} points ({worst})."
    return [Statement("Regimes", text)]


def _ood(numbers: Mapping[Key, Mapping[str, Any]], panels: Sequence[Panel]) -> list[Statement]:
    """Where SG-OIF has the highest AUROC on near and on far sets, and who has it elsewhere."""
    words = []
    for group in ("near", "far"):
        firsts = []
        for panel in panels:
            best = _strongest(numbers, panel, "ood", f"auroc:{group}")
            if best is not None:
                name = title("ood", OURS if best[1] < 0 else best[0])
                firsts.append(f"{name} ({panel.title})")
        if firsts:
            words.append(f"{group} sets: {', '.join(firsts)}")
    return [Statement("Out of distribution", f"Highest AUROC on {'; on '.join(words)}.")] if words else []


def _cost(numbers: Mapping[Key, Mapping[str, Any]], panels: Sequence[Panel]) -> list[Statement]:
    """What SG-OIF costs, in passes through a network and in seconds, over plain training."""
    parts = []
    for metric, words in (("overhead_passes", "passes through a network"), ("overhead_standalone", "time")):
        keys = [(p.dataset, p.setting, OURS, "", metric) for p in panels]
        found = [numbers[key]["mean"] for key in keys if key in numbers]
        if found:
            ends = dict.fromkeys(f"{value:.2f}" for value in (min(found), max(found)))
            parts.append(f"{' to '.join(ends)} times the {words} of plain training")
    return [Statement("Cost of SG-OIF", f"{'; '.join(parts)}.")] if parts else []


def _seeds(numbers: Mapping[Key, Mapping[str, Any]], panels: Sequence[Panel]) -> list[Statement]:
    """How many seeds stand behind the numbers, and which methods have fewer than SG-OIF somewhere."""
    fewer: Counter[str] = Counter()
    counts = set()
    for panel in panels:
        ours = numbers.get((panel.dataset, panel.setting, OURS, "", "auc_pr"))
        for method in panel.methods:
            found = numbers.get((panel.dataset, panel.setting, method, "", "auc_pr"))
            if ours is not None and found is not None:
                counts.add(found["n_seeds"])
                fewer[title("noisy", method)] += found["n_seeds"] < ours["n_seeds"]
    if not counts:
        return []
    text = f"{' to '.join(map(str, dict.fromkeys((min(counts), max(counts)))))} a number."
    lacking = [f"{name} ({n})" for name, n in fewer.most_common() if n]
    if lacking:
        text += f" Fewer than SG-OIF, and in how many settings: {', '.join(lacking)}. Compared with it over those."
    return [Statement("Seeds", text)]


def _missing(failures: Sequence[Mapping[str, Any]]) -> Statement:
    """How many cells failed or were not run."""
    cells: Counter[str] = Counter()
    for one in failures:
        cells[one["status"]] += one["cells"] or 0
    whole = [one for one in failures if one["cells"] is None]
    named = [(one, f"{one['dataset']}{' (OOD)' if one['task'] == 'ood' else ''}") for one in whole]
    sets = [name for one, name in named if one["task"] != "table" and one["settings"] == "all"]
    seeds = [f"{name}, {one['settings'].removeprefix('all with ')}" for one, name in named if one["settings"] != "all"]
    tables = [one["dataset"] for one in whole if one["task"] == "table"]
    words = [f"{n} {'cell' if n == 1 else 'cells'} {status}" for status, n in cells.items() if n]
    words += [f"not run at all: {', '.join(dict.fromkeys(sets))}"] if sets else []
    words += [f"not run with further seeds: {'; '.join(seeds)}"] if seeds else []
    words += [f"no table yet: {', '.join(tables)}"] if tables else []
    return Statement("Missing", f"{'; '.join(words)}." if words else "nothing.")
