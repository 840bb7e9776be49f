"""Folders with every kind of file, data sets by name, the command as a program, and the README's commands."""

import gzip
import json
import os
import re
import shlex
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sgoif.cli import main
from sgoif.errors import UserError
from sgoif.scan.sources.read import ReadOptions, read_source
from sgoif.utils.paths import ROOT
from tests.helpers.scan_folders import blobs, rows, run


def test_a_folder_of_every_kind_of_image(tmp_path):
    folder = blobs(tmp_path / "images", {"a": 5, "b": 5})
    rng = np.random.default_rng(0)

    def noise(*shape):
        return Image.fromarray(rng.integers(0, 255, shape).astype(np.uint8))

    noise(40, 13, 4).save(folder / "a" / "rgba.png")
    noise(300, 200).save(folder / "a" / "grey.jpg")
    noise(20, 20, 3).convert("CMYK").save(folder / "a" / "cmyk.jpeg")
    noise(9, 9, 3).save(folder / "b" / "moving.gif", save_all=True, append_images=[noise(9, 9, 3)])
    exif = Image.Exif()
    exif[0x0112] = 8
    noise(64, 48, 3).save(folder / "b" / "TURNED.JPG", exif=exif)
    Image.fromarray(rng.integers(0, 65535, (16, 16)).astype(np.uint16)).save(folder / "b" / "wide.png")
    (folder / "b" / "deep" / "er").mkdir(parents=True)
    noise(8, 8, 3).save(folder / "b" / "deep" / "er" / "x.webp")
    (folder / "b" / "notes.txt").write_text("not an image, by its name")
    (folder / "b" / ".hidden.png").write_bytes(b"")
    (folder / ".git").mkdir()
    assert run("scan", folder, "--out", tmp_path / "out", "--epochs", 2, "--gallery", 20) == 0
    found = {r["path"]: r["given_label"] for r in rows(tmp_path / "out" / "ranking.csv")}
    assert len(found) == 17 and found["b/deep/er/x.webp"] == "b" and found["b/TURNED.JPG"] == "b"
    assert rows(tmp_path / "out" / "left_out.csv") == []
    assert json.loads((tmp_path / "out" / "report.json").read_text())["settings"]["channels"] == 3


def test_images_that_cannot_be_read_are_left_out_and_empty_classes_named(tmp_path, capsys):
    folder = blobs(tmp_path / "images", {"a": 5, "b": 5})
    for name in ("bird/IMG_1.HEIC", "bird/plan.svg", "a/deep/raw.nef", "a/photo", "text/notes.txt", "b/notes.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")
    (folder / "c").symlink_to("b")
    listing = read_source(str(folder))
    assert listing.classes == ["a", "b"] and len(listing) == 10
    assert dict(listing.left_out) == {
        "a/deep/raw.nef": ".nef cannot be read; convert it, for example to .png",
        "a/photo": "its name has no suffix, as .png",
        "bird/IMG_1.HEIC": ".heic cannot be read; convert it, for example to .png",
        "bird/plan.svg": ".svg cannot be read; convert it, for example to .png",
        "c": "the same folder as b, which is read already",
    }
    told = capsys.readouterr().err
    assert told == f"note: {folder}: no image that can be read in 'bird', 'text', so no such class\n"


def test_names_that_are_not_utf8_are_left_out(tmp_path):
    folder = blobs(tmp_path / "images", {"a": 5, "b": 5})
    try:
        Image.new("RGB", (8, 8)).save(open(bytes(folder / "a") + b"/caf\xe9.png", "wb"), "PNG")
    except OSError:
        pytest.skip("this file system only takes UTF-8 names")
    listing = read_source(str(folder))
    assert len(listing) == 10 and listing.left_out == [("a/caf\ufffd.png", "its name is not UTF-8")]


