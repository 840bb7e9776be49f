"""What is named on the command line of make reaches one program as one word; nothing in it is executed."""

import shutil
import subprocess
from pathlib import Path

import pytest

from sgoif.utils.paths import ROOT

HOSTILE = [
    'a"; touch pwned; "',
    "a'; touch pwned; '",
    "x; touch pwned",
    "$(touch pwned)",
    "$(shell touch pwned)",
    "`touch pwned`",
    "${HOME}",
    "a b & touch pwned | touch pwned > pwned",
    "--help",
    "#",
]
TARGETS = {
    "CONFIG": ("clean", "tables", "doctor", "plan", "report", "ui"),
    "PROFILE": ("tables",),
    **dict.fromkeys(("METHODS", "SETTINGS", "SEEDS", "DATASETS"), ("tables", "plan", "verify", "retry", "clean")),
    "PORT": ("ui",),
    "NAME": ("new-baseline",),
    "TASK": ("new-baseline",),
}
RECORDER = r"""#!/bin/sh
printf '%s\0' "$PYTHONPATH" "$#" "$@" >> calls
echo results/mini
"""  # a shell starts thirty times as fast as Python, and a thousand are started


@pytest.fixture
def folder(tmp_path) -> Path:
    """The Makefile with programs that write down what they are called with."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name in ("python", "mlflow", "snakemake", "uv"):
        (programs / name).write_text(RECORDER)
        (programs / name).chmod(0o755)
    for stamp in ("run.stamp", "test.stamp"):
        (tmp_path / ".venv" / stamp).touch()
    return tmp_path


def make(folder: Path, *words: str, **environment: str) -> list[dict]:
    """The calls that a make command leads to."""
    outer = {"PATH": "/usr/bin:/bin", "HOME": "/home/nobody", **environment}
    command = ["make", "-o", ".venv/run.stamp", "-o", ".venv/test.stamp", *words]
    done = subprocess.run(command, cwd=folder, env=outer, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert not list(folder.rglob("pwned")), done.stdout + done.stderr
    return recorded(folder / "calls")


def recorded(path: Path) -> list[dict]:
    """The calls in a file: each is its PYTHONPATH, the number of its words and the words, all ended by a zero."""
    calls, rest = [], path.read_bytes().decode().split("\0")[:-1]
    while rest:
        count = int(rest[1])
        calls.append({"words": rest[2 : 2 + count], "path": rest[0]})
        rest = rest[2 + count :]
    return calls


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("way", ["argument", "environment"])
def test_a_value_is_one_word_and_is_not_executed(folder, value, way):
    for variable, targets in TARGETS.items():
        given = {variable: value} if way == "environment" else {}
        words = [*targets] if way == "environment" else [*targets, f"{variable}={value}"]
        (folder / "calls").unlink(missing_ok=True)
        seen = [word for call in make(folder, *words, **given) for word in call["words"]]
        assert [w for w in seen if w in (value, f"--{variable.lower()}={value}")], f"{variable}: {seen}"
        pieces = [w for w in seen if value in w and w not in (value, f"--{variable.lower()}={value}")]
        assert not pieces, f"{variable}: {pieces}"


def test_a_part_of_a_run_reaches_every_command_that_knows_parts(folder):
    calls = make(
        folder, "tables", "plan", "verify", "retry", "clean", "METHODS=sgoif,aum", "SETTINGS=n20_s0", "SEEDS=0"
    )
    steps = {call["words"][2]: call["words"] for call in calls}
    assert set(steps) == {"run", "where", "plan", "verify", "retry", "clean"}
    for words in steps.values():
        assert {"--methods=sgoif,aum", "--settings=n20_s0", "--seeds=0"} <= set(words)
        assert not [word for word in words if word.startswith("--datasets")]


@pytest.mark.parametrize("name", ["METHOD", "SETTING", "SEED", "DATASET"])
def test_one_letter_less_does_not_start_the_whole_run(folder, name):
    command = ["make", "-o", ".venv/run.stamp", "tables", f"{name}=x"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode and "METHODS=, SETTINGS=" in done.stderr and not (folder / "calls").exists()


def test_a_profile_is_left_out_where_none_is_named(folder):
    first, second = make(folder, "tables")
    assert first["words"] == ["-m", "sgoif.bench", "run", "--", "--configfile", "configs/embedded.yaml"]
    assert second["words"] == ["-m", "sgoif.bench", "where", "--config=configs/embedded.yaml"]


def test_the_store_that_ui_opens_is_that_of_the_run(folder):
    (call,) = make(folder, "ui", CONFIG="configs/cifar.yaml")
    assert call["words"][2:] == ["ui", "--config=configs/cifar.yaml"]


def test_commands_take_the_code_of_this_folder_first(folder):
    """A copied environment still points to the folder that it was copied from."""
    assert make(folder, "doctor")[0]["path"] == str(folder)
    assert make(folder, "doctor", PYTHONPATH="/else")[1]["path"] == f"{folder}:/else"


def test_no_recipe_reads_yaml_or_removes_a_folder_by_itself():
    text = (ROOT / "Makefile").read_text()
    recipes = [line for line in text.splitlines() if line.startswith("\t")]
    assert not [line for line in recipes if "rm -r" in line or "$(RUN)" in line]
    values = ("CONFIG", "PROFILE", "PORT", "NAME", "TASK", "METHOD", "SETTING")
    assert not [line for line in recipes if any(f"$({name})" in line for name in values)]
