"""What the helpers of figures draw: ticks that can be read, marks that exist, no empty place."""

from types import SimpleNamespace

import numpy as np
import pytest

from sgoif.bench.figures import _labels, _lines, _style
from sgoif.bench.figures.comparison import ood_sets, pareto, ranks, review
from sgoif.bench.figures.method import gating, noise_estimate


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


def test_a_logarithmic_axis_does_not_magnify_small_differences(canvas):
    _, grid = canvas()
    grid[0, 0].plot([0, 1], [0.033, 0.034])
    _style.logarithmic(grid[0, 0])
    low, high = grid[0, 0].get_ylim()
    assert high / low == pytest.approx(10) and low < 0.033 < 0.034 < high


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


def test_a_name_points_at_the_furthest_mark():
    assert noise_estimate.furthest_from(70.0, np.array([45.0, 45.5, 76.0])) == 45.0


def test_the_legend_of_costs_names_what_is_drawn(canvas):
    points = {"sgoif": (1.0, 95.0), "aum": (1.1, 90.0)}
    for front, told in ((["sgoif"], False), (["aum", "sgoif"], True)):
        figure, _ = canvas()
        pareto._legend(figure, points, front, "noisy")
        assert ("no other is better and cheaper" in [h.get_label() for h in _style._AROUND[figure].handles]) == told


def test_ranks_without_a_test_are_rows_with_the_best_at_the_top(canvas):
    _, grid = canvas()
    ranks._rows(grid[0, 0], {"SG-OIF": 1.2, "b": 2.0, "c": 2.8})
    assert [label.get_text() for label in grid[0, 0].get_yticklabels()] == ["c", "b", "SG-OIF"]
    assert [text.get_text() for text in grid[0, 0].texts] == ["2.8", "2.0", "1.2"]


def inside(figure, texts) -> bool:
    """Whether texts are drawn within the figure and none covers another."""
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in texts]
    whole = figure.bbox
    apart = all(not a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[i + 1 :])
    return apart and all(b.x0 >= whole.x0 and b.x1 <= whole.x1 for b in boxes)


@pytest.mark.parametrize("n", [5, 24])
def test_names_and_numbers_of_a_rank_diagram_fit(canvas, n):
    figure, grid = canvas()
    figure.set_size_inches(_style.FIGURE_WIDTH, 1.0 + 0.2 * (n + 1))
    ranks._diagram(grid[0, 0], {f"a long name of a method, {i}": i + 1.0 for i in range(n)}, 2.0)
    assert inside(figure, grid[0, 0].texts)


def test_names_of_the_cheapest_methods_stand_right_of_the_axis_and_the_best_of_many_are_named(canvas):
    figure, grid = canvas()
    names = {"a name that is as long as the longest of all methods": (1.0, 90.0), "b": (5.0, 80.0)}
    axes = grid[0, 0]
    pareto._limits(axes, names, list(names)[:1])
    _style.lay_out(figure)
    _labels.beside(axes, dict([*names.items()][:1]), {}, left=True, distance=0.02)
    figure.canvas.draw()
    assert axes.texts[0].get_window_extent().x0 >= axes.get_window_extent().x0
    points = {f"m{i}": (1.0, float(i)) for i in range(40)} | {"sgoif": (1.0, -1.0)}
    named = pareto._named(list(points), points, ["m3"])
    assert len(named) == pareto.MAX_NAMES and {"sgoif", "m3", "m39"} <= set(named) and "m4" not in named


def test_methods_that_all_cost_the_same_have_no_figure_of_costs(monkeypatch):
    data = type("Data", (), {"config": {"tables": {"t": {"kind": "ood"}}}})()
    monkeypatch.setattr(pareto, "_points", lambda *_: ({"knn": (1.0, 90.0), "mls": (1.05, 80.0)}, []))
    assert pareto.draw("t", data) is None


