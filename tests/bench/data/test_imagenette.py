"""Imagenette: from a tiny archive and label file, fetched and verified, to the labels of its published noise."""

import csv
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from sgoif.bench.config.resolve import load_config
from sgoif.bench.data import catalogue, load
from sgoif.bench.data.catalogue.photo_sets import IMAGENETTE_FOLDERS
from sgoif.bench.data.noise.spec import PUBLISHED_RATES, is_symmetric, known_rate
from sgoif.bench.data.noisy_labels import check_setting, draw_of_seed, required_datasets, write_setting
from sgoif.bench.data.prepare import prepare
from sgoif.bench.data.readers import archives
from sgoif.errors import UserError
from tests.helpers.tiny_archives import md5, register, shop, tar_bytes

CHURCH, TENCH = IMAGENETTE_FOLDERS[4], IMAGENETTE_FOLDERS[0]
# Part, class, name, grey level. Neither the archive nor the label file is sorted, and names begin in different ways.
PHOTOS = [
    ("train", CHURCH, f"{CHURCH}_9.JPEG", 90),
    ("train", CHURCH, "ILSVRC2012_val_00000003.JPEG", 30),
    ("val", TENCH, f"{TENCH}_1.JPEG", 10),
    ("train", TENCH, f"{TENCH}_2.JPEG", 20),
    ("train", CHURCH, f"{CHURCH}_10.JPEG", 200),
]
SORTED_LEVELS = [20, 30, 200, 90]  # by class, then by name
CHANGED = {f"{CHURCH}_9.JPEG": 25, f"{TENCH}_2.JPEG": 50}  # name -> from which per cent on its label is another


def photograph(level: int) -> bytes:
    """A JPEG of 160 x 240 pixels: grey, but for white bands that a centre crop takes away."""
    pixels = np.full((240, 160, 3), level, np.uint8)
    pixels[:30], pixels[-30:] = 255, 255
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG", quality=95)
    return out.getvalue()


def label_file(photos: list[tuple[str, str, str, int]] = PHOTOS) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["path", *(f"noisy_labels_{p}" for p in (0, 1, 5, 25, 50)), "is_valid"])
    for part, wnid, name, _ in reversed(photos):
        other = TENCH if wnid == CHURCH else CHURCH
        given = [other if percent >= CHANGED.get(name, 100) else wnid for percent in (0, 1, 5, 25, 50)]
        writer.writerow([f"{part}/{wnid}/{name}", *given, part == "val"])
    return out.getvalue().encode()


@pytest.fixture(scope="module")
def official() -> dict[str, bytes]:
    """The two official files, tiny; the archive has its own copy of the labels and a file that macOS writes."""
    members = {f"imagenette2-160/{part}/{wnid}/{name}": photograph(level) for part, wnid, name, level in PHOTOS}
    members |= {"imagenette2-160/noisy_imagenette.csv": b"x", f"imagenette2-160/train/{CHURCH}/._a.JPEG": b"x"}
    return {"imagenette2-160.tgz": tar_bytes(members), "noisy_imagenette.csv": label_file()}


def tiny(monkeypatch, official: dict[str, bytes], url: str = "http://127.0.0.1:9/") -> None:
    """Put the tiny files in the place of the official ones."""
    for name, parts in (("imagenette", {"train": 4, "test": 1}), ("imagenette_noisy", {"train": 4})):
        d = catalogue.get(name)
        (source,) = d.sources
        raw = official[source.filename]
        source = replace(source, url=url + source.filename, checksum=f"md5:{md5(raw)}", size=len(raw))
        register(monkeypatch, d, parts=parts, sources=(source,))


