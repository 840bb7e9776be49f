"""Pages: links and their anchors lead somewhere, README is short, sentences are short, what is generated is current."""

import re

import pytest

from tests.docs.pages import GENERATED, NOTEBOOK, PAGES, prose, read, without_code
from tests.helpers.project_copy import ROOT, copy_project, sh

WRITTEN = [page for page in PAGES if page not in GENERATED]
MOST_LINES = 120  # of the README
MOST_WORDS = 40  # in a sentence
MOST_WORDS_OF_A_PARAGRAPH = 110


def anchors(page: str) -> set[str]:
    """The anchors of a page's headings, by the rule that GitHub and MkDocs share."""
    headings = re.findall(r"^#+ (.+)$", without_code(page), flags=re.M)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", h).replace("`", "").lower() for h in headings]
    return {re.sub(r"[^\w\- ]", "", h).strip().replace(" ", "-") for h in plain}


def links(page: str) -> list[tuple[str, str]]:
    """(path, anchor) of all links that lead into the project."""
    found = re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", without_code(page))
    return [(path, anchor) for path, anchor in found if "://" not in path]


@pytest.mark.parametrize("page", PAGES)
def test_links_and_their_anchors_lead_somewhere(page):
    for path, anchor in links(page):
        target = ((ROOT / page).parent / path).resolve() if path else ROOT / page
        assert target.exists(), f"{page}: {path}"
        if anchor:
            assert anchor in anchors(str(target.relative_to(ROOT))), f"{page}: {path}#{anchor}"


def test_a_link_to_nowhere_is_found():
    assert "seeds" in anchors("docs/results/measured.md") and "nowhere" not in anchors("docs/results/measured.md")
    assert ("docs/results/measured.md", "seeds") in links("README.md")


def test_the_readme_is_short():
    assert len(read("README.md").splitlines()) <= MOST_LINES


@pytest.mark.parametrize("page", WRITTEN)
def test_sentences_are_short(page):
    """Three clauses fit into forty words; paragraphs of the lab notebook may be long, its sentences not."""
    for paragraph in prose(page):
        for sentence in re.split(r"(?<=[.:;?!])\s+(?=[A-Z*\"(])", paragraph):
            assert len(sentence.split()) <= MOST_WORDS, f"{page}: {sentence}"
        assert page in NOTEBOOK or len(paragraph.split()) <= MOST_WORDS_OF_A_PARAGRAPH, f"{page}: {paragraph}"


@pytest.mark.parametrize("page", WRITTEN)
def test_pages_tell_facts_and_not_the_history_of_machine_time(page):
    words = re.findall(r"\b(?:sessions?|loans?|helpers?)\b", re.sub(r"`[^`]*`", "", without_code(page)), flags=re.I)
    assert words == [], page


def test_the_api_page_is_current(tmp_path):
    project = copy_project(tmp_path)
    done = sh(project, "python docs/scripts/api.py && python docs/scripts/measured.py")
    assert done.returncode == 0, done.stderr
    for page in ("docs/api.md", "README.md", "docs/results/measured.md", "docs/results/limits.md"):
        assert (project / page).read_text() == read(page), (
            f"{page} is behind docstrings or results/published: make docs"
        )


METHOD_PACKAGES = (
    "anchors",
    "applications",
    "backend",
    "curvature",
    "gradients",
    "label_noise",
    "scopes",
    "scores",
    "solvers",
)


def test_method_page_names_every_file_of_the_method():
    text = read("docs/method.md")
    folders = [ROOT / "sgoif" / folder for folder in ("", *METHOD_PACKAGES)]
    files = [p.name for folder in folders for p in folder.glob("[!_]*.py") if p.name != "cli.py"]
    assert [name for name in files if name not in text] == []
