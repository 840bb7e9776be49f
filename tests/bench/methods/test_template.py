"""`make new-baseline`: what it writes keeps the contract at once, and it overwrites nothing."""

from pathlib import Path

import pytest

from sgoif.bench.methods import registry
from tests.helpers.project import copy_project, make, sh


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    return copy_project(tmp_path_factory.mktemp("project"))


def test_a_new_method_passes_the_contract_at_once(project):
    for task in ("noisy", "ood"):
        done = sh(project, make(f"make new-baseline NAME=brand_new_{task} TASK={task}"))
        assert done.returncode == 0, done.stderr
        assert f"wrote baselines/{task}/brand_new_{task}.py" in done.stdout
    done = sh(project, "python -m pytest -p no:cacheprovider tests/contract -k brand_new")
    assert done.returncode == 0 and done.stdout.startswith("....."), done.stdout[-3000:]
    style = sh(project, "ruff format --check baselines/noisy/brand_new_noisy.py baselines/ood/brand_new_ood.py")
    assert style.returncode == 0, style.stdout
    assert sh(project, "snakefmt --check workflow/rules/noisy/brand_new_noisy.smk").returncode == 0


@pytest.mark.parametrize(
    ("name", "task", "message"),
    [
        ("Foo", "noisy", "NAME=Foo: use small letters"),
        ("2fast", "noisy", "NAME=2fast: use small letters"),
        ("../x", "noisy", "NAME=../x: use small letters"),
        ("class", "ood", "no Python keyword"),
        ("", "noisy", "NAME=: use small letters"),
        ("plain", "noisy", "NAME=plain: this is the name of something the workflow shares"),
        ("loss", "noisy", "baselines/noisy/loss.py is there already"),
        ("foo", "images", "TASK=images: choose one of noisy, ood"),
        ("foo", "", "TASK=: choose one of noisy, ood"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(project, name, task, message):
    before = sorted((project / "baselines").rglob("*.py"))
    done = sh(project, f"python -m sgoif.bench new-baseline --name '{name}' --task '{task}'")
    assert done.returncode == 2 and message in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert sorted((project / "baselines").rglob("*.py")) == before


def test_names_of_shared_runs_are_not_methods():
    for task in registry.TASKS:
        assert not {"plain", "folds"} & set(registry.available(task))
