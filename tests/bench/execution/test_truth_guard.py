"""A method that peeks is stopped, GPU slots are exclusive, fingerprints see code and not comments."""

import subprocess
import sys
import textwrap

import pytest

from sgoif.bench.execution import fingerprint
from sgoif.bench.execution.launch import gpu_slots
from sgoif.utils.paths import ROOT


@pytest.mark.parametrize(
    "path", ["results/r/truth/digits/n20.npz", "data/digits/test_labels.npy", "data/cifar10n/labels.npz"]
)
def test_opening_the_truth_is_an_error(tmp_path, path):
    secret = tmp_path / path
    secret.parent.mkdir(parents=True)
    secret.write_bytes(b"secret")
    code = f"""
    from sgoif.bench.execution.truth_guard import forbid_truth
    open({str(secret)!r}).read()
    forbid_truth()
    open({str(secret)!r}).read()
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1 and "TruthAccessError" in done.stderr


def test_given_labels_may_be_opened(tmp_path):
    labels = tmp_path / "results" / "r" / "labels" / "digits" / "n20.npz"
    labels.parent.mkdir(parents=True)
    labels.write_bytes(b"labels")
    code = f"from sgoif.bench.execution.truth_guard import forbid_truth; forbid_truth(); open({str(labels)!r}).read()"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_slots_fill_the_gpus_evenly_and_are_exclusive(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_slots, "visible_gpus", lambda: ["0", "1"])
    with gpu_slots.slot(tmp_path, 2) as a, gpu_slots.slot(tmp_path, 2) as b, gpu_slots.slot(tmp_path, 2) as c:
        assert {a, b} == {"0", "1"} and c == "0"
    with gpu_slots.slot(tmp_path, 2) as again:
        assert again == "0"


def test_without_a_gpu_there_is_no_slot_to_wait_for(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_slots, "visible_gpus", list)
    with gpu_slots.slot(tmp_path, 1) as nothing:
        assert nothing is None


CACHES = (fingerprint._source, fingerprint._known_sources, fingerprint.imports)


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fingerprint, "ROOT", tmp_path)
    for cached in CACHES:
        cached.cache_clear()
    (tmp_path / "sgoif").mkdir()
    (tmp_path / "sgoif" / "a.py").write_text("from sgoif.b import f\n\n\ndef g():\n    return f()\n")
    (tmp_path / "sgoif" / "b.py").write_text('def f():\n    """One."""\n    return 1\n')
    (tmp_path / "sgoif" / "c.py").write_text("x = 1\n")
    yield tmp_path
    for cached in CACHES:
        cached.cache_clear()


@pytest.mark.parametrize(
    ("name", "text", "changes"),
    [
        ("b.py", "def f():\n    return 2\n", True),
        ("b.py", '# said\ndef f():\n\n    """Two."""\n    return 1\n', False),
        ("c.py", "x = 2\n", False),
    ],
)
def test_fingerprints(project, name, text, changes):
    before = fingerprint.source_hash("sgoif.a")
    (project / "sgoif" / name).write_text(text)
    for cached in CACHES:
        cached.cache_clear()
    assert (fingerprint.source_hash("sgoif.a") != before) == changes


@pytest.mark.parametrize("damage", [None, b"", b"[1]", b'{"a": 3}', b'{"a": [1, 2]}'])
def test_sources_that_were_read_before_are_not_parsed_again(project, monkeypatch, damage):
    (project / ".snakemake").mkdir()
    before = fingerprint.source_hash("sgoif.a")
    for cached in CACHES:
        cached.cache_clear()
    parsed = []
    read = fingerprint._read
    monkeypatch.setattr(fingerprint, "_read", lambda content: parsed.append(content) or read(content))
    if damage is not None:
        fingerprint.KNOWN_SOURCES.write_bytes(damage)
    assert fingerprint.source_hash("sgoif.a") == before
    assert len(parsed) == (0 if damage is None else 2)
    (project / "sgoif" / "b.py").write_text("def f():\n    return 2\n")
    for cached in CACHES:
        cached.cache_clear()
    assert fingerprint.source_hash("sgoif.a") != before and parsed[-1].endswith(b"return 2\n")
