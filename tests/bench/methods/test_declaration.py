"""Declarations are read from the source of a method, through its base classes, and mistakes in them are told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sgoif.bench.methods import declaration, registry
from sgoif.bench.methods.declaration import LAST, OTHERS, MethodDeclaration, RowDeclaration, read_declaration
from sgoif.errors import UserError
from sgoif.utils.paths import ROOT


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Write a method's file and read its declaration."""

    def read(text: str, name: str = "mine") -> MethodDeclaration:
        path = tmp_path / "baselines" / "noisy" / "mine.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        monkeypatch.setattr(declaration, "ROOT", tmp_path)
        declaration._parse.cache_clear()
        return read_declaration(path, name)

    (tmp_path / "sgoif").symlink_to(ROOT / "sgoif")
    return read


def test_what_the_class_leaves_open_comes_from_its_bases(written):
    found = written(
        "from sgoif.bench.methods.base import OODDetector as Base\n"
        "class Helper:\n    reads_folds = True\n"
        "class Mine(Helper, Base):\n    name, title = 'mine', 'My method'\n    uses_auxiliary: bool = True\n"
    )
    assert (found.name, found.title, found.group, found.order, found.ranked) == (
        "mine",
        "My method",
        OTHERS,
        LAST,
        True,
    )
    assert found.reads_plain and found.reads_folds and found.uses_auxiliary and not found.uses_trusted
    assert found.shared_runs == ["plain", "folds"]


def test_the_class_wins_over_its_bases_and_a_base_over_those_behind_it(written):
    found = written(
        "class First:\n    group = 'first'\n"
        "class Second:\n    group, order = 'second', 2\n    reads_plain = True\n"
        "class Mine(First, Second):\n    name = 'mine'\n    title = 'Mine'\n    reads_plain = False\n"
    )
    assert (found.group, found.order, found.reads_plain) == ("first", 2, False)


def test_variants_with_a_row_of_their_own(written):
    found = written(
        "class Mine:\n    name = 'mine'\n    title = 'Mine'\n"
        "    shown_variants = {'big': {'title': 'Mine, big', 'group': 'Free detectors', 'ranked': False}}\n"
    )
    assert found.row("big") == RowDeclaration("Mine, big", "Free detectors", LAST, False)
    assert found.row("other") is None and found.row() is found


def test_a_mapping_may_take_in_that_of_another_class(written):
    found = written(
        "class Base:\n    candidates = {'a': 'first', 'b': 'second'}\n"
        "class Mine(Base):\n    name = 'mine'\n    title = 'Mine'\n    ranked_by = 'a'\n"
        "    candidates = {'own': 'mine', **Base.candidates}\n"
    )
    assert list(found.candidates.items()) == [("own", "mine"), ("a", "first"), ("b", "second")]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("name = 'yours'\n    title = 'Mine'", "has no class with name = 'mine'"),
        ("name = 'mine'", "class Mine has no title"),
        ("name = ('mine'", r"^baselines/noisy/mine.py, line 2: '\(' was never closed"),
        ("name = 'mine'\n    title = 'Mi' + str(1)", "`title` of class Mine must be written as a literal"),
        ("name = 'mine'\n    title = 'Mine'\n    candidates = {**dict(a='b')}", "`candidates` of class Mine must be"),
        ("name = 'mine'\n    title = 'Mine'\n    ranked_by = 'a'", "`ranked_by` of class Mine is none of its"),
        ("name = 'mine'\n    title = 'Mine'\n    candidates = {'a': 'b'}", "`ranked_by` of class Mine is none of its"),
        ("name = 'mine'\n    title = 'Mine'\n    shown_variants = {'big': {'name': 'Big'}}", "must have a title"),
    ],
)
def test_mistakes_are_told(written, body, told):
    with pytest.raises(UserError, match=told):
        written(f"class Mine:\n    {body}\n")


def test_an_unknown_method_is_told():
    with pytest.raises(UserError, match="no noisy method 'sgoof'; there are: aum"):
        registry.declaration("noisy", "sgoof")


@pytest.mark.parametrize(
    ("method", "split"), [("sgoif", ("sgoif", "")), ("sgoif@no_gate", ("sgoif", "no_gate")), ("", ("", ""))]
)
def test_a_method_is_split_from_its_variant(method, split):
    assert registry.split_variant(method) == split
    assert registry.is_variant(method) == bool(split[1])


def test_tuning_runs_the_methods_of_noisy():
    assert [registry.task_kind(task) for task in ("noisy", "tuning", "ood")] == ["noisy", "noisy", "ood"]


def test_declarations_and_names_need_no_torch_and_methods_are_found_in_the_checkout(tmp_path):
    """From another folder, where `baselines` is importable only because the registry knows the checkout."""
    code = (
        f"import sys; sys.path.insert(0, {str(Path(tmp_path, 'only'))!r});"
        "from sgoif.bench.methods import registry;"
        "[registry.declaration(t, n) for t in registry.TASKS for n in registry.available(t)];"
        "assert 'torch' not in sys.modules;"
        "assert registry.load('noisy', 'random').title == 'random'"
    )
    (tmp_path / "only").mkdir()
    (tmp_path / "only" / "sgoif").symlink_to(ROOT / "sgoif")
    environment = {"PATH": "", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
