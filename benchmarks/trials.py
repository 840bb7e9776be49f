"""The trials of `benchmarks.equal_tuning`: ten settings of each method, written down before any was evaluated.

The rivals are the five best without clean labels in the published tables: AUM, SCE, the last-epoch margin, the
last-epoch loss and Mixup. A margin or loss of the last epoch is the mean over a window of one epoch, so that AUM and
margin share their ten trials, and so do the mean and the last loss. The place that this leaves goes to the next in the
tables, Co-Teaching. ELR and GCE have ten trials each too. Trials of a trainer evaluate all its declared scores, which
cost nothing more.
"""

from __future__ import annotations

from typing import Any

Trial = tuple[str, dict[str, Any]]  # method, and its hyper-parameters

WINDOWS = (0.5, 1.0, 0.875, 0.75, 0.625, 0.375, 0.25, 0.1875, 0.125)

TRIALS: dict[str, list[Trial]] = {  # the first is the default
    "aum": [*(("aum", {"window": w}) for w in WINDOWS), ("margin", {})],
    "mean_loss": [*(("mean_loss", {"window": w}) for w in WINDOWS), ("loss", {})],
    "sce": [
        ("sce", {}),
        *(("sce", {"alpha": alpha}) for alpha in (0.01, 0.03, 0.3, 1.0, 3.0)),
        *(("sce", {"alpha": alpha, "log_zero": zero}) for alpha, zero in ((0.1, -6.0), (0.1, -4.0), (0.1, -2.0))),
        ("sce", {"alpha": 0.3, "log_zero": -4.0}),
    ],
    "mixup": [("mixup", {"alpha": alpha}) for alpha in (1.0, 0.1, 0.2, 0.4, 0.7, 2.0, 4.0, 8.0, 16.0, 32.0)],
    "coteaching": [
        ("coteaching", {"ramp": ramp, "warmup": warmup})
        for ramp, warmup in (
            *((0.3, 0.25), (0.3, 0.125), (0.3, 0.5), (0.1, 0.25), (0.1, 0.125)),
            *((0.1, 0.5), (0.6, 0.25), (0.6, 0.125), (0.6, 0.5), (1.0, 0.25)),
        )
    ],
    "elr": [
        ("elr", {"weight": weight, "decay": decay})
        for weight, decay in (
            *((3.0, 0.7), (1.0, 0.7), (7.0, 0.7), (3.0, 0.9), (1.0, 0.9)),
            *((7.0, 0.9), (3.0, 0.5), (0.3, 0.7), (15.0, 0.7), (3.0, 0.99)),
        )
    ],
    "gce": [("gce", {"q": q}) for q in (0.7, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 0.9, 1.0)],
    "sgoif": [
        ("sgoif", {}),
        *(("sgoif", {"temperature": temperature}) for temperature in (1.0, 2.0, 8.0)),
        *(("sgoif", {"damping": damping}) for damping in (0.1, 0.3, 3.0, 10.0)),
        *(("sgoif", {"window": window}) for window in (0.25, 1.0)),
    ],
}

# Values that one would take without any trial: no softening, the damping usual with K-FAC, all of training, and the
# influence alone, without the class model, whose form was chosen on tuning noise too.
UNTUNED: dict[str, Any] = {"temperature": 1.0, "damping": 0.1, "window": 1.0, "memory": False}


def variants(families: list[str]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return `variants` of a configuration with a variant for each trial: method -> name -> hyper-parameters."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for family in families:
        for number, (method, params) in enumerate(TRIALS[family]):
            found.setdefault(method, {})[f"trial{number}"] = params
    return found


def names(family: str) -> list[str]:
    """Return the methods of a family's trials as they are called in a configuration, `sce@trial3`."""
    return [f"{method}@trial{number}" for number, (method, _) in enumerate(TRIALS[family])]
