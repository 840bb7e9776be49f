"""The site: MkDocs builds it without a warning, every page is there, and a broken link stops it."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import DOCS
from tests.helpers.project_copy import ROOT, sh

BUILD = "NO_MKDOCS_2_WARNING=1 python -m mkdocs build"


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = sh(ROOT, f"{BUILD} --site-dir {folder}")
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def test_every_page_is_built(site):
    pages = [p.relative_to(DOCS).with_suffix(".html") for p in DOCS.rglob("*.md")]
    assert [p for p in pages if not (site / p).is_file()] == []


def test_published_tables_are_pages_and_source_files_are_no_links(site):
    assert "<table>" in (site / "published" / "measurement" / "table1.html").read_text()
    assert "../published/measurement/table1.html" in (site / "results" / "measured.html").read_text()
    assert not re.search(r'href="[^"]*\.py"', (site / "benchmark" / "add-a-baseline.html").read_text())


def test_pages_load_nothing_from_elsewhere(site):
    for page in ("index.html", "results/measured.html", "architecture.html"):
        loaded = re.findall(r'<(?:script|img|link)[^>]*(?:src|href)="(https?://[^"]+)', (site / page).read_text())
        assert loaded == [], page


def test_a_broken_link_stops_the_build(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# A page\n\n[nowhere](nowhere.md)\n")
    options = (ROOT / "mkdocs.yml").read_text()
    options = re.sub(r"^nav:\n(?: .*\n)+", "", options, flags=re.M).replace("hooks: [docs/scripts/site_hooks.py]\n", "")
    (tmp_path / "mkdocs.yml").write_text(options)
    done = sh(tmp_path, BUILD)
    assert done.returncode != 0 and "nowhere.md" in done.stderr
