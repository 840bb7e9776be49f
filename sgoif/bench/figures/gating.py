"""What the gate does: the residual of every seed against its tolerance, and what is found in the end."""

import numpy as np

from sgoif.bench.figures import _style as draws
from sgoif.bench.figures._data import GATES, Evidence, watched
from sgoif.bench.methods.registry import is_variant

PLACE = 60
FROM_CURVES = True
TITLE = "Effectiveness of gating"
CAPTION = (
    "SG-OIF with each kind of gate. Left: relative residual at each check, one line per seed; grey: the tolerance of "
    "the stability gate (mean over seeds). Right: AUC-PR of the final scores with each kind of gate beside the other "
    "detectors of the same setting; a mark per seed, a bar at their mean."
)
OTHERS = 5  # the best other detectors that are shown beside the gates


def subjects(config) -> list[str]:
    return watched(config)


def draw(dataset: str, evidence: Evidence):
    setting, gated = evidence.compared(dataset), evidence.gated(dataset)
    figure, ((left, right),) = draws.canvas(1, 2, height=3.4)
    draws.heading(figure, f"{evidence.title(dataset)}; {setting}")
    _residuals(left, {g: evidence.traces(dataset, setting, m, "residual") for g, m in gated.items()})
    stable = evidence.traces(dataset, setting, gated.get("stability", ""), "tolerance")
    if stable[1].size:
        left.plot(stable[0], stable[1].mean(0), color="#999999", linewidth=2.5, alpha=0.7, label="tolerance", zorder=1)
    handles, words = left.get_legend_handles_labels()
    if handles:
        figure.legend(handles, words, loc="outside lower left", ncols=2, fontsize=7.5)
    names = {m: (GATES[g], draws.GATE_STYLES[g]) for g, m in gated.items()}
    methods = [m for m in evidence.config["noisy"][dataset]["methods"] if not is_variant(m) and m not in names]
    values = {m: list(evidence.by_seed(dataset, setting, m).values()) for m in [*names, *methods]}
    values = {m: v for m, v in values.items() if v}
    best = sorted((m for m in values if m not in names), key=lambda m: -np.mean(values[m]))[:OTHERS]
    shown = [*(m for m in names if m in values), *best]
    for row, method in enumerate(reversed(shown)):
        colour, _, marker = names.get(method, ("", ("#777777", "", "D")))[1]
        points = 100 * np.array(values[method])
        right.plot(points, [row] * len(points), linestyle="", marker=marker, color=colour, markersize=5, alpha=0.8)
        right.plot([points.mean()] * 2, [row - 0.3, row + 0.3], color=colour, linewidth=2)
    right.set_xlabel("final AUC-PR (%)")
    if shown:
        titles = [names[m][0] if m in names else draws.name_of(m) for m in shown]
        right.set_yticks(range(len(shown)), reversed(titles))
        right.grid(axis="x")
        right.set_title("a mark per seed", loc="left")
    else:
        draws.gap(right, "no detector has scores in this setting")
    return figure


def _residuals(axes, found) -> None:
    axes.set_xlabel("epoch")
    axes.set_ylabel("relative residual")
    axes.set_title("residual, a line per seed", loc="left")
    if not any(values.size for _, values in found.values()):
        draws.gap(axes, "no SG-OIF cell of this setting has a trace")
        return
    for gate, (x, values) in found.items():
        colour, dashes, _ = draws.GATE_STYLES[gate]
        for i, line in enumerate(np.where(np.isfinite(values), values, np.nan)):
            label = f"{GATES[gate]}{draws.diverged(values)}" if i == 0 else None
            axes.plot(x, line, color=colour, linestyle=dashes, linewidth=draws.GATE_WIDTHS[gate] / 1.6, label=label)
    draws.logarithmic(axes)
    axes.grid()
