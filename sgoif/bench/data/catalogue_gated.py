"""Datasets that must be asked for, are very large, or cannot be verified: facts only, for plans and for `doctor`."""

from sgoif.bench.data.dataset import Dataset

GATED = (
    Dataset(
        name="notmnist",
        title="notMNIST, the small hand-cleaned set (18,724 letters)",
        kind="ood",
        licence="not stated",
        citation="Y. Bulatov, notMNIST dataset, 2011",
        parts={"test": 18724},
        image_size=28,
        gated="a published checksum to be verified against, and there is none; use notmnist10k",
        needs_mb=24,
    ),
    Dataset(
        name="webvision",
        title="WebVision 1.0",
        kind="labelled",
        licence="non-commercial research",
        citation="W. Li et al., WebVision Database, arXiv:1708.02862, 2017",
        parts={"train": 2439574, "test": 50000},
        gated="WebVision 1.0 from its authors' site: folders info/, google/, flickr/ and val_images_256/",
        needs_mb=130000,
    ),
    Dataset(
        name="mini_webvision",
        title="mini-WebVision: the first 50 classes, Google half",
        kind="labelled",
        licence="non-commercial research",
        citation="L. Jiang et al., MentorNet, ICML 2018; list as in DivideMix, ICLR 2020",
        parts={"train": 65944, "test": 2500},
        gated="WebVision 1.0 from its authors' site: info/train_filelist_google.txt with labels below 50, and google/",
        needs_mb=8000,
    ),
    Dataset(
        name="clothing1m",
        title="Clothing1M",
        kind="labelled",
        licence="on request to the authors, non-commercial research",
        citation="T. Xiao et al., Learning from Massive Noisy Labeled Data for Image Classification, CVPR 2015",
        parts={"train": 1000000, "test": 10526},
        gated="Clothing1M by request to its authors: folders images/ and annotations/ with the key lists",
        needs_mb=30000,
    ),
    Dataset(
        name="imagenet1k",
        title="ImageNet-1K (ILSVRC 2012)",
        kind="labelled",
        licence="non-commercial research and education",
        citation="O. Russakovsky et al., ImageNet Large Scale Visual Recognition Challenge, IJCV 2015",
        parts={"train": 1281167, "test": 50000},
        gated="ILSVRC2012 from image-net.org with an account: folders train/<wnid>/ and val/",
        needs_mb=160000,
    ),
)
