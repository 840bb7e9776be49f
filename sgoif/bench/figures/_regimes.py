"""AUC-PR against one property of a setting that the configuration varies: balance of classes, epochs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sgoif.bench.evaluation.table_layout import Panel
from sgoif.bench.figures import _lines, _style
from sgoif.bench.figures._data import FigureData, planned_panels, tables_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

USUAL_PROFILE = "exponential"  # of a long tail
Groups = list[tuple[str, list[tuple[float, Panel]]]]  # title, (value, panel)


@dataclass(frozen=True)
class _Point:
    """A panel with its value of a key; `rest` is all else that its setting says, `shape` a kind of long tail."""

    value: float
    shape: str
    rest: str
    panel: Panel
    is_said: bool


def tables_with(config: Mapping[str, Any], key: str) -> list[str]:
    """Return the tables whose settings have at least two values of `key` and are otherwise alike."""
    tables = tables_of(config, "noise_grid", "noise_sets", "regimes")
    return [table for table in tables if groups_by(config, planned_panels(config, table), key)]


def groups_by(config: Mapping[str, Any], panels: Sequence[Panel], key: str) -> Groups:
    """Group panels that differ in `key` alone; only groups with at least two values of it.

    A setting that does not say the key has the usual value: balanced classes, the epochs of the dataset's recipe.
    """
    points = [point for panel in panels if (point := _point(config, panel, key)) is not None]
    groups: Groups = []
    for rest in dict.fromkeys(p.rest for p in points):
        alike = [p for p in points if p.rest == rest]
        for shape in dict.fromkeys(p.shape for p in alike if p.shape) or [""]:
            chosen = [p for p in alike if p.shape in ("", shape)]
            if len({p.value for p in chosen}) > 1 and any(p.is_said for p in chosen):
                groups.append((_title(config, chosen[0].panel, shape), [(p.value, p.panel) for p in chosen]))
    return groups


def draw(table: str, data: FigureData, key: str, x_label: str, **options: Any) -> Figure | None:
    """Draw AUC-PR against `key`, one panel for each group of settings."""
    groups = groups_by(data.config, data.layout(table).panels, key)
    several = len({panel.dataset for _, points in groups for _, panel in points}) > 1  # else the subtitle names it
    titles = [words if several else words.split("\n", 1)[1] for words, _ in groups]
    lines = [_lines.quality_lines(data, table, points) for _, points in groups]
    panels = [_lines.LinePanel(words, found) for words, found in zip(titles, lines, strict=True)]
    figure = _lines.draw_panels(panels, x_label, "AUC-PR (%)", log=True, **options)
    if figure is not None:
        _style.subtitle(figure, "; ".join(dict.fromkeys(data.title(p.dataset) for _, g in groups for _, p in g)))
    return figure


def _title(config: Mapping[str, Any], panel: Panel, shape: str) -> str:
    """Dataset, noise, kind of long tail and start of the network in words."""
    spec = config["noisy"][panel.dataset]
    setting = spec["settings"][panel.setting]
    rate = setting.get("noise", setting.get("rate"))
    kind = str(setting.get("kind", "")).replace("_", "-")
    noise = f"{kind} {100 * rate:.0f}%" if rate is not None else kind
    start = setting.get("recipe", {}).get("start")
    begun = "" if start is None else "frozen features" if start.get("frozen") else "fine-tuned"
    return f"{spec.get('title', panel.dataset)}\n{', '.join(filter(None, [noise, shape, begun]))}"


def _point(config: Mapping[str, Any], panel: Panel, key: str) -> _Point | None:
    """The value of `key` ("balance" or "epochs") in a panel's setting, and everything else that the setting says.

    In the second, balanced classes are what a setting that says nothing has, and the size of the set is left out where
    the balance is compared, because a long tail has fewer images.
    """
    spec = config["noisy"][panel.dataset]
    setting = spec["settings"][panel.setting]
    recipe = dict(setting.get("recipe", {}))
    epochs = recipe.pop("epochs", spec.get("recipe", {}).get("epochs"))
    balance = setting.get("balance", 1)
    is_said = "balance" in setting if key == "balance" else "epochs" in setting.get("recipe", {})
    profile = setting.get("profile", USUAL_PROFILE) if balance != 1 else ""
    left_out = {"balance", "profile", "recipe", *(("size",) if key == "balance" else ())}
    rest: dict[str, Any] = {k: v for k, v in setting.items() if k not in left_out}
    other = {"epochs": epochs} if key == "balance" else {"balance": balance, "profile": profile}
    value, shape = (balance, profile) if key == "balance" else (epochs, "")
    if value is None:
        return None
    return _Point(float(value), shape, json.dumps([panel.dataset, rest, recipe, other], sort_keys=True), panel, is_said)
