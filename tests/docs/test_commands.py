"""Every command and code block in README, CONTRIBUTING, benchmarks and docs is run, in a copy of the project.

* `python` blocks run in the order of their page, in one namespace that has what a training loop has (`loop`); one that
  begins with `# path/to/file.py` is written to that file, and so is a `yaml` block.
* `sh` blocks run line by line. What takes minutes is asked whether it would run: `make -n`, `snakemake -n`, and the
  argument parsers of our programs, in this process.
* Commands inside a sentence are checked in the same way.
* `<!-- not run: why -->` in the line above excuses a block, visibly.
"""

import argparse
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sgoif.bench.config import load_config
from sgoif.bench.config.checks import CHECKED_PARAMS, params_digest
from tests.docs.pages import PAGES, without_code
from tests.helpers.project_copy import ROOT, copy_project, make, sh

QUICK_TARGETS = ("help", "new-baseline")
KNOWN = ("sh", "python", "yaml", "text", "mermaid", "")
PROGRAMS = ("sgoif.bench", "benchmarks.", "tests.")  # python -m …: their options are parsed, and nothing is run
pytestmark = pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")  # a program that was imported
COMMANDS = ("make ", "snakemake ", "python -m ", "pip install ", ".venv/bin/sgoif ", "sgoif ", "pytest ")


@dataclass
class Block:
    language: str
    text: str
    excuse: str | None
    line: int


def blocks(page: str) -> list[Block]:
    found, lines = [], (ROOT / page).read_text().splitlines()
    start = None
    for number, line in enumerate(lines):
        if not line.lstrip().startswith("```"):
            continue
        if start is None:
            start = number
            continue
        above = lines[start - 1] if start else ""
        excuse = re.fullmatch(r"<!-- not run: (.+) -->", above.strip())
        text = "\n".join(lines[start + 1 : number])
        language = lines[start].strip().removeprefix("```")
        found.append(Block(language, text, excuse[1] if excuse else None, start + 1))
        start = None
    assert start is None, f"{page}: a block is not closed"
    return found


def inline(page: str) -> list[str]:
    """Commands in backticks inside sentences; such with a <placeholder> or … are patterns, not commands."""
    spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", without_code(page))]
    bare = [re.sub(r"^([A-Z_]+=\S+ )+", "", span) for span in spans]
    return [s for s in bare if s.startswith(COMMANDS) and not re.search(r"<\w+>|…", s)]


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Iterator[Path]:
    """A copy in which the hyper-parameters of the embedded run count as checked: for that Snakemake loads torch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CHECKED_PARAMS, params_digest(load_config(ROOT / "configs" / "embedded.yaml")))
        yield copy_project(tmp_path_factory.mktemp("docs"))


def loop() -> dict:
    """What the pages take for granted in a training loop of one's own."""
    import torch

    from examples.digits import batches, digits, network
    from sgoif import OnlineInfluence

    x, y, *_ = digits()
    model = network(0)
    return {
        "model": model,
        "train": y[:256],
        "loader": list(batches(x[:256], y[:256])),
        "labels": y[:256],
        "checked": [(x, y) for _, x, y in batches(x[256:384], y[256:384])],
        "epochs": 2,
        "criterion": torch.nn.CrossEntropyLoss(),
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "influence": OnlineInfluence(model, 256, 10),
    }


def file_named(text: str) -> str | None:
    first = re.match(r"# ([\w./-]+\.(?:py|yaml|smk))\n", text)
    return first[1] if first else None


def extras_exist(requirement: str) -> None:
    """`pip install ".[scan]"` names an extra of this package."""
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra in re.findall(r"[\w-]+", requirement.partition("[")[2]):
        assert extra in known, f"pip install {requirement}: the package has no extra {extra}"


class Parsed(Exception):
    """Raised in the place of what a program does after it has read its options."""