def test_long_names_go_into_a_legend_beside_several_panels(canvas):
    line = _lines.Line([0, 1], [90, 95], [90, 95], [90, 95])
    for method, in_legend in (("aum", False), ("sgoif@paper", True)):
        panels = [_lines.LinePanel(str(i), {"sgoif": line, method: line}) for i in range(2)]
        figure = _lines.draw_panels(panels, "x", "y")
        assert bool(_style._AROUND[figure].handles) == in_legend


def test_a_small_difference_between_gates_looks_small(canvas):
    _, grid = canvas()
    gating._final_scores(grid[0, 0], {"sgoif": np.array([0.99849]), "a": np.array([0.99840])}, {"sgoif": "stability"})
    low, high = grid[0, 0].get_xlim()
    assert high - low >= gating.MIN_SPAN - 1e-9 and low < 99.840 < 99.849 < high < 100.1


def test_a_legend_of_long_names_has_two_columns(canvas):
    line = _lines.Line([0, 1], [90, 95], [90, 95], [90, 95])
    for method, columns in (("aum", 3), ("sgoif@paper", 2)):
        panels = [_lines.LinePanel(str(i), {"sgoif": line, method: line}) for i in range(3)]
        figure = _lines.draw_panels(panels, "x", "y", own_axes=True)
        assert _style._AROUND[figure].columns == columns


@pytest.mark.parametrize(
    ("seeds", "told"),
    [
        ([[1, 1], [1, 1]], "one seed"),
        ([[3, 3], [3, 3]], "bars hold all seeds"),
        ([[3, 3], [1, 1]], "bars hold all seeds, points without a bar are of one seed"),
    ],
)
def test_the_footnote_of_lines_tells_what_bars_there_are(canvas, seeds, told):
    ours, aum = (_lines.Line([0, 1], [90, 95], [89, 94], [91, 96], n) for n in seeds)
    figure = _lines.draw_panels([_lines.LinePanel("", {"sgoif": ours, "aum": aum})], "x", "y")
    assert _style._AROUND[figure].footnote == told


@pytest.mark.parametrize("values", [[0.9], [0.9, 0.8, 0.7]])
def test_lines_know_the_number_of_their_seeds(values):
    panel = SimpleNamespace(dataset="d", setting="s", methods=["sgoif"])
    record = {("d", "s", "sgoif"): {"mean": np.mean(values), "values": values}, ("d", "s", ""): {"mean": 0.2}}
    data = SimpleNamespace(numbers=lambda *_: record, compared=lambda *_: record)
    assert _lines.quality_lines(data, "t", [(0.2, panel)])["sgoif"].seeds == [len(values)]
    assert review._precision(data, "t", [panel])["sgoif"].seeds == [len(values)] * len(review.SHARES)


def test_the_number_of_seeds_in_words():
    said = {(1, 1): "one seed", (3, 3): "mean of 3 seeds", (1, 3, 2): "mean of 1 to 3 seeds"}
    assert {counts: _style.seeds_in_words(counts) for counts in said} == said


@pytest.mark.parametrize(("n", "told"), [(1, "AUROC (%), one seed"), (3, "AUROC (%), mean of 3 seeds")])
def test_a_heat_map_tells_its_seeds(canvas, n, told):
    panel = SimpleNamespace(dataset="d", setting="clean", title="D", methods=["msp"], near=["mnist"], far=[])
    record = {("d", "clean", "msp"): {"mean": 0.9, "n_seeds": n}}
    data = SimpleNamespace(layout=lambda _: SimpleNamespace(panels=[panel]), numbers=lambda *_: record)
    assert _style._AROUND[ood_sets.draw("t", data)].subtitle == told


def test_the_footnote_of_lines_does_not_say_that_a_sample_is_all_clean_labels(canvas):
    line = _lines.Line([0, 1], [90, 95], [90, 95], [90, 95], [1, 1])
    notes = {}
    for method in ("fastif", "aum"):
        figure = _lines.draw_panels([_lines.LinePanel("", {"sgoif": line, method: line})], "x", "y")
        notes[method] = _style._AROUND[figure].footnote
    assert notes == {
        "fastif": "one seed; †: is given clean labels that were set aside, all of them or a sample",
        "aum": "one seed",
    }
