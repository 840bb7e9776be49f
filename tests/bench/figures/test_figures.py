"""Figures: every module draws from a whole run and from one with holes, nothing from nothing; always the same bytes."""

import html
import re
import struct

import numpy as np
import pytest

from sgoif.bench import figures
from sgoif.bench.config import load_config
from sgoif.bench.data.checksums import describe
from sgoif.bench.evaluation.detection_curves import write_curves
from sgoif.bench.evaluation.evaluate import evaluate
from sgoif.bench.evaluation.summary import summarise
from sgoif.bench.fidelity.certificate import MEASURES
from sgoif.bench.figures import _lines, _regimes, _style, write_figures
from sgoif.bench.figures._data import FigureData
from sgoif.bench.figures.comparison import ood_sets, review
from sgoif.bench.figures.method import coverage, noise_estimate
from sgoif.utils.files import atomic_write_json, load_npz, read_json, save_npz
from sgoif.utils.paths import ROOT
from tests.helpers.fake_runs import CLASSES, GRID, N, Run, config

KINDS = [module.__name__.rsplit(".", 1)[1] for module in figures.modules()]
SYMMETRIC = {"kind": "symmetric", "noise": 0.2}
REGIMES = {
    "usual": SYMMETRIC,
    "tail10": {**SYMMETRIC, "balance": 10},
    "tail50": {**SYMMETRIC, "balance": 50},
    "long": {**SYMMETRIC, "recipe": {"epochs": 30}},
}
MEASURED_REGIMES = {"loss": 1.0, "aum": 1.6, "sgoif": 1.7}


def full_config() -> dict:
    """With the three gates, whose variants differ from SG-OIF in nothing else, and a table of regimes."""
    base = config(variants={"sgoif": {"no_gate": {"gate": "none"}, "average": {"gate": "moving_average"}}})
    digits = base["noisy"]["digits"]
    digits["methods"] += ["sgoif@average"]
    digits["settings"] = {**digits["settings"], **REGIMES}
    digits["recipe"] = {"epochs": 3}
    base["tables"]["regimes"] = {
        "kind": "regimes", "title": "Regimes", "dataset": "digits", "settings": list(REGIMES),
    }  # fmt: skip
    base["fidelity"] = {
        "exact": {
            "title": "Exact", "model": "", "hidden": [4], "seeds": [0], "methods": ["random"], "examples": 40,
            "noise": 0.1, "targets": 5, "subsets": 32, "repeats": 1, "removed": 3, "removal_targets": 0,
            "certificates": {"longer": {}},
        }
    }  # fmt: skip
    return base


def add_certificates(run: Run) -> None:
    """What the certificate is worth on two problems."""
    named = dict.fromkeys(MEASURES, 0.5)
    found = {
        "coverage": [0.45, 0.75, 0.9, 0.96, 1.0], "width": 0.3, "paper_width": 5.0, "error": 0.1, "correlation": 0.99,
        "ranks": named, "means": named, "right": {name: [0.9, None] for name in MEASURES},
    }  # fmt: skip
    cell = {"status": "ok", "reason": "", "metrics": {"lds_mean": {"value": 0.1, "error": 0.1}}}
    facts = {"ceiling": None, "certificates": {"as above": found, "longer": found}}
    path = run.root / "fidelity" / "exact" / "seed0" / "cells.json"
    path.parent.mkdir(parents=True)
    atomic_write_json(path, {"facts": facts, "cells": {"random": cell}}, seal=True)


def add_parts(run: Run, setting: str, seed: int) -> None:
    """Give a cell of SG-OIF what only SG-OIF has: the parts of its score, and an estimate of the noise."""
    old = load_npz(run.root / f"cells/noisy/digits/{setting}/seed{seed}/sgoif/arrays.npz")
    parts = {f"variant:{name}": old["scores"] + run.rng.normal(size=N) for name in ("influence", "latent")}
    extras = {"estimated_noise": 0.25 + 0.01 * seed, "steps": 50.0}
    told = {"config": {"recipe": {"epochs": 3}}, "network_passes": {"train": 3 * 10**6}}
    run.cell("noisy", "digits", setting, seed, "sgoif", {**old, **parts}, extras=extras, **told)


