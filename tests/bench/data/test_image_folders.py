"""Unpacked datasets: what is listed, what is left out and how it is told."""

import csv
import json
from collections import Counter

import numpy as np
import pytest

from sgoif.bench.data import catalogue, load
from sgoif.bench.data.availability import check_availability
from sgoif.bench.data.noisy_labels import check_setting, write_setting
from sgoif.bench.data.prepare import prepare
from sgoif.errors import UserError
from sgoif.utils.files import load_npz
from tests.helpers import tiny_image_folders
from tests.helpers.tiny_image_folders import picture, small, truncate


def problems(root, name) -> list[dict]:
    with open(root / name / "problems.csv", newline="") as f:
        return list(csv.DictReader(f))


def prepared(name, root, mirror):
    said = []
    prepare(name, root, mirror, download=False, log=said.append)
    return said


@pytest.fixture
def clothing(tmp_path, monkeypatch):
    small(monkeypatch, "clothing1m", 4)
    lists = tiny_image_folders.clothing1m(tmp_path / "mirror" / "clothing1m")
    return tmp_path, tmp_path / "mirror" / "clothing1m", lists


def test_clothing1m_trains_on_what_has_a_noisy_label_and_judges_what_has_both(clothing):
    root, _, lists = clothing
    said = prepared("clothing1m", root, root / "mirror")
    paths = [p.decode() for p in load.paths(root, "clothing1m", "train")]
    assert paths == lists["noisy_train"] + lists["clean_train"]
    true_labels, labels = load.true_labels(root, "clothing1m", "train"), load.collected_labels(root, "clothing1m")
    assert (true_labels[:96] == -1).all() and (true_labels[96:] >= 0).all() and labels.min() >= 0
    assert [p.decode() for p in load.paths(root, "clothing1m", "test")] == lists["clean_test"]
    assert (load.true_labels(root, "clothing1m", "test") >= 0).all()
    assert len(set(load.ids(root, "clothing1m", "train").tolist())) == 136
    assert problems(root, "clothing1m") == [] and "136 images, where the published set has 1,000,000" in said[0]
    truth = write_setting(root, root / "run", "clothing1m", "web", {"kind": "collected"})
    saved = load_npz(root / "run/truth/clothing1m/web.npz")
    assert saved["known"].sum() == 40 and truth.rate == saved["wrong"][96:].mean() == 0.25
    assert not saved["wrong"][:96].any(), "an unknown label is not called wrong"


def test_every_fault_is_named_by_file_and_line_and_costs_one_image(clothing):
    root, tree, lists = clothing
    train, test = lists["noisy_train"], lists["clean_test"]
    truncate(tree / train[0])
    (tree / train[1]).unlink()
    (tree / train[2]).write_bytes(b"")
    (tree / train[3]).write_text("<html>not found</html>")
    kv = (tree / "noisy_label_kv.txt").read_text().splitlines()
    kv[4] = f"{train[4]} 99"
    kv[5] = train[5]
    del kv[6]
    kv.append(f"{train[7]} 1")
    (tree / "noisy_label_kv.txt").write_text("\n".join(kv) + "\n")
    keys = (tree / "clean_test_key_list.txt").read_text() + f"{test[0]}\n../../etc/passwd\n"
    (tree / "clean_test_key_list.txt").write_text(keys)
    said = prepared("clothing1m", root, root / "mirror")
    told = {(p["kind"], p["file"], int(p["line"])) for p in problems(root, "clothing1m")}
    assert told == {
        ("broken image", train[0], 0),
        ("missing file", train[1], 0),
        ("empty file", train[2], 0),
        ("broken image", train[3], 0),
        ("label out of range", "noisy_label_kv.txt", 5),
        ("malformed line", "noisy_label_kv.txt", 6),
        ("missing list line", "noisy_train_key_list.txt", 5),
        ("missing list line", "noisy_train_key_list.txt", 6),
        ("missing list line", "noisy_train_key_list.txt", 7),
        ("duplicate key", "noisy_label_kv.txt", 160),
        ("duplicate key", "clean_test_key_list.txt", 25),
        ("path outside the tree", "clean_test_key_list.txt", 26),
    }
    meta = json.loads((root / "clothing1m" / "meta.json").read_text())
    assert meta["problems"] == dict(Counter(kind for kind, _, _ in told)) and meta["counts"] == {
        "train": 129,
        "test": 24,
    }
    assert "3 × missing list line" in said[-1] and "problems.csv" in said[-1]


