"""Steps that run in a copy of a prepared process: like steps of their own, whoever is killed or edited."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sgoif.bench.execution.launch import client
from sgoif.bench.execution.launch.server import job_server
from sgoif.utils.paths import ROOT

ANSWER = """
def folder_step(args):
    import json, os, sys, threading
    print(json.dumps([os.getpid(), os.getcwd(), sys.argv[1:], os.environ.get("COLOUR"), "colorsys" in sys.modules]))
"""
WAIT = """
def folder_step(args):
    import os, time
    print(os.getpid(), flush=True)
    time.sleep(60)
"""
STEP = ["folder", "--config", "mini.yaml"]


class Project:
    """A folder with the package, a server in it, and steps that are handed over to it."""

    def __init__(self, folder: Path, where: dict[str, str]):
        self.folder = folder
        self.environment = {**os.environ, "PYTHONPATH": str(folder), **where}
        self.steps = folder / "sgoif" / "bench" / "steps.py"
        self.original = self.steps.read_text()

    def edit(self, text: str) -> None:
        self.steps.write_text(self.original + text)

    def start(self, *words: str, **environment: str) -> subprocess.Popen:
        command = [sys.executable, "-m", "sgoif.bench", *words]
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env={**self.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@contextlib.contextmanager
def served(folder: Path):
    with contextlib.chdir(folder), job_server(["colorsys"], PYTHONPATH=str(folder)) as where:
        yield Project(folder, where)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    shutil.copytree(ROOT / "sgoif", folder / "sgoif", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "Snakefile", folder)
    (folder / "baselines").mkdir()
    with served(folder) as project:
        yield project


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def gone(pid: int, seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not alive(pid)


def test_a_step_runs_in_a_copy_with_what_the_client_has(project):
    project.edit(ANSWER)
    step = project.start(*STEP, COLOUR="blue")
    said, errors = step.communicate(timeout=60)
    pid, folder, words, colour, imported = json.loads(said)
    assert step.returncode == 0 and errors == ""
    assert pid != step.pid and Path(folder) == project.folder.resolve()
    assert words == STEP and colour == "blue" and imported


def test_a_copy_runs_the_code_that_is_on_the_disk(project):
    for word in ("first", "second"):
        project.edit(f"\ndef folder_step(args):\n    print({word!r})\n")
        said, _ = project.start(*STEP).communicate(timeout=60)
        assert said == f"{word}\n"


@pytest.mark.parametrize(
    ("text", "status", "end"),
    [
        ("\ndef folder_step(args):\n    raise UserError('no such thing')\n", 2, "error: no such thing\n"),
        ("\ndef folder_step(args):\n    raise ValueError('unforeseen')\n", 1, "ValueError: unforeseen\n"),
        ("\ndef folder_step(args):\n    return 7\n", 7, ""),
        ("\ndef folder_step(args):\n    os.kill(os.getpid(), 9)\n", 128 + signal.SIGKILL, "Killed\n"),
    ],
)
def test_a_step_ends_as_it_would_by_itself(project, text, status, end):
    project.edit(text)
    step = project.start(*STEP)
    _, errors = step.communicate(timeout=60)
    assert step.returncode == status and errors.endswith(end)


def test_words_that_are_not_understood_are_refused_as_ever(project):
    project.edit("")
    step = project.start("folder", "--nonsense")
    _, errors = step.communicate(timeout=60)
    assert step.returncode == 2 and "--nonsense" not in errors.splitlines()[0] and "error:" in errors


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_reaches_the_copy(project, number):
    project.edit(WAIT)
    step = project.start(*STEP)
    pid = int(step.stdout.readline())
    step.send_signal(number)
    _, errors = step.communicate(timeout=20)
    interrupted = number == signal.SIGINT
    assert step.returncode == (130 if interrupted else 128 + number) and gone(pid)
    assert errors == ("interrupted; run again to go on from here\n" if interrupted else "")


def test_a_copy_dies_with_its_client(project):
    project.edit(WAIT)
    step = project.start(*STEP)
    pid = int(step.stdout.readline())
    step.kill()
    step.wait()
    assert gone(pid)


@pytest.mark.parametrize("environment", [{"PYTHONPATH": f"{{folder}}{os.pathsep}/nowhere"}, {client.ADDRESS: "nobody"}])
def test_what_cannot_be_handed_over_runs_by_itself(project, environment):
    project.edit(ANSWER)
    changed = {key: value.format(folder=project.folder) for key, value in environment.items()}
    step = project.start(*STEP, **changed)
    said, errors = step.communicate(timeout=60)
    assert errors == "" and json.loads(said)[0] == step.pid


def test_copies_die_with_the_server_and_the_client_says_so(project):
    project.edit(WAIT)
    with served(project.folder) as other:
        step = other.start(*STEP)
        pid = int(step.stdout.readline())
    _, errors = step.communicate(timeout=20)
    assert step.returncode == 1 and gone(pid)
    assert errors == "error: the process that starts the jobs of this run has ended; run again to go on\n"


def test_the_server_forks_with_one_thread(tmp_path):
    """The libraries that it imports start none: a lock that another thread holds would stay locked in every copy.

    Only the memory allocator of a library may have one (jemalloc, on x86): it takes care of its locks when forking.
    """
    code = "import os; from sgoif.bench.execution.launch import server; server._import_all(server.LIBRARIES)"
    count = "; print(*sorted(open(f'/proc/self/task/{t}/comm').read().strip() for t in os.listdir('/proc/self/task')))"
    done = subprocess.run([sys.executable, "-c", code + count], capture_output=True, text=True, cwd=ROOT)
    started = [name for name in done.stdout.split() if name != "jemalloc_bg_thd"]
    assert len(started) == 1, (done.stdout, done.stderr)
