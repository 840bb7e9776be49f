"""What the helpers of figures draw: ticks that can be read, marks that exist, no empty place."""

import numpy as np
import pytest

from sgoif.bench.figures import _lines, _style
from sgoif.bench.figures.comparison import pareto, ranks
from sgoif.bench.figures.method import noise_estimate


@pytest.fixture
def canvas():
    import matplotlib.pyplot as plt

    with _style.paper():
        yield lambda *shape: _style.canvas(*shape)
        plt.close("all")


def ticks(axis) -> list[str]:
    """The labels of an axis that are drawn within its limits, minor ones included."""
    low, high = axis.get_view_interval()
    both = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
    return [t.label1.get_text() for t in both if low <= t.get_loc() <= high and t.label1.get_text()]


@pytest.mark.parametrize("which", ["x", "y"])
def test_a_short_logarithmic_axis_has_plain_numbers_and_several(canvas, which):
    figure, grid = canvas()
    values, rows = [0.07, 0.12, 0.6], [0, 1, 2]
    grid[0, 0].plot(*((values, rows) if which == "x" else (rows, values)))
    _style.logarithmic(grid[0, 0], which)
    figure.canvas.draw()
    assert ticks(getattr(grid[0, 0], f"{which}axis")) == ["0.1", "0.2", "0.5"]


def test_a_long_logarithmic_axis_has_powers_of_ten(canvas):
    figure, grid = canvas()
    grid[0, 0].plot([0, 1], [0.005, 20])
    _style.logarithmic(grid[0, 0])
    figure.canvas.draw()
    assert ticks(grid[0, 0].yaxis) == ["0.01", "0.1", "1", "10"]


def test_numbers_that_differ_little_are_written_out(canvas):
    figure, grid = canvas()
    grid[0, 0].plot([99.84, 99.849], [0, 1])
    figure.canvas.draw()
    assert grid[0, 0].xaxis.get_offset_text().get_text() == "" and "99.840" in ticks(grid[0, 0].xaxis)


def test_epochs_are_whole(canvas):
    figure, grid = canvas()
    grid[0, 0].plot([1, 20], [0, 1])
    _style.epoch_axis(grid[0, 0])
    figure.canvas.draw()
    assert all(label.isdigit() for label in ticks(grid[0, 0].xaxis))


@pytest.mark.parametrize(("n", "shape"), [(3, (1, 3)), (4, (1, 4)), (5, (2, 3)), (9, (3, 3))])
def test_panels_leave_few_places_empty(canvas, n, shape):
    panels = [_lines.LinePanel(str(i), {"sgoif": _lines.Line([0, 1], [90, 95], [90, 95], [90, 95])}) for i in range(n)]
    figure = _lines.draw_panels(panels, "x", "y", own_axes=True)
    assert figure.axes[0].get_gridspec().get_geometry() == shape


def test_a_name_points_at_a_mark():
    assert noise_estimate.nearest_to_mean(np.array([45.0, 45.5, 76.0])) == 45.5


def test_the_legend_of_costs_names_what_is_drawn(canvas):
    points = {"sgoif": (1.0, 95.0), "aum": (1.1, 90.0)}
    for front, told in ((["sgoif"], False), (["aum", "sgoif"], True)):
        figure, _ = canvas()
        pareto._legend(figure, points, front, "noisy")
        assert ("no other is better and cheaper" in [h.get_label() for h in _style._AROUND[figure].handles]) == told


def test_ranks_without_a_test_keep_no_place_for_it(canvas):
    tops = []
    for difference in (None, 0.5):
        _, grid = canvas()
        ranks._diagram(grid[0, 0], {"a": 1.0, "b": 2.0, "c": 3.0}, difference)
        tops.append(max(t.get_position()[1] for t in grid[0, 0].texts) - grid[0, 0].get_ylim()[1])
    assert min(tops) > -1.2
