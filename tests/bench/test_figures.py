"""Figures of a hand-made summary: written, the same each time, and drawn when cells failed or are missing."""

import re
import struct

import pytest

from sgoif.bench.figures import write_figures
from sgoif.bench.files import atomic_write_json

SETTINGS = {
    f"n{n}s{s}": {"kind": "class_conditional", "noise": n / 100, "sparsity": s / 10} for n in (20, 40) for s in (0, 4)
}
CONFIG = {
    "noisy": {"digits": {"title": "digits", "stands_for": "CIFAR-10", "settings": SETTINGS, "seeds": [0, 1]}},
    "tables": {"table1": {"kind": "noise_grid", "dataset": "digits"}, "table3": {"kind": "ood"}},
}
MEANS = {"random": 0.2, "aum": 0.7, "sgoif": 0.8, "newcomer": 0.5}


def record(method, setting, metric="auc_pr", mean=None, table="table1", **more):
    fate = {"std": None, "status": "ok", "variant": ""}
    return {"table": table, "method": method, "setting": setting, "metric": metric, "mean": mean, **fate, **more}


def summary() -> list[dict]:
    """Every method in every setting, among records that do not belong in the figure."""
    records = [record("", "", "layout")]
    for setting, noise in SETTINGS.items():
        records.append(record("", setting, "base_rate", noise["noise"]))
        for method, mean in MEANS.items():
            records.append(record(method, setting, mean=mean - noise["noise"] / 4, std=0.01))
            records.append(record(method, setting, "p_at_1", 0.999))
            records.append(record(f"{method}@odd", setting, mean=0.9, table="ablation"))
    return records


def draw(folder, records):
    """The files of the figures as {name: bytes}; in order of writing."""
    atomic_write_json(folder / "summary.json", records)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in write_figures(folder, CONFIG)}


def png_size(content: bytes) -> tuple[int, int]:
    assert content[:8] == b"\x89PNG\r\n\x1a\n" and content[12:16] == b"IHDR"
    return struct.unpack(">II", content[16:24])


def labels(files) -> list[str]:
    """The texts of the SVG, rows from the bottom up: matplotlib draws glyphs and leaves the words in comments."""
    return re.findall("<!-- (.*?) -->", files["figures/table1_detection.svg"].decode())


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    return draw(tmp_path_factory.mktemp("run"), summary())


def test_a_grid_gives_a_png_and_an_svg_and_other_tables_nothing(drawn):
    assert list(drawn) == ["figures/table1_detection.png", "figures/table1_detection.svg"]


def test_the_png_has_a_sensible_size(drawn):
    width, height = png_size(drawn["figures/table1_detection.png"])
    assert 1000 <= width <= 2000 and 300 <= height <= width
    assert 5_000 < len(drawn["figures/table1_detection.png"]) < 500_000


def test_the_figure_names_methods_noise_and_the_stand_in(drawn):
    said = labels(drawn)
    assert {"noise 20%", "noise 40%", "digits, in the place of CIFAR-10; mean of 2 seeds"} <= set(said)
    assert not any("@odd" in label for label in said)  # the records of other tables are not part of it


def test_methods_stand_in_the_order_of_their_means(drawn):
    rows = ["random", "newcomer", "mean margin (AUM)", "SG-OIF"]  # from the bottom up
    assert [label for label in labels(drawn) if label in rows] == rows


def test_drawing_again_gives_the_same_bytes(drawn, tmp_path):
    assert draw(tmp_path, summary()) == drawn
    assert draw(tmp_path, summary()) == drawn  # over the old files
    assert not [p for p in (tmp_path / "figures").iterdir() if p.suffix not in (".png", ".svg", ".sha256")]


def test_failed_and_missing_cells_are_left_out_and_the_rest_is_drawn(drawn, tmp_path):
    records = summary()
    for r in records:
        if r["method"] == "newcomer":  # failed everywhere
            r.update(mean=None, std=None, status="failed", reason="the loss is not finite")
        elif r["method"] == "aum" and r["setting"] == "n40s4":  # one seed
            r.update(std=None, status="partial")
    gone = [("random", "n20s0"), ("", "n20s4"), ("", "n20s0")]  # a cell, and a level without a base rate
    files = draw(tmp_path, [r for r in records if (r["method"], r["setting"]) not in gone])
    assert {"random", "mean margin (AUM)", "SG-OIF"} <= set(labels(files)) and "newcomer" not in labels(files)
    assert png_size(files["figures/table1_detection.png"])[1] < png_size(drawn["figures/table1_detection.png"])[1]


@pytest.mark.filterwarnings("ignore:No artists with labels")
def test_a_run_in_which_nothing_worked_still_has_its_figure(tmp_path):
    records = [{**r, "mean": None, "std": None, "status": "failed"} for r in summary() if r["metric"] == "auc_pr"]
    files = draw(tmp_path, records)
    assert len(files) == 2 and all(len(content) > 1000 for content in files.values())


def test_without_a_summary_there_is_no_figure(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"summary\.json"):
        write_figures(tmp_path, CONFIG)
    assert not (tmp_path / "figures").exists()