def whole_run(folder) -> Run:
    """Every kind of evidence: scores by epoch, traces (one of which diverges), images."""
    run = Run(folder)
    run.fill_noisy()
    run.fill_noisy(settings=REGIMES, methods=MEASURED_REGIMES)
    run.fill_ood()
    add_certificates(run)
    for setting in (*GRID, *REGIMES):
        for seed in (0, 1, 2):
            add_parts(run, setting, seed)
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
    for setting in (*GRID, *REGIMES):
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
            told = {"config": {"recipe": {"epochs": 3}}, "extras": {"steps": 50.0, "estimated_noise": 0.3}}
            run.cell("noisy", "digits", "n20s0", seed, method, arrays, network_passes={"train": 3 * 10**6}, **told)
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
    """The texts of an SVG, in the order in which they are drawn."""
    return [html.unescape(text) for text in re.findall(r"<text[^>]*>(.*?)</text>", path.read_text(), re.S)]


def said(run_dir, name: str) -> str:
    return " ".join(words(run_dir / "figures" / f"{name}.svg"))


def png_size(content: bytes) -> tuple[int, int]:
    assert content[:8] == b"\x89PNG\r\n\x1a\n" and content[12:16] == b"IHDR"
    return struct.unpack(">II", content[16:24])


def test_there_is_a_module_for_every_figure_of_the_paper_and_every_one_that_readers_look_for():
    of_the_paper = {"convergence", "reproducibility", "gating", "confidence", "curves", "pareto", "ranks", "gallery"}
    looked_for = {"detection", "noise_rate", "long_tail", "training_length", "review", "cleaning", "ood_sets"}
    assert of_the_paper | looked_for | {"parts", "noise_estimate", "reliability", "coverage"} == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_every_planned_figure_is_drawn_twice_with_its_title_inside(whole, kind):
    run_dir, configuration, paths = whole
    planned = [one for one in figures.planned(configuration) if one.kind == kind]
    assert planned and [one for one in figures.drawn(run_dir, configuration) if one.kind == kind] == planned
    for one in planned:
        assert one.module.TITLE in words(run_dir / "figures" / f"{one.name}.svg")
        png = run_dir / "figures" / f"{one.name}.png"
        width, height = png_size(png.read_bytes())
        assert width == 1152 and 200 <= height <= 3000 and png.stat().st_size < 120_000
    assert {name for one in planned for name in one.files} <= {p.name for p in paths}


def test_nothing_but_the_planned_files_is_written(whole):
    run_dir, configuration, paths = whole
    planned = {name for one in figures.planned(configuration) for name in one.files}
    assert {p.name for p in paths} == planned == {p.name for p in (run_dir / "figures").glob("[!.]*")}


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_in_which_nothing_worked_has_empty_files_and_shows_no_figure(tmp_path, kind):
    configuration = full_config()
    layouts = []
    for name in configuration["tables"]:
        layout = {"kind": "", "panels": [], "title": name, "not_run": []}
        layouts.append({"table": name, "metric": "layout", "layout": layout, "setting": "", "method": "", "mean": None})
    atomic_write_json(tmp_path / "summary.json", layouts)
    paths = write_figures(tmp_path, configuration, kind)
    assert paths and all(path.read_bytes() == b"" for path in paths)
    assert figures.drawn(tmp_path, configuration) == []


def test_regimes_are_planned_where_settings_carry_them_and_nowhere_else():
    usual = {one.kind for one in figures.planned(config())}
    assert not usual & {"long_tail", "training_length"} and "noise_rate" in usual
    names = {one.name for one in figures.planned(full_config())}
    assert {"regimes_long_tail", "regimes_training_length"} <= names and "table1_long_tail" not in names


def test_a_regime_is_drawn_against_its_own_value_from_the_usual_one_on(whole):
    run_dir, configuration, _ = whole
    tail = words(run_dir / "figures" / "regimes_long_tail.svg")
    first = tail.index("1")
    assert tail[first : first + 3] == ["1", "10", "50"] and "SG-OIF" in tail
    length = words(run_dir / "figures" / "regimes_training_length.svg")
    assert [w for w in length if w in ("3", "30")] == ["3", "30"] and "symmetric 20%" in " ".join(length)
    panels = _regimes.planned_panels(configuration, "regimes")
    ((title, points),) = _regimes.groups_by(configuration, panels, "balance")
    assert [value for value, _ in points] == [1.0, 10.0, 50.0] and title == "digits\nsymmetric 20%, exponential"


