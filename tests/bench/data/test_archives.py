import io
import pickle
import tarfile
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from sgoif.bench.data import catalogue, checksums, load, locate
from sgoif.bench.data.prepare import prepare
from sgoif.bench.data.readers import archives, jpeg_archives
from sgoif.errors import UserError
from sgoif.utils.files import sha256_array
from tests.helpers.tiny_archives import cifar_dataset, grey_dataset, md5, old_pickle, register, tar_bytes


class Trap:
    def __reduce__(self):
        import os

        return os.system, ("touch /tmp/sgoif_pickle_was_run",)


def jpeg(size: tuple[int, int], colour: tuple[int, int, int]) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, colour).save(out, "JPEG", quality=95)
    return out.getvalue()


@pytest.mark.parametrize("protocol", [0, 2])
def test_the_unpickler_builds_arrays_and_nothing_else(protocol):
    value = {"data": np.arange(6, dtype=np.uint8).reshape(2, 3), "labels": [1, 2], "n": np.int64(3), "s": b"x\xff"}
    got = archives.ArraysOnly(io.BytesIO(pickle.dumps(value, protocol=protocol)), encoding="latin1").load()
    assert np.array_equal(got["data"], value["data"]) and got["labels"] == [1, 2] and got["n"] == 3
    for harmful in (Trap(), {"data": [Trap()]}, print, np.frombuffer):
        with pytest.raises(UserError, match="which is no array"):
            archives.ArraysOnly(io.BytesIO(pickle.dumps(harmful, protocol=protocol))).load()


def test_pickles_are_read_only_after_their_checksum_was_found_right(tmp_path, monkeypatch):
    d, _, files = cifar_dataset()
    register(monkeypatch, d)
    first = next(iter(files))
    (tmp_path / "m" / "tiny-py").mkdir(parents=True)
    for name, data in (files | {first: old_pickle(Trap())}).items():
        (tmp_path / "m" / name).write_bytes(data)
    monkeypatch.setattr(archives, "ArraysOnly", None)  # would be a TypeError if anyone tried to read
    with pytest.raises(UserError, match="data_batch_1: md5 is"):
        prepare(d.name, tmp_path / "data", tmp_path / "m", download=False)


def test_cifar_archive_ignores_everything_it_does_not_expect(tmp_path, monkeypatch):
    d, parts, files = cifar_dataset()
    odd = {"../escape": b"x", "/tmp/sgoif_abs": b"x", "tiny-py/readme.html": b"x"}
    archive = tar_bytes(files | odd, links={"tiny-py/link": "/etc/passwd"})
    (tmp_path / "tiny.tar.gz").write_bytes(archive)
    read = archives.read_cifar(d, {"tiny.tar.gz": tmp_path / "tiny.tar.gz"})
    for part in parts:
        assert np.array_equal(read[part][0], parts[part][0]) and np.array_equal(read[part][1], parts[part][1])
    assert [p.name for p in tmp_path.iterdir()] == ["tiny.tar.gz"] and not (tmp_path.parent / "escape").exists()
    (tmp_path / "tiny.tar.gz").write_bytes(tar_bytes({n: f for n, f in files.items() if "test" not in n}))
    with pytest.raises(UserError, match="lacks test_batch"):
        archives.read_cifar(d, {"tiny.tar.gz": tmp_path / "tiny.tar.gz"})


@pytest.mark.parametrize("raw", [b"", b"\0\0\x08\x01", b"\0\0\x08\x03" + b"\0" * 12 + b"x", b"\x1f\x8bjunk", b"P" * 20])
def test_damaged_idx(tmp_path, raw):
    (tmp_path / "f").write_bytes(raw)
    with pytest.raises(UserError, match="fetch it again"):
        archives._idx(tmp_path / "f", 3)


def test_a_source_without_any_known_hash_is_not_used(tmp_path):
    d, _, _ = grey_dataset()
    name = d.sources[0].filename
    (tmp_path / name).write_bytes(b"x")
    bare = replace(d, arrays={}, sources=(replace(d.sources[0], checksum=None),))
    with pytest.raises(UserError, match="cannot be verified"):
        locate.verify(bare, locate.LocatedFiles("files", {name: tmp_path / name}))


def test_svhn(tmp_path):
    from scipy.io import savemat

    images = np.random.default_rng(0).integers(0, 256, (5, 32, 32, 3), dtype=np.uint8)
    stored = {"X": images.transpose(1, 2, 3, 0), "y": np.array([[10], [1], [2], [9], [10]], np.uint8)}
    savemat(tmp_path / "test_32x32.mat", stored)
    read = archives.read_svhn(catalogue.get("svhn"), {"test_32x32.mat": tmp_path / "test_32x32.mat"})
    assert np.array_equal(read["test"][0], images) and read["test"][1].tolist() == [0, 1, 2, 9, 0]


