"""`make published`: what is published is what the committed records make with the present code."""

import gzip
import json
import shutil
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from sgoif.bench.cli import main
from sgoif.bench.sharing import republish as module
from sgoif.bench.sharing.republish import republish
from sgoif.errors import UserError
from sgoif.utils.files import atomic_write_json, read_json
from sgoif.utils.paths import ROOT

MEASURED = ROOT / "configs" / "ood-trained.yaml"
PUBLISHED = ROOT / "results" / "published"
RUNS = sorted(path.name.removesuffix(".json.gz") for path in (PUBLISHED / "records").iterdir())


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.fixture
def no_svg(monkeypatch):
    """SVGs are not published, and drawing them takes a sixth of the time; test_figures.py looks at them."""
    monkeypatch.setattr(Figure, "savefig", lambda self, out, *, format, metadata: out.write(format.encode()))


@pytest.mark.usefixtures("no_svg")
@pytest.mark.parametrize(
    "run", [pytest.param(run, marks=pytest.mark.slow if run in ("measurement", "regimes") else ()) for run in RUNS]
)
def test_a_published_run_is_what_its_records_make_byte_by_byte(run, tmp_path, monkeypatch):
    """A changed default, variant or word would leave a run that nobody can rebuild.

    Date and commit of the publication alone may differ; if they are all that does, the old ones are kept. The two
    largest runs take 75 s and 30 s; the same code makes the others.
    """
    monkeypatch.delenv("SGOIF_DATA", raising=False)  # it is part of a configuration's hash
    for kept in (f"records/{run}.json.gz", run):
        source, target = PUBLISHED / kept, tmp_path / "published" / kept
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    folder, changed = republish(ROOT / "configs" / f"{run}.yaml", tmp_path)
    why = "run `make published` and commit what it changes"
    assert changed == [], why
    assert content(folder) == content(PUBLISHED / run), why
    assert sorted(p.name for p in (tmp_path / "published").iterdir()) == sorted([run, "records"])
    assert run in (ROOT / "Makefile").read_text().partition("PUBLISHED := ")[2].splitlines()[0].split()


@pytest.fixture
def results(tmp_path, monkeypatch) -> Path:
    """A folder with one published run whose making is a matter of writing three files."""

    def publish(run_dir, target, config):
        target.mkdir(parents=True)
        (target / "table1.md").write_text("| 93.1 |\n")
        (target / "summary.json.gz").write_bytes(gzip.compress(b"[93.1]", mtime=0))
        (target / "report.html").write_text("<p>93.1, made by new on 2026-02-02</p>\n")
        made = {"run": "ood-trained", "published": "2026-02-02", "published_by_commit": "new", "config_hash": "h"}
        atomic_write_json(target / "provenance.json", made)
        return target

    def merge(files, config_file, folder):
        atomic_write_json(folder / "ood-trained" / "config.json", {})
        return folder / "ood-trained"

    monkeypatch.setattr(module, "merge_records", merge)
    monkeypatch.setattr(module, "publish", publish)
    (tmp_path / "published" / "records").mkdir(parents=True)
    (tmp_path / "published" / "records" / "ood-trained.json.gz").write_bytes(b"")
    return tmp_path


def age(folder: Path, commit: str = "old") -> None:
    """Make what is published look like that of an earlier day and commit and of another zlib."""
    (folder / "summary.json.gz").write_bytes(gzip.compress(b"[93.1]", 1, mtime=7))
    old = {**read_json(folder / "provenance.json"), "published": "2026-01-01", "published_by_commit": commit}
    atomic_write_json(folder / "provenance.json", old)
    (folder / "report.html").write_text(f"<p>93.1, made by {commit} on 2026-01-01</p>\n")


def test_what_is_new_is_told_and_a_second_time_changes_nothing(results):
    folder, changed = republish(MEASURED, results)
    assert changed == ["provenance.json", "report.html", "summary.json.gz", "table1.md"]
    age(folder)
    before = content(folder)
    assert republish(MEASURED, results) == (folder, []) and content(folder) == before


def test_pages_of_changed_files_become_those_of_a_commit(results):
    folder, _ = republish(MEASURED, results)
    age(folder, "old-dirty")
    assert {"provenance.json", "report.html"} <= set(republish(MEASURED, results)[1])
    assert read_json(folder / "provenance.json")["published_by_commit"] == "new"
    assert "made by new on 2026-02-02" in (folder / "report.html").read_text()


@pytest.mark.parametrize("name", ["table1.md", "report.html", "provenance.json", "summary.json.gz", "leftover.md"])
def test_a_file_that_is_not_what_the_records_make_is_replaced_with_the_new_date(results, name):
    folder, _ = republish(MEASURED, results)
    age(folder)
    text = json.dumps({**read_json(folder / name), "config_hash": "other"}) if name.endswith("json") else "edited"
    (folder / name).write_text(text)
    changed = republish(MEASURED, results)[1]
    assert name in changed and "provenance.json" in changed
    assert read_json(folder / "provenance.json")["published"] == "2026-02-02"
    assert not (folder / "leftover.md").exists() and (folder / "table1.md").read_text() == "| 93.1 |\n"


def test_what_is_published_stays_small():
    """Every version of these files stays in git."""
    sizes = {path: path.stat().st_size for path in PUBLISHED.rglob("*") if path.is_file()}
    records = sum(size for path, size in sizes.items() if path.parent.name == "records")
    assert 0 < records < 6 * 2**20
    assert not [path for path, size in sizes.items() if size >= 2**20 and path.parent.name != "records"]
    assert not list(PUBLISHED.glob("*/*.svg")), "figures are published as PNG"


def test_a_run_without_records_is_refused(tmp_path, monkeypatch, capsys):
    with pytest.raises(UserError, match="there are no records of run 'embedded'"):
        republish(ROOT / "configs" / "embedded.yaml", tmp_path)
    monkeypatch.chdir(ROOT)
    assert main(["republish", "--config", "configs/embedded.yaml"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