def test_the_shipped_regimes_have_a_panel_for_every_noise_and_shape_of_tail():
    shipped = load_config(ROOT / "configs" / "regimes.yaml", skip_missing=False)
    panels = _regimes.planned_panels(shipped, "regimes")
    tails = _regimes.groups_by(shipped, panels, "balance")
    assert len({title for title, _ in tails}) == 10  # four noises x two shapes, two of them on frozen features too
    by_title = {title.split("\n")[1]: sorted(value for value, _ in points) for title, points in tails}
    assert by_title["symmetric 20%, exponential"] == by_title["human, exponential"] == [1, 10, 50, 100]
    assert by_title["symmetric 20%, step"] == [1, 10, 100] and by_title["human, step"] == [1, 50]
    assert by_title["class-conditional 40%, exponential, frozen features"] == [1, 50]
    lengths = _regimes.groups_by(shipped, panels, "epochs")
    assert [sorted(v for v, _ in points) for _, points in lengths] == [[10, 30]] * 4 + [[100, 200]] * 2
    usual = config()
    assert not [t for key in ("balance", "epochs") for t in _regimes.tables_with(usual, key)]


def test_failed_and_missing_cells_are_left_out_and_the_rest_is_drawn(whole):
    run_dir, _, _ = whole  # `newcomer` failed or is missing in every setting
    assert "newcomer" in said(run_dir, "table1_detection")  # it has one seed in two settings
    assert "missing: newcomer" in said(run_dir, "table1_curves")
    assert "newcomer" in said(run_dir, "table1_ranks")  # told beneath, as left out
    assert "not in every setting: CutPaste" in said(run_dir, "table3_pareto")
    assert "1 of 3 seeds diverged" in said(run_dir, "digits_gating")


def test_the_detection_figure_names_noise_and_stand_in_and_orders_by_the_mean(whole):
    labels = words(whole[0] / "figures" / "table1_detection.svg")
    assert {"noise 20%", "noise 40%", "sparsity 0.4"} <= set(labels) and "random" not in labels
    assert "digits, in the place of CIFAR-10; mean of 1 to 3 seeds" in labels
    rows = ["last-epoch loss", "SG-OIF"]  # from the bottom up
    assert [label for label in labels if label in rows] == rows


def test_error_bars_hold_all_seeds(whole):
    data = FigureData(whole[0], whole[1])
    points = [(0.0, panel) for panel in data.layout("table1").panels[-1:]]  # all that ran there have all seeds
    line = _lines.quality_lines(data, "table1", points)["aum"]
    values = data.numbers("table1", "auc_pr")["digits", points[0][1].setting, "aum"]["values"]
    assert (line.low[0], line.high[0]) == (100 * min(values), 100 * max(values)) and line.low < line.mean < line.high


def test_methods_are_compared_over_the_seeds_that_all_of_them_have(whole):
    """In the first setting one method has a single seed; `random` is not asked for its seeds."""
    data = FigureData(whole[0], whole[1])
    first, last = ((p.dataset, p.setting) for p in (data.layout("table1").panels[i] for i in (0, -1)))
    every, common = data.numbers("table1", "auc_pr"), data.compared("table1", "auc_pr")
    (seed,) = every[*first, "newcomer"]["seeds"]
    of_seed = dict(zip(every[*first, "aum"]["seeds"], every[*first, "aum"]["values"], strict=True))
    assert len(of_seed) == 3 and common[*first, "aum"]["mean"] == of_seed[seed] != every[*first, "aum"]["mean"]
    assert common[*first, "aum"]["n_seeds"] == 1 and common[*last, "aum"] == every[*last, "aum"]
    assert not any(method == "random" for _, _, method in common)


