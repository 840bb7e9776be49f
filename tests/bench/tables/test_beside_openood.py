"""The table of OpenOOD's classifier shows what OpenOOD publishes beside what was measured here."""

from dataclasses import replace

import pytest

from sgoif.bench.config import load_config
from sgoif.bench.evaluation.summary_record import read_published_summary, summary_record
from sgoif.bench.evaluation.table_layout import Panel, TableLayout
from sgoif.bench.paper.public_numbers import leaderboard, openood
from sgoif.bench.tables import names
from sgoif.bench.tables.formats.markdown import to_markdown
from sgoif.bench.tables.kinds.ood import ood
from sgoif.bench.tables.source import Source
from sgoif.utils.paths import ROOT

METHODS = ["msp", "vim", "sgoif"]
PANEL = Panel("ood", "cifar100", "clean", "CIFAR-100", methods=METHODS, seeds=[0], near=["cifar10"], far=["dtd10"])


def source(extended: bool) -> Source:
    records = [
        summary_record("t", dataset="cifar100", setting="clean", method=method, metric=f"auroc:{group}", mean=value,
                       n_seeds=1, seeds=[0], values=[value])
        for method in METHODS for group, value in (("near", 0.81), ("far", 0.75))
    ]  # fmt: skip
    return Source("t", TableLayout("ood", "ood", "OOD", extended=extended, panels=[PANEL]), records)


def test_published_means_stand_beside_ours_with_their_spread():
    table = ood(source(extended=True))
    (block,) = [block for block in table.blocks if block.title.startswith("Beside OpenOOD")]
    assert [row.method for row in block.rows] == ["vim", "msp"]  # of the sentinel nothing is published
    shown = {row.method: [(e.mean, e.std) for e in row.entries] for row in block.rows}
    assert shown["msp"][:2] == [(0.81, None), (pytest.approx(0.8027), pytest.approx(0.0011))]
    assert shown["msp"][2][0] == pytest.approx(0.0073) and shown["vim"][5][0] == pytest.approx(0.75 - 0.8170)
    words = " ".join(table.caption)
    assert "OpenOOD v1.5 leaderboard" in words and "the network is OpenOOD's" in words
    assert "80.3±0.1" in to_markdown(table)


def test_a_searched_row_stands_beside_the_number_that_openood_searched_for():
    methods = ["scale", "scale@searched"]
    panel = replace(PANEL, methods=methods)
    records = [
        summary_record("t", dataset="cifar100", setting="clean", method=method, metric=f"auroc:{group}", mean=0.8,
                       n_seeds=1, seeds=[0], values=[0.8])
        for method in methods for group in ("near", "far")
    ]  # fmt: skip
    table = ood(Source("t", TableLayout("ood", "ood", "OOD", extended=True, panels=[panel]), records))
    (block,) = [block for block in table.blocks if block.title.startswith("Beside OpenOOD")]
    published = {row.method: row.entries[1].mean for row in block.rows}
    assert published == dict.fromkeys(methods, pytest.approx(0.8099))
    assert "Searched: the hyper-parameters" in " ".join(table.caption)
    assert "Searched: the hyper-parameters" not in " ".join(ood(source(extended=True)).caption)


def test_another_network_is_not_put_beside_openood_s():
    table = ood(source(extended=False))
    assert not [block for block in table.blocks if block.title.startswith("Beside")]
    assert "network and training are this benchmark's own" in " ".join(table.caption)


def test_every_post_hoc_method_has_published_numbers_or_is_known_to_have_none():
    config, known = load_config(ROOT / "configs/openood.yaml", skip_missing=False), leaderboard()
    for spec in config["ood"].values():
        methods = [m for m in spec["methods"] if not m.endswith("@searched")]
        without = {m for m in methods if names.title("ood", m).lower() not in known}
        assert without == {"nnguide", "neco", "patchcore", "sgoif"}
        assert f"{spec['title']} near" in known["msp"] and f"{spec['title']} far" in known["msp"]
    assert {name.lower() for name in openood()["searched"]} <= set(known)


def test_rows_outside_the_paper_are_not_compared_with_it():
    assert set(openood()["values"]).isdisjoint(openood()["more_rows"]) and "MSP" not in openood()["values"]
    assert replace(PANEL, title="MNIST").title + " near" not in leaderboard()["msp"]


def test_the_notebook_has_the_published_and_the_measured_numbers():
    page = (ROOT / "docs/lab-notebook/out-of-distribution.md").read_text()
    section = page.split("## The classifier of OpenOOD")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line[:1] == "|"][2:]
    rows = [[word.strip() for word in line.strip("|").split("|")] for line in lines]
    measured = {
        (r["dataset"], r["method"], r["metric"]): r["mean"]
        for r in read_published_summary(ROOT / "results/published/openood/summary.json.gz")
        if r.get("table") == "table3" and "mean" in r and r.get("method") and not r.get("variant")
    }

    def auroc(id_set: str, method: str) -> str:
        dataset = id_set.replace("CIFAR-", "cifar")
        return " / ".join(f"{100 * measured[dataset, method, f'auroc:{group}']:.1f}" for group in ("near", "far"))

    methods = {method for _, method, _ in measured}
    titles = {names.title("ood", method): method for method in methods}
    searched = {method.partition("@")[0] for method in methods if "@" in method}
    assert len(rows) == 25 and sum(row[1] != "–" for row in rows) == 21 and len(searched) == 8
    for title, *printed in rows:
        for id_set, (published, here, found) in {"CIFAR-10": printed[:3], "CIFAR-100": printed[3:]}.items():
            assert here == auroc(id_set, titles[title]), (title, id_set)
            expected = auroc(id_set, f"{titles[title]}@searched") if titles[title] in searched else "–"
            assert found == expected, (title, id_set)
            if published != "–":
                known = [leaderboard()[title.lower()][f"{id_set} {group}"].mean for group in ("near", "far")]
                assert published == " / ".join(f"{100 * value:.2f}" for value in known), (title, id_set)
