"""Imagenette, photographs of ten ImageNet classes, and the noisy labels that are published with it.

The md5 of the archive is the one that torchvision 0.25 checks (`torchvision.datasets.Imagenette`). Another archive lay
at the same address in 2021 (c475f8f7…: fastai/fastai, fastai/data/checks.txt); it is not accepted. The md5 of the noisy
labels is that of the file in the repository fastai/imagenette, at the commit in its address.
"""

from __future__ import annotations

from typing import Any

from sgoif.bench.data.dataset import Dataset, OfficialFile

IMAGENETTE_CLASSES = (  # in the order of their folders, by WordNet id
    "tench", "English springer", "cassette player", "chain saw", "church", "French horn", "garbage truck", "gas pump",
    "golf ball", "parachute",
)  # fmt: skip
IMAGENETTE_FOLDERS = (
    "n01440764", "n02102040", "n02979186", "n03000684", "n03028079", "n03394916", "n03417042", "n03425413",
    "n03445777", "n03888257",
)  # fmt: skip
IMAGENETTE_NOISY = {  # column of labels.npz -> per cent of the training labels that are changed in it
    "clean_label": 0, "noisy_labels_1": 1, "noisy_labels_5": 5, "noisy_labels_25": 25, "noisy_labels_50": 50,
}  # fmt: skip
_COMMIT = "ba8db39559154607fecd46bfff9068f074082af4"
_HOWARD: dict[str, Any] = dict(
    licence="Apache-2.0; images: ImageNet's terms, non-commercial research and education",
    citation="J. Howard, Imagenette, github.com/fastai/imagenette, 2019; noisy labels: T. Abraham, 2021",
    classes=IMAGENETTE_CLASSES,
    folder="imagenette",
)

PHOTO_SETS = (
    Dataset(
        name="imagenette",
        title="Imagenette, 160-pixel archive, short side resized to 96, centre crop; test is its validation set",
        kind="labelled",
        parts={"train": 9469, "test": 3925},
        image_size=96,
        channels=3,
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
        flip=True,
        reader="imagenette",
        sources=(
            OfficialFile(
                "https://s3.amazonaws.com/fast-ai-imageclas/imagenette2-160.tgz",
                "imagenette2-160.tgz",
                "md5:e793b78cc4c9e9a4ccc0c1155377a412",
            ),
        ),
        needs_mb=480,
        **_HOWARD,
    ),
    Dataset(
        name="imagenette_noisy",
        title="the noisy labels that are published with Imagenette",
        kind="labels",
        parts={"train": 9469},
        reader="imagenette_noisy",
        sources=(
            OfficialFile(
                f"https://raw.githubusercontent.com/fastai/imagenette/{_COMMIT}/noisy_imagenette.csv",
                "noisy_imagenette.csv",
                "md5:3eefe40e1030d8bc25b0bbd53ed5c60b",
                1230799,
            ),
        ),
        needs_mb=3,
        **_HOWARD,
    ),
)
