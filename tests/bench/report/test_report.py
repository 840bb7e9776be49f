"""The report: whole, from one file, without network; nothing that a dataset or a failure says can run."""

import re
from collections import Counter
from html.parser import HTMLParser
from statistics import fmean

import pytest

from sgoif.bench import figures
from sgoif.bench.evaluation.evaluate import evaluate
from sgoif.bench.evaluation.metric_record import Subject
from sgoif.bench.evaluation.overhead import SHARED_GPU
from sgoif.bench.evaluation.summary import summarise
from sgoif.bench.evaluation.summary_record import layout_record, summary_record
from sgoif.bench.evaluation.table_layout import Panel, TableLayout
from sgoif.bench.report import FOLDER, report_page, write_report
from sgoif.bench.report.headline import headline
from sgoif.bench.report.sections import cost_section
from sgoif.bench.tables import build_tables
from sgoif.bench.tables.model import format_entry
from sgoif.utils.files import atomic_write_json, atomic_write_text, read_json
from tests.helpers.browser import Browser, chromium
from tests.helpers.fake_runs import Run, config

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>"
VOID = {"meta", "link", "br", "img", "input", "hr"}
LEDGER = {
    "run": "r", "rules": {"reproduced": "near", "not run": "absent"},
    "tables": [{"name": "Table 1", "label": "t1", "shows": EVIL}],
    "cells": [
        {"table": "Table 1", "row": f"CL {EVIL}", "column": "P@1%", "printed": 90.1, "printed_text": "90.1",
         "unit": "%",
         "sources": [{"name": "CL paper", "value": 90.5, "status": "differs"}], "measured": 89.5,
         "measured_what": "P@1% of CL", "interval": [88.0, 91.0], "seeds": 3, "stand_in": "", "verdict": "reproduced",
         "reason": "0.6 from the printed number", "also": [{"what": "accuracy", "value": 88.8, "verdict": "differs"}]},
        {"table": "Table 1", "row": "MOS", "column": "AUROC", "printed": None, "printed_text": "–", "unit": "%",
         "sources": [], "measured": None, "measured_what": "", "interval": None, "seeds": 0, "stand_in": "",
         "verdict": "not run", "reason": "no data", "also": []},
    ],
    "findings": [{"check": "bound", "tables": ["Table 1"], "outcome": "impossible", "statement": EVIL, "numbers": {}}],
}  # fmt: skip


