"""What a hostile file or configuration must not be able to do. One test for each promise in CONTRIBUTING.md."""

import ast
import io
import json
import os
import pickle
import re
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from sgoif.bench.config import resolve_config
from sgoif.bench.data import catalogue, load, locate, prepare
from sgoif.bench.data.dataset import OfficialFile
from sgoif.bench.data.readers import archives, jpeg_archives
from sgoif.bench.methods.plain_run import PlainRun
from sgoif.bench.sharing import mlflow_ui
from sgoif.errors import UserError
from sgoif.training.recipe import Recipe
from sgoif.training.session import Session
from sgoif.utils.files import load_npz
from sgoif.utils.paths import ROOT
from tests.helpers.project_copy import MINI_CONFIG
from tests.workflow.test_run import copy_project, environment

CODE = [p for room in ("sgoif", "baselines", "benchmarks", "examples") for p in sorted((ROOT / room).rglob("*.py"))]
MINI = yaml.safe_load(MINI_CONFIG.read_text())


class Bomb:
    """Unpickling it leaves a file behind."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


def npy_bomb(mark: Path) -> bytes:
    out = io.BytesIO()
    np.save(out, np.array([Bomb(mark)], dtype=object), allow_pickle=True)
    return out.getvalue()


def npz_bomb(path: Path, name: str, mark: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as z:
        z.writestr(f"{name}.npy", npy_bomb(mark))
    return path


# ------------------------------------------------------------------------------------------------ pickles


def calls(path: Path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), {k.arg: ast.unparse(k.value) for k in node.keywords}, node.lineno


def test_every_load_in_the_code_says_that_it_takes_no_pickle():
    seen = 0
    for path in CODE:
        for name, given, line in calls(path):
            where = f"{path.relative_to(ROOT)}:{line}"
            if name == "torch.load":
                assert given.get("weights_only") == "True", where
                seen += 1
            elif name in ("np.load", "numpy.load"):
                assert given.get("allow_pickle") == "False", where
                seen += 1
            assert name not in ("pickle.load", "pickle.loads", "joblib.load", "yaml.load", "eval", "exec"), where
            assert not name.endswith((".extractall", ".extract")), f"{where} unpacks an archive"
            assert name != "os.system" and given.get("shell") != "True", f"{where} starts a shell"
    assert seen >= 6


def test_no_load_path_runs_a_pickle(tmp_path, recwarn):
    mark = tmp_path / "struck"
    bomb = pickle.dumps(Bomb(mark))

    with pytest.raises(UserError, match="delete it"):
        load_npz(npz_bomb(tmp_path / "a.npz", "labels", mark))

    data = tmp_path / "data"
    folder = prepare.prepare("digits_near", data)
    (folder / "test_images.npy").write_bytes(npy_bomb(mark))
    with pytest.raises(UserError, match="damaged"):
        load.images(data, "digits_near", "test")
    assert "damaged" in prepare.find_damage(folder)
    (tmp_path / "plain.npy").write_bytes(npy_bomb(mark))
    with pytest.raises(UserError, match="not a readable npy"):
        prepare._read_npy(tmp_path / "plain.npy")

    work = tmp_path / "work"
    Session(work, "k", 0)
    for name, content in (("train.pt", bomb), ("zip.pt", b"")):
        if name == "zip.pt":
            torch.save(Bomb(mark), work / "train.pt")
        else:
            (work / name).write_bytes(content)
        assert next(iter(Session(work, "k", 0).epochs(1))) == 0  # it starts over

    run = tmp_path / "cell"
    (run / "checkpoints").mkdir(parents=True)
    torch.save(Bomb(mark), run / "checkpoints" / "epoch0.pt")
    plain = PlainRun(run, Recipe(model="small_cnn", epochs=1), 10, 1, 8, torch.device("cpu"))
    with pytest.raises(UserError, match="not a checkpoint"):
        plain.network(0)

    with pytest.raises(UserError, match="which is no array"):
        archives._batch(bomb)
    with zipfile.ZipFile(tmp_path / "human.pt", "w") as z:
        z.writestr("archive/data.pkl", bomb)
    with pytest.raises(UserError, match="which is no array"):
        archives.read_human(catalogue.get("cifar10n"), {"human.pt": tmp_path / "human.pt"})
    with pytest.raises(UserError, match="allow_pickle=False"):
        archives.read_human(catalogue.get("cifar10n"), {"h.npz": npz_bomb(tmp_path / "h.npz", "cifar10_x", mark)})
    assert not mark.exists()
    pickle.loads(bomb)
    assert mark.exists(), "the bomb is a real one"


# ------------------------------------------------------------------------------------------------ archives


def hostile_tar(path: Path, inside: str, secret: Path) -> None:
    """Members that would land elsewhere or read elsewhere if they were unpacked or followed."""
    with tarfile.open(path, "w:gz") as tar:

        def add(name, kind=tarfile.REGTYPE, link="", data=b"evil"):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, link
            info.size = len(data) if kind == tarfile.REGTYPE else 0
            tar.addfile(info, io.BytesIO(data) if kind == tarfile.REGTYPE else None)

        add("/tmp/sgoif-absolute.jpg")
        add("../../sgoif-above.jpg")
        add(f"{inside}/../../../sgoif-inside.jpg")
        add(f"{inside}/soft.jpg", tarfile.SYMTYPE, str(secret))
        add(f"{inside}/hard.jpg", tarfile.LNKTYPE, str(secret))
        add(f"{inside}/device.jpg", tarfile.CHRTYPE)
        add(f"{inside}/pipe.jpg", tarfile.FIFOTYPE)


def test_archives_write_nowhere_and_follow_nothing(tmp_path):
    secret = tmp_path / "secret.jpg"
    secret.write_bytes(b"secret")
    box = tmp_path / "a" / "b" / "c"
    box.mkdir(parents=True)
    hostile_tar(box / "d.tar.gz", "dtd/images/banded", secret)
    before = sorted(tmp_path.rglob("*"))
    d = replace(catalogue.get("dtd"), sources=(OfficialFile("http://x/", "d.tar.gz", None),))
    images, labels = jpeg_archives.read_dtd(d, {"d.tar.gz": box / "d.tar.gz"})["test"]
    assert len(images) == len(labels) == 0, "no member was taken"
    with pytest.raises(UserError, match="the archive lacks"):
        archives.read_cifar(catalogue.get("cifar10"), {"d.tar.gz": box / "d.tar.gz"})
    with zipfile.ZipFile(box / "t.zip", "w") as z:
        z.writestr("tiny-imagenet-200/val/val_annotations.txt", "")
        z.writestr("tiny-imagenet-200/train/../../../evil.JPEG", b"evil")
        z.writestr("/tmp/sgoif-absolute.JPEG", b"evil")
    tiny = catalogue.get("tinyimagenet")
    tiny = replace(tiny, sources=(OfficialFile("http://x/", "t.zip", None),))
    parts = jpeg_archives.read_tinyimagenet(tiny, {"t.zip": box / "t.zip"})
    assert all(len(images) == 0 for images, _ in parts.values())
    assert sorted(tmp_path.rglob("*")) == sorted([*before, box / "t.zip"])
    assert not [p for p in Path("/tmp").glob("sgoif-absolute*")]


# ------------------------------------------------------------------------------------------------ paths


@pytest.mark.parametrize("bad", ["../x", "/etc/x", "a/b", "x\0y", "..", "a b", "$(touch x)", "a; touch x", "-x", ""])
def test_names_in_a_configuration_are_no_paths(bad, tmp_path):
    """Every name that becomes part of a path: run, dataset, setting, method, variant, table, parent file."""
    setting, table = {"kind": "symmetric", "rate": 0.2}, {"kind": "noise_grid", "dataset": "digits"}
    changes = {
        "run": {"run": bad},
        "noisy": {"noisy": {bad: MINI["noisy"]["digits"]}},
        "ood": {"ood": {bad: MINI["ood"]["digits_id"]}},
        "settings": {"noisy": {"digits": {**MINI["noisy"]["digits"], "settings": {bad: setting}}}},
        "tuning": {"noisy": {"digits": {**MINI["noisy"]["digits"], "tuning": {bad: setting}}}},
        "near": {"ood": {"digits_id": {**MINI["ood"]["digits_id"], "near": [bad]}}},
        "auxiliary": {"ood": {"digits_id": {**MINI["ood"]["digits_id"], "auxiliary": bad}}},
        "methods": {"methods": {"noisy": [bad], "ood": []}},
        "variants": {"variants": {"loss": {bad: {}}}},
        "tables": {"tables": {bad: table}},
        "extends": {"extends": bad},
    }
    for key, change in changes.items():
        with pytest.raises(UserError):
            resolve_config({**MINI, **change}, tmp_path)
            pytest.fail(f"{key}: {bad!r} was taken")


@pytest.mark.parametrize("bad", ["", "a\nb", "{dataset}", "x\0"])
def test_the_data_root_is_one_folder(bad):
    with pytest.raises(UserError, match=r"data\.root"):
        resolve_config({**MINI, "data": {"root": bad}})


def test_a_batch_file_cannot_point_outside_the_run(tmp_path):
    from sgoif.bench.execution.records import read_batch

    for path in ("../../etc", "/etc", "cells/../../x", "cells/\0"):
        (tmp_path / "0.json").write_text(json.dumps({"cells": [{"path": path}]}))
        with pytest.raises(UserError, match="does not list the cells"):
            read_batch(tmp_path / "0.json")


# ------------------------------------------------------------------------------------------------ network


def test_pages_are_served_to_this_machine_alone():
    assert mlflow_ui.HOST == "127.0.0.1" and "mlflow ui" not in (ROOT / "Makefile").read_text()
    for path in [*CODE, *(ROOT / "profiles").rglob("*.yaml"), ROOT / "Makefile"]:
        assert "0.0.0.0" not in path.read_text(), path
    for path in CODE:
        for name, _, line in calls(path):
            serves = name.endswith(("HTTPServer", "socket.bind", "create_server"))
            assert not serves or path.name == "mlflow_ui.py", f"{path}:{line} serves something"


def test_every_download_is_verified(tmp_path):
    for d in catalogue.DATASETS.values():
        for source in d.sources:
            assert source.url.startswith(("https://", "http://")), source
            known = source.checksum or d.arrays
            assert known, f"{d.name}: {source.filename} could not be verified"
            if source.checksum:
                assert re.fullmatch(r"md5:[0-9a-f]{32}|sha256:[0-9a-f]{64}", source.checksum), source
    d = replace(catalogue.get("digits"), sources=(OfficialFile("http://x/f", "f", None),), arrays={})
    (tmp_path / "f").write_bytes(b"anything")
    with pytest.raises(UserError, match="no published checksum"):
        locate.verify(d, locate.LocatedFiles("files", {"f": tmp_path / "f"}))


# ------------------------------------------------------------------------------------------------ shells


def test_rules_hand_nothing_unquoted_to_the_shell():
    """A placeholder is quoted, or its values are numbers or a few known words (see the wildcard constraints).

    `params.source` is several options, quoted one by one in `prepare_options`.
    """
    safe = {"params.step", "params.source", "threads", "wildcards.task", "wildcards.batch"}
    shells = []
    for path in [ROOT / "Snakefile", *sorted((ROOT / "workflow").rglob("*.smk"))]:
        for block in re.findall(r"^    shell:\n((?:        .*\n)+)", path.read_text(), re.M):
            shells.append(block)
            for field in re.findall(r"(?<!\{)\{([^{}]+)\}(?!\})", block):
                assert field.endswith(":q") or field in safe, f"{path.name}: {{{field}}} is not quoted"
    assert len(shells) >= 8


def test_a_data_root_with_shell_in_it_is_a_folder(tmp_path):
    root = 'd; touch pwned; $(touch pwned) `touch pwned` it\'s "odd" & sp aced'
    folder = copy_project(tmp_path / "project")
    (folder / "mini.yaml").write_text(yaml.safe_dump({**MINI, "data": {"root": root}}))
    command = [sys.executable, "-m", "snakemake", f"{root}/digits/meta.json", "--configfile", "mini.yaml", "-q", "all"]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=120)
    assert not list(tmp_path.rglob("pwned")), done.stderr
    assert (folder / root / "digits" / "meta.json").is_file(), done.stdout + done.stderr


def test_targets_with_shell_in_them_are_refused(tmp_path):
    folder = copy_project(tmp_path / "project")
    targets = ["data/a; touch pwned/meta.json", "results/mini/labels/digits/$(touch pwned).npz"]
    command = [sys.executable, "-m", "snakemake", *targets, "--configfile", "mini.yaml"]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode and not list(tmp_path.rglob("pwned"))