def test_a_list_that_is_missing_as_a_whole_is_an_error_with_its_name(clothing):
    root, tree, _ = clothing
    (tree / "clean_test_key_list.txt").unlink()
    with pytest.raises(UserError, match=r"clean_test_key_list\.txt is missing"):
        prepare("clothing1m", root, root / "mirror")


def test_a_tree_without_a_usable_image_is_an_error(clothing):
    root, tree, _ = clothing
    for path in (tree / "images").rglob("*.jpg"):
        path.unlink()
    with pytest.raises(UserError, match=r"no usable train image .*136 × missing file"):
        prepare("clothing1m", root, root / "mirror")


def test_a_prepared_tree_is_found_whole_changed_or_gone(clothing):
    root, tree, lists = clothing
    prepared("clothing1m", root, root / "mirror")
    before = load.meta(root, "clothing1m")["content_hash"]
    assert prepared("clothing1m", root, root / "mirror") == []
    tree.rename(root / "elsewhere")
    with pytest.raises(UserError, match=r"clothing1m is not here; it needs Clothing1M, by request .*30 GB of disk"):
        prepare("clothing1m", root, root / "mirror")
    (root / "elsewhere").rename(root / "mirror" / "clothing1m")
    picture(tree / lists["clean_test"][0], 3, 99, side=(40, 40))
    (root / "clothing1m" / "meta.json").unlink()
    prepared("clothing1m", root, root / "mirror")
    assert load.meta(root, "clothing1m")["content_hash"] != before


@pytest.mark.parametrize("name, folder, version", [("webvision1", "webvision", 1), ("webvision", "webvision2", 2)])
def test_webvision_has_labels_that_nobody_checked(tmp_path, monkeypatch, name, folder, version):
    small(monkeypatch, name, 4)
    tiny_image_folders.webvision(tmp_path / "downloads" / folder, version=version)
    prepared(name, tmp_path, None)
    assert (load.true_labels(tmp_path, name, "train") == -1).all() and len(load.collected_labels(tmp_path, name)) == 96
    assert load.true_labels(tmp_path, name, "test").tolist() == [i % 4 for i in range(24)]
    done = write_setting(tmp_path, tmp_path / "run", name, "web", {"kind": "collected"})
    assert np.isnan(done.rate) and not load_npz(tmp_path / f"run/truth/{name}/web.npz")["known"].any()


def test_mini_webvision_is_googles_first_classes(tmp_path, monkeypatch):
    small(monkeypatch, "mini_webvision", 2)
    tree = tmp_path / "downloads" / "webvision"
    tiny_image_folders.webvision(tree)
    with open(tree / "info" / "train_filelist_google.txt", "a") as f:
        f.write("google/q9/x.jpg 1000\n")
    prepared("mini_webvision", tmp_path, None)
    paths = [p.decode() for p in load.paths(tmp_path, "mini_webvision", "train")]
    assert paths and all(p.startswith("google/") for p in paths)
    assert (
        set(load.collected_labels(tmp_path, "mini_webvision"))
        == {0, 1}
        == set(load.true_labels(tmp_path, "mini_webvision", "test"))
    )
    assert [p["kind"] for p in problems(tmp_path, "mini_webvision")] == ["label out of range"]


def test_collected_labels_are_for_datasets_that_have_them():
    with pytest.raises(UserError, match="clothing1m has labels of its own, which were never checked"):
        check_setting("clothing1m", {"kind": "symmetric", "rate": 0.2})
    with pytest.raises(UserError, match="cifar10 has no collected labels"):
        check_setting("cifar10", {"kind": "collected"})
    check_setting("webvision", {"kind": "collected"})


TREES = [d.name for d in catalogue.DATASETS.values() if d.gated]


