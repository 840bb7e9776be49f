"""`sgoif scan --features`: every kind of file, what it writes, and what it says of files that cannot be used."""

import csv
import json

import numpy as np
import pandas
import pyarrow as pa
import pyarrow.parquet
import pytest
from PIL import Image
from sklearn.metrics import average_precision_score

from sgoif.features import head
from sgoif.scan.features import training
from tests.helpers.scan_folders import rows, run

N = 120


@pytest.fixture(scope="module")
def data():
    """Features of three classes far apart, and labels of which every tenth is wrong."""
    rng = np.random.default_rng(0)
    true = np.arange(N) % 3
    labels = np.where(np.arange(N) % 10 == 0, (true + 1) % 3, true)
    return (rng.normal(size=(N, 6)) + 5 * np.eye(3, 6)[true]).astype(np.float32), labels


def write_labels(file, labels, **more):
    with open(file, "w", newline="") as f:
        writer = csv.writer(f)
        writer.writerow([*more, "label"])
        writer.writerows(zip(*more.values(), labels, strict=True))
    return file


@pytest.fixture
def files(data, tmp_path):
    np.save(tmp_path / "emb.npy", data[0])
    return tmp_path / "emb.npy", write_labels(tmp_path / "labels.csv", [f"class {c}" for c in data[1]])


def ranked(out):
    return {row["path"]: float(row["suspicion"]) for row in rows(out / "ranking.csv")}


def test_features_and_labels_are_ranked(data, files, tmp_path, capsys):
    out = tmp_path / "out"
    assert run("scan", "--features", files[0], "--labels", files[1], "--out", out) == 0
    said = capsys.readouterr().out
    assert f"{N} examples of 3 classes, 6 features each" in said and "a linear head on cpu" in said
    found = ranked(out)
    wrong = np.arange(N) % 10 == 0
    assert average_precision_score(wrong, [found[f"row/{i:03d}"] for i in range(N)]) > 0.99
    assert rows(out / "ranking.csv")[0]["given_label"].startswith("class ")
    report = json.loads((out / "report.json").read_text())
    assert report["settings"]["method"] == "features" and report["examples"] == N
    assert not (out / "state").exists() and (out / "gallery.html").is_file()

    assert run("scan", "--features", files[0], "--labels", files[1], "--out", out) == 0
    assert "finished" in capsys.readouterr().out
    np.save(files[0], data[0][::-1])
    assert run("scan", "--features", files[0], "--labels", files[1], "--out", out) == 2
    assert "have changed" in capsys.readouterr().err

    assert run("explain", "row/000", "--scan", out) == 0
    assert run("explain", str(files[0]), "--scan", out) == 2
    assert "was of features" in capsys.readouterr().err


