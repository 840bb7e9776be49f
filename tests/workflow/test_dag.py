"""What the DAG says without being run: no method is handed the truth, the paper plans fast, mistakes are told."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sgoif.bench.config import load_config
from sgoif.bench.config.checks import CHECKED_PARAMS, params_digest
from sgoif.bench.methods import registry
from sgoif.utils.paths import ROOT

TRUTH = re.compile(r"/truth/|_labels\.npy|/labels\.npz")


def snakemake(*arguments: str, folder: Path = ROOT, **variables: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **variables}
    command = [sys.executable, "-m", "snakemake", "--nolock", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


def checked(config: Path) -> dict[str, str]:
    """What `sgoif.bench run` tells Snakemake: that it has checked the hyper-parameters, for which torch is loaded."""
    return {CHECKED_PARAMS: params_digest(load_config(config))}


@pytest.fixture(scope="module")
def planned(tmp_path_factory) -> str:
    """The jobs of the embedded run as a dry run prints them, with the truth files counted as missing."""
    file = "configs/embedded.yaml"
    done = snakemake("-n", "--forceall", "--configfile", file, **checked(ROOT / file))
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout + done.stderr


def jobs(text: str) -> list[dict[str, str]]:
    found = []
    for block in re.split(r"\n(?=(?:local)?rule )", text):
        if match := re.match(r"(?:local)?rule (\w+):", block):
            fields = dict(re.findall(r"^    (\w+): (.*)$", block, re.M))
            found.append({"rule": match[1], **fields})
    return found


def test_no_method_is_handed_the_truth(planned):
    methods = [job for job in jobs(planned) if re.search(r"/batches/", job.get("output", ""))]
    assert len(methods) > 30
    for job in methods:
        assert not TRUTH.search(job["input"]), job


def test_only_the_evaluation_reads_the_truth(planned):
    readers = {job["rule"] for job in jobs(planned) if TRUTH.search(job.get("input", ""))}
    assert readers == {"evaluate", "curves"}


def test_trusted_labels_go_only_to_methods_that_declare_them(planned):
    with_val = {
        job["rule"] for job in jobs(planned) if "/val.npz" in job.get("input", "") and "/noisy/" in job["output"]
    }
    given = ("tracin", "fastif", "mentornet", "sgoif_trusted", "inrun_shapley", "trusted_probe", "glc", "sgoif_glc")
    assert with_val - {"evaluate"} == {f"noisy_{m}" for m in given}


def test_the_longest_of_the_last_jobs_does_not_wait_for_the_figures(planned):
    assert {job["rule"] for job in jobs(planned) if job.get("priority") == "1"} == {"tables", "track"}


def test_a_method_is_handed_the_shared_runs_that_its_class_reads(planned):
    methods = [job for job in jobs(planned) if re.fullmatch(r"(noisy|ood)_\w+", job["rule"])]
    assert {job["rule"] for job in methods} == {
        f"{task}_{n}" for task in registry.TASKS for n in registry.available(task)
    }
    counted = load_config(ROOT / "configs/embedded.yaml")["noisy"]["digits"]["retrain_same"]
    for job in methods:
        task, name = job["rule"].split("_", 1)
        method = registry.load(task, name)
        read = {shared for shared in registry.SHARED if f"/{shared}/" in job["input"]}
        wanted = {shared for shared in registry.SHARED if getattr(method, f"reads_{shared}", False)}
        if any(f"/noisy/digits/{called}/" in job["output"] for called in counted):
            wanted.add("folds")  # they say how many all methods remove
        assert read == wanted, job
        assert ("/val.npz" in job["input"]) == (task == "ood" or method.uses_trusted), job


def test_a_restricted_plain_run_leaves_the_others_their_labels(tmp_path):
    """Also: jobs ask for a GPU for each process that trains, and for as many machines as these need."""
    restricted = {"plain": {"settings": ["n20_s0"], "reason": "measured before"}}
    share = {"digits": {"restrict": restricted, "processes": 16}}
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    wide, asked = tmp_path / "configs" / "wide.yaml", {"noisy": share, "execution": {"device": "auto"}}
    wide.write_text(json.dumps({"extends": "embedded.yaml", "run": "embedded", **asked}))
    target = "results/embedded/batches/noisy/digits/sgoif/0.json"
    targets = [target, target.replace("sgoif", "loss")]
    options = ("-n", "-F", "--configfile", str(wide), "--resources", "gpu=16")
    done = snakemake(*options, "--", *targets, **checked(wide))
    assert done.returncode == 0, done.stderr[-2000:]
    sgoif = next(job for job in jobs(done.stdout + done.stderr) if job["rule"] == "noisy_sgoif")
    loss = next(job for job in jobs(done.stdout + done.stderr) if job["rule"] == "noisy_loss")
    assert "gpu=16, nodes=2" in sgoif["resources"] and "gpu=1, nodes=1" in loss["resources"]
    assert "labels/digits/n20_s2.npz" in sgoif["input"]
    assert "labels/digits/n20_s2.draw1.npz" in sgoif["input"], "seed 1 has noise of its own"
    drawn = [job for job in jobs(done.stdout + done.stderr) if job["rule"] == "corrupt"]
    assert len(drawn) == 2 * 14 and any("truth/digits/n20_s2.draw1.npz" in job["output"] for job in drawn)


def test_the_paper_plans_without_any_dataset_in_time(tmp_path):
    before = time.perf_counter()
    empty = json.dumps({"root": str(tmp_path / "nothing")})
    done = snakemake("-n", "-q", "rules", "--configfile", "configs/paper.yaml", "--config", f"data={empty}")
    assert done.returncode == 0, done.stderr[-2000:]
    assert time.perf_counter() - before < 180  # 20 s on an idle machine: this is about hours


def test_what_the_rules_import_needs_no_torch():
    """A plan takes half the time without it."""
    rules = [ROOT / "Snakefile", *(ROOT / "workflow").rglob("*.smk")]
    imports = re.findall(r"^from sgoif.* import .*$", "\n".join(path.read_text() for path in rules), re.M)
    assert "from sgoif.bench import figures" in imports
    code = "\n".join([*imports, "import sys", "figures.modules()", "assert 'torch' not in sys.modules"])
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("execution={device: gpu}", "execution.device: 'gpu' is not one of"),
        ("methods={noisy: [sgoof], ood: []}", "no method 'sgoof'; did you mean sgoif"),
        ("nonsense=1", "nonsense: no such key"),
    ],
)
def test_a_wrong_configuration_stops_before_any_job_and_without_a_traceback(override, told):
    done = snakemake("-n", "--configfile", "configs/embedded.yaml", "--config", override)
    assert done.returncode == 1
    text = done.stdout + done.stderr
    assert told in text and "Traceback" not in text