class Page(HTMLParser):
    """Tags, texts and attributes of a page; complains of tags that are not closed in order."""

    def __init__(self, text: str):
        super().__init__()
        self.open, self.tags, self.texts = [], [], []
        self.feed(text)
        self.close()
        assert not self.open, f"left open: {self.open}"

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data):
        self.texts.append(data)

    def all(self, tag: str) -> list[dict]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A page with failures, an evil title everywhere a title can be, a ledger, and two figures that were not drawn."""
    run = Run(tmp_path_factory.mktemp("report"))
    run.fill_noisy()
    run.fill_ood()
    configuration = {**config(), "run": "tiny", "variants": {}}
    configuration["noisy"]["digits"]["title"] = f"digits {EVIL}"
    configuration["tables"]["table3"]["title"] = EVIL
    configuration["not_run"][0]["reason"] = EVIL
    run.cell("noisy", "digits", "n20s0", 2, "newcomer", status="failed", reason=f"Error: {EVIL}")
    for task, dataset in (("noisy", "digits"), ("ood", "digits7")):
        evaluate(run.root, run.data, task, dataset, configuration)
    summarise(run.root, configuration)
    atomic_write_json(run.root / "ledger.json", LEDGER)
    empty, _, *others = figures.planned(configuration)  # the second is missing
    atomic_write_text(run.root / "figures" / f"{empty.name}.svg", "")
    for one in others:
        atomic_write_text(
            run.root / "figures" / f"{one.name}.svg",
            "<svg xmlns='http://www.w3.org/2000/svg' width='700' height='400'/>",
        )
    path = write_report(run.root, configuration)
    return run.root, configuration, Page(path.read_text()), path.read_text()


def test_the_published_page_shows_the_figures_beside_it_and_loads_no_others(written):
    run_dir, configuration, whole, _ = written
    text = report_page(run_dir, configuration, linked=True)
    page = Page(text)
    shown = [image["src"] for image in page.all("img")]
    assert shown == [f"{one.name}.png" for one in figures.drawn(run_dir, configuration)]
    assert len(shown) == len(whole.all("img")) > 1 and "data:image" not in text
    policy = next(a["content"] for a in page.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'; img-src 'self' file:;" in policy


def test_every_table_is_there_with_every_number(written):
    run_dir, _, page, _ = written
    tables = build_tables(read_json(run_dir / "summary.json"))
    assert {f"table-{t.name}" for t in tables} <= {a.get("id") for a in page.all("article")}
    entries = [
        (entry, column.style)
        for block in (b for t in tables for b in t.blocks)
        for row in block.rows
        for entry, column in zip(row.entries, block.columns, strict=True)
    ]
    numbers = Counter(format_entry(e, style)[0] for e, style in entries if e.mean is not None)
    assert numbers.total() > 100 and len(page.all("td")) > len(entries)
    assert not numbers - Counter(text.strip() for text in page.texts)
    for t in tables:
        assert any(t.title in text for text in page.texts)
        for note in t.notes:
            assert any(note in text for text in page.texts)


def test_nothing_is_loaded_from_anywhere(written):
    _, _, page, text = written
    for tag, attributes in page.tags:
        for name in ("src", "href", "srcset", "action", "data", "poster"):
            value = attributes.get(name) or "#"
            assert value.startswith(("#", "data:image/svg+xml;base64,", "data:image/png;base64,")), (
                tag,
                name,
                value[:80],
            )
    assert not page.all("link") and not page.all("iframe") and not re.search(r"url\(|@import", text)
    policy = next(a["content"] for a in page.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy and "'unsafe-inline'; script-src 'sha256-" in policy


def test_the_policy_allows_the_page_s_own_script(written):
    import base64
    import hashlib

    text = written[3]
    script = text[text.rindex("<script>") + 8 : text.rindex("</script>")]
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"'sha256-{allowed}'" in text and script == (FOLDER / "page.js").read_text()


def test_what_a_dataset_or_a_failure_says_is_text(written):
    _, _, page, text = written
    assert len(page.all("script")) == 1 and "<script>alert" not in text and "<img src=x" not in text
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    said = "".join(page.texts)
    assert said.count(EVIL) >= 6  # title of a dataset, of a table, reasons, ledger: all shown as written


def test_figures_are_inside_and_what_was_not_drawn_is_not_mentioned(written):
    run_dir, configuration, page, _ = written
    planned = figures.planned(configuration)
    assert len(page.all("figure")) == len(planned) - 2 == len(figures.drawn(run_dir, configuration))
    pictures = page.all("img")
    assert len(pictures) == len(planned) - 2 and all(len(a["alt"]) > 20 for a in pictures)
    assert not any("drawn" in text for text in page.texts)
    assert any(text.startswith("Can the probabilities be trusted? ") for text in page.texts), (
        "no colon after a question"
    )
    assert not {f"figure-{one.name}" for one in planned[:2]} & {a.get("id") for a in page.all("figure")}


def test_the_ledger_shows_what_was_measured_and_counts_the_rest(written):
    page = written[2]
    rows = [a for a in page.all("tr") if "data-verdict" in a]
    assert [(a["data-table"], a["data-verdict"]) for a in rows] == [("Table 1", "reproduced")]
    assert {a.get("name") for a in page.all("select")} == {"table", "verdict"}
    assert any("1 impossible" in text for text in page.texts)
    said = " ".join("".join(page.texts).split())
    assert "1 of 2; ledger.md lists all" in said and "no data" not in said
    assert "90.1%89.50 [2]-0.6088 to 913reproduced [3]88.8 [4] differs≠ 90.5 [1]" in said.replace("\n", "")
    notes = [a["id"] for a in page.all("li") if a.get("id", "").startswith("note-ledger")]
    assert notes == [f"note-ledger-{n}" for n in range(1, 5)]


def test_a_run_that_measures_nothing_of_the_paper_has_no_ledger(tmp_path):
    atomic_write_json(tmp_path / "summary.json", [])
    atomic_write_json(tmp_path / "ledger.json", {**LEDGER, "cells": LEDGER["cells"][1:]})
    text = write_report(tmp_path, {**config(tables={}, not_run=[]), "run": "r"}).read_text()
    assert "edger" not in text.split("<body>")[1].split("<script>")[0] and "Numbers of the paper" not in text


def test_cost_failures_configuration_and_origin_are_told(written):
    said = "".join(written[2].texts)
    reasons = ("the loss became NaN in epoch 3", "ran past its time limit of 60 s", "needs a licence")
    for words in (*reasons, "torch 2.10.0", "cpus 2", "abc1234", '"class_conditional"'):
        assert words in said, words
    assert "SG-OIF (without the gate)" in said and "@no_gate" not in said.split("Configuration")[0]


def test_the_page_opens_with_the_result_and_ends_with_the_commits(written):
    said = " ".join(" ".join(written[2].texts).split())
    result, tables, origin = (said.index(w) for w in ("The result", "Click a column", "Commit of the cells"))
    assert result < tables < origin and "abc1234" not in said[:origin]
    opening = said[result:tables]
    assert re.search(r"SG-OIF has the highest AUC-PR in \d of 4 settings", opening)
    assert "times the passes through a network of plain training" in opening and "Seeds 1 to 3 a number" in opening
    assert "cells failed" in opening and "not run at all: WebVision, ImageNet" in opening
    assert "1 reproduced, 1 not run" in opening


def number(setting, method, values, variant=""):
    """The record of an AUC-PR by seed."""
    named = {"dataset": "d", "setting": setting, "metric": "auc_pr", "method": method, "variant": variant}
    by_seed = {"seeds": list(values), "values": list(values.values()), "n_seeds": len(values)}
    return summary_record("t", **named, **by_seed, mean=fmean(values.values()))


def test_a_method_that_lacks_seeds_is_compared_over_those_that_it_has():
    """AUM has the good seed alone: its mean is higher, but on that seed SG-OIF is ahead."""
    panel = Panel("noisy", "d", "s", "D", kind="symmetric", noise=0.2, methods=["sgoif", "aum"])
    layout = TableLayout(kind="noise_sets", task="noisy", title="t", panels=[panel])
    records = [layout_record("t", layout), number("s", "sgoif", {0: 0.9, 1: 0.5}), number("s", "aum", {0: 0.8})]
    lines = dict(headline(records, [], None))
    assert lines["Wrong labels"] == "SG-OIF has the highest AUC-PR in 1 of 1 settings."
    assert lines["Seeds"].endswith("in how many settings: mean margin (AUM) (1). Compared with it over those.")


def test_the_headline_says_who_is_ahead_and_what_the_influence_alone_would_do():
    panel = Panel("noisy", "d", "s", "D", kind="symmetric", noise=0.2, methods=["sgoif", "aum", "sgoif_trusted"])
    layout = TableLayout(kind="noise_sets", task="noisy", title="t", panels=[panel])
    means = [("sgoif", "", 0.9), ("sgoif", "influence", 0.96), ("aum", "", 0.95), ("sgoif_trusted", "", 0.99)]
    records = [layout_record("t", layout), *(number("s", m, {0: x, 1: x, 2: x}, v) for m, v, x in means)]
    lines = dict(headline(records, [], None))
    assert lines["Wrong labels"] == (
        "SG-OIF has the highest AUC-PR in 0 of 1 settings; its influence score alone would have it in 1 of 1. "
        "Ahead of it: D symmetric 20%: mean margin (AUM) by 5.0 points."
    )
    assert lines["Seeds"] == "3 a number." and lines["Missing"] == "nothing."


def test_the_headline_says_where_no_number_of_the_paper_is_judged():
    ledger = {"verdicts": {"not defined": 2, "not run": 5}, "cells": [{}] * 3, "total": 7}
    said = dict(headline([], [], ledger))["Numbers of the paper"]
    assert said == "none is measured as defined; 3 of 7 have a measurement beside them."


def test_the_headline_of_regimes_says_where_another_leads_by_most():
    panels = [
        Panel("noisy", "d", s, f"D, {s}", kind="symmetric", noise=0.2, methods=["sgoif", "sgoif@paper", "aum"])
        for s in ("10 epochs", "30 epochs", "in part")
    ]
    records = [layout_record("t", TableLayout(kind="regimes", task="noisy", title="t", panels=panels))]
    for setting, means in (("10 epochs", (0.9, 0.99, 0.8)), ("30 epochs", (0.9, 0.99, 0.93)), ("in part", (0.9, 0.9))):
        records += [number(setting, m, {0: mean}) for m, mean in zip(panels[0].methods, means, strict=False)]
    assert dict(headline(records, [], None))["Regimes"] == (
        "SG-OIF has the highest AUC-PR in 1 of the 2 cells that have all methods. "
        "The largest lead over it: mean margin (AUM) by 3.0 points (30 epochs)."
    )


def test_seconds_of_cells_that_shared_a_gpu_are_marked_and_in_no_mean(tmp_path):
    subject = {seed: Subject("noisy", "d", "s", seed, "aum") for seed in (0, 1)}
    records = [subject[seed].record("seconds_total", value) for seed, value in ((0, 10.0), (1, 30.0))]
    records.append(subject[1].record("overhead_marginal", status="undefined", reason=SHARED_GPU))
    atomic_write_json(tmp_path / "metrics/noisy/d.json", records)
    (row,) = cost_section(tmp_path)
    assert (row["cells"], row["shared"], row["seconds"], row["per_cell"]) == (2, 1, 40.0, 10.0)


def test_it_can_be_used_with_a_keyboard(written):
    page = written[2]
    assert len(page.all("button")) > 50 and all(a.get("type") == "button" for a in page.all("button"))
    regions = [a for a in page.all("div") if a.get("role") == "region"]
    assert regions and all(a.get("tabindex") == "0" and a.get("aria-label") for a in regions)
    ids = {a["id"] for _, a in page.tags if "id" in a}
    assert all(a["href"][1:] in ids for a in page.all("a"))  # no link leads nowhere
    assert len(ids) == sum("id" in a for _, a in page.tags)


@pytest.mark.skipif(chromium() is None, reason="no Chromium on this machine")
def test_figures_fit_a_phone_and_the_ledger_a_screen(written, tmp_path):
    with Browser(tmp_path / "profile") as browser:
        browser.resize(390, 844)
        browser.open(written[0] / "report.html")
        assert browser.ask("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        width = "document.querySelector('.picture img').getBoundingClientRect().width"
        assert browser.ask(f"{width} <= 390")
        browser.ask("document.querySelector('.picture').click()")
        assert browser.ask(f"{width} > 1000"), "a click shows the picture in full size"
        browser.resize(1280, 900, dark=True)
        assert browser.ask(
            "(t => t.scrollWidth <= t.clientWidth)(document.getElementById('ledger-table').parentElement)"
        )
        assert browser.ask(
            "(t => { t.querySelectorAll('th.number button')[0].click();"
            "  const said = [...t.tBodies[0].rows].filter(r => !r.matches('.group')).map(r => r.cells[1].textContent);"
            "  const numbers = said.map(s => parseFloat(s)).filter(n => !isNaN(n));"
            "  return numbers.length > 3 && numbers.every((n, i) => !i || n <= numbers[i - 1])"
            "    && said.slice(numbers.length).every(s => isNaN(parseFloat(s)));"
            "})(document.querySelector('article table'))"
        ), "a click on a column sorts it by its numbers, and what has none comes last"
        assert browser.complaints() == []


def test_a_run_without_ledger_metrics_or_figures_still_has_its_page(tmp_path):
    atomic_write_json(tmp_path / "summary.json", [])
    page = Page(write_report(tmp_path, {**config(tables={}, not_run=[]), "run": "empty"}).read_text())
    said = "".join(page.texts)
    for words in ("nothing is known of the cost", "Every cell of this run finished"):
        assert words in said, words
