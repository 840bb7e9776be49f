"""`sgoif apply` writes the cleaned list and tree from decisions or a probability, and never touches the originals."""

import hashlib
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.scan_folders import blobs, rows, run


@pytest.fixture(scope="module")
def scanned(tmp_path_factory):
    """(images, scan folder): three classes of 12."""
    root = tmp_path_factory.mktemp("apply")
    images = blobs(root / "images", {"a": 12, "b": 12, "c": 12})
    assert run("scan", images, "--out", root / "out", "--epochs", 3, "--gallery", 5) == 0
    return images, root / "out"


def fingerprint(folder: Path) -> dict:
    return {
        str(p.relative_to(folder)): (hashlib.sha256(p.read_bytes()).hexdigest(), p.stat().st_mtime_ns)
        for p in folder.rglob("*")
        if p.is_file()
    }


DECISIONS = [
    {"path": "a/0.png", "decision": "remove", "given_label": "a", "label": "a"},
    {"path": "a/1.png", "decision": "relabel", "given_label": "a", "label": "c"},
    {"path": "b/2.png", "decision": "keep", "given_label": "b", "label": "b"},
]


def as_csv(decisions) -> str:
    return "path,decision,given_label,label\n" + "".join(",".join(d.values()) + "\n" for d in decisions)


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_decisions(scanned, tmp_path, kind):
    images, out = scanned
    text = as_csv(DECISIONS) if kind == "csv" else json.dumps({"scan": "x", "decisions": DECISIONS})
    (tmp_path / f"d.{kind}").write_text(text)
    assert run("apply", out, "--decisions", tmp_path / f"d.{kind}", "--out", tmp_path / "clean.csv") == 0
    cleaned = {r["path"]: r["label"] for r in rows(tmp_path / "clean.csv")}
    wanted = {str(images / c / f"{i}.png"): c for c in "abc" for i in range(12)}
    del wanted[str(images / "a" / "0.png")]
    wanted[str(images / "a" / "1.png")] = "c"
    assert cleaned == wanted


def test_a_ranking_that_was_cut_is_refused_and_made_again_by_the_same_scan(scanned, tmp_path, capsys):
    images, out = scanned
    copy = shutil.copytree(out, tmp_path / "copy")
    whole = (out / "ranking.csv").read_text()
    (copy / "ranking.csv").write_text("".join(whole.splitlines(keepends=True)[:20]))
    assert run("apply", copy, "--above", 0.9) == 2 and not (copy / "cleaned.csv").exists()
    assert "has 19 of the 36 examples; delete it and run the same scan again" in capsys.readouterr().err
    again = ("scan", images, "--out", copy, "--epochs", 3, "--gallery", 5)
    (copy / "ranking.csv").unlink()
    assert run("apply", copy, "--above", 0.9) == 2 and "ranking.csv is gone" in capsys.readouterr().err
    assert run(*again) == 0 and "because " in capsys.readouterr().out
    assert (copy / "ranking.csv").read_text() == whole
    (copy / "report.json").write_text("{")
    assert run(*again) == 0 and "report.json is damaged" in capsys.readouterr().out
    assert run("apply", copy, "--above", 0.9) == 0


def probabilities(out: Path) -> dict[str, float]:
    return {r["path"]: float(r["wrong_probability"]) for r in rows(out / "ranking.csv")}


def test_nothing_is_removed_unless_it_is_asked_for(scanned, tmp_path, capsys):
    _, out = scanned
    assert run("apply", out, "--out", tmp_path / "clean.csv") == 2
    told = capsys.readouterr().err
    assert "nothing is decided yet: review" in told and "--decisions FILE" in told and "--above 0.9" in told
    assert not (tmp_path / "clean.csv").exists()
    (tmp_path / "d.csv").write_text(as_csv(DECISIONS[2:]))
    assert run("apply", out, "--decisions", tmp_path / "d.csv", "--out", tmp_path / "clean.csv") == 0
    assert len(rows(tmp_path / "clean.csv")) == 36


def test_above_removes_what_is_as_probably_wrong(scanned, tmp_path, capsys):
    images, out = scanned
    wrong = probabilities(out)
    limit = sorted(wrong.values())[-5]
    unseen = {path for path, p in wrong.items() if p >= limit}
    assert run("apply", out, "--above", limit, "--out", tmp_path / "clean.csv") == 0
    assert {r["path"] for r in rows(tmp_path / "clean.csv")} == {str(images / p) for p in set(wrong) - unseen}
    right = sum(1 - wrong[path] for path in unseen)
    assert f"Unseen   {len(unseen)} removed, about {right:.0f} of them with a right label" in capsys.readouterr().out


