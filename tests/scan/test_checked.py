"""Checked examples and names of classes: what is used, and what is refused."""

import json
import shutil

import pytest

from sgoif.errors import UserError
from sgoif.scan.sources.class_names_file import read_class_names
from tests.helpers.scan_folders import blobs, digit_folder, rows, run


def test_checked_images_of_a_network_that_is_trained(tmp_path):
    """Most of what is called zero are eights; two dozen checked digits say which of the two is meant."""
    truth = digit_folder(tmp_path / "all", n=1797, rate=0)
    named = {digit: sorted(name for name in truth if truth[name][0] == digit) for digit in "08"}
    for folder, label, files in (
        ("images", "0", named["0"][:60] + named["8"][:100]),
        ("images", "8", named["8"][100:130]),
        ("checked", "0", named["0"][100:112]),
        ("checked", "8", named["8"][140:152]),
    ):
        (tmp_path / folder / label).mkdir(parents=True)
        for file in files:
            shutil.copy(tmp_path / "all" / file, tmp_path / folder / label / file.replace("/", "-"))
    found = {}
    for how, words in (("plain", ()), ("anchored", ("--checked", tmp_path / "checked"))):
        assert (
            run(
                "scan",
                tmp_path / "images",
                "--out",
                tmp_path / how,
                "--epochs",
                8,
                "--batch-size",
                32,
                "--gallery",
                3,
                *words,
            )
            == 0
        )
        first = rows(tmp_path / how / "ranking.csv")[:100]
        found[how] = sum(row["path"].startswith("0/8-") for row in first)
    assert found["anchored"] > found["plain"] + 20, found


def test_checked_images_that_cannot_be_used(tmp_path, capsys):
    images = blobs(tmp_path / "images", {"a": 6, "b": 6})
    some = blobs(tmp_path / "some", {"a": 2})
    other = blobs(tmp_path / "other", {"a": 2, "cow": 2})
    broken = blobs(tmp_path / "broken", {"a": 2, "b": 1})
    (broken / "b" / "0.png").write_bytes(b"x")
    for i, (words, message) in enumerate(
        (
            ((images, "--checked", tmp_path / "none"), "none: no such folder or file"),
            ((images, "--checked", other), "'cow': no such class among the 2 that are scanned"),
            ((images, "--checked", some), "has no readable image of 'b'; every class needs one or more"),
            ((images, "--checked", broken), "has no readable image of 'b'"),
        )
    ):
        assert run("scan", *words, "--out", tmp_path / f"out{i}", "--epochs", 2) == 2
        assert message in capsys.readouterr().err
        assert (tmp_path / f"out{i}").exists() == (words[-1] == broken), "refused before anything is written"


def test_names_of_classes(tmp_path):
    classes = ["n01440764", "n02102040"]
    ways = {
        "a.csv": 'label,name\nn01440764,tench\nn02102040,"springer, English"\nn1,other\n',
        "b.txt": "n02102040 springer, English\nn01440764 tench\n",
        "c.json": json.dumps({"n01440764": "tench", "n02102040": "springer, English"}),
        "d.txt": "\ufefftench\nspringer, English\n",
        "e.json": '["tench", "springer, English"]',
    }
    for name, text in ways.items():
        (tmp_path / name).write_text(text)
        assert read_class_names(tmp_path / name, classes) == dict(
            zip(classes, ("tench", "springer, English"), strict=True)
        ), name
    (tmp_path / "ten.txt").write_text("\n".join(f"class {i}" for i in range(11)))
    numbers = sorted(str(i) for i in range(11))
    assert read_class_names(tmp_path / "ten.txt", numbers)["10"] == "class 10", "numbers by value, not as texts"


def test_labels_may_hold_what_separates_them_from_names(tmp_path):
    classes = ["big bird", "dog", "dog, old", "small cat"]
    names = ["Vogel", "Hund", "alter Hund", "kleine Katze"]
    for separator in (",", " , ", ";", "\t", ": ", " "):
        lines = [f"{label}{separator}{name}" for label, name in zip(classes, names, strict=True)][::-1]
        (tmp_path / "names.txt").write_text(
            "\n".join(["label,name", "dog breed,Rasse", *lines][2 * (separator == " ") :])
        )
        assert read_class_names(tmp_path / "names.txt", classes) == dict(zip(classes, names, strict=True)), separator
    (tmp_path / "names.csv").write_text('label,name\n"dog, old",alter Hund\n')
    assert read_class_names(tmp_path / "names.csv", classes) == {"dog, old": "alter Hund"}


def test_names_of_classes_that_cannot_be_used(tmp_path):
    for name, text, message in (
        ("three.txt", "a\nb\nc\n", "has 3 names for 2 classes"),
        ("typed.txt", "0,zero\nl,one\n", "'l,one' begins with no label, and '1' gets no name"),
        ("some.txt", "0 is zero\none\n", "'one' begins with no label, and '1' gets no name"),
        ("other.json", '{"y": "x"}', "names none of the classes, as '0'"),
        ("number.json", "3", "expected a line"),
        ("broken.json", "{", "cannot be read"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(UserError, match=message):
            read_class_names(tmp_path / name, ["0", "1"])
    with pytest.raises(UserError, match="no such file"):
        read_class_names(tmp_path / "none", ["0", "1"])


def test_the_page_has_the_given_names_and_the_ranking_the_labels(tmp_path):
    images = blobs(tmp_path / "images", {"0": 6, "1": 6})
    (tmp_path / "names.txt").write_text("hollow sphere\nsolid cube\n")
    words = ("--out", tmp_path / "out", "--epochs", 2, "--gallery", 2, "--classes")
    assert run("scan", images, *words, tmp_path / "names.txt") == 0
    assert "hollow sphere" in (tmp_path / "out" / "gallery.html").read_text()
    assert {row["given_label"] for row in rows(tmp_path / "out" / "ranking.csv")} == {"0", "1"}
    (tmp_path / "names.txt").write_text("other\nnames\n")
    assert run("scan", images, *words, tmp_path / "names.txt") == 2, "the page would have other names"


def test_several_labels_and_real_numbers_are_refused(tmp_path, capsys):
    blobs(tmp_path / "x", {"a": 6, "b": 6})
    names = [f"x/{c}/{i}.png" for c in "ab" for i in range(6)]
    for labels, message in (
        (["cat"] * 5 + ["dog"] * 5 + ["cat|dog"] * 2, "line 12: 'cat|dog' is several labels (multi-label)"),
        (["['a', 'b']"] * 6 + ["['a']"] * 6, "line 2: \"['a', 'b']\" is several labels"),
        (["0.5", "1"] * 6, "line 2: the labels are real numbers, as of a regression"),
        (["0", "nan"] * 6, "line 3: the label is missing (nan); leave such rows out"),
    ):
        lines = [f'{name},"{label}"' for name, label in zip(names, labels, strict=True)]
        (tmp_path / "list.csv").write_text("\n".join(["path,label", *lines]))
        assert run("scan", tmp_path / "list.csv", "--out", tmp_path / "out") == 2
        said = capsys.readouterr().err
        assert message in said and ("not supported; " in said or "leave" in message), said
    lines = [f'{name},"{"tench, Tinca tinca" if "a/" in name else "pike (fish)"}"' for name in names]
    (tmp_path / "list.csv").write_text("\n".join(["path,label", *lines]))
    assert run("scan", tmp_path / "list.csv", "--out", tmp_path / "out", "--epochs", 2, "--gallery", 2) == 0