def test_dtd_is_sorted_and_cropped(tmp_path):
    d = catalogue.get("dtd")
    members = {
        "dtd/images/zigzagged/b.jpg": jpeg((64, 128), (200, 0, 0)),
        "dtd/images/banded/z.jpg": jpeg((300, 40), (0, 200, 0)),
        "dtd/images/banded/a.jpg": jpeg((32, 32), (0, 0, 200)),
        "dtd/images/banded/.directory": b"x",
        "dtd/labels/a.txt": b"x",
    }
    path = tmp_path / d.sources[0].filename
    path.write_bytes(tar_bytes(members, links={"dtd/images/banded/l.jpg": "/etc/passwd"}))
    images, labels = jpeg_archives.read_dtd(d, {path.name: path})["test"]
    assert images.shape == (3, 32, 32, 3) and labels.tolist() == [0, 0, 1]
    assert [image.mean((0, 1)).argmax() for image in images] == [2, 1, 0]
    with pytest.raises(UserError, match=r"broken\.jpg is not a readable image"):
        path.write_bytes(tar_bytes({"dtd/images/banded/broken.jpg": b"x"}))
        jpeg_archives.read_dtd(d, {path.name: path})
    path.write_bytes(tar_bytes(members)[:-200])
    with pytest.raises(UserError, match="damaged archive"):
        jpeg_archives.read_dtd(d, {path.name: path})


def test_places365(tmp_path):
    d = catalogue.get("places365")
    path = tmp_path / "val_256.tar"
    with tarfile.open(path, "w") as tar:
        for number, colour in ((2, (200, 0, 0)), (1, (0, 200, 0))):
            data = jpeg((256, 256), colour)
            info = tarfile.TarInfo(f"val_256/Places365_val_{number:08d}.jpg")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    images, labels = jpeg_archives.read_places365(d, {"val_256.tar": path})["test"]
    assert images.shape == (2, 32, 32, 3) and labels.tolist() == [-1, -1] and images[0, 0, 0].argmax() == 1


def test_tinyimagenet(tmp_path):
    d = catalogue.get("tinyimagenet")
    a, b = d.classes[3], d.classes[1]
    path = tmp_path / "tiny-imagenet-200.zip"
    with zipfile.ZipFile(path, "w") as z:
        for wnid, number, colour in ((a, 10, (200, 0, 0)), (a, 9, (0, 200, 0)), (b, 0, (0, 0, 200))):
            z.writestr(f"tiny-imagenet-200/train/{wnid}/images/{wnid}_{number}.JPEG", jpeg((64, 64), colour))
        for number in (10, 9):
            z.writestr(f"tiny-imagenet-200/val/images/val_{number}.JPEG", jpeg((64, 64), (20 * number, 0, 0)))
        lines = [f"val_10.JPEG\t{a}\t0\t0\t1\t1", f"val_9.JPEG\t{b}\t0\t0\t1\t1"]
        z.writestr("tiny-imagenet-200/val/val_annotations.txt", "\n".join(lines))
        z.writestr("../outside", "x")
    parts = jpeg_archives.read_tinyimagenet(d, {path.name: path})
    assert parts["train"][1].tolist() == [1, 3, 3] and parts["test"][1].tolist() == [1, 3]
    assert [int(image[5, 5].argmax()) for image in parts["train"][0]] == [2, 1, 0]
    assert parts["test"][0][0, 5, 5, 0] < parts["test"][0][1, 5, 5, 0]


@pytest.mark.parametrize("form", ["pt", "npz"])
def test_human_labels_from_either_file(tmp_path, monkeypatch, form):
    columns = {"clean_label": np.arange(8) % 10, "worse_label": np.arange(8) % 3}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        mixed = {k: v.tolist() if k == "worse_label" else v for k, v in columns.items()}  # the official file mixes too
        z.writestr("archive/data.pkl", pickle.dumps(mixed, 2))
        z.writestr("archive/version", "3")
    raw = out.getvalue()
    d = catalogue.get("cifar10n")
    source = replace(d.sources[0], checksum=f"md5:{md5(raw)}", size=len(raw))
    arrays = {k: sha256_array(v.astype(np.uint8)) for k, v in columns.items()}
    register(monkeypatch, d, sources=(source,), arrays=arrays)
    folder = tmp_path / "m" / "cifar_n"
    folder.mkdir(parents=True)
    if form == "pt":
        (folder / "CIFAR-10_human.pt").write_bytes(raw)
    else:
        np.savez(folder / "cifar_n.npz", **{f"cifar10_{k}": v.astype(np.uint8) for k, v in columns.items()})
    prepare("cifar10n", tmp_path / "data", tmp_path / "m", download=False)
    got = load.label_columns(tmp_path / "data", "cifar10n")
    assert got.keys() == columns.keys() and all(np.array_equal(got[k], columns[k]) for k in columns)
    expected = checksums.content_hash({k: checksums.describe(v.astype(np.int64)) for k, v in columns.items()})
    assert load.meta(tmp_path / "data", "cifar10n")["content_hash"] == expected
    prepare("cifar10n", tmp_path / "data", tmp_path / "nowhere", download=False)  # verified and kept
    (tmp_path / "data" / "cifar10n" / "labels.npz").write_bytes(b"PK")
    with pytest.raises(UserError, match="downloading is off"):
        prepare("cifar10n", tmp_path / "data", tmp_path / "nowhere", download=False)