def test_decisions_come_before_above(scanned, tmp_path):
    images, out = scanned
    (tmp_path / "d.csv").write_text(as_csv(DECISIONS))
    words = ("--decisions", tmp_path / "d.csv", "--above", min(probabilities(out).values()))
    assert run("apply", out, *words, "--out", tmp_path / "clean.csv") == 0
    kept = {r["path"]: r["label"] for r in rows(tmp_path / "clean.csv")}
    assert kept == {str(images / "a/1.png"): "c", str(images / "b/2.png"): "b"}, "what was decided on stays"


@pytest.mark.parametrize("limit", ["0", "-0.5", "1.5", "nan"])
def test_above_needs_a_probability(scanned, capsys, limit):
    assert run("apply", scanned[1], f"--above={limit}") == 2
    assert f"--above {limit}: a probability is needed" in capsys.readouterr().err


@pytest.mark.parametrize("how", ["--copy", "--link"])
def test_a_cleaned_tree_and_untouched_originals(scanned, tmp_path, how):
    images, out = scanned
    (tmp_path / "d.csv").write_text(as_csv(DECISIONS))
    before = fingerprint(images)
    words = ("apply", out, "--decisions", tmp_path / "d.csv", "--out", tmp_path / "clean.csv")
    assert run(*words, how, tmp_path / "tree") == 0
    assert fingerprint(images) == before
    tree = {str(p.relative_to(tmp_path / "tree")) for p in (tmp_path / "tree").rglob("*.png")}
    assert len(tree) == 35 and "a/0.png" not in tree and "a/1.png" not in tree
    assert {"c/1.png", "c/1-2.png"} <= tree, "two files of one name in a class are both kept"
    moved = {hashlib.sha256((tmp_path / "tree" / "c" / n).read_bytes()).hexdigest() for n in ("1.png", "1-2.png")}
    assert moved == {before["a/1.png"][0], before["c/1.png"][0]}
    assert all(p.is_symlink() == (how == "--link") for p in (tmp_path / "tree").rglob("*.png"))
    assert run("scan", tmp_path / "tree", "--out", tmp_path / "again", "--epochs", 2) == 0


def test_blanks_quotes_and_commas_in_names_survive(tmp_path):
    names = {' "a", ': 5, "b ": 5}
    images = blobs(tmp_path / "images", names)
    assert run("scan", images, "--out", tmp_path / "out", "--epochs", 2) == 0
    wrong = probabilities(tmp_path / "out")
    first = max(wrong, key=wrong.get)
    (tmp_path / "d.json").write_text(json.dumps({"decisions": [{"path": first, "decision": "remove", "label": ""}]}))
    assert run("apply", tmp_path / "out", "--decisions", tmp_path / "d.json", "--link", tmp_path / "tree") == 0
    assert {p.parent.name for p in (tmp_path / "tree").rglob("*.png")} <= set(names)
    assert len(list((tmp_path / "tree").rglob("*.png"))) == 9


def test_the_cleaned_list_can_be_scanned(scanned, tmp_path):
    _, out = scanned
    (tmp_path / "d.csv").write_text(as_csv(DECISIONS))
    assert run("apply", out, "--decisions", tmp_path / "d.csv", "--out", tmp_path / "clean.csv") == 0
    assert run("scan", tmp_path / "clean.csv", "--out", tmp_path / "again", "--epochs", 2) == 0
    assert len(rows(tmp_path / "again" / "ranking.csv")) == 35


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"path": "z/9.png"}, "line 2: z/9.png is not in this scan"),
        ({"decision": "burn"}, "line 2: 'burn' is no decision"),
        ({"decision": "relabel", "label": "zebra"}, "line 2: no class 'zebra'"),
        ({"path": "a/1.png"}, "line 3: a second decision about a/1.png"),
    ],
)
def test_wrong_decisions(scanned, tmp_path, capsys, change, told):
    _, out = scanned
    (tmp_path / "d.csv").write_text(as_csv([DECISIONS[0] | change, *DECISIONS[1:]]))
    assert run("apply", out, "--decisions", tmp_path / "d.csv", "--out", tmp_path / "clean.csv") == 2
    assert told in capsys.readouterr().err and not (tmp_path / "clean.csv").exists()


def test_mistakes(scanned, tmp_path, capsys):
    images, out = scanned

    def refused(*words):
        assert run("apply", *words) == 2
        return capsys.readouterr().err

    assert "not the folder of a scan" in refused(tmp_path, "--above", 1)
    (tmp_path / "scan.json").write_text("{}")
    assert "not finished" in refused(tmp_path, "--above", 1)
    assert "export the decisions from gallery.html" in refused(out, "--decisions", tmp_path / "none.csv")
    (tmp_path / "d.json").write_text('{"decisions": 3}')
    assert "not an export" in refused(out, "--decisions", tmp_path / "d.json")
    (tmp_path / "d.json").write_text('{"decisions": [{"pa')
    assert "export the decisions from gallery.html again" in refused(out, "--decisions", tmp_path / "d.json")
    (tmp_path / "d.json").write_text('{"decisions": [{"path": ["a/0.png"], "decision": "remove", "label": "a"}]}')
    assert "entry 1: path, decision and label must be texts" in refused(out, "--decisions", tmp_path / "d.json")
    assert "not an empty folder" in refused(out, "--above", 1, "--copy", tmp_path)
    assert "would be taken for a class" in refused(out, "--above", 1, "--copy", images / "new")
    assert "is one of the originals" in refused(out, "--above", 1, "--out", images / "c" / "3.png")
    assert "is a folder; name a file in it" in refused(out, "--above", 1, "--out", out)