def save_huggingface(folder, table):
    """Two files of Arrow's stream format, as datasets.save_to_disk writes them; labels are numbers with names."""
    folder.mkdir()
    names = [f"data-{i}.arrow" for i in range(2)]
    for i, name in enumerate(names):
        part = table.slice(i * (N // 2), N // 2)
        with pa.OSFile(str(folder / name), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(part)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": n} for n in names]}))
    about = {"features": {"label": {"names": ["ash", "birch", "cedar"], "_type": "ClassLabel"}}}
    (folder / "dataset_info.json").write_text(json.dumps(about))
    return folder


def test_every_kind_of_file_gives_the_same(data, files, tmp_path):
    features, labels = data
    table = pa.table({"embedding": list(features), "label": labels})
    pandas.DataFrame(features, columns=list("abcdef")).assign(label=labels).to_parquet(tmp_path / "columns.parquet")
    pa.parquet.write_table(table, tmp_path / "lists.parquet")
    np.savez(tmp_path / "both.npz", features=features, labels=labels)
    np.save(tmp_path / "labels.npy", labels)
    folder = save_huggingface(tmp_path / "hf", table)
    ways = [("both.npz",), ("columns.parquet",), ("lists.parquet",), ("hf",), ("emb.npy", "--labels", "labels.npy")]
    found = []
    for i, (name, *more) in enumerate(ways):
        more = [tmp_path / word if word.endswith(".npy") else word for word in more]
        assert run("scan", "--features", tmp_path / name, *more, "--out", tmp_path / f"out{i}", "--epochs", 3) == 0
        found.append(ranked(tmp_path / f"out{i}"))
    assert all(each == found[0] for each in found[1:])
    assert {row["given_label"] for row in rows(tmp_path / "out3" / "ranking.csv")} == {"ash", "birch", "cedar"}
    assert folder.is_dir()


def test_the_index_of_a_frame_is_no_feature(data, tmp_path, capsys):
    """Rows that were sorted by label or filtered have an index that tells the label."""
    frame = pandas.DataFrame(data[0], columns=list("abcdef")).assign(label=data[1]).sort_values("label")
    frame.to_parquet(tmp_path / "unnamed.parquet")
    frame.rename_axis("row").to_parquet(tmp_path / "named.parquet")
    without = pa.Table.from_pandas(frame).replace_schema_metadata(None)
    save_huggingface(tmp_path / "hf", without)
    for name in ("unnamed.parquet", "named.parquet", "hf"):
        assert run("scan", "--features", tmp_path / name, "--out", tmp_path / f"out-{name}", "--epochs", 2) == 0
        assert "3 classes, 6 features each" in capsys.readouterr().out, name


def test_truth_values_are_numbers_and_unused_columns_are_named(data, tmp_path, capsys):
    frame = pandas.DataFrame(data[0], columns=list("abcdef")).assign(label=data[1])
    frame.assign(flag=data[0][:, 0] > 1, text="x").to_parquet(tmp_path / "mixed.parquet")
    frame.assign(embedding=list(data[0] > 1), text="x")[["embedding", "text", "label"]].to_parquet(
        tmp_path / "l.parquet"
    )
    frame.to_parquet(tmp_path / "numbers.parquet")
    for name, dim, note in (
        ("mixed.parquet", 7, "columns of numbers are used, and not these columns: text\n"),
        ("l.parquet", 6, "a column of lists is used, and not these columns: text\n"),
        ("numbers.parquet", 6, ""),
    ):
        assert run("scan", "--features", tmp_path / name, "--out", tmp_path / f"out-{name}", "--epochs", 2) == 0
        said = capsys.readouterr()
        assert f"3 classes, {dim} features each" in said.out and note in said.err, name
        assert ("not these columns" in said.err) == bool(note)
    frame.assign(flag=pandas.array([True, None] * (N // 2), "boolean")).to_parquet(tmp_path / "gap.parquet")
    assert run("scan", "--features", tmp_path / "gap.parquet", "--out", tmp_path / "out") == 2
    assert "row 1 has a missing" in capsys.readouterr().err


@pytest.mark.parametrize("label", [-1, 3])
def test_a_number_without_a_class_name_is_refused(data, tmp_path, capsys, label):
    labels = np.where(np.arange(N) == 70, label, data[1])
    save_huggingface(tmp_path / "hf", pa.table({"embedding": list(data[0]), "label": labels}))
    assert run("scan", "--features", tmp_path / "hf", "--out", tmp_path / "out") == 2
    said = capsys.readouterr().err
    assert f"row 70 has the label {label}, which is none of its 3 classes (0 to 2;" in said and said.count("\n") == 1


def test_images_beside_the_labels_are_shown(data, files, tmp_path):
    names = [f"{i}.png" for i in range(N)]
    for name in names:
        Image.new("RGB", (8, 8)).save(tmp_path / name)
    labels = write_labels(tmp_path / "with_paths.csv", data[1], path=names)
    assert run("scan", "--features", files[0], "--labels", labels, "--out", tmp_path / "out", "--epochs", 3) == 0
    assert set(ranked(tmp_path / "out")) == set(names)
    assert "data:image/png" in (tmp_path / "out" / "gallery.html").read_text()


def test_small_classes_are_left_out_when_asked(data, files, tmp_path, capsys):
    labels = write_labels(tmp_path / "rare.csv", ["rare", "rare", *data[1][2:]])
    assert run("scan", "--features", files[0], "--labels", labels, "--out", tmp_path / "out") == 2
    assert "--skip-tiny" in capsys.readouterr().err
    (tmp_path / "names.csv").write_text("label,name\n0,silver birch\n")
    names = ("--classes", tmp_path / "names.csv")
    words = ("--labels", labels, "--out", tmp_path / "out", "--epochs", 3, "--skip-tiny")
    assert run("scan", "--features", files[0], *words, *names) == 0
    assert "silver birch" in (tmp_path / "out" / "gallery.html").read_text()
    assert len(ranked(tmp_path / "out")) == N - 2


def test_what_cannot_be_used_is_named_in_one_line(data, files, tmp_path, capsys):
    features, labels = files
    np.save(tmp_path / "nan.npy", np.where(np.arange(N)[:, None] == 7, np.nan, data[0]))
    np.save(tmp_path / "flat.npy", data[0][:, 0])
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object))
    np.save(tmp_path / "multi.npy", (data[0][:, :3] > 1).astype(int))
    np.savez(tmp_path / "other.npz", weights=data[0])
    pa.parquet.write_table(
        pa.table({"embedding": [[1.0], [1.0, 2.0]] * 60, "label": data[1]}), tmp_path / "odd.parquet"
    )
    pa.parquet.write_table(pa.table({"text": ["a"] * N, "label": ["b"] * N}), tmp_path / "text.parquet")
    (tmp_path / "broken.parquet").write_text("no")
    (tmp_path / "emb.csv").write_text("1,2\n")
    (tmp_path / "text.npy").write_text("no numbers")
    np.savez(tmp_path / "scalar.npz", features=5.0, labels=data[1])
    np.savez(tmp_path / "label.npz", features=data[0], labels=1)
    (tmp_path / "zip.npy").write_bytes((tmp_path / "other.npz").read_bytes())
    (tmp_path / "array.npz").write_bytes((tmp_path / "flat.npy").read_bytes())
    short = write_labels(tmp_path / "short.csv", data[1][:-1])
    one = write_labels(tmp_path / "one.csv", ["a"] * N)
    real = write_labels(tmp_path / "real.csv", np.linspace(0, 1, N))
    empty = write_labels(tmp_path / "empty.csv", ["", *data[1][1:]])
    unnamed = tmp_path / "unnamed.csv"
    unnamed.write_text("kind\n" + "a\n" * N)
    (tmp_path / "cut.npz").write_bytes((tmp_path / "other.npz").read_bytes()[:200])
    twice = tmp_path / "twice.csv"
    twice.write_text("label,label\n" + "a,b\n" * N)
    cases = [
        ((tmp_path / "text.npy", "--labels", labels), "text.npy cannot be read (no array of numbers); save plain"),
        ((tmp_path / "scalar.npz",), "scalar.npz: features holds a single number; save an array"),
        ((tmp_path / "label.npz",), "label.npz: labels holds a single number"),
        ((tmp_path / "zip.npy", "--labels", labels), "zip.npy cannot be read (it is a .npz; give it that suffix)"),
        ((tmp_path / "array.npz",), "array.npz cannot be read (it is a .npy; give it that suffix)"),
        ((features, "--labels", labels, "--encoding", "klingon"), "no such encoding of text"),
        ((features, "--labels", short), "120 rows of features and 119 labels"),
        ((features, "--labels", one), "one class, 'a'"),
        ((features, "--labels", real), "regression"),
        ((features, "--labels", empty), "line 2: the label is empty"),
        ((features, "--labels", unnamed), "--label-column"),
        ((features, "--labels", tmp_path / "multi.npy"), "multi-label"),
        ((features, "--labels", tmp_path / "absent.csv"), "no such file"),
        ((features, "--labels", tmp_path / "nan.xlsx"), "no such file"),
        ((features,), "has no labels; name their file with --labels"),
        ((tmp_path / "nan.npy", "--labels", labels), "row 7 has a missing"),
        ((tmp_path / "flat.npy", "--labels", labels), "expected [examples, features]"),
        ((tmp_path / "objects.npy", "--labels", labels), "cannot be read"),
        ((tmp_path / "other.npz", "--labels", labels), "call the array of features `features`"),
        ((tmp_path / "cut.npz", "--labels", labels), "cut.npz cannot be read"),
        ((features, "--labels", twice), "has the column 'label' 2 times"),
        ((tmp_path / "odd.parquet",), "different lengths"),
        ((tmp_path / "text.parquet",), "no column of numbers"),
        ((tmp_path / "broken.parquet",), "not a Parquet file"),
        ((tmp_path / "emb.csv", "--labels", labels), "unknown kind of file"),
        ((tmp_path / "absent.npy", "--labels", labels), "no such file or folder"),
        ((tmp_path, "--labels", labels), "save_to_disk"),
        ((features, "--labels", labels, "--model", "resnet18"), "--model is for images"),
        ((features, "--labels", labels, "--from-scratch"), "--from-scratch is for images"),
        ((features, "--labels", labels, "--checked", tmp_path), "--checked is for images; in Python find_label_issues"),
        ((features, "--labels", labels, "--epochs", 1), "--epochs 1: must be at least 2"),
    ]
    for words, message in cases:
        assert run("scan", "--features", *words, "--out", tmp_path / "out") == 2, words
        said = capsys.readouterr().err
        assert message in said and said.startswith("error: ") and said.count("\n") == 1, (words, said)


def test_images_and_features_exclude_each_other(files, capsys):
    for words in ((), ("digits", "--features", files[0]), ("digits", "--labels", files[1])):
        assert run("scan", *words) == 2
        assert "--features" in capsys.readouterr().err


def test_a_set_that_is_too_large_to_keep_is_scanned_once_and_not_explained(files, tmp_path, capsys, monkeypatch):
    for module in (head, training):
        monkeypatch.setattr(module, "KEPT_ROWS", N - 1)
    words = ("scan", "--features", files[0], "--labels", files[1], "--out", tmp_path / "out")
    assert run(*words) == 0 and not (tmp_path / "out" / "explain.npz").exists()
    capsys.readouterr()
    assert run(*words) == 0
    assert "This scan is finished; nothing to do" in capsys.readouterr().out
    assert run("explain", "row/000", "--scan", tmp_path / "out") == 2
    assert "too many examples to keep what explain needs" in capsys.readouterr().err
