"""Names beside marks and lines, moved apart so that none covers another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FONT_SIZE = 7.5
LINE_HEIGHT = 0.145  # inches of a name


def spread(positions: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move positions apart until neighbours are `gap` apart, as little as possible and in the same order.

    Args:
        positions: In any order.
        gap: Smallest distance between two.
        low: Lower end of the room.
        high: Its upper end; where the room is too small, the names share it evenly.

    Returns:
        The new positions, in the order of the old ones.
    """
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    gap = min(gap, (high - low) / max(1, len(order) - 1))
    groups: list[tuple[list[int], float]] = []  # members from below, and the middle they want
    for i in order:
        members, middle = [i], positions[i]
        while True:
            half = gap * (len(members) - 1) / 2
            middle = min(max(middle, low + half), high - half)
            if not groups:
                break
            below, below_middle = groups[-1]
            touch = below_middle + gap * (len(below) - 1) / 2 + gap
            if middle - half >= touch - 1e-12:
                break
            members = below + members
            middle = sum(positions[m] for m in members) / len(members)
            groups.pop()
        groups.append((members, middle))
    placed = [0.0] * len(positions)
    for members, middle in groups:
        for k, member in enumerate(members):
            placed[member] = middle + gap * (k - (len(members) - 1) / 2)
    return placed


def name_gap(axes: Axes) -> float:
    """Return the height of a name in the axes' own coordinate, from 0 to 1; needs a figure that is laid out."""
    return LINE_HEIGHT / (axes.get_position().height * axes.figure.get_size_inches()[1])  # type: ignore[union-attr]


def beside(
    axes: Axes,
    points: Mapping[str, tuple[float, float]],
    colours: Mapping[str, str],
    bold: str = "",
    left: bool = False,
    distance: float = 0.025,
) -> None:
    """Write names in a column beside points, with a thin line to each.

    Args:
        axes: With its final limits, in a figure that is laid out.
        points: Name -> (x, y) in data coordinates.
        colours: Name -> colour of the text.
        bold: The name that is written in bold.
        left: Whether the column is left of the points.
        distance: From the outermost point, as a share of the axes' width.
    """
    if not points:
        return
    to_axes = axes.transData + axes.transAxes.inverted()
    at = {name: to_axes.transform(point) for name, point in points.items()}
    xs = [x for x, _ in at.values()]
    column = min(xs) - distance if left else max(xs) + distance
    ys = spread([y for _, y in at.values()], name_gap(axes), 0.0, 1.0)
    for (name, (x, y)), placed in zip(at.items(), ys, strict=True):
        line: dict[str, Any] = {
            "color": "#aaaaaa",
            "linewidth": 0.5,
            "clip_on": False,
            "zorder": 1,
            "transform": axes.transAxes,
        }
        axes.plot([x, column], [y, placed], **line)
        axes.text(
            column + (-0.006 if left else 0.006), placed, name, transform=axes.transAxes, va="center",
            ha="right" if left else "left", fontsize=FONT_SIZE, color=colours.get(name, "#333333"),
            weight="bold" if name == bold else "normal",
        )  # fmt: skip