def test_neither_inputs_nor_files_of_the_scan_are_written_over(scanned, tmp_path, capsys):
    images, out = scanned
    (tmp_path / "d.csv").write_text(as_csv(DECISIONS))
    (tmp_path / "real").mkdir()
    listed = "".join(f"{images}/{c}/{i}.png,{c}\n" for c in "abc" for i in range(12))
    (tmp_path / "real" / "list.csv").write_text("path,label\n" + listed)
    (tmp_path / "link.csv").symlink_to(tmp_path / "real" / "list.csv")
    assert run("scan", tmp_path / "link.csv", "--out", tmp_path / "linked", "--epochs", 2) == 0
    np.save(tmp_path / "f.npy", np.random.default_rng(0).normal(size=(60, 4)) + np.repeat(np.eye(2, 4), 30, 0) * 9)
    (tmp_path / "labels.csv").write_text("label\n" + "a\n" * 30 + "b\n" * 30)
    words = ("--features", tmp_path / "f.npy", "--labels", tmp_path / "labels.csv", "--out", tmp_path / "features")
    assert run("scan", *words) == 0
    (tmp_path / "mine.csv").write_text("path,label\n")
    before = fingerprint(tmp_path) | fingerprint(out)
    decided = (out, "--decisions", tmp_path / "d.csv", "--out")
    for words, told in (
        ((*decided, tmp_path / "d.csv"), "is one of the originals"),
        ((*decided, images / "a" / "0.png"), "is one of the originals"),  # it is removed, and stays where it is
        ((*decided, out / "ranking.csv"), "belongs to the scan"),
        ((*decided, out / "scan.json"), "belongs to the scan"),
        ((*decided, tmp_path / "mine.csv"), "exists and is not written over"),
        ((tmp_path / "linked", "--above", 0.99, "--out", tmp_path / "real" / "list.csv"), "is one of the originals"),
        ((tmp_path / "linked", "--above", 0.99, "--out", tmp_path / "link.csv"), "is one of the originals"),
        ((tmp_path / "features", "--above", 0.99, "--out", tmp_path / "f.npy"), "is one of the originals"),
        ((tmp_path / "features", "--above", 0.99, "--out", tmp_path / "labels.csv"), "is one of the originals"),
    ):
        assert run("apply", *words) == 2 and told in capsys.readouterr().err
    for page in (out / "ranking.csv", out / "gallery.html", images / "a" / "0.png", images / "b" / "3.png"):
        assert run("explain", images / "a" / "0.png", "--scan", out, "--out", page) == 2
        assert "choose another name" in capsys.readouterr().err
    assert fingerprint(tmp_path) | fingerprint(out) == before


def test_a_tree_is_not_begun_if_an_original_is_gone(scanned, tmp_path, capsys):
    images, out = scanned
    moved = (images / "b" / "5.png").rename(tmp_path / "5.png")
    try:
        assert run("apply", out, "--above", 1, "--copy", tmp_path / "tree") == 2
        assert "b/5.png is gone since the scan" in capsys.readouterr().err and not (tmp_path / "tree").exists()
    finally:
        moved.rename(images / "b" / "5.png")


def test_labels_that_are_no_folder_names_make_no_tree(tmp_path, capsys):
    odd = ["..", "a/b", ".", "x" * 300]
    blobs(tmp_path / "images", {str(i): 5 for i in range(len(odd))})
    names = [(f"images/{c}/{i}.png", label) for c, label in enumerate(odd) for i in range(5)]
    (tmp_path / "list.csv").write_text("path,label\n" + "".join(f"{p},{y}\n" for p, y in names))
    assert run("scan", tmp_path / "list.csv", "--out", tmp_path / "out", "--epochs", 2) == 0
    words = ("--above", 1, "--out", tmp_path / "list.csv")
    assert run("apply", tmp_path / "out", *words) == 2 and "is one of the originals" in capsys.readouterr().err
    for label in odd:
        removed = [f"{p},remove,\n" for p, y in names if y != label]
        (tmp_path / "d.csv").write_text("path,decision,label\n" + "".join(removed))
        words = ("--decisions", tmp_path / "d.csv", "--copy", tmp_path / "tree")
        assert run("apply", tmp_path / "out", *words) == 2
        assert f"the label {label!r} cannot be the name of a folder" in capsys.readouterr().err
    assert sorted(os.listdir(tmp_path)) == ["d.csv", "images", "list.csv", "out"]
