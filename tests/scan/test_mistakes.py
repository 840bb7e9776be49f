"""Every mistake in what is to be scanned is one line that says what to do, status 2, and no traceback."""

import errno
import os

import pytest
import torch
from PIL import Image

from sgoif.scan.sources.read import read_source
from tests.helpers.scan_folders import blobs, rows, run


@pytest.fixture
def told(tmp_path, capsys, monkeypatch):
    """Run a scan that must be refused; returns its one line."""
    monkeypatch.chdir(tmp_path)

    def refused(*words):
        assert run("scan", *words) == 2
        err = capsys.readouterr().err.strip().splitlines()
        assert len([line for line in err if line.startswith("error: ")]) == 1 and "Traceback" not in "\n".join(err)
        return err[-1]

    return refused


def table(path, text: str | bytes):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_folders(told, tmp_path):
    assert "no folder or file nowhere/at/all" in told("nowhere/at/all")
    (tmp_path / "empty").mkdir()
    assert "there is no image in it" in told("empty")
    Image.new("RGB", (8, 8)).save(tmp_path / "empty" / "loose.png")
    assert "outside class folders; expected empty/<class>/<image>" in told("empty")
    assert "empty/loose.png is one image; expected a folder" in told("empty/loose.png")
    blobs(tmp_path / "one", {"cat": 8})
    assert "one class, 'cat'" in told("one")
    blobs(tmp_path / "tiny", {"cat": 8, "dog": 8, "cow": 4, "emu": 1})
    assert "'cow' (4), 'emu' (1): at least 5 a class" in told("tiny") and "--skip-tiny" in told("tiny")
    assert "lies inside" in told("tiny", "--out", "tiny/cat/out")


def test_parts_of_a_data_set_are_no_classes(told, tmp_path):
    blobs(tmp_path / "parts" / "train", {"cat": 6, "dog": 6})
    assert "parts: 'train': parts of a data set, not classes; scan one of them, as parts/train" in told("parts")
    blobs(tmp_path / "parts" / "Val", {"cat": 6, "dog": 6})
    (tmp_path / "parts" / "docs").mkdir()
    assert "parts: 'Val', 'train': parts of a data set" in told("parts")
    for images in ({"train": 5, "bus/day": 5, "bus/night": 5}, {"train": 5, "test": 5}, {"train/old": 5, "bus/old": 5}):
        folder = blobs(tmp_path / "-".join(images).replace("/", "-"), images)
        assert read_source(str(folder)).classes == sorted({name.split("/")[0] for name in images}), "these are classes"


def test_options_are_checked_before_images_are_looked_at(told, monkeypatch):
    monkeypatch.setattr("sgoif.scan.pipeline.read_source", lambda *_: pytest.fail("the images were listed"))
    assert "--epochs 1: must be at least 2" in told("folder", "--epochs", 1)
    assert "--size 3: must be at least 4" in told("folder", "--size", 3)
    assert "--lr nan: must be above 0" in told("folder", "--lr", "nan")
    assert "timm has no such model" in told("folder", "--model", "nonsense")


def test_tiny_classes_can_be_left_out(tmp_path):
    folder = blobs(tmp_path / "tiny", {"cat": 8, "cow": 4, "dog": 8})
    assert run("scan", folder, "--out", tmp_path / "out", "--skip-tiny", "--epochs", 2) == 0
    assert {r["given_label"] for r in rows(tmp_path / "out" / "ranking.csv")} == {"cat", "dog"}
    assert [r["path"].split("/")[0] for r in rows(tmp_path / "out" / "left_out.csv")] == ["cow"] * 4


