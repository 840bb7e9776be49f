"""The MNIST family."""

from __future__ import annotations

from sgoif.bench.data.catalogue.class_names import DIGITS, FASHION, KUZUSHIJI
from sgoif.bench.data.dataset import Dataset, OfficialFile


def _idx(base: str, **md5: str) -> tuple[OfficialFile, ...]:
    names = {
        "train_images": "train-images-idx3-ubyte.gz",
        "train_labels": "train-labels-idx1-ubyte.gz",
        "test_images": "t10k-images-idx3-ubyte.gz",
        "test_labels": "t10k-labels-idx1-ubyte.gz",
    }
    return tuple(OfficialFile(base + names[key], names[key], f"md5:{value}") for key, value in md5.items())


GREY_SETS = (
    Dataset(
        name="MNIST",
        title="MNIST handwritten digits",
        kind="labelled",
        licence="CC BY-SA 3.0",
        citation="Y. LeCun, C. Cortes, C. Burges, The MNIST database of handwritten digits, 1998",
        parts={"train": 60000, "test": 10000},
        classes=DIGITS,
        image_size=28,
        mean=(0.1307,),
        std=(0.3081,),
        reader="idx",
        sources=_idx(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            train_images="f68b3c2dcbeaaa9fbdd348bbdeb94873",
            train_labels="d53e105ee54ea40749a09fcbcd1e9432",
            test_images="9fb629c4189551a2d022fa330f9573f3",
            test_labels="ec29112dd5afa0611ce80d1b7f02629c",
        ),
        folder="MNIST",
        arrays={
            "train_images": "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
            "train_labels": "1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13",
            "test_images": "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
            "test_labels": "ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5",
        },
        needs_mb=67,
    ),
    Dataset(
        name="FashionMNIST",
        title="Fashion-MNIST, Zalando's article images",
        kind="labelled",
        licence="MIT",
        citation="H. Xiao, K. Rasul, R. Vollgraf, Fashion-MNIST, arXiv:1708.07747, 2017",
        parts={"train": 60000, "test": 10000},
        classes=FASHION,
        image_size=28,
        mean=(0.2860,),
        std=(0.3530,),
        flip=True,
        reader="idx",
        sources=_idx(
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            train_images="8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            train_labels="25c81989df183df01b3e8a0aad5dffbe",
            test_images="bef4ecab320f06d8554ea6380940ec79",
            test_labels="bb300cfdad3c16e7a12a480ee83cd310",
        ),
        folder="FashionMNIST",
        arrays={
            "train_images": "2e487a6c89124f78f2d7521542223cafe96f7123c3ca13d447772ac6ecbb3012",
            "train_labels": "657fbd221bfc9f4198cc14b5619cc33ec57c58dd0e47af4d99d6650759e869a7",
            "test_images": "c867c93ff95360594e8ec3287995350b824dd110b11595c0e13d5423f621867a",
            "test_labels": "3d0e6c6ea990b53b6f8f500a41cac93881d981b315f84578b7d915342ade01e9",
        },
        needs_mb=86,
    ),
    Dataset(
        name="KMNIST",
        title="Kuzushiji-MNIST, test set",
        kind="ood",
        licence="CC BY-SA 4.0",
        citation="T. Clanuwat et al., Deep Learning for Classical Japanese Literature, arXiv:1812.01718, 2018",
        parts={"test": 10000},
        classes=KUZUSHIJI,
        image_size=28,
        reader="idx",
        sources=_idx(
            "http://codh.rois.ac.jp/kmnist/dataset/kmnist/",
            test_images="5c965bf0a639b31b8f53240b1b52f4d7",
            test_labels="7320c461ea6c1c855c0b718fb2a4b134",
        ),
        folder="kmnist",
        arrays={
            "test_images": "dc10e73c6e83fb3fb3586eafece217ab6602e7825fa7d49399359bde3fc66f07",
            "test_labels": "77d83a49ca5434c5da77399edc7143065cb3a7b0834e2898ea3094e8c2b21a3c",
        },
        needs_mb=12,
    ),
)
