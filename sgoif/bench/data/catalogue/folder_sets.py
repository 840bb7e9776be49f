"""Datasets that must be asked for, are very large, or come without a checksum: read where they were unpacked.

Sizes are the published ones. A folder may hold fewer images; they are counted when it is prepared.
"""

from __future__ import annotations

from typing import Any

from sgoif.bench.data.catalogue.class_names import CLOTHING, LETTERS
from sgoif.bench.data.dataset import Dataset


def _numbered(n: int) -> tuple[str, ...]:
    return tuple(f"class {i}" for i in range(n))


_PHOTOS: dict[str, Any] = dict(
    image_size=224,
    margin=16,  # shorter side to 256, then 224 of it
    channels=3,
    mean=(0.485, 0.456, 0.406),
    std=(0.229, 0.224, 0.225),
    flip=True,
)
_WEBVISION: dict[str, Any] = dict(
    kind="labelled", licence="non-commercial research", layout="webvision", truth="none", **_PHOTOS
)
_SITE = "data.vision.ee.ethz.ch/cvl/webvision"
_OPENOOD: dict[str, Any] = dict(
    kind="ood",
    licence="that of each source; collected by OpenOOD",
    layout="openood",
    folder="openood",
    gated="OpenOOD's data (github.com/Jingkang50/OpenOOD): benchmark_imglist/, images_largescale/, images_classic/",
    **_PHOTOS,
)

FOLDER_SETS = (
    Dataset(
        name="webvision",
        title="WebVision 2.0; test is its validation set",
        citation="W. Li et al., WebVision Database, arXiv:1708.02862, 2017; version 2.0, 2018",
        parts={"train": 16000000, "test": 290000},
        classes=_numbered(5000),
        folder="webvision2",
        gated=f"WebVision 2.0 ({_SITE}/dataset2018.html): info/, the training folders, val_images_resized/",
        needs_mb=850000,  # by the size of an image of version 1.0
        **_WEBVISION,
    ),
    Dataset(
        name="webvision1",
        title="WebVision 1.0; test is its validation set",
        citation="W. Li et al., WebVision Database, arXiv:1708.02862, 2017",
        parts={"train": 2439574, "test": 50000},
        classes=_numbered(1000),
        folder="webvision",
        gated=f"WebVision 1.0, resized images ({_SITE}/dataset2017.html): info/, google/, flickr/, val_images_256/",
        needs_mb=130000,
        **_WEBVISION,
    ),
    Dataset(
        name="mini_webvision",
        title="mini-WebVision: the first 50 classes of WebVision 1.0, Google half; test is the validation set",
        citation="L. Jiang et al., MentorNet, ICML 2018; list as in DivideMix, ICLR 2020",
        parts={"train": 65944, "test": 2500},
        classes=_numbered(50),
        folder="webvision",
        gated=f"WebVision 1.0 ({_SITE}/dataset2017.html): info/, google/ (folders of labels below 50), val_images_256/",
        needs_mb=8000,
        **{**_WEBVISION, "layout": "mini_webvision"},
    ),
    Dataset(
        name="clothing1m",
        title="Clothing1M: the noisy training list and the images with both labels; test is the clean test list",
        kind="labelled",
        licence="on request to the authors, non-commercial research",
        citation="T. Xiao et al., Learning from Massive Noisy Labeled Data for Image Classification, CVPR 2015",
        parts={"train": 1000000, "test": 10526},
        classes=CLOTHING,
        layout="clothing1m",
        truth="partial",
        folder="clothing1m",
        gated="Clothing1M, by request to its authors (github.com/Cysu/noisy_label): images/, *_list.txt, *_kv.txt",
        needs_mb=30000,
        **_PHOTOS,
    ),
    Dataset(
        name="imagenet1k",
        title="ImageNet-1K (ILSVRC 2012); test is the validation set",
        kind="labelled",
        licence="non-commercial research and education",
        citation="O. Russakovsky et al., ImageNet Large Scale Visual Recognition Challenge, IJCV 2015",
        parts={"train": 1281167, "test": 50000},
        classes=_numbered(1000),
        layout="imagenet",
        folder="imagenet1k",
        gated="ILSVRC 2012 from image-net.org, with an account: train/<wnid>/, val/ (class folders, or the devkit)",
        needs_mb=160000,
        **_PHOTOS,
    ),
    Dataset(
        name="ssb_hard",
        title="SSB-hard: the hard classes of the Semantic Shift Benchmark for ImageNet",
        citation="S. Vaze et al., Open-Set Recognition: A Good Closed-Set Classifier is All You Need, ICLR 2022",
        parts={"test": 49000},
        needs_mb=6000,
        **_OPENOOD,
    ),
    Dataset(
        name="ninco",
        title="NINCO: no ImageNet class objects",
        citation="J. Bitterwolf, M. Müller, M. Hein, In or Out? Fixing ImageNet OOD Detection Evaluation, ICML 2023",
        parts={"test": 5879},
        needs_mb=2000,
        **_OPENOOD,
    ),
    Dataset(
        name="inaturalist",
        title="iNaturalist: 10,000 images of plants that ImageNet does not have",
        citation="R. Huang, Y. Li, MOS, CVPR 2021; G. Van Horn et al., The iNaturalist Species Dataset, CVPR 2018",
        parts={"test": 10000},
        needs_mb=1000,
        **_OPENOOD,
    ),
    Dataset(
        name="openimage_o",
        title="OpenImage-O: images of OpenImages that show no ImageNet class",
        citation="H. Wang et al., ViM: Out-of-Distribution with Virtual-logit Matching, CVPR 2022",
        parts={"test": 15869},
        needs_mb=6000,
        **_OPENOOD,
    ),
    Dataset(
        name="textures",
        title="Describable Textures without the images that show an ImageNet class",
        citation="M. Cimpoi et al., Describing Textures in the Wild, CVPR 2014",
        parts={"test": 5160},
        needs_mb=700,
        **_OPENOOD,
    ),
    Dataset(
        name="notmnist",
        title="notMNIST, the small hand-cleaned set (18,724 readable letters)",
        kind="ood",
        licence="not stated",
        citation="Y. Bulatov, notMNIST dataset, 2011",
        parts={"test": 18724},
        classes=LETTERS,
        image_size=28,
        layout="notmnist",
        folder="notmnist",
        gated="notMNIST_small.tar.gz (yaroslavvb.com/upload/notMNIST; without a published checksum it is not fetched)",
        needs_mb=24,
    ),
)
