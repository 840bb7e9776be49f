import numpy as np
import pytest
from PIL import Image

from sgoif.bench.data import catalogue, load
from sgoif.bench.data.image_folders.layouts import LAYOUTS
from sgoif.errors import UserError


@pytest.mark.parametrize("shape", [(3, 8, 8), (3, 28, 28), (3, 32, 32, 3), (3, 64, 64, 3), (3, 20, 50, 3), (3, 50, 20)])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [8, 28, 32])
def test_shapes(shape, channels, size):
    images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    out = load.convert_images(images, channels, size)
    assert out.shape == (3, size, size) + ((3,) if channels == 3 else ()) and out.dtype == np.uint8
    assert np.array_equal(load.convert_images(images[1:2], channels, size)[0], out[1]), (
        "an image's result depends on it alone"
    )


def test_nothing_is_done_where_nothing_is_needed():
    images = np.zeros((2, 8, 8), np.uint8)
    assert load.convert_images(images, 1, 8) is images
    grey = np.random.default_rng(0).integers(0, 256, (4, 9, 9), dtype=np.uint8)
    assert np.array_equal(load.convert_images(grey, 3, 9), np.repeat(grey[..., None], 3, -1))


# (height, width) -> width and height after torchvision's Resize(32), left and top of its CenterCrop(32), as seen there.
TORCHVISION = {
    (40, 57): (45, 32, 6, 0),
    (57, 40): (32, 45, 0, 6),
    (64, 64): (32, 32, 0, 0),
    (33, 34): (32, 32, 0, 0),
    (500, 333): (32, 48, 0, 8),
    (300, 35): (32, 274, 0, 121),
    (28, 28): (32, 32, 0, 0),
    (32, 47): (47, 32, 8, 0),
    (640, 427): (32, 47, 0, 8),
}


@pytest.mark.parametrize("shape", TORCHVISION)
def test_the_same_as_torchvision(shape):
    image = np.random.default_rng(1).integers(0, 256, (*shape, 3), dtype=np.uint8)
    width, height, left, top = TORCHVISION[shape]
    theirs = Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR)
    theirs = theirs.crop((left, top, left + 32, top + 32))
    assert np.array_equal(load.convert_images(image[None], 3, 32)[0], np.asarray(theirs))


def test_impossible_images():
    with pytest.raises(UserError, match="cannot become 2 channels"):
        load.convert_images(np.zeros((1, 8, 8), np.uint8), 2, 8)
    with pytest.raises(UserError, match="cannot become"):
        load.convert_images(np.zeros((1, 8, 8, 4), np.uint8), 3, 8)


def test_registry_holds_together():
    for name, d in catalogue.DATASETS.items():
        assert d.name == name and d.kind in ("labelled", "ood", "labels", "weights") and d.licence
        assert d.citation or not d.sources  # what is trained here cites nobody
        assert bool(d.model) == (d.kind == "weights") and (d.parts or d.model)
        assert all(len(sha) == 64 for sha in d.arrays.values()) and all(len(m) == 32 for m in d.loose.values())
        for source in d.sources:
            assert source.checksum or d.arrays, f"{name}: {source.filename} could not be verified"
            assert source.url.startswith("http") and source.url.endswith(source.filename)
        if d.kind in ("labels", "weights"):
            continue
        assert d.image_size and d.channels in (1, 3) and (d.reader or d.arrays or d.layout)
        assert not d.layout or (d.folder and d.layout in LAYOUTS)
        assert not d.gated or (d.layout and not d.sources)
        if d.arrays:
            assert set(d.arrays) == {f"{part}_{what}" for part in d.parts for what in ("images", "labels")}
        if d.kind == "labelled":
            assert len(d.mean) == len(d.std) == d.channels and {"train", "test"} == set(d.parts) and d.n_classes > 1
    groups = catalogue.get("cifar100").superclasses
    assert np.bincount(groups).tolist() == [5] * 20
    assert [n for n, g in zip(catalogue.get("cifar100").classes, groups, strict=True) if g == 17] == [
        "maple_tree",
        "oak_tree",
        "palm_tree",
        "pine_tree",
        "willow_tree",
    ]


@pytest.mark.parametrize(
    "wrong, hint",
    [("cifar1O", "cifar10"), ("mnist", "MNIST"), ("digit", "digits"), ("svhm", "svhn"), ("?", "there are: ")],
)
def test_unknown_names(wrong, hint):
    with pytest.raises(UserError, match=f"no dataset is called .*{hint}"):
        catalogue.get(wrong)


def test_importing_needs_numpy_alone():
    import subprocess
    import sys

    code = (  # a bare `sgoif`, so that only the data layer is judged
        "import sys, types; bare = types.ModuleType('sgoif'); bare.__path__ = ['sgoif']; sys.modules['sgoif'] = bare;"
        "import sgoif.bench.data.prepare, sgoif.bench.data.noisy_labels, sgoif.bench.data.availability;"
        "print([m for m in ('torch', 'sklearn', 'PIL', 'scipy', 'urllib.request') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]", out.stdout