def parses(module: str, options: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """`python -m module options` understands its options; one that is only named is asked for its help."""
    parse = argparse.ArgumentParser.parse_args

    def parse_and_stop(self, args=None, namespace=None):
        parse(self, args, namespace)
        raise Parsed

    with monkeypatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", parse_and_stop)
        patch.setattr(sys, "argv", [module, *(options or ["--help"])])
        try:
            runpy.run_module(module, run_name="__main__")
        except Parsed:
            return
        except SystemExit as end:
            assert end.code == 0, f"python -m {module} {shlex.join(options)}: status {end.code}"
            return
    pytest.fail(f"{module} ended without reading its options")


def words_of(line: str) -> list[str]:
    """The words of a command line, without variables in front of it and without its comment."""
    words = shlex.split(line, comments=True)
    words = [w for w in words if not re.fullmatch(r"[A-Z_]+=\S*", w)] if "=" in words[0] else words
    return ["python", *words[1:]] if words[0] == ".venv/bin/python" else words


def program(words: list[str]) -> tuple[str, list[str]] | None:
    """(module, options) of a program of ours that is asked instead of run."""
    if words[:2] == ["python", "-m"] and words[2].startswith(PROGRAMS):
        return words[2], words[3:]
    if words[0].endswith("sgoif"):
        if words[1] == "bench":
            return "sgoif.bench", [*words[2:3], "--help"]
        return "sgoif", words[1:] if len(words) > 2 else [*words[1:], "--help"]  # a command that is only named
    return None


def dry(words: list[str]) -> str | None:
    """The command that is run: itself if it is quick, else one that only asks; None: nothing to run here."""
    command = shlex.join(words)
    if words[0] == "make":
        return make(command if words[1] in QUICK_TARGETS else command.replace("make ", "make -n ", 1))
    if words[0] == "snakemake":
        kept = [
            w for w in words[1:] if w not in ("--use-conda", "-n", "all", "--cores", "--lint")
        ]  # known to be options
        part = ["track_init"] if kept[-1:] == ["configs/paper.yaml"] else []  # test_dag.py plans the whole paper
        return shlex.join(["snakemake", "-n", *part, *kept, "--quiet", "all"])
    if words[:2] == ["pip", "install"]:
        return f"test -s {words[words.index('-r') + 1]}" if "-r" in words else extras_exist(words[-1])
    if words[:2] == ["git", "clone"]:
        return None  # of an address that every copy has its own
    if words[0] == "pytest":
        return f"python -m {command} --collect-only"
    return command


ASKED: dict[str, subprocess.CompletedProcess] = {}


def answer(project: Path, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = words_of(line)
    if asked := program(words):
        parses(*asked, monkeypatch)
        return
    if words[:2] == ["python", "-m"] and words[2].startswith("examples."):
        runpy.run_module(words[2], run_name="__main__")  # in this process, which has loaded torch
        return
    command = dry(words)
    if command is None:
        return
    once = "-n" in command.split()  # what only asks has the same answer every time
    done = ASKED[command] if once and command in ASKED else sh(project, command)
    ASKED[command] = done
    assert done.returncode == 0, f"{line}\n({command})\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}"


@pytest.mark.parametrize("page", PAGES)
def test_blocks_run(page, project, monkeypatch):
    monkeypatch.chdir(project)
    namespace: dict = {}
    for block in blocks(page):
        assert block.language in KNOWN, f"{page}:{block.line}: no rule for {block.language!r} blocks"
        if block.excuse is not None or block.language in ("text", "mermaid", ""):
            continue
        target = file_named(block.text)
        if target:
            text = block.text.split("\n", 1)[1] if target.endswith(".py") else block.text
            (project / target).write_text(text + "\n")
        elif block.language == "python":
            namespace = namespace or loop()
            exec(compile(block.text, f"{page}:{block.line}", "exec"), namespace)
        elif block.language == "sh":
            for line in block.text.splitlines():
                if line.split("#")[0].strip():
                    answer(project, line, monkeypatch)
        else:
            pytest.fail(f"{page}:{block.line}: a yaml block begins with `# configs/<name>.yaml`")


def test_the_quickstart_runs_by_itself_and_finds_the_wrong_labels(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for block in blocks("docs/quickstart.md"):
        if block.language == "python":
            exec(compile(block.text, f"docs/quickstart.md:{block.line}", "exec"), names)
    assert abs(names["issues"].count - 100) <= 5 and names["issues"].mask[:100].sum() >= 95


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_sentences_exist(page, project, monkeypatch):
    for command in inline(page):
        if command.startswith("make new-baseline"):
            continue  # run by the blocks; a second time it would refuse
        answer(project, command, monkeypatch)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("make nonsense", "make nonsense"),
        ("snakemake --cores all --configfile configs/none.yaml", "configs/none.yaml"),
        (".venv/bin/sgoif scan --nonsense x", "sgoif scan --nonsense x: status 2"),
        ("python -m benchmarks.scaling --nonsense", "benchmarks.scaling --nonsense: status 2"),
        ("python -m tests.mutants --count many", "tests.mutants --count many: status 2"),
        ('pip install ".[nonsense]"', "no extra nonsense"),
    ],
)
def test_a_wrong_command_is_found(line, said, project, monkeypatch):
    with pytest.raises(AssertionError, match=re.escape(said)):
        answer(project, line, monkeypatch)
