"""Bad input of every kind ends in one line, never in a traceback. Always the same examples, so that a failure stays."""

import contextlib
import copy
import io
import json
import random

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sgoif.bench.cli import main, parser
from sgoif.bench.config import load_config, resolve_config, walk
from sgoif.bench.data.noisy_labels import read_labels
from sgoif.bench.data.prepare import prepare
from sgoif.bench.evaluation.evaluate import evaluate
from sgoif.bench.evaluation.summary import summarise
from sgoif.bench.tables import write_tables
from sgoif.errors import UserError
from sgoif.utils.files import atomic_write_json, npz_bytes, read_json, save_npz, sha256_file
from tests.helpers.fake_runs import GRID, Run, config
from tests.helpers.project_copy import MINI_CONFIG

MINI = MINI_CONFIG.read_text()
BOUNDED = settings(
    max_examples=100, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

JUNK = (b"\x00", b"\xff\xfe", b"{", b"]", b": ", b"&a [*a]", b"!!python/object:os.system", b"\t", b"- ", b"1e999")
seeds = st.integers(0, 10**9)
scalars = st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats() | st.text(max_size=6)
values = st.recursive(
    scalars, lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=5), v, max_size=3), max_leaves=6
)


def mangled(data: bytes, seed: int) -> bytes:
    """A file as accidents leave it: cut, a part lost or doubled, bytes overwritten, rubbish put in."""
    rng = random.Random(seed)
    for _ in range(rng.randint(1, 3)):
        a, b = sorted(rng.randint(0, len(data)) for _ in range(2))
        noise, rubbish = rng.randbytes(rng.randint(1, 8)), rng.choice(JUNK)
        ways = [data[:a], data[:a] + data[b:], data[:b] + data[a:], data[:a] + noise + data[a + len(noise) :]]
        data = rng.choice([*ways, data[:a] + rubbish + data[a:]])
    return data


def one_line(e: UserError) -> None:
    assert str(e) and "\n" not in str(e), str(e)


# ------------------------------------------------------------------------------------------------ configuration


@BOUNDED
@given(seeds)
def test_configuration_files(tmp_path, seed):
    path = tmp_path / "c.yaml"
    path.write_bytes(mangled(MINI.encode(), seed))
    try:
        load_config(path)
    except UserError as e:
        one_line(e)


@BOUNDED
@given(seeds)
def test_a_configuration_that_extends_a_broken_one(tmp_path, seed):
    (tmp_path / "below.yaml").write_bytes(mangled(MINI.encode(), seed))
    (tmp_path / "c.yaml").write_text("extends: below.yaml\nrun: mini\n")
    with contextlib.suppress(UserError):
        load_config(tmp_path / "c.yaml")


@BOUNDED
@given(st.sampled_from(sorted({p.rsplit(".", 1)[0] for p, _ in walk(yaml.safe_load(MINI))})), values)
def test_configuration_values(path, value):
    """Any branch of a configuration replaced by anything."""
    config = copy.deepcopy(yaml.safe_load(MINI))
    *parents, last = path.split(".")
    at = config
    for key in parents:
        at = at[key]
    at[last] = value
    try:
        resolve_config(config)
    except UserError as e:
        one_line(e)


# ------------------------------------------------------------------------------------------------ labels


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    prepare("digits", root)
    ids = np.load(root / "digits" / "train_ids.npy")
    return root, ids


@BOUNDED
@given(seeds)
def test_label_files(digits, tmp_path, seed):
    root, ids = digits
    path = tmp_path / "labels.npz"
    whole = npz_bytes(labels=np.arange(len(ids)) % 10, ids=ids)
    path.write_bytes(mangled(whole, seed))
    try:
        labels = read_labels(path, root, "digits")
    except UserError as e:
        one_line(e)
        assert str(path) in str(e)
    else:
        assert np.array_equal(labels, np.arange(len(ids)) % 10), "a damaged file was read as if it were whole"


arrays = st.sampled_from(["<i8", "<u8", "<f8", "|b1", "<U3", "<c16"]).flatmap(
    lambda t: st.sampled_from([(), (0,), (3,), (1438,), (1438, 2)]).map(lambda s: np.zeros(s, t))
)


@BOUNDED
@given(st.dictionaries(st.sampled_from(["labels", "ids", "other"]), arrays), st.booleans())
def test_label_files_with_other_arrays(digits, tmp_path, columns, right_ids):
    """Readable files that hold something else, or labels that are no labels."""
    root, ids = digits
    path = tmp_path / "labels.npz"
    save_npz(path, **{**columns, **({"ids": ids} if right_ids else {})})
    try:
        labels = read_labels(path, root, "digits")
    except UserError as e:
        one_line(e)
        assert str(path) in str(e)
    else:
        assert labels.shape == ids.shape and labels.dtype.kind in "iu" and 0 <= labels.min() <= labels.max() < 10