@pytest.mark.parametrize("name", TREES)
def test_what_is_missing_is_told_with_source_place_and_room(tmp_path, name):
    d = catalogue.get(name)
    told = check_availability(name, tmp_path).description
    assert told.startswith("missing: needs ") and d.gated in told and ("GB of disk" in told or "MB of disk" in told)
    assert f"{tmp_path}/downloads/{d.folder}" in told and "SGOIF_DATA" in told
    with pytest.raises(UserError, match=f"{name} is not here; it needs "):
        prepare(name, tmp_path)
    assert (
        f"unpack it into {tmp_path}/mirror/{d.folder};"
        in check_availability(name, tmp_path, tmp_path / "mirror").description
    )


def test_an_optional_dataset_that_is_missing_is_a_labelled_gap(tmp_path, monkeypatch):
    from sgoif.bench.config import load_config
    from sgoif.utils.paths import ROOT

    monkeypatch.delenv("SGOIF_DATA", raising=False)
    path = ROOT / "configs" / "paper.yaml"
    whole = load_config(path, skip_missing=False)
    wanted = {("noisy", "mini_webvision"), ("noisy", "webvision"), ("noisy", "clothing1m"), ("ood", "imagenet1k")}
    assert all(d in whole[task] for task, d in wanted) and whole["not_run"] == []
    monkeypatch.setenv("SGOIF_DATA", str(tmp_path))
    tiny_image_folders.webvision(tmp_path / "webvision")
    there = load_config(path)
    assert "mini_webvision" in there["noisy"] and "clothing1m" not in there["noisy"]
    gaps = {(g["task"], g["dataset"]): g["reason"] for g in there["not_run"]}
    assert set(gaps) == wanted - {("noisy", "mini_webvision")}
    assert "imagenet1k, ssb_hard, ninco, inaturalist, textures, openimage_o; `make doctor`" in gaps["ood", "imagenet1k"]


# ------------------------------------------------------------------------------------------------ the other layouts


def kinds(root, name) -> list[tuple[str, str, int]]:
    return sorted((p["kind"], p["file"], int(p["line"])) for p in problems(root, name))


def imagenet(tree, wnids=("n01440764", "n01443537"), per_class: int = 3) -> None:
    for i, wnid in enumerate(wnids):
        for j in range(per_class):
            picture(tree / "train" / wnid / f"{wnid}_{j}.JPEG", i, 10 * i + j)
            picture(tree / "val" / wnid / f"ILSVRC2012_val_{10 * i + j:08d}.JPEG", i, 100 + 10 * i + j)


def test_imagenet_in_class_folders(tmp_path, monkeypatch):
    small(monkeypatch, "imagenet1k", 3)
    tree = tmp_path / "downloads" / "imagenet1k"
    imagenet(tree)
    picture(tree / "train" / "n99999999" / "x.JPEG", 0, 0)
    prepared("imagenet1k", tmp_path, None)
    assert load.true_labels(tmp_path, "imagenet1k", "train").tolist() == [0, 0, 0, 1, 1, 1]
    assert kinds(tmp_path, "imagenet1k") == [
        ("class without a folder", "train/n01484850", 0),
        ("class without a folder", "val/n01484850", 0),
        ("unknown class folder", "train/n99999999", 0),
    ]


def test_imagenet_with_a_flat_validation_folder_reads_the_devkit(tmp_path, monkeypatch):
    from scipy.io import savemat

    small(monkeypatch, "imagenet1k", 2)
    tree = tmp_path / "downloads" / "imagenet1k"
    imagenet(tree)
    data = tree / "ILSVRC2012_devkit_t12" / "data"
    for folder in (tree / "val").iterdir():
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
    for i in range(1, 4):
        picture(tree / "val" / f"ILSVRC2012_val_{i:08d}.JPEG", i, i)
    with pytest.raises(UserError, match=r"has no class folders and .*meta\.mat is missing"):
        prepare("imagenet1k", tmp_path)
    data.mkdir(parents=True)
    synsets = np.array([(7, "n01443537"), (9, "n01440764")], dtype=[("ILSVRC2012_ID", "i4"), ("WNID", "O")])
    savemat(data / "meta.mat", {"synsets": synsets})
    (data / "ILSVRC2012_validation_ground_truth.txt").write_text("7\n9\n1001\n")
    prepared("imagenet1k", tmp_path, None)
    assert load.true_labels(tmp_path, "imagenet1k", "test").tolist() == [1, 0]
    assert kinds(tmp_path, "imagenet1k") == [("label out of range", "ILSVRC2012_validation_ground_truth.txt", 3)]


