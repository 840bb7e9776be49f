"""The official layouts, one function each: from an unpacked dataset to the entries of its parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from sgoif.bench.data.dataset import Dataset
from sgoif.bench.data.image_folders.listing import Entry, Layout, Parts, Report, keys, lines, pairs
from sgoif.errors import UserError

PICTURES = (".jpg", ".jpeg", ".png", ".gif", ".webp")


def webvision(d: Dataset, tree: Path, report: Report) -> Parts:
    """info/train_filelist_all.txt and val_filelist.txt, lines `path label`; the label is the query's, nobody checked.

    Validation images lie in val_images_256/ (version 1.0) or val_images_resized/ (2.0), labelled by people.
    """
    return _webvision(d, tree, report, "train_filelist_all.txt", d.n_classes)


def mini_webvision(d: Dataset, tree: Path, report: Report) -> Parts:
    """Of WebVision 1.0, the images that Google found for the first classes (50 of the 1,000)."""
    return _webvision(d, tree, report, "train_filelist_google.txt", 1000)


def _webvision(d: Dataset, tree: Path, report: Report, train_list: str, listed: int) -> Parts:
    folder = next((f for f in ("val_images_256", "val_images_resized") if (tree / f).is_dir()), "val_images_256")
    train = pairs(tree / "info" / train_list, listed, report)
    val = pairs(_first(tree, "info/val_filelist.txt", "val_filelist.txt"), listed, report)
    return {
        "train": [Entry(k, -1, train_list, n, collected_label=y) for k, (y, n) in train.items() if y < d.n_classes],
        "test": [Entry(f"{folder}/{k}", y, "val_filelist.txt", n) for k, (y, n) in val.items() if y < d.n_classes],
    }


def clothing1m(d: Dataset, tree: Path, report: Report) -> Parts:
    """*_key_list.txt (paths) and {noisy,clean}_label_kv.txt (`path label`), in the tree or in annotations/.

    Train: the noisy training list, then the images that have both labels and are not test images, with their noisy
    label. Those with both are the ones on which detection can be judged.
    """
    base = _first(tree, "noisy_label_kv.txt", "annotations/noisy_label_kv.txt").parent
    noisy = pairs(base / "noisy_label_kv.txt", d.n_classes, report)
    clean = pairs(base / "clean_label_kv.txt", d.n_classes, report)
    train = keys(base / "noisy_train_key_list.txt", report)
    test = keys(base / "clean_test_key_list.txt", report)

    def listed(chosen: Mapping[str, int], file: str, labels: Mapping, labels_file: str) -> Iterator[tuple[str, int]]:
        for key, number in chosen.items():
            if key in labels:
                yield key, number
            else:
                report.add("missing list line", file, number, f"{key} has no usable line in {labels_file}")

    def true(key: str) -> int:
        return clean[key][0] if key in clean else -1

    name = "noisy_train_key_list.txt"
    entries = [Entry(k, true(k), name, n, noisy[k][0]) for k, n in listed(train, name, noisy, "noisy_label_kv.txt")]
    both = [(k, n) for k, (_, n) in clean.items() if k in noisy and k not in train and k not in test]
    entries += [Entry(k, true(k), "clean_label_kv.txt", n, noisy[k][0]) for k, n in both]
    name = "clean_test_key_list.txt"
    tested = [Entry(k, true(k), name, n) for k, n in listed(test, name, clean, "clean_label_kv.txt")]
    overlap = {e.path for e in tested}
    for e in entries:
        if e.path in overlap:
            report.add("test image in training", e.file, e.line, f"{e.path} is left out of the training set")
    return {"train": [e for e in entries if e.path not in overlap], "test": tested}


def imagenet(d: Dataset, tree: Path, report: Report) -> Parts:
    """train/<wnid>/*.JPEG; val/<wnid>/*.JPEG, or val/*.JPEG with the ground truth of ILSVRC2012_devkit_t12."""
    from timm.data import ImageNetInfo

    number = {wnid: i for i, wnid in enumerate(ImageNetInfo().label_names()[: d.n_classes])}
    train = _folders(tree / "train", number, report, tree)
    if not any((tree / "val" / wnid).is_dir() for wnid in number):
        return {"train": train, "test": _devkit(tree, number, report)}
    return {"train": train, "test": _folders(tree / "val", number, report, tree)}


def _devkit(tree: Path, number: Mapping[str, int], report: Report) -> list[Entry]:
    """The flat validation folder: line i of the ground truth is the ILSVRC id of image i."""
    from scipy.io import loadmat

    data = tree / "ILSVRC2012_devkit_t12" / "data"
    if not (data / "meta.mat").is_file():
        raise UserError(
            f"{tree / 'val'} has no class folders and {data / 'meta.mat'} is missing; unpack the devkit too"
        )
    synsets = loadmat(data / "meta.mat", squeeze_me=True)["synsets"]
    wnid = {str(s["ILSVRC2012_ID"]): str(s["WNID"]) for s in synsets}
    truth, entries = "ILSVRC2012_validation_ground_truth.txt", []
    for line, text in lines(data / truth):
        if wnid.get(text) in number:
            path = f"val/ILSVRC2012_val_{line:08d}.JPEG"
            entries.append(Entry(path, number[wnid[text]], truth, line))
        else:
            report.add("label out of range", truth, line, f"{text} is none of the {len(number)} classes")
    return entries


OPENOOD = {  # set -> folder of its images
    "ssb_hard": "images_largescale",
    "ninco": "images_largescale",
    "inaturalist": "images_largescale",
    "openimage_o": "images_largescale",
    "textures": "images_classic",
}


def openood(d: Dataset, tree: Path, report: Report) -> Parts:
    """benchmark_imglist/imagenet/test_<set>.txt, lines `path -1`, under images_largescale/ or images_classic/."""
    file = tree / "benchmark_imglist" / "imagenet" / f"test_{d.name}.txt"
    entries: dict[str, Entry] = {}
    for line, text in lines(file):
        key = text.rpartition(" ")[0].strip() or text
        if key.startswith("/") or ".." in key.split("/"):
            report.add("path outside the tree", file.name, line, key[:120])
        elif key in entries:
            report.add("duplicate key", file.name, line, f"{key} is in line {entries[key].line} already, which counts")
        else:
            entries[key] = Entry(f"{OPENOOD[d.name]}/{key}", -1, file.name, line)
    return {"test": list(entries.values())}


def notmnist(d: Dataset, tree: Path, report: Report) -> Parts:
    """notMNIST_small/<letter>/*.png."""
    top = tree / "notMNIST_small"
    number = {letter: i for i, letter in enumerate(d.classes)}
    return {"test": _folders(top if top.is_dir() else tree, number, report, tree)}


def tinyimagenet(d: Dataset, tree: Path, report: Report) -> Parts:
    """tiny-imagenet-200/train/<wnid>/images/*.JPEG; val/val_annotations.txt with `name<tab>wnid<tab>box`."""
    top = tree / "tiny-imagenet-200" if (tree / "tiny-imagenet-200").is_dir() else tree
    number = {wnid: i for i, wnid in enumerate(d.classes)}
    entries: dict[str, Entry] = {}
    name = "val_annotations.txt"
    for line, text in lines(top / "val" / name):
        file, _, rest = text.partition("\t")
        wnid = rest.split("\t")[0]
        path = f"{(top / 'val' / 'images').relative_to(tree)}/{file}"
        if wnid not in number or "/" in file:
            report.add("malformed line" if "/" in file else "label out of range", name, line, text[:80])
        elif path in entries:
            report.add("duplicate key", name, line, f"{file} is in line {entries[path].line} already, which counts")
        else:
            entries[path] = Entry(path, number[wnid], name, line)
    return {"train": _folders(top / "train", number, report, tree, "images"), "test": list(entries.values())}


def places365(d: Dataset, tree: Path, report: Report) -> Parts:
    """val_256/Places365_val_<number>.jpg; as OOD images they need no labels."""
    names = sorted(p.name for p in (tree / "val_256").iterdir() if p.suffix.lower() in PICTURES)
    return {"test": [Entry(f"val_256/{name}", -1, "val_256", i) for i, name in enumerate(names, 1)]}


def _folders(top: Path, number: Mapping[str, int], report: Report, tree: Path, inside: str = "") -> list[Entry]:
    """<top>/<class>/[inside/]<image>: sorted by class and name. Unknown folders and missing classes are reported."""
    if not top.is_dir():
        raise UserError(f"{top} is missing; it is part of the dataset: unpack the dataset again")
    where = str(top.relative_to(tree)) if top != tree else "."
    there = sorted(p.name for p in top.iterdir() if p.is_dir())
    for name in there:
        if name not in number:
            report.add("unknown class folder", f"{where}/{name}", 0, f"none of the {len(number)} classes")
    entries = []
    for name, label in number.items():
        folder = top / name / inside
        if not folder.is_dir():
            report.add("class without a folder", f"{where}/{name}", 0, f"label {label} has no image")
            continue
        files = sorted(p for p in folder.iterdir() if p.suffix.lower() in PICTURES)
        base = folder.relative_to(tree)
        entries += [Entry(f"{base}/{p.name}", label, str(base), i) for i, p in enumerate(files, 1)]
    return entries


def _first(tree: Path, *names: str) -> Path:
    """The first of the files that is there; the first name if none is, for the message that follows."""
    return next((tree / n for n in names if (tree / n).is_file()), tree / names[0])


LAYOUTS = {
    "webvision": Layout(webvision, ("info/train_filelist_all.txt",)),
    "mini_webvision": Layout(mini_webvision, ("info/train_filelist_google.txt",)),
    "clothing1m": Layout(clothing1m, ("noisy_label_kv.txt", "annotations/noisy_label_kv.txt")),
    "imagenet": Layout(imagenet, ("train/n01440764", "train/n01443537")),
    "openood": Layout(openood, ("benchmark_imglist/imagenet/test_{name}.txt",)),
    "notmnist": Layout(notmnist, ("notMNIST_small", "A")),
    "tinyimagenet": Layout(tinyimagenet, ("tiny-imagenet-200/wnids.txt", "wnids.txt")),
    "places365": Layout(places365, ("val_256",)),
}
