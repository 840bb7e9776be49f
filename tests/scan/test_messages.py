"""What the commands advise exists: every option that a message names, and every command that can be copied."""

import ast
import re
import shlex
from pathlib import Path

import pytest

from sgoif.cli import parser
from sgoif.errors import UserError
from sgoif.scan.apply import read_decisions
from sgoif.scan.output_folder import image_opener
from sgoif.utils.files import atomic_write_json
from sgoif.utils.paths import ROOT
from tests.helpers.scan_folders import blobs, run

SCAN = ROOT / "sgoif" / "scan"
MODULES = sorted([*SCAN.rglob("*.py"), ROOT / "sgoif" / "cli.py"])
ONLY_SCAN = ("scan",)
COMMANDS = {  # whose messages a module writes, where that is not `scan` alone
    "apply.py": ("apply",),
    "cli.py": (),
    "csv_rows.py": ("scan", "apply"),
    "decode.py": ("scan", "explain"),
    "explain.py": ("explain",),
    "explain_page.py": ("explain",),
    "output_folder.py": ("scan", "apply", "explain"),
    "regular_files.py": ("scan", "apply", "explain"),
    "report.py": ("apply",),  # what `scan` prints at its end
    "torchvision_sets.py": ("scan", "explain"),
}
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def options() -> dict[str, set[str]]:
    """The options of each command of the parser."""
    (commands,) = (action for action in parser()._actions if hasattr(action, "choices") and action.choices)
    return {name: {o for a in p._actions for o in a.option_strings} for name, p in commands.choices.items()}


def docstrings(tree: ast.AST) -> set[ast.expr]:
    bodies = (node.body for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef))
    return {body[0].value for body in bodies if body and isinstance(body[0], ast.Expr)}


def named_options(path: Path) -> set[str]:
    """The options in the strings of a module, its docstrings aside."""
    tree = ast.parse(path.read_text())
    skipped = docstrings(tree)
    strings = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return {option for node in strings if node not in skipped for option in OPTION.findall(node.value)}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_option_that_a_message_names_exists(path):
    known = options()
    named = named_options(path)
    assert named <= set().union(*known.values())
    for command in COMMANDS.get(path.name, ONLY_SCAN):
        assert named <= known[command], f"`sgoif {command}` has no such option"


def test_options_are_found():
    assert named_options(SCAN / "sources" / "csv_file.py") == {"--encoding", "--path-column", "--label-column"}
    assert "--skip-tiny" in options()["scan"] and "--skip-tiny" not in options()["apply"]


def test_apply_advises_no_option_of_scan(tmp_path, capsys):
    (tmp_path / "d.csv").write_bytes("path,decision,label\na/1.png,relabel,caf\u00e9\n".encode("latin-1"))
    with pytest.raises(UserError, match=r"line 2: not utf-8; save it as UTF-8$"):
        read_decisions(tmp_path / "d.csv", {"a/1.png": "a"}, ["a", "b"])
    (tmp_path / "list.csv").write_bytes((tmp_path / "d.csv").read_bytes())
    assert run("scan", tmp_path / "list.csv") == 2
    assert "save it as UTF-8, or name its encoding, e.g. --encoding latin-1" in capsys.readouterr().err


def test_explain_advises_no_option_of_scan(tmp_path):
    about = {"source": "MNIST", "kind": "dataset", "base": None}
    atomic_write_json(tmp_path / "scan.json", {**about, "reading": {"root": str(tmp_path), "split": "train"}})
    atomic_write_json(tmp_path / "report.json", {"settings": {}, "classes": []})
    with pytest.raises(UserError, match=r"MNIST under .*; run this in the folder where the scan was run$"):
        image_opener(tmp_path)


def test_encodings_that_are_none(tmp_path, capsys):
    (tmp_path / "list.csv").write_text("path,label\n")
    for encoding in ("hex", "undefined", "klingon"):
        assert run("scan", tmp_path / "list.csv", "--encoding", encoding) == 2
        assert f"no such encoding of text as {encoding};" in capsys.readouterr().err


def test_the_printed_command_can_be_copied(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blobs(tmp_path / "x", {"a": 5, "b": 5})
    out = "-my $(touch owned); it's"
    assert run("scan", "x", f"--out={out}", "--epochs", 2, "--gallery", 2) == 0
    told = capsys.readouterr().out
    (line,) = (line for line in told.splitlines() if line.startswith("Apply"))
    words = shlex.split(line.removeprefix("Apply").partition("   (")[0])
    assert words == ["sgoif", "apply", f"./{out}", "--decisions", "decisions.csv"]
    assert run(*words[1:3], "--above", 0.9) == 0
    assert f"Review   {out}/gallery.html  (open it" in told, "a path that is only shown stays readable"
