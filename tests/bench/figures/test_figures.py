"""Figures: every module draws from a whole run, from a run with holes and from nothing; the same bytes each time."""

import re
import struct

import numpy as np
import pytest

from sgoif.bench import figures
from sgoif.bench.data.checksums import describe
from sgoif.bench.evaluation.detection_curves import example_setting, ranking_curves, write_curves
from sgoif.bench.evaluation.evaluate import evaluate
from sgoif.bench.evaluation.summary import summarise
from sgoif.bench.figures import _style, pareto, ranks, write_figures
from sgoif.utils.files import atomic_write_json, load_npz, read_json, save_npz
from tests.helpers.fake_runs import CLASSES, GRID, N, Run, config

KINDS = [module.__name__.rsplit(".", 1)[1] for module in figures.modules()]


def full_config() -> dict:
    """With the three gates: the variants of the run differ from SG-OIF in nothing else."""
    base = config(variants={"sgoif": {"no_gate": {"gate": "none"}, "average": {"gate": "moving_average"}}})
    base["noisy"]["digits"]["methods"] += ["sgoif@average"]
    return base


def whole_run(folder) -> Run:
    """Every kind of evidence: scores by epoch, traces (one of which diverges), images."""
    run = Run(folder)
    run.fill_noisy()
    run.fill_ood()
    data = run.data / "digits"
    arrays = {
        "train_images": run.rng.integers(0, 255, (N, 8, 8)).astype(np.uint8),
        "train_ids": np.array([f"id{i:05d}" for i in range(N)]),
    }
    about = {**read_json(data / "meta.json")["arrays"], **{k: describe(v) for k, v in arrays.items()}}
    classes = [f"<{c}>" for c in range(CLASSES)]
    atomic_write_json(data / "meta.json", {"arrays": about, "classes": classes, "channels": 1})
    for name, array in arrays.items():
        np.save(data / f"{name}.npy", array)
    for setting in GRID:
        truth = load_npz(run.root / "truth" / "digits" / f"{setting}.npz")
        labels = (truth["true_labels"] + truth["wrong"]) % CLASSES
        save_npz(run.root / "labels" / "digits" / f"{setting}.npz", labels=labels, ids=truth["ids"])
    for seed in (0, 1, 2):
        for method, level in (("sgoif", 0.05), ("sgoif@no_gate", 3.0), ("sgoif@average", 0.3)):
            old = load_npz(
                run.root / f"cells/noisy/digits/n20s0/seed{seed}/{'sgoif' if '@a' in method else method}/arrays.npz"
            )
            residual = level * (1 + run.rng.random(10)) / np.arange(1, 11)
            residual[5:] = np.inf if (method, seed) == ("sgoif@no_gate", 2) else residual[5:]
            trace = {"step": np.arange(1, 11) * 5, "residual": residual, "confidence": 1 / (1 + residual)}
            trace["tolerance"] = np.ones(10)
            arrays = {**old, **{f"trace:{k}": v for k, v in trace.items()}}
            told = {"config": {"recipe": {"epochs": 3}}, "extras": {"steps": 50.0}}
            run.cell("noisy", "digits", "n20s0", seed, method, arrays, **told)
    return run


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    run, configuration = whole_run(tmp_path_factory.mktemp("whole")), full_config()
    for task, dataset in (("noisy", "digits"), ("ood", "digits7")):
        evaluate(run.root, run.data, task, dataset, configuration)
    write_curves(run.root, run.data, "digits", configuration)
    summarise(run.root, configuration)
    return run.root, configuration, write_figures(run.root, configuration)


def words(path) -> list[str]:
    """The texts of an SVG: matplotlib draws glyphs and leaves the words in comments."""
    return re.findall("<!-- (.*?) -->", path.read_text())


def said(run_dir, name: str) -> str:
    return " ".join(words(run_dir / "figures" / f"{name}.svg"))


def png_size(content: bytes) -> tuple[int, int]:
    assert content[:8] == b"\x89PNG\r\n\x1a\n" and content[12:16] == b"IHDR"
    return struct.unpack(">II", content[16:24])


def test_there_is_a_module_for_every_figure_of_the_paper_and_the_issue():
    needed = {"convergence", "reproducibility", "gating", "confidence", "curves", "pareto", "ranks", "gallery"}
    assert needed | {"detection"} <= set(KINDS)


def test_every_planned_figure_is_drawn_twice_and_nothing_else(whole):
    run_dir, configuration, paths = whole
    planned = {name for one in figures.planned(configuration) for name in one.files}
    assert {p.name for p in paths} == planned == {p.name for p in (run_dir / "figures").glob("[!.]*")}
    assert {one.kind for one in figures.planned(configuration)} == set(KINDS)
    for path in paths:
        if path.suffix == ".png":
            width, height = png_size(path.read_bytes())
            assert 1000 <= width <= 1400 and 200 <= height <= 3000


@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_run_has_no_gap(whole, kind):
    run_dir, configuration, _ = whole
    for one in figures.planned(configuration):
        if one.kind == kind:
            assert "no data" not in said(run_dir, one.name), one.name


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_in_which_nothing_worked_has_every_figure_with_its_gap_labelled(tmp_path, kind):
    configuration = full_config()
    layouts = []
    for name in configuration["tables"]:
        layout = {"kind": "", "panels": [], "title": name, "not_run": []}
        layouts.append({"table": name, "metric": "layout", "layout": layout, "setting": "", "method": "", "mean": None})
    atomic_write_json(tmp_path / "summary.json", layouts)
    paths = write_figures(tmp_path, configuration, kind)
    assert paths and all("no data" in " ".join(words(p)) for p in paths if p.suffix == ".svg")


