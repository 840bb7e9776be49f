"""Hooks of MkDocs: published tables become pages of the site, links to files that are not in it become plain text."""

import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = ROOT / "results" / "published"
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def linked() -> set[Path]:
    """The published files that a page of docs links to."""
    found = set()
    for page in (ROOT / "docs").rglob("*.md"):
        for _, _, target, _ in LINK.findall(page.read_text()):
            path = (page.parent / target).resolve()
            if path.is_relative_to(PUBLISHED) and path.is_file():
                found.add(path)
    return found


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the published files that are linked."""
    for path in sorted(linked()):
        uri = f"published/{path.relative_to(PUBLISHED)}"
        files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links that leave docs into links to the published pages, or into their text."""
    folder = (ROOT / "docs" / page.file.src_uri).parent

    def turned(link: re.Match[str]) -> str:
        image, text, target, anchor = link.groups(default="")
        path = (folder / target).resolve()
        if "://" in target or path.is_relative_to(ROOT / "docs") or not path.is_relative_to(ROOT):
            return link[0]
        if path.is_relative_to(PUBLISHED) and path.is_file():
            inside = ROOT / "docs" / "published" / path.relative_to(PUBLISHED)
            return f"{image}[{text}]({os.path.relpath(inside, folder)}{anchor})"
        return text

    return LINK.sub(turned, markdown)
