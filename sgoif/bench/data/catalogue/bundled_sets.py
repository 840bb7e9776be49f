"""Datasets inside scikit-learn: real data that needs no download."""

from __future__ import annotations

from typing import Any

from sgoif.bench.data.catalogue.class_names import DIGITS
from sgoif.bench.data.dataset import Dataset

_DIGITS: dict[str, Any] = dict(
    licence="CC BY 4.0 (UCI, Optical Recognition of Handwritten Digits); inside scikit-learn",
    citation="E. Alpaydin, C. Kaynak, Optical Recognition of Handwritten Digits, UCI ML Repository, 1998",
    image_size=8,
    reader="bundled",
)

_WHOLE: dict[str, Any] = dict(
    kind="labelled",
    parts={"train": 1438, "test": 359},
    classes=DIGITS,
    mean=(0.3058,),
    std=(0.3764,),
    arrays={
        "train_images": "83f21b74e3764178cf6cb1539223bf93f384cfd591f0ed7304e42e667e207caa",
        "train_labels": "a2471153d71f70a0ded1b54f33855569525eeff4057e6714acd641041905f0a1",
        "test_images": "2f5eb12f1dfec8a2337c6effb5e27dbb6ed8b62a806850d96fc89030d272c03a",
        "test_labels": "85127d38d0fb39a6cdcd246d297cf22e48756f9d1d97699a4a18662f3154f0e9",
    },
    **_DIGITS,
)

BUNDLED_SETS = (
    Dataset(
        name="digits",
        title="scikit-learn's digits, 8x8 grey, split once for all into four fifths and one fifth of each class",
        **_WHOLE,
    ),
    Dataset(
        name="digits_regimes",  # a name of its own: its settings have other methods and seeds than those of `digits`
        title="the same images as `digits`, for the regimes",
        **_WHOLE,
    ),
    Dataset(
        name="digits_id",
        title="the digits 0 to 5 of `digits`, in the same split: in-distribution",
        kind="labelled",
        parts={"train": 867, "test": 216},
        classes=DIGITS[:6],
        mean=(0.3046,),
        std=(0.3775,),
        arrays={
            "train_images": "87ba6276e0d66d0c076bfce94ca09f0003498c17bfe9efc8c5528ae7306b51e9",
            "train_labels": "101fe2156d0dd0cec61b65b44546f773839b072de588c7efd5566f9f46910c68",
            "test_images": "d0ca8a379d3d0883467e197dc8750465423bc86eea451fe04f6a362edcfdb747",
            "test_labels": "40923f1323a449b30773ab167acf23ac0cd3e75f5c4700233bcd3da01cdf7bd7",
        },
        **_DIGITS,
    ),
    Dataset(
        name="digits_aux",
        title="the digits 6 and 7: auxiliary images, never tested on",
        kind="ood",
        parts={"train": 360},
        classes=DIGITS[6:8],
        arrays={
            "train_images": "0b13c7a6c30515af74f251752b57ab3a7716e71b16293244ac4d49ffd8b74fbd",
            "train_labels": "6bbed52373f4aa33b208f84872fbee5c5e91129ef57c00229824a6e875318319",
        },
        **_DIGITS,
    ),
    Dataset(
        name="digits_near",
        title="the digits 8 and 9: near out-of-distribution",
        kind="ood",
        parts={"test": 354},
        classes=DIGITS[8:],
        arrays={
            "test_images": "ffe1eed241c63534325b8b13b7e05d21b571b223b6183f82e8088a5aa2023c20",
            "test_labels": "16d9118cebe851c172773c36acec6dabb0d3c381f2f607b2dca00a4d583c0940",
        },
        **_DIGITS,
    ),
    Dataset(
        name="photo_patches",  # no fixed hash: decoding a JPEG may differ in the last bit between versions of libjpeg
        title="8x8 grey patches of scikit-learn's two sample photographs: far out-of-distribution",
        kind="ood",
        licence="CC BY 2.0 (danielbuechele: china.jpg; vultilion: flower.jpg; inside scikit-learn)",
        citation="F. Pedregosa et al., Scikit-learn: Machine Learning in Python, JMLR 12, 2011",
        parts={"test": 1000},
        classes=("china", "flower"),
        image_size=8,
        reader="bundled",
    ),
)
