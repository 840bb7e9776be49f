"""What the page of a scan shows, in a browser: examples, sections, estimates, names that hurt."""

import json

import numpy as np
import pytest

from sgoif.scan.page.gallery import (
    informative_interval,
    json_for_script,
    main_contributions,
)
from sgoif.scan.review import expected_wrong
from tests.helpers.gallery_page import CLASSES, COUNT, EVIL, FOCUS, WRONG, decisions, needs_browser


@needs_browser
def test_a_typical_example_of_the_suggested_class_is_beside_each(browser, page):
    captions = browser.ask("[...document.querySelectorAll('article figcaption')].map(c => c.textContent)")
    assert captions == [f"a typical {CLASSES[c]}" for c in page.other]
    assert browser.ask("document.querySelectorAll('article figure img').length") == 12


@needs_browser
def test_the_page_says_what_it_is_sorted_by(browser, page):
    b = browser
    shown = "[...document.querySelectorAll('article')].map(a => a.querySelector('.path').textContent)"
    assert "how probably the label is wrong" in b.ask("$('sorted').textContent")
    chances = b.ask("[...document.querySelectorAll('.chance')].map(c => c.textContent)")
    assert chances == [f"wrong: {round(100 * p)}%" for p in WRONG]
    assert b.ask("chance({ ...data.items[0], judged: false }).textContent") == "not judged: training never saw it"
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


def test_reasons_are_the_greatest_parts_most_harmed_first():
    assert main_contributions(np.array([0.1, -3.0, 2.0, 0.0, 0.5])) == [[2, 2.0], [4, 0.5], [0, 0.1], [1, -3.0]]


def test_embedded_json_cannot_end_its_element():
    text = json_for_script({"a": "</script><!--&", "b": [1.5, None]})
    assert not set(text) & set("<>&") and json.loads(text) == {"a": "</script><!--&", "b": [1.5, None]}


@pytest.mark.parametrize(("half_width", "shown"), [(0.5, [1.5, 2.5]), (2.0, None), (3.0, None), (float("inf"), None)])
def test_an_interval_that_says_nothing_is_not_shown(half_width, shown):
    assert informative_interval(2.0, half_width) == shown
