"""Sentences that several kinds of tables have in their captions."""

from __future__ import annotations

from sgoif.bench.data.noisy_labels import UNDRAWN_KINDS
from sgoif.bench.evaluation import significance
from sgoif.bench.evaluation.draws import MIN_DRAWS, draws_own_noise
from sgoif.bench.evaluation.table_layout import Panel
from sgoif.bench.tables.source import Source

OVERHEAD = (
    "Overhead (×): measured wall-clock over that of plain training (same data, network, epochs, machine), folds and "
    "peer networks included, retraining on cleaned labels not. Marginal: a plain run that the method reads is there "
    "anyway; stand-alone: it is counted."
)
HUMAN_LABELS = {  # CIFAR-10N's and CIFAR-100N's names of their label sets
    "aggre": "majority",
    "random1": "annotator 1",
    "random2": "annotator 2",
    "random3": "annotator 3",
    "worse": "worst",
    "human": "",
}
NOT_GIVEN = "–: the method does not give this quantity, or has no seconds of its own."


def seeds_caption(source: Source) -> list[str]:
    """Return the sentences on seeds, the draws of noise that they see, and marks."""
    return [*_marks_caption(source), *draws_caption(source)]


def draws_caption(source: Source) -> list[str]:
    """Return the sentences on which labels the seeds of a table see: their own draw, one draw, or fixed labels."""
    words: dict[str, list[str]] = {"own": [], "shared": [], "fixed": []}
    for panel in source.panels:
        facts = source.get(panel, "", "base_rate")
        if panel.task == "ood" or facts is None or len(panel.seeds) < 2:
            continue
        kind = "own" if draws_own_noise(panel, facts) else "fixed" if panel.kind in UNDRAWN_KINDS else "shared"
        words[kind].append(f"{panel.title} {describe_noise(panel)}".strip())
    only = sum(map(bool, words.values())) == 1
    named = {kind: "" if only else f" ({'; '.join(dict.fromkeys(names))})" for kind, names in words.items()}
    sentences = {
        "own": f"Each seed draws its own noise{named['own']}.",
        "shared": f"All seeds share one draw of noise{named['shared']}: the spread is that of training alone.",
        "fixed": f"The labels are the same for all seeds{named['fixed']}: people or a file gave them.",
    }
    return [sentence for kind, sentence in sentences.items() if words[kind]]


def _marks_caption(source: Source) -> list[str]:
    counts = sorted({len(panel.seeds) for panel in source.panels})
    if not counts or counts[-1] == 1:
        return ["One seed: no spread and no test can be given. {best}: best of the column."]
    seeds = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    spread = f"Mean ± standard deviation over {seeds} seeds{_interval_words(counts[-1])}. {{best}}: best of the column"
    missing = (
        "A method that lacks seeds does not compete and has no rank; where its mean is the best, nothing is marked. "
        "Blocks of the seeds that all rows have are for comparing with it."
    )
    draws = max(len(p.seeds) if draws_own_noise(p, source.get(p, "", "base_rate")) else 1 for p in source.panels)
    if draws < MIN_DRAWS:
        return [f"{spread}; fewer than {MIN_DRAWS} independent draws cannot show that another is as good. {missing}"]
    test = "t-test" if draws < significance.SMALLEST_WILCOXON else "signed-rank test"
    return [
        f"{spread}; {{close}}: not significantly worse than the best (one-sided paired {test} over seeds, "
        f"Holm-corrected over the column, α = {significance.ALPHA}), where the seeds are independent draws. {missing}"
    ]


def _interval_words(seeds: int) -> str:
    """Return how the 95% interval of the mean follows from the standard deviation."""
    times = [(n, significance.t_factor(n)) for n in range(seeds, 1, -1)][:2]
    return " (95% interval of the mean: ± times " + ", ".join(f"{f:.1f} with {n} seeds" for n, f in times) + ")"


def top_caption(source: Source) -> str:
    """Return the sentence on P@1%, with how many examples the top 1% is, and AUC-PR."""
    sizes = sorted({int(v) for v in source.means("n_examples")})
    counts = ", ".join(f"{-(-n // 100)} of {n:,}" for n in sizes)
    return (
        "AUC-PR: average precision of finding the wrong labels; P@1%: share of wrong labels among the most suspicious "
        f"1% ({counts or 'none'}), expected over ties."
    )


def describe_noise(panel: Panel) -> str:
    """Return the noise of a panel in words, such as "superclass 40%, sparsity 0.2"."""
    if panel.noise is None:
        people = HUMAN_LABELS.get(panel.setting, panel.setting)
        as_found = {"human": f"human, {people}" if people else "human labels", "collected": "as collected"}
        return as_found.get(panel.kind, panel.setting)
    kind = {"class_conditional": "", "superclass": "superclass "}.get(panel.kind, f"{panel.kind} ")
    sparsity = f", sparsity {panel.sparsity:.1f}" if panel.sparsity else ""
    return f"{kind}{100 * panel.noise:.0f}%{sparsity}"