def test_unreadable_images_are_listed_and_left_out(told, tmp_path, capsys):
    folder = blobs(tmp_path / "images", {"a": 7, "b": 7})
    whole = (folder / "a" / "0.png").read_bytes()
    (folder / "a" / "cut.png").write_bytes(whole[: len(whole) // 2])
    (folder / "b" / "empty.jpg").write_bytes(b"")
    (folder / "b" / "gone.png").symlink_to(tmp_path / "nowhere.png")
    assert run("scan", folder, "--out", tmp_path / "out", "--epochs", 2) == 0
    assert capsys.readouterr().out.count("left out: ") == 3
    assert {r["path"] for r in rows(tmp_path / "out" / "left_out.csv")} == {"a/cut.png", "b/empty.jpg", "b/gone.png"}
    assert len(rows(tmp_path / "out" / "ranking.csv")) == 14
    for i in range(3):
        (folder / "b" / f"{i}.png").write_bytes(b"x")
    assert "too few images to judge the labels of 'b' (4)" in told(folder, "--out", tmp_path / "other")
    for file in folder.rglob("*.*"):
        file.unlink()
        file.write_bytes(b"x")
    assert "none of its 17 files is a readable image" in told(folder, "--out", tmp_path / "third")


def test_csv(told, tmp_path):
    blobs(tmp_path / "x", {"a": 6, "b": 6})
    listed = "".join(f"x/{c}/{i}.png,{c}\n" for c in "ab" for i in range(6))
    csv = tmp_path / "list.csv"
    table(csv, "file,class\n" + listed)
    assert "no column 'path' and no column 'label'; its columns are: 'file', 'class'" in told(csv)
    assert "no column 'labels'; its columns are" in told(csv, "--path-column", "file", "--label-column", "labels")
    table(csv, "path,label\n" + listed + "x/a/99.png,a\nx/a/98.png,a\n")
    assert "line 14: no file x/a/99.png (and 1 more); paths are relative to" in told(csv)
    table(csv, "path,label\n" + listed + "x/../x/a/3.png,a\n")
    assert "x/../x/a/3.png is listed twice, on lines 5 and 14" in told(csv)
    table(csv, "path,label\n" + listed + "x/a/3.png,b\n")
    assert "x/a/3.png has several labels (multi-label), on lines 5 and 14, which is not supported" in told(csv)
    table(csv, "path,label\n" + listed + "x/a/0.png,\n")
    assert "line 14: the label is empty" in told(csv)
    table(csv, "path,label\n" + listed + "x/a/9.png,red, dark\n")
    assert "line 14: more cells than columns; put quotes around a cell that holds the separator ','" in told(csv)
    table(csv, ("path,label\n" + listed + "x/a/1.png,caf\u00e9\n").encode("latin-1"))
    assert "line 14: not utf-8; save it as UTF-8" in told(csv)
    assert "no such encoding" in told(csv, "--encoding", "klingon")
    table(csv, "path,label\n")
    assert "a header and no rows" in told(csv)
    table(csv, "")
    assert "its columns are: none" in told(csv)
    table(csv, b"\x89PNG\0\0\0")
    assert "error: " in told(csv)


@pytest.mark.parametrize(
    ("separator", "start", "encoding"),
    [
        (",", "\ufeff", "utf-8"),
        (",", "\ufeff", "utf8"),
        (",", "\ufeff", "UTF-8"),
        (";", "", "utf-8"),
        ("\t", "", "latin-1"),
    ],
)
def test_csv_that_is_read(tmp_path, separator, start, encoding):
    blobs(tmp_path / "x", {"a": 6, "b": 6})
    labels = {"a": "caf\u00e9", "b": "b"}
    lines = [f"x/{c}/{i}.png{separator}{labels[c]}{separator * (i == 3)}" for c in "ab" for i in range(6)]
    text = start + "\r\n".join([f"path{separator}label", *lines])
    csv = table(tmp_path / "list.csv", text.encode(encoding))
    assert run("scan", csv, "--out", tmp_path / "out", "--epochs", 2, "--encoding", encoding) == 0
    table_ = rows(tmp_path / "out" / "ranking.csv")
    assert len(table_) == 12 and {r["given_label"] for r in table_} == {"b", "caf\u00e9"}


def test_names(told):
    assert "neither a folder, a file nor a data set of torchvision; did you mean CIFAR10" in told("cifr10")
    assert "--download fetches it" in told("MNIST", "--data-root", "nothing-here")


def test_changed_images_are_not_mixed_into_a_scan(told, tmp_path):
    blobs(tmp_path / "x", {"a": 6, "b": 6})
    assert run("scan", "x", "--epochs", 2) == 0
    (tmp_path / "x" / "a" / "0.png").unlink()
    assert "the images or labels have changed since the scan in x-scan began" in told("x", "--epochs", 2)


def test_folders_that_differ_behind_a_dot_have_scans_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("photos.v1", "photos.v2"):
        assert run("scan", blobs(tmp_path / name, {"a": 6, "b": 6}), "--epochs", 2) == 0
        assert (tmp_path / f"{name}-scan" / "report.json").is_file()


def test_a_full_disk(told, tmp_path, monkeypatch):
    blobs(tmp_path / "x", {"a": 6, "b": 6})

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    assert "the disk is full" in told("x")


def test_settings(told, tmp_path):
    blobs(tmp_path / "x", {"a": 6, "b": 6})
    if not torch.cuda.is_available():
        assert "torch sees no GPU here" in told("x", "--device", "cuda")
    assert "timm has no such model" in told("x", "--model", "resnet1800")
    assert not (tmp_path / "x-scan" / "scan.json").exists()
    assert "--finetune: --model compact has no pretrained weights" in told("x", "--finetune", "--model", "compact")
    assert "--epochs 1: must be at least 2" in told("x", "--epochs", 1)
    assert "--size 2: must be at least 4" in told("x", "--size", 2)
    assert "--lr nan: must be above 0" in told("x", "--lr", "nan")
    assert "--model inception_v3 cannot take images of 16 pixels" in told("x", "--model", "inception_v3", "--size", 16)


def test_output_folders(told, tmp_path):
    blobs(tmp_path / "x", {"a": 6, "b": 6})
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").touch()
    assert "holds other files" in told("x", "--out", "other")
    (tmp_path / "file").touch()
    assert "cannot be written" in told("x", "--out", "file/inside")
    (tmp_path / "new").mkdir()
    assert "one class" in told(blobs(tmp_path / "y", {"a": 6}), "--out", "new/deep")
    assert not (tmp_path / "new" / "deep").exists(), "a refused scan leaves no folder"
    if os.geteuid():
        (tmp_path / "locked").mkdir(mode=0o500)
        assert "cannot be written" in told("x", "--out", "locked/out")