def test_it_is_fetched_resized_and_its_published_labels_belong_to_its_images(tmp_path, monkeypatch, official):
    with shop(official) as server:
        tiny(monkeypatch, official, server.url)
        for name in ("imagenette", "imagenette_noisy"):
            prepare(name, tmp_path)
    images = load.images(tmp_path, "imagenette", "train")
    assert images.shape == (4, 96, 96, 3) and load.images(tmp_path, "imagenette", "test").shape == (1, 96, 96, 3)
    assert np.abs(images[:, 2:-2].astype(int) - np.array(SORTED_LEVELS)[:, None, None, None]).max() <= 3, "centre only"
    assert load.true_labels(tmp_path, "imagenette", "train").tolist() == [0, 4, 4, 4]
    done = {r: write_setting(tmp_path, tmp_path / "run", "imagenette", "s", published(r)) for r in PUBLISHED_RATES}
    assert done[0.01].labels.tolist() == done[0.05].labels.tolist() == [0, 4, 4, 4]
    assert done[0.25].labels.tolist() == [0, 4, 4, 0] and done[0.25].wrong.tolist() == [False, False, False, True]
    assert done[0.5].labels.tolist() == [4, 4, 4, 0] and done[0.5].rate == 0.5
    part = write_setting(tmp_path, tmp_path / "run", "imagenette", "t", {**published(0.5), "images": {"from": 2}})
    assert part.labels.tolist() == [4, 0], "a part of the images has their labels"


def published(rate: float) -> dict:
    return {"kind": "published", "rate": rate}


def test_other_bytes_are_refused(tmp_path, monkeypatch, official):
    tiny(monkeypatch, official)
    folder = tmp_path / "m" / "imagenette"
    folder.mkdir(parents=True)
    (folder / "imagenette2-160.tgz").write_bytes(official["imagenette2-160.tgz"] + b"x")
    with pytest.raises(UserError, match=r"imagenette2-160\.tgz: md5 is"):
        prepare("imagenette", tmp_path / "data", tmp_path / "m", download=False)
    path = tmp_path / "noisy_imagenette.csv"
    for raw in (b"path,other\ntrain/x/y,z\n", label_file([("train", "n00000001", "a.JPEG", 0)]), b"\xff\xfe"):
        path.write_bytes(raw)
        with pytest.raises(UserError, match=r"not the noisy labels of Imagenette \(.*fetch it again"):
            archives.read_imagenette_noisy(catalogue.get("imagenette_noisy"), {path.name: path})
    path.write_bytes(tar_bytes({"imagenette2-160/train/n00000001/a.JPEG": photograph(1)}))
    with pytest.raises(UserError, match="none of the ten classes"):
        archives.read_imagenette(catalogue.get("imagenette"), {"imagenette2-160.tgz": path})


def test_every_official_file_has_a_checksum():
    for name in ("imagenette", "imagenette_noisy"):
        assert all(source.checksum and source.url.startswith("https://") for source in catalogue.get(name).sources)
    assert catalogue.get("imagenette").classes[4] == "church" and len(IMAGENETTE_FOLDERS) == 10


def test_published_noise_is_known_fixed_and_of_imagenette_alone():
    assert required_datasets("imagenette", published(0.05)) == ("imagenette", "imagenette_noisy")
    assert draw_of_seed(published(0.05), 7) == 0 and is_symmetric(published(0.05))
    assert known_rate(published(0.25), 10) == 0.25
    check_setting("imagenette", published(0.5))
    with pytest.raises(UserError, match=r"noise.rate: labels are published with 0.01, 0.05, 0.25, 0.5 .*, not 0.1"):
        check_setting("imagenette", published(0.1))
    with pytest.raises(UserError, match="published labels exist for imagenette, not for cifar10"):
        check_setting("cifar10", published(0.5))
    with pytest.raises(UserError, match="human labels exist for cifar10 and cifar100, not for imagenette"):
        check_setting("imagenette", {"kind": "human", "column": "worse_label"})


def test_the_measurement_trains_on_it_from_scratch_and_on_frozen_features():
    config = load_config(Path("configs/measurement.yaml"))
    entry = config["noisy"]["imagenette"]
    rates = {False: [], True: []}
    for setting in entry["settings"].values():
        rates[setting.get("recipe", {}).get("start", {}).get("frozen", False)].append(setting["rate"])
    assert rates == {False: list(PUBLISHED_RATES), True: list(PUBLISHED_RATES)}
    assert entry["recipe"]["model"] == "timm:resnet18" and "start" not in entry["recipe"]
    regimes = load_config(Path("configs/regimes.yaml"))["noisy"]["cifar10"]["settings"]["frozen_sym20"]["recipe"]
    assert entry["settings"]["frozen_noisy5"]["recipe"] == regimes, "features as in the regimes"
    assert "trials of earlier versions" in yaml.safe_dump(config["tables"]["imagenette"], width=10_000)
