"""The review page in a real browser: keyboard review, undo, filters, memory, export, escaping, no network."""

import csv
import io
import json
import time

from tests.helpers.gallery_page import CLASSES, COUNT, EVIL, FOCUS, SHOWN, WRONG, decisions, needs_browser
from tests.helpers.scan_folders import blobs, rows, run


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
