"""The most suspicious training images by SG-OIF, with the given label and, told by the evaluation, the true one."""

from sgoif.bench.figures import _drawing as draws
from sgoif.bench.figures._evidence import Evidence, watched

PLACE = 90
TITLE = "The most suspicious images"
CAPTION = (
    "The training images with the highest SG-OIF score in one cell (one setting, first seed), best first. Given label "
    "→ true label where they differ (✓: the label is wrong, as suspected); a frame and ✗ mark a label that was right."
)
ACROSS = 8


def subjects(config) -> list[str]:
    return watched(config)


def draw(dataset: str, evidence: Evidence):
    found = evidence.gallery(dataset)
    n = len(found.get("given", ()))
    rows = -(-n // ACROSS) if n else 1
    figure, grid = draws.canvas(rows, ACROSS if n else 1, height=1.12 * rows + 0.4 if n else 2)
    if not n:
        draws.heading(figure, evidence.title(dataset))
        draws.gap(grid[0, 0], "SG-OIF has no finished cell in the setting to be shown")
        return figure
    hits = int(found["wrong"].sum())
    where = f"{evidence.title(dataset)}; {found['setting']}, seed {found['seed']}"
    draws.heading(figure, f"{where}: {hits} of the top {n} labels are wrong")
    for axes in grid.flat[n:]:
        axes.axis("off")
    names = found["classes"]
    for axes, image, given, true, wrong in zip(
        grid.flat, found["images"], found["given"], found["true"], found["wrong"], strict=False
    ):
        axes.imshow(image, cmap="gray" if image.ndim == 2 else None, interpolation="nearest")
        axes.set_xticks([])
        axes.set_yticks([])
        text = f"{names[given]} → {names[true]} ✓" if wrong else f"{names[given]} ✗"
        axes.set_title(
            text, fontsize=6.5 if max(map(len, names)) > 6 else 8, pad=2.5, color="black" if wrong else draws.RED
        )
        for side in axes.spines.values():
            side.set_visible(not wrong)
            side.set_color(draws.RED)
            side.set_linewidth(2.5)
    return figure
