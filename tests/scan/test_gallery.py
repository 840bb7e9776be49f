"""The review page in a real browser: keyboard review, undo, filters, memory, export, escaping, no network."""

import csv
import io
import json
import time
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from sgoif.scan.findings.duplicates import Copies
from sgoif.scan.findings.find import ScanFindings
from sgoif.scan.findings.outliers import Outliers
from sgoif.scan.page.gallery import (
    PageEvidence,
    informative_interval,
    json_for_script,
    main_contributions,
    write_gallery,
)
from sgoif.scan.review import expected_wrong
from sgoif.scan.sources.image_listing import Listing
from tests.helpers.browser import Browser, chromium
from tests.helpers.scan_folders import blobs, rows, run

needs_browser = pytest.mark.skipif(chromium() is None, reason="no Chromium on this machine")
EVIL = "</script><img src=x onerror=\"document.title='owned'\"><b>&amp;\"',\u2028.png"
CLASSES = ["cat", "dog, brown", 'ow"l', "<i>emu</i>"]
WRONG = np.linspace(0.98, 0.32, 12)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A page of 12 examples in 4 classes with names and labels that hurt."""
    rng = np.random.default_rng(0)
    names = [f"{i:02d}.png" for i in range(11)] + [EVIL]
    labels = [i % 4 for i in range(12)]
    pictures = [Image.fromarray(rng.integers(0, 255, (30, 90, 3)).astype(np.uint8)) for _ in names]
    listing = Listing("dataset", "<u>my</u> images", names, labels, CLASSES, lambda i: pictures[i])
    anchors, beliefs = rng.normal(size=(12, 4)), rng.dirichlet([1, 1, 1, 1], 12)
    ranking = SimpleNamespace(
        order=np.arange(12),
        suspicion=anchors.sum(1),
        score=anchors.sum(1),
        half_width=np.where(np.arange(12) == 3, np.inf, 0.5),
        confidence=np.full(12, 0.9),
        visits=np.full(12, 7),
        flagged=np.arange(12) < 6,
        wrong_probability=WRONG,
        estimated=6,
    )
    path = tmp_path_factory.mktemp("gallery") / "gallery.html"
    evidence = PageEvidence(anchors, beliefs, rng.normal(size=(12, 5)))
    write_gallery(path, listing, ranking, evidence, 12)
    copies = [Copies("exact", [0, 9], 1.0), Copies("near", [3, 10, 11], 0.987)]
    with_findings = path.with_name("findings.html")
    write_gallery(with_findings, listing, ranking, evidence, 8, ScanFindings(copies, Outliers([8, 2, 11], 2)))
    return SimpleNamespace(
        path=path,
        with_findings=with_findings,
        names=names,
        labels=labels,
        other=[int(o) for o in others(beliefs, labels)],
    )


def others(beliefs, labels):
    masked = beliefs.copy()
    masked[np.arange(len(labels)), labels] = -1
    return masked.argmax(1)


@pytest.fixture(scope="module")
def chrome(tmp_path_factory):
    """One browser for all tests of this file: to start it takes longer than most of them."""
    with Browser(tmp_path_factory.mktemp("browser") / "profile") as b:
        yield b


@pytest.fixture
def browser(chrome, page):
    """The browser at the page, without decisions of an earlier test."""
    chrome.events.clear()
    chrome.resize(1280, 900)
    chrome.open(page.path)
    chrome.ask("localStorage.clear()")
    chrome.reload()
    yield chrome
    assert chrome.complaints() == []


FOCUS = "document.activeElement.closest('article')?.querySelector('.path')?.textContent.split(' ').slice(1).join(' ')"
SHOWN = "[...document.querySelectorAll('article')].filter(a => !a.hidden).length"
COUNT = "document.getElementById('count').textContent"


def decisions(b) -> dict:
    return {d["path"]: (d["decision"], d["label"]) for d in json.loads(b.ask("asJSON()"))["decisions"]}


@needs_browser
def test_keyboard_review(browser, page):
    b, names = browser, page.names
    b.press("k")  # nothing has the focus yet: the first key only goes to the first image
    assert b.ask(FOCUS) == names[0] and decisions(b) == {}
    b.press("k", "x", "r")
    assert b.ask(FOCUS) == names[3], "after each decision the next image has the focus"
    wanted = {
        names[0]: ("keep", CLASSES[0]),
        names[1]: ("remove", CLASSES[1]),
        names[2]: ("relabel", CLASSES[page.other[2]]),
    }
    assert decisions(b) == wanted
    assert b.ask(COUNT) == "3 of 12 decided, 12 shown" and b.ask("document.getElementById('bar').value") == 3
    b.press("u")
    assert b.ask(FOCUS) == names[2] and list(decisions(b)) == names[:2]
    b.press("u", "u", "u")
    assert decisions(b) == {} and b.ask("document.getElementById('undo').disabled")
    b.press("ArrowRight", "ArrowRight", "ArrowLeft", "ArrowDown")
    columns = b.ask("columns()")
    assert columns > 1 and b.ask(FOCUS) == names[1 + columns]
    b.press("ArrowUp")
    assert b.ask(FOCUS) == names[1]
    outline = (
        "getComputedStyle(document.activeElement).outlineStyle + getComputedStyle(document.activeElement).outlineWidth"
    )
    assert b.ask(outline) == "solid3px"


@needs_browser
def test_choosing_another_label(browser, page):
    b = browser
    b.press("ArrowRight", "l")
    assert b.ask("document.activeElement.tagName") == "INPUT"
    b.type("zebra")
    b.press("Enter")
    assert "No class" in b.ask("document.getElementById('said').textContent") and decisions(b) == {}
    b.ask("document.activeElement.select()")
    b.type(CLASSES[0])
    b.press("Enter")
    assert "That is the given label" in b.ask("document.getElementById('said').textContent") and decisions(b) == {}
    b.ask("document.activeElement.select()")
    b.type(CLASSES[2])
    b.press("Enter")
    assert decisions(b) == {page.names[0]: ("relabel", CLASSES[2])} and b.ask(FOCUS) == page.names[1]


@needs_browser
def test_filters_and_search(browser, page):
    b = browser
    b.press("/")
    b.type("emu")
    assert b.ask("document.activeElement.id") == "search"
    given, suggested = page.labels.count(3), b.ask("data.items.filter(i => i.given === 3 || i.other === 3).length")
    assert b.ask(SHOWN) == suggested >= given
    b.ask("document.activeElement.select()")
    b.type("no such thing")
    assert b.ask(SHOWN) == 0 and b.ask("!document.getElementById('nothing').hidden")
    b.ask("document.activeElement.value = ''")

    def choose(name, value):
        b.ask(f"$('{name}').value = '{value}'; $('{name}').dispatchEvent(new Event('input'))")

    choose("given", 1)
    assert b.ask(SHOWN) == 3
    choose("given", "")
    b.ask("$('flagged').click()")
    assert b.ask(SHOWN) == 6
    choose("status", "open")
    b.ask("$('search').focus()")
    b.press("Escape", "x")
    assert b.ask(SHOWN) == 5 and b.ask(FOCUS) == page.names[1], "a decided image leaves the ones to review"
    choose("status", "remove")
    assert b.ask(SHOWN) == 1


@needs_browser
def test_large_view_decides_and_goes_on(browser, page):
    b, names = browser, page.names
    b.press("ArrowRight", "Enter")
    assert b.ask("$('zoom').open && $('large').alt") == names[0]
    assert b.ask("$('large').naturalWidth") == 90
    beside = b.ask("[...$('beside').querySelectorAll('img')].map(i => i.alt)")
    assert list(dict.fromkeys(beside)) == [f"a typical {CLASSES[c]}" for c in (0, page.other[0])]
    b.press("+", "+")
    assert b.ask("$('stage').scrollWidth > 3 * $('stage').clientWidth")
    b.press("k", "x")
    assert decisions(b) == {names[0]: ("keep", CLASSES[0]), names[1]: ("remove", CLASSES[1])}
    assert b.ask("$('large').alt") == names[2] and b.ask("$('stage').scrollWidth <= $('stage').clientWidth")
    b.press("ArrowRight", "ArrowLeft", "ArrowLeft")
    assert b.ask("$('large').alt") == names[1]
    b.press("u", "Escape")
    assert list(decisions(b)) == names[:1] and not b.ask("$('zoom').open")
    b.until(f"{FOCUS} === {json.dumps(names[1])}")  # the dialog tells of its end a moment later


@needs_browser
def test_a_typical_example_of_the_suggested_class_is_beside_each(browser, page):
    captions = browser.ask("[...document.querySelectorAll('article figcaption')].map(c => c.textContent)")
    assert captions == [f"a typical {CLASSES[c]}" for c in page.other]
    assert browser.ask("document.querySelectorAll('article figure img').length") == 12


@needs_browser
def test_a_confusion_is_accepted_above_a_probability_and_undone_at_once(browser, page):
    b = browser
    b.ask("$('bulk').open = true; $('limit').value = 0.7; $('limit').dispatchEvent(new Event('input'))")
    b.until("$('groups').children.length > 0")
    pairs = list(zip(page.labels, page.other, strict=True))
    assert b.ask("$('groups').children.length") == len(set(pairs))
    biggest = max(set(pairs), key=lambda pair: (pairs.count(pair), -pairs.index(pair)))
    wanted = [n for n, pair, p in zip(page.names, pairs, WRONG, strict=True) if pair == biggest and p >= 0.7]
    assert len(wanted) >= 1
    b.ask("$('cards').querySelector('.keep').click()")
    left = [n for n in wanted if n != page.names[0]]
    told = b.ask("$('groups').children[0].textContent")
    assert told.startswith(f"{CLASSES[biggest[0]]} → {CLASSES[biggest[1]]}: ") and f"Relabel {len(left)}" in told
    b.ask("$('groups').children[0].querySelector('button:last-child').click()")
    assert {n: d for n, d in decisions(b).items() if d[0] == "relabel"} == {
        n: ("relabel", CLASSES[biggest[1]]) for n in left
    }
    how = {d["path"]: d["how"] for d in json.loads(b.ask("asJSON()"))["decisions"]}
    assert how == {page.names[0]: "seen"} | dict.fromkeys(left, "bulk")
    b.ask("$('groups').children[0].querySelector('button').click()")
    assert b.ask(SHOWN) == pairs.count(biggest), "Show leaves the confusion alone"
    b.ask("$('undo').click()")
    assert list(decisions(b)) == page.names[:1], "one step takes all of them back"


@needs_browser
def test_the_page_says_what_it_is_sorted_by(browser, page):
    b = browser
    shown = "[...document.querySelectorAll('article')].map(a => a.querySelector('.path').textContent)"
    assert "how probably the label is wrong" in b.ask("$('sorted').textContent")
    chances = b.ask("[...document.querySelectorAll('.chance')].map(c => c.textContent)")
    assert chances == [f"wrong: {round(100 * p)}%" for p in WRONG]
    b.ask("$('sort').value = 'confusion'; $('sort').dispatchEvent(new Event('input'))")
    assert "given → suggested" in b.ask("$('sorted').textContent")
    ranks = sorted(range(12), key=lambda i: (page.labels[i], page.other[i], i))
    assert [int(t.split()[0][1:]) - 1 for t in b.ask(shown)] == ranks
    b.press("ArrowRight", "k")
    assert b.ask(FOCUS) == page.names[ranks[1]], "the next image is the next one shown"


@needs_browser
def test_the_page_learns_from_decisions_how_many_are_left(browser, page):
    b = browser
    assert b.ask("$('left').hidden")
    b.press("ArrowRight", "k", "x", "k")
    left = expected_wrong(WRONG[3:], WRONG[:3], [False, True, False])
    told = b.ask("$('left').textContent")
    assert told.startswith("Of the last 3 that you looked at, 1 was wrong: expect about ")
    about = f"{round(left.count)} more ({round(left.low)} to {round(left.high)}) among the 9 that are not decided. "
    assert about in told and f"Of the next 9 about {round(left.count)} are." in told and "place to stop" not in told
    b.ask("$('limit').value = 0.5; acceptAll(cards.slice(3, 6))")
    assert b.ask("$('left').textContent").startswith("Of the last 3 that"), "what was not looked at teaches nothing"
    assert "among the 6 that are not decided" in b.ask("$('left').textContent")


@needs_browser
def test_the_page_estimates_as_python_does(browser):
    judged = [[0.9, True], [0.8, False], [0.7, True], [0.05, False]]
    values = [[0.6, 20], [0.1, 300], [0.002, 5000]]
    told = browser.ask(f"expected({json.dumps(values)}, posterior({json.dumps(judged)}))")
    p = np.repeat([v for v, _ in values], [n for _, n in values])
    wanted = expected_wrong(p, [j for j, _ in judged], [w for _, w in judged])
    assert told == pytest.approx({"count": wanted.count, "low": wanted.low, "high": wanted.high}, rel=1e-6)
    assert browser.ask("[7.6, 483, 9469].map(roundCount).join(' ')") == "8 480 9,500"


@needs_browser
def test_the_page_tells_of_whole_classes(browser):
    told = browser.ask("[...$('found').children].map(f => f.textContent)")
    small = [f"{c} has 3 examples: too few to judge its labels." for c in CLASSES]
    assert told[-4:] == small and all("probably belong to" in t for t in told[:-4])


PATHS = "cards.filter(c => !c.node.hidden).map(c => c.item.path)"


@needs_browser
def test_copies_and_outliers_have_sections_of_their_own(browser, page):
    b, names = browser, page.names
    assert b.ask("$('sections').hidden"), "nothing found, no sections"
    b.open(page.with_findings)
    assert b.ask("[...$('sections').children].map(s => s.textContent)") == [
        "Suspicious labels (8)",
        "Copies (2)",
        "Outliers (3)",
    ]
    assert b.ask(PATHS) == names[:8], "what is only a copy or an outlier is not among the suspicious labels"
    b.ask("$('sections').children[1].click()")
    assert b.ask(PATHS) == [names[i] for i in (0, 9, 3, 10, 11)]
    lines = ["Exact copies", "Near copies (cosine of their features: 0.987)"]
    assert b.ask("[...document.querySelectorAll('.group')].map(g => g.textContent)") == lines
    assert b.ask("cards[0].claim.textContent") == f"given {CLASSES[0]}, a copy is called {CLASSES[1]}"
    assert b.ask("cards[0].beside.querySelector('img').src === data.items.find(i => i.rank === 10).image")
    b.press("ArrowRight", "ArrowRight", "x")
    assert decisions(b) == {names[9]: ("remove", CLASSES[1])} and b.ask(COUNT).startswith("1 of 5 decided")
    assert b.ask("$('left').hidden"), "only suspicious labels teach how many of these are left"
    b.ask("$('sections').children[2].click()")
    assert b.ask(PATHS) == [names[i] for i in (8, 2, 11)] and b.ask("$('bulk').hidden")
    assert b.ask("document.querySelectorAll('.group').length") == 2
    b.press("Enter")
    b.ask("$('sections').children[0].click()")
    assert b.ask(PATHS) == names[:8] and b.ask(COUNT).startswith("0 of 8 decided")


@needs_browser
def test_decisions_are_remembered_and_exported(browser, page, tmp_path):
    b = browser
    b.press("ArrowRight", "k", *["ArrowRight"] * 10, "r")
    before = decisions(b)
    assert before[EVIL] == ("relabel", CLASSES[page.other[11]])
    b.open(page.path)
    b.reload()
    b.until(f"{COUNT}.startsWith('2 of 12')")
    assert decisions(b) == before
    exported = list(csv.DictReader(io.StringIO(b.ask("asCSV()"), newline="")))
    assert {r["path"]: (r["decision"], r["label"]) for r in exported} == before
    b.send("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    for name in ("csv", "json"):
        b.ask(f"$('{name}').click()")
        deadline = time.monotonic() + 20
        while not (tmp_path / f"decisions.{name}").is_file():
            assert time.monotonic() < deadline, "no download"
            time.sleep(0.05)
    assert json.loads((tmp_path / "decisions.json").read_text())["decisions"][1]["path"] == EVIL


@needs_browser
def test_names_are_text_and_nothing_else(browser, page):
    b = browser
    assert b.ask("document.title") == "Suspicious labels: <u>my</u> images"
    assert b.ask("document.querySelectorAll('article').length") == 12
    assert b.ask("document.querySelectorAll('main i, main u, main b b, header u').length") == 0
    assert EVIL in b.ask("[...document.querySelectorAll('.path')].at(-1).textContent")
    assert b.ask("[...$('cards').querySelectorAll('img')].every(i => i.naturalWidth > 0 || i.loading === 'lazy')")
    assert b.ask("document.querySelectorAll('.numbers[open]').length") == 0, "numbers are one click away"
    influence = "[...document.querySelectorAll('article')][3].querySelector('.numbers').textContent"
    assert "influence" in b.ask(influence) and "Infinity" not in b.ask(influence) and " to " not in b.ask(influence)


@needs_browser
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_wider_than_the_window(browser, width):
    browser.ask("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    for dark in (False, True):
        browser.resize(width, 800, dark)
        assert browser.ask("document.documentElement.scrollWidth") <= width
        every = "[...document.querySelectorAll('article *, header *, #tools *')]"
        assert browser.ask(f"Math.max(...{every}.map(e => e.getBoundingClientRect().right))") <= width
    browser.ask("document.querySelector('.open').click()")
    every = "[...document.querySelectorAll('#zoom, #zoom *')]"
    assert browser.ask(f"Math.max(...{every}.map(e => e.getBoundingClientRect().right))") <= width
    assert browser.ask("$('large').clientWidth") > 0.5 * width, "the picture fills the window"


@needs_browser
def test_from_scan_to_cleaned_list_through_the_browser(chrome, tmp_path):
    images = blobs(tmp_path / "images", {"a": 8, "b": 8})
    assert run("scan", images, "--out", tmp_path / "out", "--epochs", 2, "--gallery", 16) == 0
    chrome.events.clear()
    chrome.open(tmp_path / "out" / "gallery.html")
    chrome.press("ArrowRight", "x", "r", "k")
    made = decisions(chrome)
    (tmp_path / "d.csv").write_text(chrome.ask("asCSV()"))
    assert chrome.complaints() == []
    assert run("apply", tmp_path / "out", "--decisions", tmp_path / "d.csv", "--out", tmp_path / "clean.csv") == 0
    cleaned = {r["path"]: r["label"] for r in rows(tmp_path / "clean.csv")}
    (gone,) = [p for p, (d, _) in made.items() if d == "remove"]
    ((moved, label),) = [(p, y) for p, (d, y) in made.items() if d == "relabel"]
    assert len(cleaned) == 15 and str(images / gone) not in cleaned and cleaned[str(images / moved)] == label


def test_reasons_are_the_greatest_parts_most_harmed_first():
    assert main_contributions(np.array([0.1, -3.0, 2.0, 0.0, 0.5])) == [[2, 2.0], [4, 0.5], [0, 0.1], [1, -3.0]]


def test_embedded_json_cannot_end_its_element():
    text = json_for_script({"a": "</script><!--&", "b": [1.5, None]})
    assert not set(text) & set("<>&") and json.loads(text) == {"a": "</script><!--&", "b": [1.5, None]}


@pytest.mark.parametrize(("half_width", "shown"), [(0.5, [1.5, 2.5]), (2.0, None), (3.0, None), (float("inf"), None)])
def test_an_interval_that_says_nothing_is_not_shown(half_width, shown):
    assert informative_interval(2.0, half_width) == shown
