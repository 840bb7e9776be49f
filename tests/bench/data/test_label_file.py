"""Labels that a user brings: joined by identity, checked line by line, pinned by checksum."""

import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from sgoif.bench.config import load_config
from sgoif.bench.data import load
from sgoif.bench.data.noise.label_file import _read_csv
from sgoif.bench.data.noise.spec import known_rate
from sgoif.bench.data.noisy_labels import read_kept, write_setting
from sgoif.bench.data.prepare import prepare
from sgoif.bench.execution.plan import Plan
from sgoif.bench.execution.provenance import provenance
from sgoif.errors import UserError
from sgoif.utils.files import sha256_file
from tests.helpers.project_copy import MINI_CONFIG


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("data")
    prepare("digits", root)
    return root


@pytest.fixture
def labels(data) -> np.ndarray:
    """The true labels with every seventh one wrong."""
    labels = load.true_labels(data, "digits", "train").copy()
    labels[::7] = (labels[::7] + 1) % 10
    return labels


def written(path: Path, header: str, rows) -> Path:
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def read(data: Path, path: Path, **more) -> np.ndarray:
    write_setting(data, path.parent / "run", "digits", "mine", {"kind": "file", "path": str(path), **more})
    return read_kept(path.parent / "run" / "labels" / "digits" / "mine.npz", data, "digits")[1]


def test_labels_are_joined_by_id_whatever_the_order(data, labels, tmp_path):
    ids = load.ids(data, "digits", "train")
    order = np.random.RandomState(0).permutation(len(ids))
    path = written(tmp_path / "mine.csv", "label,id", zip(labels[order], ids[order], strict=True))
    assert np.array_equal(read(data, path), labels)


def test_labels_are_joined_by_index_and_may_be_names(data, labels, tmp_path):
    names = load.meta(data, "digits")["classes"]
    rows = [(i, names[label], "x") for i, label in enumerate(labels)][::-1]
    assert np.array_equal(read(data, written(tmp_path / "mine.csv", "index,label,note", rows)), labels)


def test_a_single_image_is_labelled_too(tmp_path):
    path = written(tmp_path / "mine.csv", "id,label", [(7, 1)])
    assert _read_csv(path, np.array([7]), ["a", "b"]).tolist() == [1]


def test_an_npy_is_in_the_order_of_the_training_set(data, labels, tmp_path):
    np.save(tmp_path / "mine.npy", labels.astype(np.uint8))
    assert np.array_equal(read(data, tmp_path / "mine.npy"), labels)
    part = read(data, tmp_path / "mine.npy", size=200, seed=1)
    assert len(part) == 200


def lines(labels: np.ndarray) -> list[tuple]:
    return list(enumerate(labels.tolist()))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda rows: rows[:-2], r"2 of 1438 training images have no label, first index 1436"),
        (lambda rows: [*rows, (0, 1)], r"index 0 is there twice, in lines 2 and 1440"),
        (lambda rows: [*rows[:-1], (9999, 1)], r"line 1439: no training image has index 9999"),
        (lambda rows: [(0, 10), *rows[1:]], r"line 2: no class '10'; numbers 0 to 9"),
        (lambda rows: [(0, "zerro"), *rows[1:]], r"line 2: no class 'zerro'"),
        (lambda rows: [(0, ""), *rows[1:]], r"line 2: no class ''"),
        (lambda rows: [("a", 1), *rows[1:]], r"line 2: index: expected a whole number, got 'a'"),
        (lambda rows: [], r"expected a header with `label` and with `id` or `index`"),
    ],
)
def test_a_wrong_csv_is_one_line_and_writes_nothing(data, labels, tmp_path, change, told):
    path = written(tmp_path / "mine.csv", "index,label", change(lines(labels)))
    with pytest.raises(UserError, match=told) as error:
        read(data, path)
    assert "\n" not in str(error.value) and not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("array", "told"),
    [
        (np.zeros(5, int), "5 labels for 1438 training images"),
        (np.zeros(1438), "expected whole numbers"),
        (np.full(1438, 10), "label 10 of image 0 is not a class; there are 0 to 9"),
        (np.array([{}] * 3, dtype=object), "cannot be read as .npy"),
    ],
)
def test_a_wrong_npy_is_one_line(data, tmp_path, array, told):
    np.save(tmp_path / "mine.npy", array)
    with pytest.raises(UserError, match=told):
        read(data, tmp_path / "mine.npy")


@pytest.fixture
def config(data, labels, tmp_path, monkeypatch):
    """Resolve mini.yaml with one setting of kind `file`."""
    np.save(tmp_path / "mine.npy", labels)
    monkeypatch.chdir(tmp_path)

    def resolve(**keys) -> dict:
        raw = yaml.safe_load(MINI_CONFIG.read_text())
        raw["noisy"]["digits"]["settings"] = {"mine": {"kind": "file", "path": "mine.npy", **keys}}
        raw["tables"] = {"table2": {"kind": "noise_sets"}}
        (tmp_path / "mini.yaml").write_text(yaml.safe_dump(raw))
        return load_config("mini.yaml")

    return resolve


def test_the_checksum_is_part_of_the_configuration_and_of_the_provenance(config, tmp_path):
    resolved = config()
    expected = sha256_file(tmp_path / "mine.npy")
    assert resolved["noisy"]["digits"]["settings"]["mine"]["sha256"] == expected
    assert provenance(tmp_path, resolved)["label_files"] == {"mine.npy": expected}
    plan = Plan(resolved)
    before = plan.cell_config(plan.cells("noisy", "digits", "aum")[0])
    np.save(tmp_path / "mine.npy", np.zeros(1438, int))
    assert Plan(config()).cell_config(plan.cells("noisy", "digits", "aum")[0]) != before


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"path": "none.csv"}, r"noisy\.digits\.settings\.mine\.path: there is no file none\.csv"),
        ({"path": "labels.txt"}, r"mine\.path: expected the name of a file that ends in \.csv or \.npy"),
        ({"sha256": "0" * 64}, r"mine\.sha256: mine\.npy has sha256 [0-9a-f]{64}, not 0{64}"),
        ({"sha256": "abc"}, r"mine\.sha256: expected 64 hexadecimal digits"),
        ({"rate": 0.2}, r"mine\.rate: unknown for file noise"),
    ],
)
def test_a_wrong_setting_is_refused_before_anything_runs(config, keys, told):
    with pytest.raises(UserError, match=told):
        config(**keys)


def test_nobody_tells_a_method_how_many_labels_of_a_file_are_wrong():
    assert known_rate({"kind": "file", "path": "mine.npy"}, 10) is None


def test_a_pinned_file_may_be_elsewhere_until_it_is_read(config, data, tmp_path):
    resolved = config(path="elsewhere.npy", sha256="1" * 64)
    spec = resolved["noisy"]["digits"]["settings"]["mine"]
    with pytest.raises(UserError, match=re.escape("mine.path: there is no file elsewhere.npy")):
        write_setting(data, tmp_path / "run", "digits", "mine", spec)