@pytest.mark.parametrize("name, folder", [("ninco", "images_largescale"), ("textures", "images_classic")])
def test_openoods_lists(tmp_path, monkeypatch, name, folder):
    small(monkeypatch, name, 0)
    tree = tmp_path / "downloads" / "openood"
    listed = [f"{name}/c{i}/{i}.jpg" for i in range(4)]
    for i, path in enumerate(listed[:3]):
        picture(tree / folder / path, i, i)
    file = tree / "benchmark_imglist" / "imagenet" / f"test_{name}.txt"
    file.parent.mkdir(parents=True)
    file.write_text("".join(f"{p} -1\n" for p in [*listed, listed[0], "../x.jpg"]))
    prepared(name, tmp_path, None)
    assert [p.decode() for p in load.paths(tmp_path, name, "test")] == [f"{folder}/{p}" for p in listed[:3]]
    assert kinds(tmp_path, name) == [
        ("duplicate key", file.name, 5),
        ("missing file", f"{folder}/{listed[3]}", 0),
        ("path outside the tree", file.name, 6),
    ]
    assert check_availability("ssb_hard", tmp_path).missing, "another set of the same tree has its own list"


def test_tinyimagenet_unpacked(tmp_path, monkeypatch):
    d = small(monkeypatch, "tinyimagenet", 2)
    top = tmp_path / "downloads" / "tinyimagenet" / "tiny-imagenet-200"
    for i, wnid in enumerate(d.classes):
        for j in range(2):
            picture(top / "train" / wnid / "images" / f"{wnid}_{j}.JPEG", i, j)
        picture(top / "val" / "images" / f"val_{i}.JPEG", i, 9 + i)
    (top / "wnids.txt").write_text("\n".join(d.classes))
    lines = [f"val_{i}.JPEG\t{wnid}\t0\t0\t62\t62" for i, wnid in enumerate(d.classes)]
    (top / "val" / "val_annotations.txt").write_text("\n".join([*lines, lines[0], "val_9.JPEG\tn0\t0", "a/b\tn0"]))
    assert check_availability("tinyimagenet", tmp_path).description == "unpacked here"
    prepared("tinyimagenet", tmp_path, None)
    assert load.true_labels(tmp_path, "tinyimagenet", "train").tolist() == [0, 0, 1, 1]
    assert load.true_labels(tmp_path, "tinyimagenet", "test").tolist() == [0, 1]
    name = "val_annotations.txt"
    assert kinds(tmp_path, "tinyimagenet") == [
        ("duplicate key", name, 3), ("label out of range", name, 4), ("malformed line", name, 5),
    ]  # fmt: skip


def test_places365_and_notmnist_unpacked(tmp_path, monkeypatch):
    for i in range(3):
        picture(tmp_path / "downloads" / "places365" / "val_256" / f"Places365_val_{i:08d}.jpg", i, i)
        picture(tmp_path / "downloads" / "notmnist" / "notMNIST_small" / "ABC"[i] / f"{i}.png", i, i)
    truncate(tmp_path / "downloads" / "places365" / "val_256" / "Places365_val_00000001.jpg")
    truncate(tmp_path / "downloads" / "notmnist" / "notMNIST_small" / "B" / "1.png")
    for name, path in (
        ("places365", "val_256/Places365_val_00000001.jpg"),
        ("notmnist", "notMNIST_small/B/1.png"),
    ):
        prepared(name, tmp_path, None)
        assert len(load.paths(tmp_path, name, "test")) == 2
        assert ("broken image", path, 0) in kinds(tmp_path, name)
