"""Every command and code block in README, CONTRIBUTING, benchmarks and docs is run, in a copy of the project.

* `python` blocks run in the order of their page, in one namespace that has what a training loop has (`loop`); one that
  begins with `# path/to/file.py` is written to that file, and so is a `yaml` block.
* `sh` blocks run line by line. What takes minutes is asked whether it would run: `make -n`, `snakemake -n`, and the
  argument parser of `sgoif`.
* Commands inside a sentence are checked in the same way.
* `<!-- not run: why -->` in the line above excuses a block, visibly.
"""

import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, without_code
from tests.helpers.project_copy import ROOT, copy_project, make, sh

QUICK_TARGETS = ("help", "new-baseline")
KNOWN = ("sh", "python", "yaml", "text", "mermaid", "")
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
def project(tmp_path_factory) -> Path:
    return copy_project(tmp_path_factory.mktemp("docs"))


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


def dry(line: str) -> str | None:
    """The command that stands for `line`: itself if it is quick, else one that only asks; None: nothing to run here."""
    words = shlex.split(line, comments=True)
    words = [w for w in words if not re.fullmatch(r"[A-Z_]+=\S*", w)] if "=" in words[0] else words
    if words[0] == ".venv/bin/python":
        words[0] = "python"
    command = shlex.join(words)
    if words[0] == "make":
        return make(command if words[1] in QUICK_TARGETS else command.replace("make ", "make -n ", 1))
    if words[0] == "snakemake":
        kept = [
            w for w in words[1:] if w not in ("--use-conda", "-n", "all", "--cores", "--lint")
        ]  # known to be options
        return shlex.join(["snakemake", "-n", *kept, "--quiet", "all"])
    if words == ["python", "-m", "sgoif.bench"] or (words[2:] and words[2].startswith("benchmarks.")):
        return f"{command} --help"
    if words[0].endswith("sgoif") and words[1] == "bench":
        return shlex.join(["python", "-m", "sgoif.bench", *words[2:3], "--help"])
    if words[0].endswith("sgoif"):
        asked = words[1:] if len(words) > 2 else [*words[1:], "--help"]  # a command that is only named
        parse = f"from sgoif.cli import parser; parser().parse_args({asked!r})"
        return shlex.join([sys.executable, "-c", parse])
    if words[:2] == ["pip", "install"]:
        return f"test -s {words[words.index('-r') + 1]}" if "-r" in words else extras_exist(words[-1])
    if words[:2] == ["git", "clone"]:
        return None  # of an address that every copy has its own
    if words[0] == "pytest":
        return f"python -m {command} --collect-only"
    return command


ASKED: dict[str, subprocess.CompletedProcess] = {}


def answer(project: Path, line: str) -> None:
    command = dry(line)
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
                    answer(project, line)
        else:
            pytest.fail(f"{page}:{block.line}: a yaml block begins with `# configs/<name>.yaml`")


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_sentences_exist(page, project):
    for command in inline(page):
        if command.startswith("make new-baseline"):
            continue  # run by the blocks; a second time it would refuse
        answer(project, command)


def test_a_wrong_command_is_found(project):
    with pytest.raises(AssertionError, match="make nonsense"):
        answer(project, "make nonsense")
    with pytest.raises(AssertionError):
        answer(project, "snakemake --cores all --configfile configs/none.yaml")
    with pytest.raises(AssertionError):
        answer(project, ".venv/bin/sgoif scan --nonsense")
    with pytest.raises(AssertionError, match="no extra nonsense"):
        answer(project, 'pip install ".[nonsense]"')
