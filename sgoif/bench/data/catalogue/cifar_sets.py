"""CIFAR-10 and CIFAR-100, and the human labels of their training images."""

from __future__ import annotations

from typing import Any

from sgoif.bench.data.catalogue.class_names import CIFAR10, CIFAR100, CIFAR100_SUPERCLASS_OF
from sgoif.bench.data.dataset import Dataset, OfficialFile

_KRIZHEVSKY: dict[str, Any] = dict(
    licence="not stated; cite the report",
    citation="A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009",
    image_size=32,
    channels=3,
    flip=True,
    reader="cifar",
    needs_mb=355,
)
_CIFAR_N: dict[str, Any] = dict(
    kind="labels",
    licence="CC BY-NC 4.0",
    citation="J. Wei et al., Learning with Noisy Labels Revisited, ICLR 2022",
    parts={"train": 50000},
    reader="human",
    folder="cifar_n",
    needs_mb=6,
)
_CIFAR_N_URL = "https://raw.githubusercontent.com/UCSC-REAL/cifar-10-100n/main/data/"

CIFAR_SETS = (
    Dataset(
        name="cifar10",
        title="CIFAR-10",
        kind="labelled",
        parts={"train": 50000, "test": 10000},
        classes=CIFAR10,
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2616),
        sources=(
            OfficialFile(
                "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
                "cifar-10-python.tar.gz",
                "md5:c58f30108f718f92721af3b95e74349a",
                170498071,
            ),
        ),
        loose={
            "cifar-10-batches-py/data_batch_1": "c99cafc152244af753f735de768cd75f",
            "cifar-10-batches-py/data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
            "cifar-10-batches-py/data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
            "cifar-10-batches-py/data_batch_4": "634d18415352ddfa80567beed471001a",
            "cifar-10-batches-py/data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
            "cifar-10-batches-py/test_batch": "40351d587109b95175f43aff81a1287e",
        },
        folder="cifar10",
        arrays={
            "train_images": "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
            "train_labels": "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
            "test_images": "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
            "test_labels": "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
        },
        **_KRIZHEVSKY,
    ),
    Dataset(
        name="cifar100",
        title="CIFAR-100, fine labels",
        kind="labelled",
        parts={"train": 50000, "test": 10000},
        classes=CIFAR100,
        superclasses=CIFAR100_SUPERCLASS_OF,
        mean=(0.5071, 0.4867, 0.4408),
        std=(0.2675, 0.2565, 0.2761),
        sources=(
            OfficialFile(
                "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
                "cifar-100-python.tar.gz",
                "md5:eb9058c3a382ffc7106e4002c42a8d85",
                169001437,
            ),
        ),
        loose={
            "cifar-100-python/train": "16019d7e3df5f24257cddd939b257f8d",
            "cifar-100-python/test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        },
        folder="cifar100",
        arrays={
            "train_images": "4e457917601a66aed021f5fa37957b56c6319557c0a8ed5484de3c390af45430",
            "train_labels": "9f11b9f97aad759ba6df0a33e3218b01d8deaf4ed3a14aa1185d69b9ad7ebcb3",
            "test_images": "4cb8e5d9309da489bf6b19cc10cd96c3ae6f8daf225380b605aaee4c0d6aee19",
            "test_labels": "4dad7d09c7c97d33f6cb928d705cf4196221316fd6e31bdd978a08ed9103ee0b",
        },
        **_KRIZHEVSKY,
    ),
    Dataset(
        name="cifar10n",
        title="CIFAR-10N: human labels of CIFAR-10's training images",
        classes=CIFAR10,
        sources=(
            OfficialFile(
                _CIFAR_N_URL + "CIFAR-10_human.pt",
                "CIFAR-10_human.pt",
                "md5:96644db5574813cae939af5f7f2a0aec",
                2401007,
            ),
        ),
        arrays={
            "clean_label": "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
            "aggre_label": "2bd5e02e39c9c79772cf4c794f7b74630ac1aaeeac4b807a63c11e9a375f8404",
            "worse_label": "11a306ed336e3bc81aaac36322ddf12de379d0df1883aa43e10ba562a98f6b2a",
            "random_label1": "8d01b5a5af048e84bf6e964c86e1133e95d5b22c07763e23705b714ad0f32d8b",
            "random_label2": "7ea04c887750912f49669282a75e78df380077766b361fb6cb5200999ad6dcda",
            "random_label3": "cdbfad7e15bfc8fc83bc7c6e30b692e2aa1186660d82738b7543a6012d6ca46f",
        },
        **_CIFAR_N,
    ),
    Dataset(
        name="cifar100n",
        title="CIFAR-100N: human labels of CIFAR-100's training images",
        classes=CIFAR100,
        sources=(
            OfficialFile(
                _CIFAR_N_URL + "CIFAR-100_human.pt",
                "CIFAR-100_human.pt",
                "md5:a67b45c1d7992051865b5c755bd68bb1",
                1000959,
            ),
        ),
        arrays={
            "clean_label": "9f11b9f97aad759ba6df0a33e3218b01d8deaf4ed3a14aa1185d69b9ad7ebcb3",
            "noisy_label": "54050bc3f9441adc78f204c68915d49a7f86bfa72b8fba04751b961d5be4aa62",
        },
        **_CIFAR_N,
    ),
)