def test_failed_and_missing_cells_are_left_out_and_the_rest_is_drawn(whole):
    run_dir, _, _ = whole  # `newcomer` failed or is missing in every setting
    assert "newcomer" in said(run_dir, "table1_detection")  # it has one seed in two settings
    at_20, at_40 = said(run_dir, "table1_curves").split("40% noise")
    assert "newcomer, 1 of 3 seeds" in at_20 and "newcomer" not in at_40
    assert "newcomer" in said(run_dir, "table1_ranks")  # told beneath, as left out
    assert "CutPaste" in said(run_dir, "table3_pareto")
    assert "1 of 3 seeds diverged" in said(run_dir, "digits_gating")


def test_the_detection_figure_names_noise_and_stand_in_and_orders_by_the_mean(whole):
    labels = words(whole[0] / "figures" / "table1_detection.svg")
    assert {"noise 20%", "noise 40%", "digits, in the place of CIFAR-10; mean of 1 to 3 seeds"} <= set(labels)
    rows = ["random", "last-epoch loss", "SG-OIF"]  # from the bottom up
    assert [label for label in labels if label in rows] == rows


def test_the_gallery_shows_given_and_true_labels_as_text(whole):
    text = said(whole[0], "digits_gallery")
    assert "of the top 32 have a wrong label" in text and "n20s0, seed 0" in text and "→" in text


def test_drawing_again_gives_the_same_bytes(whole):
    run_dir, configuration, _ = whole
    before = {p.name: p.read_bytes() for p in (run_dir / "figures").glob("table1_pareto.*")}
    again = {p.name: p.read_bytes() for p in write_figures(run_dir, configuration, "pareto")}
    assert before == {name: again[name] for name in before}


def test_without_a_summary_there_is_no_figure(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"summary\.json"):
        write_figures(tmp_path, full_config())
    assert not (tmp_path / "figures").exists()


# ------------------------------------------------------------------------------------------------ what is computed


def test_ranking_curves_against_a_ranking_by_hand():
    scores, wrong = np.array([4.0, 3.0, 3.0, 1.0]), np.array([True, False, True, False])
    curves = ranking_curves(scores, wrong)
    x = np.linspace(0, 1, 51)
    expected = np.interp(4 * x, [0, 1, 3, 4], [0, 1, 2, 2]) / 2  # the tie of two counts half for each
    assert curves["recall"] == pytest.approx(expected)
    assert curves["precision"][x <= 0.5] == pytest.approx(1.0)
    assert curves["precision"][x > 0.5] == pytest.approx(2 / 3)


def test_the_area_under_the_precision_curve_is_average_precision():
    from sklearn.metrics import average_precision_score

    rng = np.random.default_rng(0)
    wrong = np.zeros(400, dtype=bool)
    wrong[:100] = True  # the grid's 50 steps of recall are two hits each
    scores = rng.normal(size=400) + 1.5 * wrong
    area = ranking_curves(scores, wrong)["precision"][1:].mean()
    assert area == pytest.approx(average_precision_score(wrong, scores), abs=0.005)


def test_curves_hold_no_truth_but_what_a_figure_shows(whole):
    curves = read_json(whole[0] / "curves/noisy/digits.json")
    assert set(curves) == {"grid", "detectors", "traces"}
    assert max(len(v) for c in curves["detectors"] for v in c.values() if isinstance(v, list)) == 51
    diverged = [t for t in curves["traces"] if None in t["residual"]]
    assert [(t["method"], t["seed"]) for t in diverged] == [("sgoif@no_gate", 2)]
    assert curves["traces"][0]["epoch"][-1] == 3.0
    gallery = load_npz(whole[0] / "curves/noisy/digits_gallery.npz")
    assert ((gallery["labels"] != gallery["true_labels"]) == gallery["wrong"]).all()


def test_the_example_is_human_noise_where_there_is_some():
    made, human = {"kind": "class_conditional"}, {"kind": "human"}
    assert example_setting({"a": {"kind": "symmetric"}, "b": made}) == "b"
    assert example_setting({"a": made, "b": human}) == "b"


def test_pareto_keeps_what_no_other_beats():
    points = {"cheap": (1, 50), "good": (2, 90), "dear": (3, 80), "best": (4, 95), "tie": (2, 90)}
    assert pareto.pareto(points) == ["cheap", "good", "best"]
    assert pareto.pareto(points | {"sgoif_trusted": (1, 99)}) == ["cheap", "good", "best"]  # has more to go by


def test_cliques_are_the_largest_groups_within_the_difference():
    found = ranks.cliques({"a": 1.0, "b": 2.0, "c": 2.5, "d": 5.0}, 1.6)
    assert found == [(1.0, 2.5)]
    assert ranks.cliques({"a": 1.0, "b": 2.0, "c": 3.0}, 1.5) == [(1.0, 2.0), (2.0, 3.0)]
    assert ranks.cliques({"a": 1.0, "b": 3.0}, 1.5) == []


def test_every_method_looks_different():
    styles = _style.line_styles([f"m{i}" for i in range(17)] + ["sgoif"])
    assert len(set(styles.values())) == 18 and styles["sgoif"] == ("black", "-")
