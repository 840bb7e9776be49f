"""Pipes, sockets and devices are never opened, and a linked class is not counted twice: nothing hangs, all is said."""

import contextlib
import os
import shutil
import socket
import threading
from pathlib import Path

import pytest
from PIL import Image

from sgoif.scan.sources.read import read_source
from tests.helpers.scan_folders import blobs, rows, run

PIPES: list[Path] = []


def make_pipe(path: Path) -> None:
    os.mkfifo(path)
    PIPES.append(path)


@pytest.fixture(scope="module", autouse=True)
def guard():
    """Whoever opens a pipe all the same reads its end after a second, so that a test fails instead of hanging."""
    over = threading.Event()

    def end_waiting():
        while not over.wait(1):
            for path in list(PIPES):
                with contextlib.suppress(OSError):
                    os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))

    thread = threading.Thread(target=end_waiting, daemon=True)
    thread.start()
    yield
    over.set()
    thread.join()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """(folder of images, folder of its scan)."""
    root = tmp_path_factory.mktemp("special")
    images = blobs(root / "images", {"a": 6, "b": 6})
    make_pipe(images / "a" / "pipe.png")
    (images / "b" / "null.png").symlink_to("/dev/null")
    (images / "b" / "linked.png").symlink_to(images / "a" / "0.png")
    assert run("scan", images, "--out", root / "out", "--epochs", 2, "--gallery", 3) == 0
    return images, root / "out"


def test_pipes_and_devices_are_left_out_and_links_to_files_are_not(finished):
    _, out = finished
    left_out = {r["path"]: r["why"] for r in rows(out / "left_out.csv")}
    assert left_out == {"a/pipe.png": "not a regular file", "b/null.png": "not a regular file"}
    found = {r["path"] for r in rows(out / "ranking.csv")}
    assert len(found) == 13 and "b/linked.png" in found


def test_sockets_are_left_out(tmp_path, monkeypatch):
    blobs(tmp_path / "x", {"a": 5, "b": 5})
    monkeypatch.chdir(tmp_path / "x" / "a")  # the name of a socket may only be short
    with socket.socket(socket.AF_UNIX) as s:
        s.bind("s.png")
        assert read_source(str(tmp_path / "x")).left_out == [("a/s.png", "not a regular file")]


def test_pipes_in_a_csv_are_left_out(tmp_path, capsys):
    images = blobs(tmp_path / "x", {"a": 5, "b": 5})
    make_pipe(images / "a" / "pipe.png")
    listed = "".join(f"x/{c}/{i}.png,{c}\n" for c in "ab" for i in range(5))
    (tmp_path / "list.csv").write_text(f"path,label\nx/a/pipe.png,a\n{listed}")
    listing = read_source(str(tmp_path / "list.csv"))
    assert listing.left_out == [("x/a/pipe.png", "not a regular file")] and listing.labels == [0] * 5 + [1] * 5
    (tmp_path / "list.csv").write_text("path,label\nx/a/pipe.png,a\n")
    assert run("scan", tmp_path / "list.csv") == 2
    assert "x/a/pipe.png is not a regular file" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["list.csv", "pipe"])
def test_a_pipe_as_the_source(tmp_path, capsys, name, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_pipe(tmp_path / name)
    assert run("scan", name) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"error: {name} is not a regular file") and told.count("\n") == 1


@pytest.mark.parametrize("name", ["decisions.csv", "decisions.json"])
def test_a_pipe_as_the_decisions(finished, tmp_path, capsys, name):
    make_pipe(tmp_path / name)
    assert run("apply", finished[1], "--decisions", tmp_path / name) == 2
    assert f"{name} is not a regular file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("ranking.csv", ("apply", "SCAN", "--above", 0.9)),
        ("explain.npz", ("explain", "a/0.png", "--scan", "SCAN")),
        ("network.safetensors", ("explain", "a/0.png", "--scan", "SCAN")),
    ],
)
def test_a_pipe_in_place_of_a_file_of_the_scan(finished, tmp_path, capsys, monkeypatch, name, command):
    opened = "it opens the pipe, and keeps every other thread from ending that"
    monkeypatch.setattr("safetensors.torch.load_file", lambda _: pytest.fail(opened))
    copy = shutil.copytree(finished[1], tmp_path / "out")
    (copy / name).unlink()
    make_pipe(copy / name)
    assert run(*(copy if word == "SCAN" else word for word in command)) == 2
    assert f"{name} is not a regular file" in capsys.readouterr().err


def test_an_image_that_became_a_pipe_is_not_opened(finished, tmp_path, capsys):
    images, out = finished
    make_pipe(tmp_path / "new.png")
    assert run("explain", tmp_path / "new.png", "--scan", out) == 2
    assert "new.png is not a regular file" in capsys.readouterr().err
    kept = (images / "b" / "5.png").rename(tmp_path / "kept.png")
    make_pipe(images / "b" / "5.png")
    try:
        assert run("explain", "b/5.png", "--scan", out) == 2
        assert "b/5.png is not a readable image (not a regular file)" in capsys.readouterr().err
        assert run("explain", "a/0.png", "--scan", out, "--top", 13, "--out", tmp_path / "page.html") == 0
        assert "<small>not a regular file</small>" in (tmp_path / "page.html").read_text()
    finally:
        kept.replace(images / "b" / "5.png")


def test_linked_classes_are_counted_once(tmp_path):
    images = blobs(tmp_path / "here" / "x", {"b": 5, "c": 5})
    blobs(tmp_path / "outside", {"deep": 5})
    links = {"a": "b", "loop": ".", "up": "..", "v": tmp_path / "outside", "w": tmp_path / "outside" / "deep", "z": "z"}
    for name, target in links.items():
        (images / name).symlink_to(target)
    (images / "c" / "again").symlink_to("..")
    listing = read_source(str(images))
    assert listing.classes == ["b", "c", "v"] and len(listing) == 15
    assert listing.names == sorted(listing.names) and "v/deep/0.png" in listing.names
    assert dict(listing.left_out) == {
        "a": "the same folder as b, which is read already",
        "loop": f"the same folder as {images}, which holds it",
        "up": f"the same folder as {images.parent}, which holds it",
        "w": "the same folder as v/deep, which is read already",
        "c/again": "a linked folder inside a class",
    }


def test_a_folder_of_nothing_but_a_loop_says_so(tmp_path, capsys):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "loop").symlink_to(".")
    Image.new("RGB", (8, 8)).save(tmp_path / "x" / "loose.png")
    assert run("scan", tmp_path / "x") == 2
    assert "left out, e.g. loop (the same folder as" in capsys.readouterr().err
