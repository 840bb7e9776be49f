"""The official layouts of unpacked datasets, one function each: list the images of all parts of a dataset.

Each function takes the dataset, the folder it was unpacked into, and a report to which it adds faulty lines.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from sgoif.bench.data.dataset import Dataset
from sgoif.bench.data.image_folders.base import IMAGE_SUFFIXES, Entries, FolderLayout, ImageEntry, ProblemReport
from sgoif.bench.data.image_folders.list_files import is_usable, read_labelled_paths, read_lines, read_paths
from sgoif.errors import UserError


def webvision(d: Dataset, root: Path, report: ProblemReport) -> Entries:
    """List WebVision: info/train_filelist_all.txt and val_filelist.txt, lines `path label`.

    Training labels are those of the web query, which nobody checked. Validation images lie in val_images_256/ (version
    1.0) or val_images_resized/ (2.0), labelled by people.
    """
    return _webvision(d, root, report, "train_filelist_all.txt", d.n_classes)


def mini_webvision(d: Dataset, root: Path, report: ProblemReport) -> Entries:
    """List, of WebVision 1.0, the images that Google found for the first classes (50 of the 1,000)."""
    return _webvision(d, root, report, "train_filelist_google.txt", 1000)


def _webvision(d: Dataset, root: Path, report: ProblemReport, train_list: str, listed_classes: int) -> Entries:
    folders = ("val_images_256", "val_images_resized")
    folder = next((f for f in folders if (root / f).is_dir()), folders[0])
    train = read_labelled_paths(root / "info" / train_list, listed_classes, report)
    val_list = _first_existing(root, "info/val_filelist.txt", "val_filelist.txt")
    val = read_labelled_paths(val_list, listed_classes, report)
    return {
        "train": [
            ImageEntry(path, -1, train_list, line, collected_label=label)
            for path, (label, line) in train.items()
            if label < d.n_classes
        ],
        "test": [
            ImageEntry(f"{folder}/{path}", label, "val_filelist.txt", line)
            for path, (label, line) in val.items()
            if label < d.n_classes
        ],
    }


def clothing1m(d: Dataset, root: Path, report: ProblemReport) -> Entries:
    """List Clothing1M: *_key_list.txt (paths) and {noisy,clean}_label_kv.txt (`path label`), or in annotations/.

    Train: the noisy training list, then the images that have both labels and are not test images, with their noisy
    label. Those with both are the ones on which detection can be judged.
    """
    folder = _first_existing(root, "noisy_label_kv.txt", "annotations/noisy_label_kv.txt").parent
    noisy = read_labelled_paths(folder / "noisy_label_kv.txt", d.n_classes, report)
    clean = read_labelled_paths(folder / "clean_label_kv.txt", d.n_classes, report)
    train = read_paths(folder / "noisy_train_key_list.txt", report)
    test = read_paths(folder / "clean_test_key_list.txt", report)

    def true_label(path: str) -> int:
        return clean[path].label if path in clean else -1

    train_entries = [
        ImageEntry(path, true_label(path), "noisy_train_key_list.txt", line, noisy[path].label)
        for path, line in _with_label(train, "noisy_train_key_list.txt", noisy, "noisy_label_kv.txt", report)
    ]
    train_entries += [
        ImageEntry(path, true_label(path), "clean_label_kv.txt", line, noisy[path].label)
        for path, (_, line) in clean.items()
        if path in noisy and path not in train and path not in test
    ]
    test_entries = [
        ImageEntry(path, true_label(path), "clean_test_key_list.txt", line)
        for path, line in _with_label(test, "clean_test_key_list.txt", clean, "clean_label_kv.txt", report)
    ]
    test_paths = {e.path for e in test_entries}
    for e in train_entries:
        if e.path in test_paths:
            report.add("test image in training", e.file, e.line, f"{e.path} is left out of the training set")
    return {"train": [e for e in train_entries if e.path not in test_paths], "test": test_entries}


def _with_label(
    listed: Mapping[str, int], file: str, labelled: Collection[str], labels_file: str, report: ProblemReport
) -> Iterator[tuple[str, int]]:
    """Yield (path, line) of the listed paths that have a label; report the others."""
    for path, line in listed.items():
        if path in labelled:
            yield path, line
        else:
            report.add("missing list line", file, line, f"{path} has no usable line in {labels_file}")


def imagenet(d: Dataset, root: Path, report: ProblemReport) -> Entries:
    """List ImageNet: train/<wnid>/*.JPEG; val/<wnid>/*.JPEG, or val/*.JPEG with the truth of ILSVRC2012_devkit_t12."""
    from timm.data.imagenet_info import ImageNetInfo

    label_of = {wnid: i for i, wnid in enumerate(ImageNetInfo().label_names()[: d.n_classes])}
    train = _class_folders(root / "train", label_of, report, root)
    if not any((root / "val" / wnid).is_dir() for wnid in label_of):
        return {"train": train, "test": _imagenet_devkit(root, label_of, report)}
    return {"train": train, "test": _class_folders(root / "val", label_of, report, root)}


def _imagenet_devkit(root: Path, label_of: Mapping[str, int], report: ProblemReport) -> list[ImageEntry]:
    """List the flat validation folder: line i of the ground truth is the ILSVRC id of image i."""
    from scipy.io import loadmat

    data = root / "ILSVRC2012_devkit_t12" / "data"
    if not (data / "meta.mat").is_file():
        raise UserError(
            f"{root / 'val'} has no class folders and {data / 'meta.mat'} is missing; unpack the devkit too"
        )
    synsets = loadmat(data / "meta.mat", squeeze_me=True)["synsets"]
    wnid_of = {str(s["ILSVRC2012_ID"]): str(s["WNID"]) for s in synsets}
    truth_list = "ILSVRC2012_validation_ground_truth.txt"
    entries = []
    for line, text in read_lines(data / truth_list):
        wnid = wnid_of.get(text)
        if wnid is not None and wnid in label_of:
            entries.append(ImageEntry(f"val/ILSVRC2012_val_{line:08d}.JPEG", label_of[wnid], truth_list, line))
        else:
            report.add("label out of range", truth_list, line, f"{text} is none of the {len(label_of)} classes")
    return entries


OPENOOD_FOLDERS = {  # set -> folder of its images
    "ssb_hard": "images_largescale",
    "ninco": "images_largescale",
    "inaturalist": "images_largescale",
    "openimage_o": "images_largescale",
    "textures": "images_classic",
}


def openood(d: Dataset, root: Path, report: ProblemReport) -> Entries:
    """List a set of OpenOOD: benchmark_imglist/imagenet/test_<set>.txt, lines `path -1`, under images_*/."""
    file = root / "benchmark_imglist" / "imagenet" / f"test_{d.name}.txt"
    entries: dict[str, ImageEntry] = {}
    for line, text in read_lines(file):
        path = text.rpartition(" ")[0].strip() or text
        first = entries[path].line if path in entries else None
        if is_usable(path, first, file.name, line, report):
            entries[path] = ImageEntry(f"{OPENOOD_FOLDERS[d.name]}/{path}", -1, file.name, line)
    return {"test": list(entries.values())}


def notmnist(d: Dataset, root: Path, report: ProblemReport) -> Entries:
    """List notMNIST: notMNIST_small/<letter>/*.png."""
    top = root / "notMNIST_small"
    label_of = {letter: i for i, letter in enumerate(d.classes)}
    return {"test": _class_folders(top if top.is_dir() else root, label_of, report, root)}


def tinyimagenet(d: Dataset, root: Path, report: ProblemReport) -> Entries:
    """List Tiny-ImageNet: train/<wnid>/images/*.JPEG; val/val_annotations.txt with `name<tab>wnid<tab>box`."""
    top = root / "tiny-imagenet-200" if (root / "tiny-imagenet-200").is_dir() else root
    label_of = {wnid: i for i, wnid in enumerate(d.classes)}
    val_list = "val_annotations.txt"
    val_folder = (top / "val" / "images").relative_to(root)
    entries: dict[str, ImageEntry] = {}
    for line, text in read_lines(top / "val" / val_list):
        file, _, rest = text.partition("\t")
        wnid = rest.split("\t")[0]
        if "/" in file:
            report.add("malformed line", val_list, line, text[:80])
        elif wnid not in label_of:
            report.add("label out of range", val_list, line, text[:80])
        elif file in entries:
            report.add("duplicate key", val_list, line, f"{file} is in line {entries[file].line} already, which counts")
        else:
            entries[file] = ImageEntry(f"{val_folder}/{file}", label_of[wnid], val_list, line)
    return {"train": _class_folders(top / "train", label_of, report, root, "images"), "test": list(entries.values())}


def places365(d: Dataset, root: Path, report: ProblemReport) -> Entries:
    """List Places365: val_256/Places365_val_<number>.jpg; as OOD images they need no labels."""
    names = sorted(p.name for p in (root / "val_256").iterdir() if p.suffix.lower() in IMAGE_SUFFIXES)
    return {"test": [ImageEntry(f"val_256/{name}", -1, "val_256", i) for i, name in enumerate(names, 1)]}


def _class_folders(
    top: Path, label_of: Mapping[str, int], report: ProblemReport, root: Path, inside: str = ""
) -> list[ImageEntry]:
    """List <top>/<class>/[inside/]<image>, sorted by class and name; report unknown folders and missing classes."""
    if not top.is_dir():
        raise UserError(f"{top} is missing; it is part of the dataset: unpack the dataset again")
    where = str(top.relative_to(root)) if top != root else "."
    for name in sorted(p.name for p in top.iterdir() if p.is_dir()):
        if name not in label_of:
            report.add("unknown class folder", f"{where}/{name}", 0, f"none of the {len(label_of)} classes")
    entries = []
    for name, label in label_of.items():
        folder = top / name / inside
        if not folder.is_dir():
            report.add("class without a folder", f"{where}/{name}", 0, f"label {label} has no image")
            continue
        files = sorted(p for p in folder.iterdir() if p.suffix.lower() in IMAGE_SUFFIXES)
        base = folder.relative_to(root)
        entries += [ImageEntry(f"{base}/{p.name}", label, str(base), i) for i, p in enumerate(files, 1)]
    return entries


def _first_existing(root: Path, *names: str) -> Path:
    """Return the first of the files that exists; the first name if none does, for the message that follows."""
    return next((root / n for n in names if (root / n).is_file()), root / names[0])


LAYOUTS = {
    "webvision": FolderLayout(webvision, ("info/train_filelist_all.txt",)),
    "mini_webvision": FolderLayout(mini_webvision, ("info/train_filelist_google.txt",)),
    "clothing1m": FolderLayout(clothing1m, ("noisy_label_kv.txt", "annotations/noisy_label_kv.txt")),
    "imagenet": FolderLayout(imagenet, ("train/n01440764", "train/n01443537")),
    "openood": FolderLayout(openood, ("benchmark_imglist/imagenet/test_{name}.txt",)),
    "notmnist": FolderLayout(notmnist, ("notMNIST_small", "A")),
    "tinyimagenet": FolderLayout(tinyimagenet, ("tiny-imagenet-200/wnids.txt", "wnids.txt")),
    "places365": FolderLayout(places365, ("val_256",)),
}
