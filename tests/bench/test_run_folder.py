"""`make clean` removes the results of one run, which the configuration names, and nothing else."""

import fcntl
from pathlib import Path

import pytest
import yaml

from sgoif.bench.cli import main
from tests.helpers.project_copy import MINI_CONFIG

WRONG_NAMES = (None, "", ".", "..", "../data", "published", "mini/cells", "/", "~", "x; touch y", "mini\n", 3)
MINI = yaml.safe_load(MINI_CONFIG.read_text())


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """A folder with results of two runs, published ones and data."""
    for name in ("results/mini/cells/a.npz", "results/other/b.npz", "results/published/mini/t.md", "data/x/meta.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("kept")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def configuration(**changes) -> str:
    content = {key: value for key, value in {**MINI, **changes}.items() if value is not None}
    Path("mini.yaml").write_text(yaml.safe_dump(content))
    return "mini.yaml"


def files(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file() and p.name != "mini.yaml"}


def test_one_run_is_removed_and_told(project, capsys):
    before = files(project)
    assert main(["clean", "--config", configuration()]) == 0
    assert capsys.readouterr().out == "removed results/mini: 1 files, 0.0 MiB\n"
    assert before - files(project) == {"results/mini/cells/a.npz"} and not (project / "results/mini").exists()
    assert main(["clean", "--config", "mini.yaml"]) == 0
    assert capsys.readouterr().out == "nothing to remove: there is no results/mini\n"


@pytest.mark.parametrize(
    "changes",
    [{"run": name} for name in WRONG_NAMES] + [{"noisyy": {}}, {"methods": {"noisy": ["lossy"], "ood": []}}],
)
def test_what_make_tables_refuses_removes_nothing(project, capsys, changes):
    before = files(project)
    path = configuration(**changes)
    assert main(["run", "--", "--configfile", path]) == 2
    refused = capsys.readouterr().err
    assert main(["clean", "--config", path]) == 2
    assert capsys.readouterr().err == refused and refused.count("\n") == 1
    assert files(project) == before


def test_a_configuration_that_is_missing_removes_nothing(project, capsys):
    before = files(project)
    assert main(["clean", "--config", "configs/typo.yaml"]) == 2
    assert "no configuration file configs/typo.yaml" in capsys.readouterr().err
    assert files(project) == before


def test_links_are_not_followed(project, capsys):
    (project / "results/mini/away").symlink_to(project / "data", target_is_directory=True)
    assert main(["clean", "--config", configuration()]) == 0
    assert (project / "data/x/meta.json").is_file() and not (project / "results/mini").exists()
    (project / "results/mini").symlink_to(project / "data", target_is_directory=True)
    assert main(["clean", "--config", "mini.yaml"]) == 2
    assert "is a link to" in capsys.readouterr().err and (project / "data/x/meta.json").is_file()


def test_a_run_that_is_going_on_keeps_its_results(project, capsys):
    (project / ".snakemake").mkdir()
    with open(project / ".snakemake/sgoif.lock", "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        assert main(["clean", "--config", configuration()]) == 2
    assert "a run is going on" in capsys.readouterr().err and (project / "results/mini").is_dir()


def test_the_folder_of_a_run_comes_from_its_checked_configuration(project, capsys):
    assert main(["folder", "--config", configuration()]) == 0
    assert capsys.readouterr().out == "results/mini\n"
    assert main(["where", "--config", "mini.yaml"]) == 2
    assert "no configuration results/mini/config.json" in capsys.readouterr().err
