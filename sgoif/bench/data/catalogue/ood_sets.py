"""Image sets that are used as out-of-distribution data: official ones, and stand-ins that an offline mirror may hold.

The stand-ins are NOT the official test sets. They are subsets, or were cropped or resized by whoever packed the mirror,
so they have names of their own and a result never passes for one on the official pixels.
"""

from __future__ import annotations

from sgoif.bench.data.catalogue.class_names import DIGITS, DTD10, LETTERS, SCENES, TINY_IMAGENET
from sgoif.bench.data.dataset import Dataset, OfficialFile

OFFICIAL_SETS = (
    Dataset(
        name="svhn",
        title="SVHN, the official cropped test digits",
        kind="ood",
        licence="non-commercial use only",
        citation="Y. Netzer et al., Reading Digits in Natural Images with Unsupervised Feature Learning, 2011",
        parts={"test": 26032},
        classes=DIGITS,
        image_size=32,
        channels=3,
        reader="svhn",
        sources=(
            OfficialFile(
                "http://ufldl.stanford.edu/housenumbers/test_32x32.mat",
                "test_32x32.mat",
                "md5:eb5a983be6a315427106f1b164d9cef3",
                64275384,
            ),
        ),
        folder="svhn",
        needs_mb=145,
    ),
    Dataset(
        name="dtd",
        title="Describable Textures, all 5,640 images, short side 32, centre crop",
        kind="ood",
        licence="for research",
        citation="M. Cimpoi et al., Describing Textures in the Wild, CVPR 2014",
        parts={"test": 5640},
        image_size=32,
        channels=3,
        reader="dtd",
        sources=(
            OfficialFile(
                "https://www.robots.ox.ac.uk/~vgg/data/dtd/download/dtd-r1.0.1.tar.gz",
                "dtd-r1.0.1.tar.gz",
                "md5:fff73e5086ae6bdbea199a49dfb8a4c1",
            ),
        ),
        folder="dtd",
        needs_mb=650,
    ),
    Dataset(
        name="tinyimagenet",
        title="Tiny-ImageNet, 64x64; test is its validation set; classes that CIFAR has too are not taken out",
        kind="labelled",
        licence="non-commercial research and education (ImageNet)",
        citation="Y. Le and X. Yang, Tiny ImageNet Visual Recognition Challenge, 2015",
        parts={"train": 100000, "test": 10000},
        classes=TINY_IMAGENET,
        image_size=64,
        channels=3,
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
        flip=True,
        reader="tinyimagenet",
        layout="tinyimagenet",
        sources=(
            OfficialFile(
                "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
                "tiny-imagenet-200.zip",
                "md5:90528d7ca1a48142e341f4ef8d21d0de",
                248100043,
            ),
        ),
        folder="tinyimagenet",
        needs_mb=1650,
    ),
    Dataset(
        name="places365",
        title="Places365, the 36,500 validation images, short side 32, centre crop",
        kind="ood",
        licence="CC BY (images: their owners' terms)",
        citation="B. Zhou et al., Places: A 10 Million Image Database for Scene Recognition, TPAMI 2017",
        parts={"test": 36500},
        image_size=32,
        channels=3,
        reader="places365",
        layout="places365",
        sources=(
            OfficialFile(
                "http://data.csail.mit.edu/places/places365/val_256.tar",
                "val_256.tar",
                "md5:e27b17d8d44f4af9a78502beb927f808",
            ),
        ),
        folder="places365",
        needs_mb=640,
    ),
)

_NOTMNIST = "https://raw.githubusercontent.com/davidflanagan/notMNIST-to-MNIST/master/"

STAND_IN_SETS = (
    Dataset(
        name="svhn10k_recropped",
        title="the first 10,000 SVHN test digits, cropped again from the full-number images (not the official pixels)",
        kind="ood",
        licence="non-commercial use only",
        citation="Y. Netzer et al., Reading Digits in Natural Images with Unsupervised Feature Learning, 2011",
        parts={"test": 10000},
        classes=DIGITS,
        image_size=32,
        channels=3,
        folder="svhn",
        arrays={
            "test_images": "97c498b08d5e1ae89b9664b3b7b631b974c73a09b26be3bef1ea7d0e23ed08f2",
            "test_labels": "7fe9bcc87dca833901548fff86f3af5d1dccf069e726ecef367b4a1476542ddf",
        },
        needs_mb=31,
    ),
    Dataset(
        name="dtd10",
        title="10 of the 47 classes of DTD (banded to crystalline), short side 32, centre crop",
        kind="ood",
        licence="for research",
        citation="M. Cimpoi et al., Describing Textures in the Wild, CVPR 2014",
        parts={"test": 1200},
        classes=DTD10,
        image_size=32,
        channels=3,
        folder="dtd",
        arrays={
            "test_images": "d3ecfc42695a1b6afefbbf824bff9858b6c8bca34b37d8695c94f20fc0c01dd1",
            "test_labels": "be729c05a8e4544d169a7471bd8e91876f8466ad47826042e7ca1f34489edcab",
        },
        needs_mb=4,
    ),
    Dataset(
        name="tinyimagenet9k",
        title="Tiny-ImageNet val_0 to val_8999, resized to 32x32; classes that CIFAR has too are not taken out",
        kind="ood",
        licence="non-commercial research and education (ImageNet)",
        citation="Y. Le and X. Yang, Tiny ImageNet Visual Recognition Challenge, 2015",
        parts={"test": 9000},
        classes=TINY_IMAGENET,
        image_size=32,
        channels=3,
        folder="tinyimagenet",
        arrays={
            "test_images": "5fa23b279f062c8708f395e6f97b4e55e21b133d072ba24c700efd76cce27027",
            "test_labels": "9c01a92b5d62129a0bc2700544c66e40947b08e9753510d6c99e8442bd6e38b8",
        },
        needs_mb=28,
    ),
    Dataset(
        name="notmnist10k",
        title="notMNIST letters A to J, a sample of 1,000 a class",
        kind="ood",
        licence="posted with the permission of Y. Bulatov; repository MIT",
        citation="Y. Bulatov, notMNIST dataset, 2011; sample by D. Flanagan",
        parts={"test": 10000},
        classes=LETTERS,
        image_size=28,
        reader="idx",
        sources=(
            OfficialFile(_NOTMNIST + "t10k-images-idx3-ubyte.gz", "t10k-images-idx3-ubyte.gz", None),
            OfficialFile(_NOTMNIST + "t10k-labels-idx1-ubyte.gz", "t10k-labels-idx1-ubyte.gz", None),
        ),
        folder="notmnist",
        arrays={
            "test_images": "6bda48464effe4169d9cd068967cd81a717ae2f925ddb55fd71025e23022ee9a",
            "test_labels": "cbf49d96931f5bf9ec86d14ed2f729c2870d4f9b406729e43c68d3748a345369",
        },
        needs_mb=12,
    ),
    Dataset(
        name="scenes3k",
        title="Intel scene images, 6 classes, short side 32, centre crop; stands in for Places365",
        kind="ood",
        licence="not stated",
        citation="Intel Image Classification, test part",
        parts={"test": 3000},
        classes=SCENES,
        image_size=32,
        channels=3,
        folder="scenes",
        arrays={
            "test_images": "9131a4b02ba8f77edf4ddeb83d2dee7a40436120d5c5d7ebf15d9980618128b6",
            "test_labels": "811b9f0518433877fd9cb9416efa54f1ef2f59c612e63141adf70749eb3e0379",
        },
        needs_mb=10,
    ),
)
