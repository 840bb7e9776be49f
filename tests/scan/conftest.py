"""A page of a scan and a browser, which the tests of the page share."""

import pytest

from tests.helpers.browser import Browser
from tests.helpers.gallery_page import write_page


@pytest.fixture(scope="session")
def page(tmp_path_factory):
    """A page of 12 examples in 4 classes with names and labels that hurt."""
    return write_page(tmp_path_factory.mktemp("gallery"))


@pytest.fixture(scope="session")
def chrome(tmp_path_factory):
    """One browser for all tests of pages: to start it takes longer than most of them."""
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
