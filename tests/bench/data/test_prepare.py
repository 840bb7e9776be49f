import gzip
import json
import shutil

import numpy as np
import pytest

from sgoif.bench.data import catalogue, checksums, download, load
from sgoif.bench.data.availability import check_availability
from sgoif.bench.data.prepare import find_damage, prepare
from sgoif.errors import UserError
from tests.helpers.tiny_archives import cifar_dataset, grey_dataset, pictures, register, shop, tar_bytes


@pytest.fixture(autouse=True)
def no_mirror(monkeypatch):
    monkeypatch.delenv("SGOIF_DATA", raising=False)
    monkeypatch.setattr(download.time, "sleep", lambda seconds: None)


def put(folder, files):
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def put_arrays(folder, parts):
    folder.mkdir(parents=True, exist_ok=True)
    for part, (images, labels) in parts.items():
        np.save(folder / f"{part}_images.npy", images)
        np.save(folder / f"{part}_labels.npy", labels.astype(np.uint8))


def same(root, name, parts):
    for part, (images, labels) in parts.items():
        assert np.array_equal(load.images(root, name, part), images)
        assert np.array_equal(load.true_labels(root, name, part), labels)
        assert load.true_labels(root, name, part).dtype == np.int64
        assert np.array_equal(load.ids(root, name, part), checksums.example_ids(images))


@pytest.mark.parametrize("name", ["digits", "digits_id", "digits_aux", "digits_near", "photo_patches"])
def test_embedded(tmp_path, name):
    folder = prepare(name, tmp_path)
    d, meta = catalogue.get(name), load.meta(tmp_path, name)
    for part, n in d.parts.items():
        assert load.images(tmp_path, name, part).shape == (n, 8, 8)
        assert set(load.true_labels(tmp_path, name, part)) == set(range(d.n_classes))
        assert len(set(load.ids(tmp_path, name, part).tolist())) == n
    assert meta["counts"] == dict(d.parts) and len(meta["content_hash"]) == 64
    assert sorted(p.name for p in folder.iterdir()) == sorted([*(f"{k}.npy" for k in meta["arrays"]), "meta.json"])


def test_embedded_out_of_distribution_sets_are_disjoint_from_the_training_set(tmp_path):
    for name in ("digits_id", "digits_aux", "digits_near"):
        prepare(name, tmp_path)
    train = set(load.ids(tmp_path, "digits_id", "train").tolist())
    others = [("digits_id", "test"), ("digits_aux", "train"), ("digits_near", "test")]
    sets = [train, *(set(load.ids(tmp_path, *other).tolist()) for other in others)]
    assert len(set.union(*sets)) == sum(map(len, sets)) == 1797


def test_every_way_gives_the_same_content(tmp_path, monkeypatch):
    d, parts, files = grey_dataset()
    register(monkeypatch, d)
    raw = {f"raw/{n.removesuffix('.gz')}": gzip.decompress(data) for n, data in files.items()}
    put(tmp_path / "gz" / d.name, files)
    put(tmp_path / "raw" / d.name, raw)
    put_arrays(tmp_path / "plain" / d.name, parts)
    hashes = set()
    for way in ("gz", "raw", "plain"):
        root = tmp_path / f"data_{way}"
        prepare(d.name, root, tmp_path / way, download=False)
        same(root, d.name, parts)
        hashes.add(load.meta(root, d.name)["content_hash"])
    with shop(files) as server:
        register(monkeypatch, grey_dataset(base=server.url)[0])
        prepare(d.name, tmp_path / "data_net")
    hashes.add(load.meta(tmp_path / "data_net", d.name)["content_hash"])
    assert len(hashes) == 1


def test_cifar_archive_loose_batches_and_arrays_agree(tmp_path, monkeypatch):
    d, parts, files = cifar_dataset()
    register(monkeypatch, d)
    put(tmp_path / "archive", {"tiny.tar.gz": tar_bytes(files)})
    put(tmp_path / "loose" / d.name, files)
    put_arrays(tmp_path / "plain" / d.name, parts)
    hashes = set()
    for way in ("archive", "loose", "plain"):
        prepare(d.name, tmp_path / f"data_{way}", tmp_path / way, download=False)
        same(tmp_path / f"data_{way}", d.name, parts)
        hashes.add(load.meta(tmp_path / f"data_{way}", d.name)["content_hash"])
    assert len(hashes) == 1


def test_the_mirror_may_come_from_the_environment(tmp_path, monkeypatch):
    d, parts, _ = grey_dataset()
    register(monkeypatch, d)
    put_arrays(tmp_path / "m" / d.name, parts)
    monkeypatch.setenv("SGOIF_DATA", str(tmp_path / "m"))
    assert check_availability(d.name, tmp_path / "data").description == "in the mirror"
    prepare(d.name, tmp_path / "data", download=False)
    assert check_availability(d.name, tmp_path / "data").description == "prepared"


def test_second_time_changes_nothing(tmp_path):
    folder = prepare("digits", tmp_path)
    before = {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in folder.iterdir()}
    prepare("digits", tmp_path)
    assert {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in folder.iterdir()} == before
    shutil.rmtree(folder)
    prepare("digits", tmp_path)
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == {n: data for n, (_, data) in before.items()}


