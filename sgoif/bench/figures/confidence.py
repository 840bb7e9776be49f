"""How far SG-OIF trusts its directions over training, and what the stability gate gains over the other gates."""

import numpy as np

from sgoif.bench.figures import _style as draws
from sgoif.bench.figures._data import GATES, Evidence, watched

PLACE = 80
FROM_CURVES = True
TITLE = "Confidence and the gain in AUC-PR"
CAPTION = (
    "Left: mean confidence of the anchors at each check. Right: AUC-PR of each epoch's scores with the stability gate "
    "minus that of the other gates, seed by seed; above zero the stability gate finds more. Mean over seeds; the band "
    "holds all."
)


def subjects(config) -> list[str]:
    return watched(config)


def draw(dataset: str, evidence: Evidence):
    setting, gated = evidence.compared(dataset), evidence.gated(dataset)
    figure, ((left, right),) = draws.canvas(1, 2, height=3.0)
    draws.heading(figure, f"{evidence.title(dataset)}; {setting}")
    drawn = 0
    for gate, method in gated.items():
        x, confidence = evidence.traces(dataset, setting, method, "confidence")
        if len(x):
            draws.band(left, x, confidence, draws.GATE_STYLES[gate], GATES[gate], linewidth=draws.GATE_WIDTHS[gate])
            drawn += 1
    left.set_xlabel("epoch")
    left.set_ylabel("mean confidence of the anchors")
    if drawn:
        left.set_ylim(0, 1.03)
        left.grid()
        left.legend(fontsize=7)
    else:
        draws.gap(left, "no SG-OIF cell of this setting has a trace")
    right.set_xlabel("epoch")
    right.set_ylabel("AUC-PR gained (points)")
    _gains(right, {g: evidence.by_epoch(dataset, setting, m) for g, m in gated.items()})
    return figure


def _gains(axes, precision: dict[str, np.ndarray]) -> None:
    """Needs the same seeds and epochs with both gates, since differences are taken seed by seed."""
    ours = precision.pop("stability", np.empty((0, 0)))
    others = {g: p for g, p in precision.items() if p.shape == ours.shape and p.size}
    if not others:
        draws.gap(axes, "no other gate was run with the same seeds")
        return
    for gate, theirs in others.items():
        x = np.arange(1, ours.shape[1] + 1)
        draws.band(axes, x, 100 * (ours - theirs), draws.GATE_STYLES[gate], f"over {GATES[gate]}")
    axes.axhline(0, color="#555555", linewidth=0.8)
    axes.grid()
    axes.legend(fontsize=7)