def test_precision_among_the_reviewed_is_recall_times_wrong_over_reviewed(whole):
    data = FigureData(whole[0], whole[1])
    panel = data.layout("table1").panels[-1]
    line = review._precision(data, "table1", [panel])["aum"]
    truth = load_npz(whole[0] / f"truth/digits/{panel.setting}.npz")["wrong"]
    expected = []
    for seed in (0, 1, 2):
        scores = load_npz(whole[0] / f"cells/noisy/digits/{panel.setting}/seed{seed}/aum/arrays.npz")["scores"]
        expected.append(100 * truth[np.argsort(-scores)[: N // 10]].mean())
    assert line.x == [1, 5, 10] and line.mean[2] == pytest.approx(np.mean(expected))


def test_estimates_are_what_sgoif_says_and_what_others_remove(whole):
    data = FigureData(whole[0], whole[1])
    assert noise_estimate.estimates(data, "digits", "n40s0", "sgoif") == pytest.approx([25, 26, 27])
    removed = [
        100 * load_npz(whole[0] / f"cells/noisy/digits/n40s0/seed{seed}/loss/arrays.npz")["remove"].mean()
        for seed in (0, 1, 2)
    ]
    assert noise_estimate.estimates(data, "digits", "n40s0", "loss") == pytest.approx(removed)


def test_stand_in_ood_sets_carry_a_mark_in_the_heat_map(whole, monkeypatch):
    text = words(whole[0] / "figures" / "table3_ood_sets.svg")
    assert {"near: digits789", "far: photos", "ID: digits 0-6"} <= set(text)
    assert not any("stands in" in w for w in text)
    monkeypatch.setattr("sgoif.bench.figures.comparison.ood_sets.set_title", lambda name: f"{name}*")
    data = FigureData(whole[0], whole[1])
    figure = ood_sets.draw("table3", data)
    assert "stands in for the official set" in _style._AROUND[figure].footnote
    _style.save(figure, whole[0] / "unused", "")


def test_the_gallery_shows_given_and_true_labels_as_text(whole):
    text = said(whole[0], "digits_gallery")
    assert "of the top 32 have a wrong label" in text and "20%, sparsity 0.0, seed 0" in text and "→" in text


def test_drawing_again_gives_the_same_bytes(whole):
    run_dir, configuration, _ = whole
    before = {p.name: p.read_bytes() for p in (run_dir / "figures").glob("table1_ranks.*")}
    again = {p.name: p.read_bytes() for p in write_figures(run_dir, configuration, "ranks")}
    assert before == {name: again[name] for name in before}


def test_without_a_summary_there_is_no_figure(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"summary\.json"):
        write_figures(tmp_path, full_config())
    assert not (tmp_path / "figures").exists()


def test_curves_hold_no_truth_but_what_a_figure_shows(whole):
    curves = read_json(whole[0] / "curves/noisy/digits.json")
    assert set(curves) == {"grid", "detectors", "traces", "reliability"}
    assert max(len(v) for c in curves["detectors"] for v in c.values() if isinstance(v, list)) == 51
    diverged = [t for t in curves["traces"] if None in t["residual"]]
    assert [(t["method"], t["seed"]) for t in diverged] == [("sgoif@no_gate", 2)]
    assert curves["traces"][0]["epoch"][-1] == 3.0
    gallery = load_npz(whole[0] / "curves/noisy/digits_gallery.npz")
    assert ((gallery["labels"] != gallery["true_labels"]) == gallery["wrong"]).all()


def test_the_coverage_of_one_problem_has_one_panel(whole):
    run_dir, configuration, _ = whole
    both = said(run_dir, "exact_coverage")
    assert "coverage of the 95% interval (%)" in both and "1 seed of each problem" in both
    path = run_dir / "fidelity" / "exact" / "seed0" / "cells.json"
    cells = read_json(path)
    only = {
        **cells,
        "facts": {**cells["facts"], "certificates": {"as above": cells["facts"]["certificates"]["longer"]}},
    }
    spec = {**configuration["fidelity"]["exact"], "certificates": {}}
    atomic_write_json(path, only, seal=True)
    try:
        data = FigureData(run_dir, {**configuration, "fidelity": {"exact": spec}})
        figure = coverage.draw("exact", data)
    finally:
        atomic_write_json(path, cells, seal=True)
    assert len(figure.axes) == 1 and _style._AROUND[figure].subtitle == "Exact; 1 seed"
    _style.save(figure, run_dir / "unused", "")


def test_words_that_all_regimes_share_are_said_once():
    shipped = load_config(ROOT / "configs" / "regimes.yaml", skip_missing=False)
    data = FigureData.__new__(FigureData)
    data.config = shipped
    assert data.title("cifar10") == "CIFAR-10, images from 25,000"
    assert data.setting_title("cifar10", "b10_sym20") == "10 : 1 exponential, sym. 20%, 10,000 images"
    frozen = data.setting_title("cifar10", "frozen_sym20")
    assert frozen == "sym. 20%, 10,000 images, 10 epochs, frozen efficientnet_lite0"


def test_the_best_other_method_may_be_a_variant_that_is_a_row_but_none_of_ours():
    data = FigureData.__new__(FigureData)
    methods = ["aum", "aum@all", "sgoif", "sgoif@paper", "sgoif_trusted", "random", "loss"]
    data.config = {"noisy": {"d": {"methods": methods}}}
    data.measured = lambda dataset: {("s", m, "", "auc_pr"): {(0, None): 0.5} for m in methods[:-1]}
    assert data.rivals("d", "auc_pr") == ["aum", "aum@all"], "loss was not run"
