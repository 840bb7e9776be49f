"""`make new-baseline`: what it writes keeps the contract at once, and it overwrites nothing."""

import json
import sys
from pathlib import Path

import pytest

from sgoif.bench.methods import registry
from tests.helpers.project_copy import copy_project, make, sh


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    return copy_project(tmp_path_factory.mktemp("project"))


def test_a_new_method_passes_the_contract_at_once(project):
    for task in ("noisy", "ood"):
        done = sh(project, make(f"make new-baseline NAME=brand_new_{task} TASK={task}"))
        assert done.returncode == 0, done.stderr
        assert f"wrote baselines/{task}/brand_new_{task}.py" in done.stdout
    hint = done.stdout.split("check it with: ")[1].splitlines()[0]
    assert hint == f"{sys.executable} -m pytest tests/contract -k brand_new_ood", "the environment of the project"
    done = sh(project, f"{hint.removesuffix('_ood')} -p no:cacheprovider")
    assert done.returncode == 0 and done.stdout.startswith("....."), done.stdout[-3000:]
    style = sh(project, "ruff format --check baselines/noisy/brand_new_noisy.py baselines/ood/brand_new_ood.py")
    assert style.returncode == 0, style.stdout
    assert sh(project, "snakefmt --check workflow/rules/noisy/brand_new_noisy.smk").returncode == 0


SHOWN = """
import json
from pathlib import Path
from sgoif.bench.evaluation.table_layout import Panel, TableLayout
from sgoif.bench.report.sections import cost_section
from sgoif.bench.tables import write_tables
from sgoif.bench.tables.names import title
from sgoif.utils.files import atomic_write_json

methods = ["plain", "mine", "loss"]
panel = Panel("noisy", "digits", "n20", "Digits", noise=0.2, sparsity=0.0, methods=methods, seeds=[0, 1])
layout = TableLayout("noise_grid", "noisy", "T", panels=[panel]).to_json()
common = {"table": "t", "dataset": "digits", "setting": "n20", "variant": "", "status": "ok", "reason": ""}
number = {**common, "metric": "auc_pr", "mean": 0.5, "std": 0.1, "n_seeds": 2, "seeds": [0, 1], "values": [0.4, 0.6]}
records = [{**common, "metric": "layout", "method": "", "mean": None, "layout": layout}]
records += [{**number, "method": m} for m in methods]
run = Path("run")
atomic_write_json(run / "summary.json", records)
write_tables(run)
cell = {"dataset": "digits", "setting": "n20", "seed": 0, "method": "mine"}
metric = {**cell, "metric": "seconds_total", "value": 2.0, "epoch": None, "variant": ""}
atomic_write_json(run / "metrics" / "noisy" / "digits.json", [metric])
blocks = json.loads((run / "tables" / "t.json").read_text())["blocks"]
rows = [[r["group"], r["title"]] for r in blocks[0]["rows"] if r["method"]]  # AUC-PR, without the base rate
print(json.dumps({"rows": rows, "figure": title("noisy", "mine@big"), "report": cost_section(run)[0]["method"]}))
"""


def test_a_new_method_is_shown_under_its_own_title_and_group(project):
    """One file and one rule are added to a copy of the project; table, figure and report find the title there."""
    source = (project / "baselines/noisy/loss.py").read_text()
    for old, new in (("loss", "mine"), ("last-epoch loss", "My own method")):
        source = source.replace(f'= "{old}"', f'= "{new}"')
    (project / "baselines/noisy/mine.py").write_text(source.replace("    order = 2\n", ""))
    rule = (project / "workflow/rules/noisy/loss.smk").read_text()
    (project / "workflow/rules/noisy/mine.smk").write_text(rule.replace("loss", "mine"))
    (project / "shown.py").write_text(SHOWN)
    done = sh(project, "PYTHONPATH=$PWD python shown.py")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    free = "Free detectors"
    assert shown["rows"] == [[free, "last-epoch loss"], [free, "My own method"], ["Reference", "plain training"]]
    assert (shown["figure"], shown["report"]) == ("My own method (big)", "My own method")


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
