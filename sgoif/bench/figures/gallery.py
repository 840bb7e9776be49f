"""The most suspicious training images by SG-OIF, with the given label and, told by the evaluation, the true one."""

from sgoif.bench.figures import _style as draws
from sgoif.bench.figures._data import Evidence, watched

PLACE = 90
FROM_CURVES = True
TITLE = "The most suspicious images"
CAPTION = (
    "The training images with the highest SG-OIF score in one cell (one setting, first seed), best first. Given label "
    "→ true label where they differ (✓: the label is wrong, as suspected); a frame and ✗ mark a label that was right, "
    "a question mark one whose truth nobody knows."
)
ACROSS = 8


def subjects(config) -> list[str]:
    return watched(config)


def draw(dataset: str, evidence: Evidence):
    found = evidence.gallery(dataset)
    n = len(found.get("labels", ()))
    rows = -(-n // ACROSS) if n else 1
    figure, grid = draws.canvas(rows, ACROSS if n else 1, height=1.12 * rows + 0.4 if n else 2)
    if not n:
        draws.heading(figure, evidence.title(dataset))
        draws.gap(grid[0, 0], "SG-OIF has no finished cell in the setting to be shown")
        return figure
    hits, judged = int(found["wrong"].sum()), int(found["known"].sum())
    where = f"{evidence.title(dataset)}; {found['setting']}, seed {found['seed']}"
    of = f"the top {n}" if judged == n else f"the {judged} among the top {n} whose truth is known"
    draws.heading(figure, f"{where}: {hits} of {of} have a wrong label")
    for axes in grid.flat[n:]:
        axes.axis("off")
    for i, axes in enumerate(grid.flat[:n]):
        _picture(
            axes,
            found["images"][i],
            *_verdict({k: found[k][i] for k in ("labels", "true_labels", "wrong", "known")}, found["classes"]),
        )
    return figure


def _verdict(example, names) -> tuple[str, str | None]:
    """The words above a picture, and the colour of its frame."""
    label = names[example["labels"]]
    if not example["known"]:
        return f"{label} → ?", "#999999"
    return (f"{label} → {names[example['true_labels']]} ✓", None) if example["wrong"] else (f"{label} ✗", draws.RED)


def _picture(axes, image, text: str, frame: str | None) -> None:
    axes.imshow(image, cmap="gray" if image.ndim == 2 else None, interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_title(text, fontsize=8 if len(text) < 12 else 5.5, pad=2.5)
    for side in axes.spines.values():
        side.set_visible(frame is not None)
        side.set_color(frame or "none")
        side.set_linewidth(2.5)
