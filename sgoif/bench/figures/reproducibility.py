"""How much a result depends on the seed: of the residual along training, and of what is found."""

import numpy as np

from sgoif.bench.figures import _style as draws
from sgoif.bench.figures._data import GATES, Evidence, watched
from sgoif.bench.methods.registry import is_variant

PLACE = 70
FROM_CURVES = True
TITLE = "Reproducibility over seeds"
CAPTION = (
    "SG-OIF with each kind of gate, and the other detectors. Left: standard deviation over seeds of the relative "
    "residual at each check, in one setting. Right: standard deviation over seeds of the final AUC-PR, a mark per "
    "setting and a bar at their mean, least at the top. The seed changes the initial network and the order of the "
    "examples, not the wrong labels."
)


def subjects(config) -> list[str]:
    return watched(config)


def draw(dataset: str, evidence: Evidence):
    setting, gated = evidence.compared(dataset), evidence.gated(dataset)
    spec = evidence.config["noisy"][dataset]
    methods = [*gated.values(), *(m for m in spec["methods"] if not is_variant(m) and m not in gated.values())]
    found = {m: _deviations(evidence, dataset, m) for m in methods}
    found = {m: v for m, v in found.items() if v}
    figure, ((left, right),) = draws.canvas(1, 2, height=0.19 * max(8, len(found)) + 1.4)
    draws.heading(figure, f"{evidence.title(dataset)}; {len(spec['seeds'])} seeds")
    left.set_xlabel("epoch")
    left.set_ylabel("deviation of the residual")
    left.set_title(f"{setting}", loc="left")
    drawn = [_residual(left, gate, *evidence.traces(dataset, setting, m, "residual")) for gate, m in gated.items()]
    if any(drawn):
        draws.logarithmic(left)
        left.grid()
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower left", ncols=3, fontsize=7.5)
    else:
        draws.gap(left, "no SG-OIF cell of this setting has a trace of two seeds")
    right.set_xlabel("deviation of AUC-PR (points)")
    if not found:
        draws.gap(right, "no detector has two seeds in any setting")
        return figure
    names = {m: (GATES[g], draws.GATE_STYLES[g]) for g, m in gated.items()}
    order = sorted(found, key=lambda m: -np.mean(found[m]))
    for row, method in enumerate(order):
        colour, _, marker = names.get(method, ("", ("#777777", "", "D")))[1]
        right.plot(
            found[method],
            [row] * len(found[method]),
            linestyle="",
            marker=marker,
            color=colour,
            alpha=0.6,
            markersize=4,
        )
        right.plot([np.mean(found[method])] * 2, [row - 0.35, row + 0.35], color=colour, linewidth=2)
    right.set_yticks(range(len(order)), [names[m][0] if m in names else draws.name_of(m) for m in order], fontsize=7.5)
    right.set_xlim(left=0)
    right.grid(axis="x")
    right.set_title("a mark per setting", loc="left")
    return figure


def _deviations(evidence: Evidence, dataset: str, method: str) -> list[float]:
    """Standard deviation over seeds (n - 1), in points, for each setting with two seeds or more."""
    settings = evidence.config["noisy"][dataset]["settings"]
    values = [list(evidence.by_seed(dataset, s, method).values()) for s in settings]
    return [100 * float(np.std(v, ddof=1)) for v in values if len(v) > 1]


def _residual(axes, gate: str, x, values) -> bool:
    if len(values) < 2:
        return False
    colour, dashes, marker = draws.GATE_STYLES[gate]
    finite = np.isfinite(values).all(0)
    deviation = np.full(len(x), np.nan)
    deviation[finite] = values[:, finite].std(0, ddof=1)
    every = max(1, len(x) // 8)
    axes.plot(
        x,
        deviation,
        color=colour,
        linestyle=dashes,
        marker=marker,
        markersize=draws.GATE_MARKS[gate],
        linewidth=draws.GATE_WIDTHS[gate],
        markevery=every,
        label=GATES[gate] + draws.diverged(values),
    )
    return True
