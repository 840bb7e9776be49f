"""The table of regimes: a column a cell, AUC-PR and estimated against true wrong labels; and its configurations."""

from itertools import pairwise

import pytest

from sgoif.bench.config import load_config
from sgoif.bench.evaluation.metric_record import Subject, metrics_file
from sgoif.bench.evaluation.regime_words import describe_regime, without_shared_words
from sgoif.bench.evaluation.summary import summarise
from sgoif.bench.evaluation.table_layout import Panel
from sgoif.bench.tables import build_tables
from sgoif.bench.tables.formats.markdown import to_markdown
from sgoif.bench.tables.kinds.regimes import _cells, _compared_in_words
from sgoif.utils.files import atomic_write_json
from sgoif.utils.paths import ROOT

RATES = {"sgoif": 0.9, "aum": 0.8}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """The table of the digits: two methods with made-up numbers, of which SG-OIF calls a quarter too many wrong."""
    folder = tmp_path_factory.mktemp("run")
    config = load_config(ROOT / "configs" / "regimes_digits.yaml")
    spec = config["noisy"]["digits_regimes"]
    spec["methods"] = list(RATES)
    records = []
    for setting in spec["settings"]:
        records.append(Subject("noisy", "digits_regimes", setting, None, "").record("base_rate", 0.2))
        for method, value in RATES.items():
            cell = Subject("noisy", "digits_regimes", setting, 0, method)
            records.append(cell.record("auc_pr", value))
            if method == "sgoif":
                records.append(cell.record("removal_count_error", 0.25))
    atomic_write_json(metrics_file(folder, "noisy", "digits_regimes"), records)
    (built,) = build_tables(summarise(folder, config))
    return built


def test_every_cell_is_a_row_under_its_regime_and_what_all_share_is_said_once(table):
    block = table.blocks[1]
    assert block.title == "AUC-PR (%)" and "All cells: Digits." in table.caption
    cells = [(row.group, row.title) for row in block.rows]
    assert len(cells) == len(set(cells)) == 21 and not any("Digits" in group for group, _ in cells)
    assert cells[3] == ("10 : 1 exponential, 560 images", "sym. 20%")
    assert ("560 images, adamw, constant", "sym. 20%") in cells
    assert cells[-1] == ("560 images, images from 700, fine-tuned", "class-cond. 40%")
    assert len({group for group, _ in cells}) == 1 + sum(a[0] != b[0] for a, b in pairwise(cells))
    columns = [column.title for column in block.columns]
    assert columns == ["SG-OIF", "SG-OIF less the best plain score", "mean margin (AUM)", "base rate"]
    for row in block.rows:
        assert [entry.mean for entry in row.entries] == pytest.approx([0.9, 0.1, 0.8, 0.2])
        assert [entry.mark for entry in row.entries] == ["best", "", "", ""]  # of the row


def test_cells_of_one_kind_of_noise_stand_by_its_rate():
    rates = (0.01, 0.25, 0.05, 0.5)  # as their names are sorted: noisy1, noisy25, noisy5, noisy50
    panels = [Panel("noisy", "d", f"noisy{r}", f"Photos, published {r:.0%}", kind="published", noise=r) for r in rates]
    assert [cell.panel.noise for cell in _cells(panels)[1]] == sorted(rates)


def test_the_share_called_wrong_stands_beside_the_true_one(table):
    block = table.blocks[2]
    assert block.title == "Labels called wrong (%)" and len(block.rows) == 21
    assert [column.title for column in block.columns] == ["true share", "SG-OIF"]  # no rule of its own, no column
    for row in block.rows:
        assert [entry.mean for entry in row.entries] == pytest.approx([0.2, 0.25])


def test_mean_and_rank_are_over_all_cells(table):
    first = table.blocks[0]
    assert first.title == "All cells: AUC-PR (%)"
    assert {row.method: row.entries[0].mean for row in first.rows} == pytest.approx(RATES)
    text = to_markdown(table)
    assert "| SG-OIF" in text and "Base rate" in text


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"kind": "human", "column": "worse_label"}, "X, human worse label"),
        ({"kind": "asymmetric", "rate": 0.4, "balance": 50, "profile": "step"}, "X, 50 : 1 step, pair 40%"),
        ({"kind": "class_conditional", "noise": 0.4, "balance": 1, "size": 50}, "X, 1 : 1, class-cond. 40%, 50 images"),
        ({"kind": "symmetric", "rate": 0.2, "recipe": {"epochs": 9, "model": "m"}}, "X, sym. 20%, 9 epochs, m"),
        ({"kind": "symmetric", "rate": 0.2, "recipe": {"lr": 1.5}}, "X, sym. 20%, learning rate 1.5"),
        ({"kind": "clean", "recipe": {"model": "timm:tf_a@96", "start": {"frozen": True}}}, "X, clean, frozen a"),
        ({"kind": "clean", "recipe": {"start": {"weights": "w"}}}, "X, clean, fine-tuned"),
        ({"kind": "clean", "images": {"from": 5, "to": 1000}}, "X, clean, images from 5 to 1,000"),
    ],
)  # fmt: skip
def test_a_cell_is_described_by_what_distinguishes_it(properties, words):
    assert describe_regime("X", properties) == words