@pytest.mark.parametrize("harm", ["flip", "cut", "gone", "meta", "empty"])
def test_damage_is_found_and_repaired(tmp_path, harm):
    folder = prepare("digits", tmp_path)
    victim = folder / "train_images.npy"
    good, said = victim.read_bytes(), []
    if harm == "flip":
        victim.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    elif harm == "cut":
        victim.write_bytes(good[:1000])
    elif harm == "gone":
        victim.unlink()
    elif harm == "meta":
        (folder / "meta.json").write_text("{")
    else:
        victim.write_bytes(b"")
    assert ("meta.json" if harm == "meta" else "train_images.npy") in find_damage(folder)
    prepare("digits", tmp_path, log=said.append)
    assert victim.read_bytes() == good and find_damage(folder) is None and "preparing digits again" in said[0]


def test_a_killed_preparation_is_not_trusted(tmp_path, monkeypatch):
    def die(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("sgoif.bench.data.prepare._write_meta", die)
    with pytest.raises(KeyboardInterrupt):
        prepare("digits", tmp_path)
    assert "missing" in find_damage(tmp_path / "digits")
    with pytest.raises(UserError, match="not prepared"):
        load.images(tmp_path, "digits", "train")


def test_wrong_checksum_in_the_mirror(tmp_path, monkeypatch):
    d, parts, files = grey_dataset()
    register(monkeypatch, d)
    name = "train-labels-idx1-ubyte.gz"
    put(tmp_path / "m" / d.name, files | {name: files[name] + b"!"})
    with pytest.raises(UserError, match=rf"{name}: md5 is .* expected .*delete it and run again"):
        prepare(d.name, tmp_path / "data", tmp_path / "m")
    images, labels = parts["train"]
    put_arrays(tmp_path / "m2" / d.name, parts | {"train": (images ^ 1, labels)})
    with pytest.raises(UserError, match=r"tiny_grey train_images: sha256 .* is not the expected"):
        prepare(d.name, tmp_path / "data", tmp_path / "m2")
    assert find_damage(tmp_path / "data" / d.name)


def test_truncated_and_pickled_arrays_in_the_mirror(tmp_path, monkeypatch):
    d, parts, _ = grey_dataset()
    register(monkeypatch, d)
    put_arrays(tmp_path / "m" / d.name, parts)
    victim = tmp_path / "m" / d.name / "test_images.npy"
    victim.write_bytes(victim.read_bytes()[:-5])
    with pytest.raises(UserError, match=r"test_images\.npy: not a readable npy"):
        prepare(d.name, tmp_path / "data", tmp_path / "m")
    np.save(victim, np.array([{}]), allow_pickle=True)
    with pytest.raises(UserError, match=r"test_images\.npy: not a readable npy"):
        prepare(d.name, tmp_path / "data", tmp_path / "m")


def test_labels_out_of_range_and_wrong_shapes(monkeypatch):
    d, parts, _ = grey_dataset()
    images, labels = parts["train"]
    checksums.check_part(d, "train", images, labels)
    for bad_images, bad_labels, message in (
        (images, np.where(np.arange(20) == 7, 4, labels), r"train_labels\[7\] is 4, outside 0 \.\. 3"),
        (images, labels - 1, r"train_labels\[0\] is -1"),
        (images[:-1], labels[:-1], "expected uint8 of shape"),
        (images.astype(np.float32), labels, "got float32"),
        (images, labels.astype(float), "expected 20 integers"),
    ):
        with pytest.raises(UserError, match=message):
            checksums.check_part(d, "train", bad_images, bad_labels)


def test_offline(tmp_path, monkeypatch):
    d, _, _ = grey_dataset()
    register(monkeypatch, d)
    with pytest.raises(UserError, match=r"cannot download .*put the file there by hand"):
        prepare(d.name, tmp_path)
    with pytest.raises(UserError, match=r"downloading is off; put train-images-idx3-ubyte\.gz.* there"):
        prepare(d.name, tmp_path, download=False)
    with pytest.raises(UserError, match=r"scenes3k has no public download; put .* scenes/ of an offline mirror"):
        prepare("scenes3k", tmp_path)


def test_no_room(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(1, 1, 2**20))
    with pytest.raises(UserError, match="cifar10 needs 355 MB"):
        prepare("cifar10", tmp_path)


def test_load_says_what_is_wrong(tmp_path):
    folder = prepare("digits_near", tmp_path)
    with pytest.raises(UserError, match="has no part 'train'; it has test"):
        load.true_labels(tmp_path, "digits_near", "train")
    (folder / "test_ids.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(UserError, match=r"test_ids\.npy is damaged .*delete .*digits_near/meta\.json and run again"):
        load.ids(tmp_path, "digits_near", "test")
    np.save(folder / "test_labels.npy", np.zeros(3, np.int64))
    with pytest.raises(UserError, match=r"test_labels\.npy is not the array that meta\.json describes"):
        load.true_labels(tmp_path, "digits_near", "test")
    (folder / "test_images.npy").unlink()
    with pytest.raises(UserError, match=r"test_images\.npy is missing; delete"):
        load.images(tmp_path, "digits_near", "test")
    assert json.loads((folder / "meta.json").read_text())["name"] == "digits_near"


def test_ids_follow_the_pixels_and_tell_duplicates_apart():
    images, _ = pictures(6)
    ids = checksums.example_ids(images)
    shuffled = np.random.default_rng(0).permutation(6)
    assert np.array_equal(checksums.example_ids(images[shuffled]), ids[shuffled])
    double = checksums.example_ids(images[[0, 1, 0, 0]])
    assert len(set(double.tolist())) == 4 and double[0] == ids[0] and double[1] == ids[1]
    assert checksums.example_ids(images.reshape(6, 4, 9))[0] != ids[0]
    with pytest.raises(UserError, match="1 ids occur more than once"):
        checksums.check_ids(np.array([1, 2, 1], np.uint64))
