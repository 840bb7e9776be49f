"""The most suspicious training images by SG-OIF, with their label and the true label that the evaluation adds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sgoif.bench.figures import _style
from sgoif.bench.figures._data import FigureData, sgoif_datasets

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PLACE = 90
TITLE = "The most suspicious images: given label → true label"
CAPTION = (
    "The training images with the highest SG-OIF score in one cell (one setting, first seed), best first. Given label "
    "→ true label where they differ (✓: the label is wrong, as suspected); a frame and ✗ mark a label that was right, "
    "a question mark one whose truth nobody knows."
)
N_COLUMNS = 8


def subjects(config: Mapping[str, Any]) -> list[str]:
    """Return the noisy datasets that SG-OIF runs on."""
    return sgoif_datasets(config)


def draw(dataset: str, data: FigureData) -> Figure | None:
    """Draw the figure of one dataset."""
    found = data.gallery(dataset)
    n = len(found.get("labels", ()))
    if not n:
        return None
    rows = -(-n // N_COLUMNS)
    figure, grid = _style.canvas(rows, N_COLUMNS, height=1.12 * rows + 0.1)
    hits = int(found["wrong"].sum())
    judged = int(found["known"].sum())
    where = f"{data.title(dataset)}; {data.setting_title(dataset, str(found['setting']))}, seed {found['seed']}"
    of = f"the top {n}" if judged == n else f"the {judged} among the top {n} whose truth is known"
    _style.subtitle(figure, f"{where}: {hits} of {of} have a wrong label")
    for axes in grid.flat[n:]:
        axes.axis("off")
    for i, axes in enumerate(grid.flat[:n]):
        example = {k: found[k][i] for k in ("labels", "true_labels", "wrong", "known")}
        text, frame = _verdict(example, found["classes"])
        _image(axes, found["images"][i], text, frame)
    return figure


def _verdict(example: Mapping[str, Any], names: np.ndarray) -> tuple[str, str | None]:
    """The text above an image, and the colour of its frame."""
    label = names[example["labels"]]
    if not example["known"]:
        return f"{label} → ?", "#999999"
    if example["wrong"]:
        return f"{label} → {names[example['true_labels']]} ✓", None
    return f"{label} ✗", _style.RED


def _image(axes: Axes, image: np.ndarray, text: str, frame: str | None) -> None:
    axes.imshow(image, cmap="gray" if image.ndim == 2 else None, interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_title(text, fontsize=8 if len(text) < 12 else 5.5, pad=2.5)
    for side in axes.spines.values():
        side.set_visible(frame is not None)
        side.set_color(frame or "none")
        side.set_linewidth(2.5)