def test_shared_words_are_taken_out_where_something_is_left():
    titles = ["X, 1 : 1, sym. 20%, 10,000 images, images from 5", "X, pair 40%, images from 5"]
    assert without_shared_words(titles) == ("X, images from 5", ["1 : 1, sym. 20%, 10,000 images", "pair 40%"])
    assert without_shared_words(["X, sym. 20%", "X, sym. 20%, adamw"]) == ("", ["X, sym. 20%", "X, sym. 20%, adamw"])
    assert without_shared_words(["X, pair 40%"]) == ("", ["X, pair 40%"]) and without_shared_words([]) == ("", [])


@pytest.mark.parametrize(
    ("name", "dataset"),
    [("regimes", "cifar10"), ("regimes_digits", "digits_regimes"), ("embedded", "digits_regimes")],
)
def test_every_setting_has_its_column(name, dataset):
    config = load_config(ROOT / "configs" / f"{name}.yaml")
    shown = config["tables"]["regimes"]["settings"]
    assert len(shown) == len(set(shown)) and set(shown) == set(config["noisy"][dataset]["settings"])


def test_the_default_run_has_balance_noise_and_length_and_every_free_score():
    spec = load_config(ROOT / "configs" / "embedded.yaml")["noisy"]["digits_regimes"]
    settings = spec["settings"].values()
    assert {s.get("balance", 1) for s in settings} == {1, 10, 50}
    starts = [s["recipe"]["start"] for s in settings if "start" in s.get("recipe", {})]
    assert {start.get("frozen", False) for start in starts} == {True, False}
    assert {s["kind"] for s in settings} == {"symmetric", "asymmetric", "class_conditional"}
    assert {s.get("recipe", {}).get("epochs", spec["recipe"]["epochs"]) for s in settings} == {8, 30}
    free = {"aum", "aum@all", "loss", "margin", "cartography", "cartography@all", "oof_self_confidence"}
    rows = {m for m in spec["methods"] if not m.startswith("sgoif@paper_")}  # those are rows of the table of parts
    assert rows == {"sgoif", "sgoif@paper", *free}


def test_the_grid_covers_what_it_names():
    settings = load_config(ROOT / "configs" / "regimes.yaml")["noisy"]["cifar10"]["settings"].values()
    assert len(settings) == 62
    assert {s.get("balance", 1) for s in settings} == {1, 10, 50, 100}
    assert {s.get("profile", "exponential") for s in settings} == {"exponential", "step"}
    assert {s["kind"] for s in settings} == {"symmetric", "asymmetric", "class_conditional", "human"}
    recipes = [s.get("recipe", {}) for s in settings]
    assert {r.get("epochs", 16) for r in recipes} == {10, 16, 30, 100, 200}
    assert {1500, 14000, None} <= {s.get("size") for s in settings}
    optimisers = {(r.get("optimizer", "sgd"), r.get("schedule", "onecycle")) for r in recipes}
    assert optimisers == {("sgd", "onecycle"), ("sgd", "cosine"), ("adamw", "constant")}
    starts = {(r["start"]["frozen"] if "frozen" in r["start"] else False) if "start" in r else None for r in recipes}
    assert starts == {None, True, False}


def test_the_grid_keeps_to_images_that_no_choice_has_seen():
    settings = load_config(ROOT / "configs" / "regimes.yaml")["noisy"]["cifar10"]["settings"].values()
    assert all(s["images"] == {"from": 25000} for s in settings)


def test_the_footer_counts_the_cells_that_sg_oif_leads(table):
    footer = table.blocks[1].footer
    assert "in 21 of 21 cells; in the mean of cells +10.0, at worst +10.0. Ahead of each" in footer
    assert "Without a number" not in footer


def test_the_sentence_counts_cells_within_the_margin():
    compared = [(0.1, {"aum": 0.1, "loss": 0.2}), (-0.003, {"aum": 0.0, "loss": 0.1}), (-0.02, {"aum": -0.02})]
    words = _compared_in_words(compared, 4, ["aum", "loss"])
    assert "at most 0.3 below it, in 2 of 3 cells (1 cells are not measured)" in words
    assert "in the mean of cells +2.6, at worst -2.0. Ahead of each single plain score by 2.7 or more" in words
    assert _compared_in_words([], 2, ["aum"]) == "No cell has numbers of both yet."


def test_a_cell_without_all_plain_scores_is_not_compared(tmp_path):
    config = load_config(ROOT / "configs" / "regimes_digits.yaml")
    config["noisy"]["digits_regimes"]["methods"] = ["sgoif", "aum", "loss"]
    values = {"b1_sym20": {"sgoif": 0.9, "aum": 0.8, "loss": 0.7}, "b1_cc40": {"sgoif": 0.9, "aum": 0.8}}
    cells = [
        Subject("noisy", "digits_regimes", setting, 0, method).record("auc_pr", value)
        for setting, by_method in values.items()
        for method, value in by_method.items()
    ]
    atomic_write_json(metrics_file(tmp_path, "noisy", "digits_regimes"), cells)
    (built,) = build_tables(summarise(tmp_path, config))
    block = built.blocks[0]  # no method has all cells, so there is no block of means
    assert block.title == "AUC-PR (%)" and "in 1 of 1 cells (20 cells are not measured)" in block.footer
    assert [(row.title, row.entries[1].mean is None) for row in block.rows] == [
        ("sym. 20%", False), ("class-cond. 40%", True),
    ]  # fmt: skip
    assert "Without a number, and not shown: 1 : 1, 560 images (pair 40%); 10 : 1 exponential" in block.footer
