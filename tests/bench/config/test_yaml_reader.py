"""Hostile or clumsy YAML is refused at once, with the file, the line and the reason; large documents cost nothing."""

import os
import time
import tracemalloc

import pytest

from sgoif.bench.config import load_config, resolve_config
from sgoif.bench.config.layering import layer, read_yaml
from sgoif.bench.config.yaml_reader import MAX_BYTES, MAX_DEPTH, MAX_NODES
from sgoif.errors import UserError
from tests.bench.config.test_resolve import changed
from tests.helpers.project_copy import MINI_CONFIG


def aliases(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    return "\n".join(lines + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)])


def merges(levels: int) -> str:
    lines = ["a0: &a0 {x: 1}"]
    return "\n".join(lines + [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, levels)])


def nested_aliases(levels: int) -> str:
    """Each line is shallow; what the aliases stand for is not."""
    return "\n".join(["a0: &a0 [x]"] + [f"a{n}: &a{n} [[[[*a{n - 1}]]]]" for n in range(1, levels)])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (aliases(12), "line 5: more than 20000 values"),
        (merges(12), "values, counting what aliases stand for"),
        (nested_aliases(30), f"more than {MAX_DEPTH} levels deep"),
        ("x: " + "[" * 5000 + "]" * 5000, f"more than {MAX_DEPTH} levels deep"),
        ("\n".join(" " * n + "a:" for n in range(500)), f"more than {MAX_DEPTH} levels deep"),
        ("x: [" + "1, " * (MAX_NODES + 10) + "1]", "values"),
        ("x: '" + "y" * MAX_BYTES + "'", "is larger than 256 KiB"),
        ("x: &x [*x]", "line 1: a value contains itself"),
        ("x: &x {<<: *x}", "line 1: a value contains itself"),
        ("run: a\nx: 1\nrun: b\n", "the key 'run' is there twice, in lines 1 and 3"),
        ("x:\n  - {y: 1, z: 2,\n     'y': 3}\n", "the key 'y' is there twice, in lines 2 and 3"),
        ("x: 2020-13-45", "is not valid YAML"),
        ("x: " + "9" * 5000, "is not valid YAML"),
        ("x: !!python/object/apply:os.getcwd []", "is not valid YAML"),
        ("x: \x01", "is not valid YAML"),
        ("- 1", "a configuration is a mapping"),
        ("", "a configuration is a mapping"),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else "",
)
def test_what_is_refused_is_refused_at_once(tmp_path, text, told):
    path = tmp_path / "c.yaml"
    path.write_text(text)
    began = time.process_time()
    with pytest.raises(UserError) as refused:
        read_yaml(path)
    assert time.process_time() - began < 5  # below 1 on a slow core
    assert told in str(refused.value) and str(path) in str(refused.value) and "\n" not in str(refused.value)
    with pytest.raises(UserError, match=r"c\.yaml"):
        layer({"extends": "c.yaml"}, tmp_path)


@pytest.mark.parametrize("bomb", [aliases, merges])
def test_a_bomb_takes_no_memory(tmp_path, bomb):
    (tmp_path / "c.yaml").write_text(bomb(60))
    tracemalloc.start()
    with pytest.raises(UserError, match="values, counting what aliases stand for"):
        load_config(tmp_path / "c.yaml")
    assert tracemalloc.get_traced_memory()[1] < 8 * 2**20
    tracemalloc.stop()


def test_aliases_and_merge_keys_of_honest_files_are_read(tmp_path):
    (tmp_path / "c.yaml").write_text("a: &a {x: 1, y: [1, 2]}\nb: {<<: *a, x: 2}\nc: [*a, *a]\n")
    first = {"x": 1, "y": [1, 2]}
    assert read_yaml(tmp_path / "c.yaml") == {"a": first, "b": {"x": 2, "y": [1, 2]}, "c": [first, first]}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_utf_8_is_read_with_and_without_a_mark(tmp_path, encoding):
    (tmp_path / "c.yaml").write_bytes(MINI_CONFIG.read_text().encode(encoding))
    assert load_config(tmp_path / "c.yaml") == load_config(MINI_CONFIG)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ("run: é".encode("utf-16"), "is UTF-16, which Snakemake does not read; save it as UTF-8"),
        ("run: é".encode("utf-32"), "is UTF-32"),
        ("run: é".encode("utf-16-le"), "holds zero bytes"),
        ("run: é".encode("latin-1"), "byte 5 is not UTF-8"),
    ],
)
def test_other_encodings_are_refused_by_name(tmp_path, data, told):
    (tmp_path / "c.yaml").write_bytes(data)
    with pytest.raises(UserError, match=told):
        read_yaml(tmp_path / "c.yaml")


def test_only_regular_files_are_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe.yaml")
    for path in (tmp_path / "pipe.yaml", tmp_path):
        with pytest.raises(UserError, match="no regular file"):
            read_yaml(path)
    with pytest.raises(UserError, match="no configuration file"):
        read_yaml(tmp_path / "missing.yaml")


def test_a_long_chain_of_files_is_refused(tmp_path):
    for n in range(20):
        (tmp_path / f"{n}.yaml").write_text(f"extends: {n + 1}.yaml\n")
    with pytest.raises(UserError, match=r"16\.yaml is the 17th file in a row"):
        layer({"extends": "1.yaml"}, tmp_path)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (float("nan"), "recipes.digits.lr: nan is not a finite number"),
        (float("inf"), "recipes.digits.lr: inf is not a finite number"),
        (float("1e400"), "recipes.digits.lr: inf is not a finite number"),
        ("1e400", "recipes.digits.lr: '1e400' is not of type 'number'"),
    ],
)
def test_numbers_that_are_none_name_their_key(value, told):
    with pytest.raises(UserError, match=told):
        resolve_config(changed("recipes.digits.lr", value))
    with pytest.raises(UserError, match=r"noisy\.digits\.seeds\.1: -inf is not a finite number"):
        resolve_config(changed("noisy.digits.seeds", [0, float("-inf")]))


def test_recipes_that_are_based_on_each_other_are_refused():
    config = changed("recipes.digits", {"base": "other"})
    config["recipes"]["other"] = {"base": "digits"}
    with pytest.raises(UserError, match=r"recipes\.other\.base: no recipe 'digits'"):
        resolve_config(config)