# ------------------------------------------------------------------------------------------------ scores


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    run = Run(tmp_path_factory.mktemp("scores"))
    one = {"n20s0": GRID["n20s0"]}
    run.fill_noisy(settings=one, seeds=(0,), methods={"aum": 1.5, "sgoif": 1.7})
    run.config = config(
        noisy={"digits": {"title": "digits", "settings": one, "seeds": [0], "methods": ["aum", "sgoif"]}},
        ood={},
        tables={"table1": {"kind": "noise_grid", "dataset": "digits"}},
    )
    return run


def to_the_tables(run) -> None:
    try:
        evaluate(run.root, run.data, "noisy", "digits", run.config)
        summarise(run.root, run.config)
        write_tables(run.root, run.config)
    except UserError as e:
        one_line(e)


@contextlib.contextmanager
def kept(*paths):
    before = {p: p.read_bytes() for p in paths}
    try:
        yield
    finally:
        for p, b in before.items():
            p.write_bytes(b)


@BOUNDED
@given(seeds, st.sampled_from(["arrays.npz", "result.json", "batch"]))
def test_score_files(measured, seed, which):
    cell = measured.root / "cells/noisy/digits/n20s0/seed0/aum"
    path = measured.root / "batches/noisy/digits/aum/0.json" if which == "batch" else cell / which
    with kept(path):
        path.write_bytes(mangled(path.read_bytes(), seed))
        to_the_tables(measured)


@BOUNDED
@given(st.data(), st.dictionaries(st.sampled_from(["scores", "ids", "remove", "test_logits", "epoch_scores"]), arrays))
def test_score_files_with_other_arrays(measured, data, columns):
    """Whole files, rightly signed, that hold what no method should have written."""
    cell, batch = (
        measured.root / "cells/noisy/digits/n20s0/seed0/aum",
        measured.root / "batches/noisy/digits/aum/0.json",
    )
    with kept(cell / "arrays.npz", cell / "result.json", batch):
        right = dict(np.load(cell / "arrays.npz"))
        save_npz(cell / "arrays.npz", **{**right, **columns})
        result, listed = read_json(cell / "result.json"), read_json(batch)
        result["arrays_sha256"] = listed["cells"][0]["arrays_sha256"] = sha256_file(cell / "arrays.npz")
        field = data.draw(st.sampled_from(FIELDS))
        result[field] = data.draw(values.filter(lambda v: "nan" not in repr(v) and "inf" not in repr(v)))
        atomic_write_json(cell / "result.json", result)
        atomic_write_json(batch, listed)
        to_the_tables(measured)


# ------------------------------------------------------------------------------------------------ command line

FIELDS = ("seconds", "cpu_seconds", "network_passes", "extras", "shared", "peak_memory_mb", "unused")
WORDS = ("--config", "--task", "--dataset", "--method", "--batch", "--threads", "--setting", "c.json", "noisy",
         "digits", "loss", "0", "-1", "9" * 30, "n20_s0", "--", "-h", "", "\x00", "../..", "/", ".", "é")  # fmt: skip


def steps() -> list[str]:
    return list(next(a for a in parser()._actions if getattr(a, "choices", None)).choices)


@BOUNDED
@given(st.data())
def test_command_lines(tmp_path, monkeypatch, data):
    """Real words in odd orders, and a run's configuration that was tampered with."""
    monkeypatch.chdir(tmp_path)
    resolved = resolve_config(yaml.safe_load(MINI))
    resolved["data"]["root"] = str(tmp_path / "data")
    whole = json.dumps(resolved).encode()
    (tmp_path / "c.json").write_bytes(mangled(whole, data.draw(seeds)) if data.draw(st.booleans()) else whole)
    step = data.draw(st.sampled_from([s for s in steps() if s != "run"]))  # `run` would start Snakemake
    words = [step, *data.draw(st.lists(st.sampled_from(WORDS), max_size=9))]
    if data.draw(st.booleans()):
        words += ["--config", "c.json", "--dataset", "digits", "--task", "noisy", "--setting", "n20_s0"]
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        try:
            status = main(words)
        except SystemExit as e:  # argparse's own way of telling
            status = e.code
    assert status in (0, 2), said.getvalue()
    assert "Traceback" not in said.getvalue()