def test_a_torchvision_data_set_that_is_here(tmp_path):
    """MNIST in its own file format, found under --data-root without a download."""
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for part, n in (("train", 60), ("t10k", 10)):
        images, labels = rng.integers(0, 255, (n, 28, 28)).astype(np.uint8), np.arange(n, dtype=np.uint8) % 10
        (raw / f"{part}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 0x803, n, 28, 28) + images.tobytes())
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, n) + labels.tobytes())
        for name in ("images-idx3", "labels-idx1"):
            packed = gzip.compress((raw / f"{part}-{name}-ubyte").read_bytes())
            (raw / f"{part}-{name}-ubyte.gz").write_bytes(packed)
    out = tmp_path / "out"
    assert run("scan", "mnist", "--data-root", tmp_path, "--out", out, "--epochs", 2, "--size", 8, "--gallery", 3) == 0
    table = rows(out / "ranking.csv")
    assert len(table) == 60 and {r["given_label"] for r in table} == set(
        read_source("mnist", ReadOptions(root=str(tmp_path))).classes
    )
    assert table[0]["path"].startswith("MNIST/train/")
    assert run("explain", table[0]["path"], "--scan", out, "--top", 2) == 0
    with pytest.raises(UserError, match="MNIST has the parts train and test, not 'trian'"):
        read_source("mnist", ReadOptions(root=str(tmp_path), split="trian"))


def test_the_readme_runs(tmp_path, monkeypatch):
    """Every `sgoif` command of the README, in order (with two epochs)."""
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^\.venv/bin/sgoif (.*)$", (ROOT / "README.md").read_text(), flags=re.M)
    assert len(commands) >= 3
    (tmp_path / "decisions.csv").write_text("path,decision,label\ndigits/0012,remove,\n")  # what the page exports
    for command in commands:
        words = shlex.split(command, comments=True)
        assert run(*words, *(["--epochs", "2"] if words[0] == "scan" else [])) == 0
    assert (tmp_path / "digits-scan" / "cleaned.csv").is_file()


def test_weights_that_are_not_here_are_not_asked_of_the_network(tmp_path, capfd):
    if "HF_HOME" in os.environ or (Path.home() / ".cache" / "huggingface").exists():
        pytest.skip("weights may be here")
    assert main(["scan", "digits", "--model", "resnet18", "--finetune", "--out", str(tmp_path / "weights")]) == 2
    told = capfd.readouterr().err
    assert "the weights of resnet18 are not here; --download fetches them" in told
    assert "Retrying" not in told, "nothing is asked of the network"


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_closed_output_is_no_mistake(tmp_path, monkeypatch, name):
    folder = blobs(tmp_path / "images", {"a": 6, "b": 6})
    monkeypatch.setattr(sys, name, None)  # as Python starts with `>&-`
    assert run("scan", folder, "--out", tmp_path / "out", "--epochs", 2, "--gallery", 2) == 0
    assert (tmp_path / "out" / "report.json").is_file()


def test_names_that_the_terminal_cannot_show_are_printed_as_escapes(tmp_path):
    folder = blobs(tmp_path / "images", {"a": 6, "b": 6})
    (folder / "a" / "caf\u00e9.png").write_bytes(b"x")
    words = ["scan", str(folder), "--out", str(tmp_path / "out"), "--epochs", "2", "--gallery", "2"]
    done = subprocess.run(
        [sys.executable, "-m", "sgoif", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONIOENCODING": "ascii:strict"},
    )
    assert done.returncode == 0 and "left out: a/caf\\xe9.png" in done.stdout, done.stderr


def test_the_command_as_a_program(tmp_path):
    """`python -m sgoif`: help, the benchmark behind `bench`, mistakes, and Ctrl-C at a moment of its own choosing."""

    def sgoif(*words, **env):
        command = [sys.executable, "-m", "sgoif", *words]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=os.environ | env)

    assert "scan" in sgoif("--help").stdout
    assert "sgoif bench \\u2026" in sgoif("--help", PYTHONIOENCODING="ascii").stdout
    bench = sgoif("bench", "summarise", "--config", "nowhere.json")
    assert bench.returncode == 2 and bench.stderr.startswith("error: no configuration nowhere.json")
    wrong = sgoif("scan", "nowhere/at/all")
    assert wrong.returncode == 2 and wrong.stderr == "error: no folder or file nowhere/at/all\n"

    words = ["scan", "digits", "--epochs", "200", "--out", str(tmp_path / "out")]
    process = subprocess.Popen(
        [sys.executable, "-m", "sgoif", *words],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background job inherits it ignored
    )
    deadline = time.monotonic() + 120
    while not (tmp_path / "out" / "state" / "decoded.npz").exists():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=120)
    assert process.returncode == 130 and "Traceback" not in told
    assert told.endswith("interrupted; the same command goes on from here\n")
