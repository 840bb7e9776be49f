"""Streamed images: the same batches as from memory, in order, a few ahead; and whole runs on tiny unpacked datasets."""

import json

import numpy as np
import pytest
import torch

from sgoif.bench.config import resolve_config
from sgoif.bench.data import load
from sgoif.bench.data.holdout import hold_out
from sgoif.bench.data.noisy_labels import write_setting
from sgoif.bench.data.prepare import prepare
from sgoif.bench.evaluation.detection_curves import write_curves
from sgoif.bench.evaluation.evaluate import evaluate
from sgoif.bench.evaluation.summary import summarise
from sgoif.bench.execution import run_batch
from sgoif.bench.execution.plan import Plan
from sgoif.bench.tables import write_tables
from sgoif.errors import UserError
from sgoif.training import streaming
from sgoif.training.batches import Batches
from sgoif.training.images import ImageSet
from sgoif.training.streaming import ImageFiles, StreamedSet, decode_all
from tests.helpers import tiny_image_folders
from tests.helpers.tiny_image_folders import MARGIN, SIZE, picture, small, truncate

MEAN, STD = (0.5,) * 3, (0.25,) * 3


def files(folder, n: int = 10) -> np.ndarray:
    names = [f"{i:03d}.{'png' if i % 3 == 0 else 'jpg'}" for i in range(n)]
    for i, name in enumerate(names):
        picture(folder / name, i, i, side=(20 + i, 30 - i))
    return np.array([name.encode() for name in names])


def streamed(folder, margin: int = MARGIN, **kw) -> StreamedSet:
    return StreamedSet(ImageFiles(folder, files(folder), SIZE, 3, margin), MEAN, STD, workers=2, **kw)


def test_images_are_resized_and_cropped_like_those_in_memory(tmp_path):
    """With a margin of 0 the result is that of PIL's transform, up to rounding."""
    from PIL import Image

    from sgoif.utils.image_ops import fit_square

    source = streamed(tmp_path, margin=0)
    theirs = np.stack([fit_square(Image.open(tmp_path / p.decode()), SIZE) for p in source.files.paths]).astype(int)
    assert np.abs(decode_all(source).astype(int) - theirs).max() <= 3
    assert np.abs(decode_all(source).astype(int) - theirs).mean() < 0.5


def test_an_epoch_of_streamed_images_is_that_of_images_in_memory(tmp_path):
    """Shift and flip move the window over real pixels, where an image in memory is padded: here both have them."""
    source = streamed(tmp_path)
    wide = decode_all(StreamedSet(ImageFiles(tmp_path, source.files.paths, SIZE + 2 * MARGIN, 3), MEAN, STD))
    labels = torch.arange(10)
    options = dict(batch_size=3, seed=5, shift=MARGIN, flip=True)
    number = 0
    for batch in Batches(source, labels, **options).epoch(1):
        for i, (row, column), mirrored, x in zip(batch.index, batch.shift, batch.flip, batch.x, strict=True):
            window = wide[i, row : row + SIZE, column : column + SIZE]
            window = window[:, ::-1] if mirrored else window
            torch.testing.assert_close(x, ImageSet(window[None].copy(), MEAN, STD).batch(torch.tensor([0]))[0])
            number += 1
    assert number == 9


def test_parts_come_in_order_and_only_a_few_ahead(tmp_path, monkeypatch):
    source, started = streamed(tmp_path), []
    begin = source._start
    monkeypatch.setattr(source, "_start", lambda part: started.append(part.tolist()) or begin(part))
    parts = torch.arange(10).split(1)
    stream_of = source.prefetch(parts)
    first = next(stream_of)
    assert len(started) == streaming.PREFETCH_BATCHES + 1 and torch.equal(first, next(source.prefetch([parts[0]])))
    rest = list(stream_of)
    assert len(rest) == 9 and torch.equal(rest[-1], next(source.prefetch([parts[-1]])))
    monkeypatch.undo()
    some = source.subset([7, 2])
    assert len(some) == 2 and torch.equal(some.batch(torch.tensor([1])), source.batch(torch.tensor([2])))
    x = torch.cat(list(source.iter_batches(torch.arange(10).split(4))))
    torch.testing.assert_close(x, source.batch(torch.arange(10)))


def test_a_broken_image_becomes_grey_and_is_counted_once(tmp_path, capsys):
    source = streamed(tmp_path)
    truncate(tmp_path / "001.jpg")
    (tmp_path / "004.jpg").unlink()
    for _ in range(2):
        pixels = next(source.prefetch([torch.tensor([0, 1, 4])]))
    assert (pixels[1:] == streaming.GREY_LEVEL).all() and pixels[0].float().std() > 1
    assert [p.rsplit("/")[-1] for p in sorted(source.unreadable.paths)] == ["001.jpg", "004.jpg"]
    assert capsys.readouterr().err.count("001.jpg") == 1


def test_a_shift_beyond_the_margin_and_methods_that_need_all_pixels_are_told(tmp_path):
    source = streamed(tmp_path)
    with pytest.raises(UserError, match=r"recipe\.shift: 3 is more than the 2 pixels"):
        _ = next(Batches(source, torch.arange(10), 4, seed=0, shift=3).epoch(0)).x
    with pytest.raises(RuntimeError, match="needs all images in memory"):
        _ = source.pixels


# ------------------------------------------------------------------------------------------------ whole runs

RECIPE = {"model": "small_cnn", "epochs": 8, "batch_size": 16, "lr": 0.1, "shift": 2, "flip": False, "checkpoints": 1}


def run(root, dataset: str, methods: list[str], recipe: dict | None = None) -> tuple[Plan, list[dict]]:
    """Prepare, train plainly, detect, evaluate, summarise and write the table of one dataset, as the workflow does."""
    torch.set_num_threads(1)
    raw = {
        "run": "tiny",
        "data": {"root": str(root / "data"), "download": False, "mirror": str(root / "mirror")},
        "methods": {"noisy": methods, "ood": []},
        "execution": {"device": "cpu", "threads": 2},
        "noisy": {
            dataset: {
                "title": dataset, "recipe": recipe or RECIPE, "seeds": [0], "val": 4,
                "settings": {"web": {"kind": "collected"}},
            }
        },
        "ood": {},
        "tables": {"table2": {"kind": "noise_sets", "sets": [{"dataset": dataset, "setting": "web"}]}},
    }  # fmt: skip
    plan, run_dir = Plan(resolve_config(raw)), root / "results"
    prepare(dataset, root / "data", root / "mirror")
    write_setting(root / "data", run_dir, dataset, "web", {"kind": "collected"})
    hold_out(root / "data", run_dir, dataset, 4)
    for method in ("plain", *methods):
        run_batch.run_batch(plan, run_dir, "noisy", dataset, method, 0, "cpu")
    records = evaluate(run_dir, root / "data", "noisy", dataset, plan.config)
    write_curves(run_dir, root / "data", dataset, plan.config)
    summarise(run_dir, plan.config)
    write_tables(run_dir, plan.config)
    return plan, records


def value(records, method, metric) -> dict:
    (found,) = [r for r in records if (r["method"], r["metric"], r["variant"]) == (method, metric, "")]
    return found


def test_clothing1m_from_tree_to_table(tmp_path, monkeypatch):
    small(monkeypatch, "clothing1m", 4)
    lists = tiny_image_folders.clothing1m(tmp_path / "mirror" / "clothing1m")
    original = prepare("clothing1m", tmp_path / "data", tmp_path / "mirror")
    truncate(tmp_path / "mirror/clothing1m" / lists["noisy_train"][9])  # breaks after it was listed
    _, records = run(tmp_path, "clothing1m", ["sgoif", "loss", "random"])
    assert (value(records, "", "n_examples")["value"], value(records, "", "n_train")["value"]) == (40, 136)
    assert value(records, "", "base_rate")["value"] == 0.25
    # All images of the last class have one wrong label, so that SG-OIF cannot know the class; the loss still tells.
    assert value(records, "loss", "auc_pr")["value"] > value(records, "random", "auc_pr")["value"] + 0.1
    assert value(records, "plain", "test_accuracy")["value"] > 0.5
    assert value(records, "plain", "extra:unreadable_images")["value"] == 1
    table = (tmp_path / "results/tables/table2.md").read_text()
    assert "of 136 training labels 40 can be checked, which are ranked among themselves" in table
    assert original == tmp_path / "data" / "clothing1m"


def test_webvision_from_tree_to_table_says_what_is_not_defined(tmp_path, monkeypatch):
    small(monkeypatch, "webvision1", 4)
    tiny_image_folders.webvision(tmp_path / "mirror" / "webvision")
    _, records = run(tmp_path, "webvision1", ["sgoif", "loss"], {**RECIPE, "record": "nothing"})
    for metric in ("p_at_1", "auc_pr", "auroc"):
        told = value(records, "sgoif", metric)
        assert told["value"] is None and told["status"] == "undefined" and "nobody has checked" in told["reason"]
    assert value(records, "sgoif", "test_accuracy")["value"] > 0.5
    assert value(records, "plain", "test_accuracy")["value"] > 0.5
    loss = value(records, "loss", "status")
    assert loss["status"] == "failed" and "NotRecorded: the plain run wrote down no logits" in loss["reason"]
    table = (tmp_path / "results/tables/table2.md").read_text()
    assert "undefined" in table and "of 96 training labels 0 can be checked: detection is not defined" in table


def test_a_small_id_set_gets_an_unpacked_ood_set_into_memory(tmp_path, monkeypatch):
    from sgoif.bench.execution.inputs import Inputs

    tree = tmp_path / "data" / "downloads" / "notmnist" / "notMNIST_small"
    for i in range(12):
        picture(tree / "ABCDEFGHIJ"[i % 10] / f"{i}.png", i, i)
    (tree / "A" / "broken.png").write_bytes(b"")
    prepare("notmnist", tmp_path / "data")
    prepare("digits_id", tmp_path / "data")
    raw = {
        "run": "tiny", "data": {"root": str(tmp_path / "data")}, "methods": {"noisy": [], "ood": ["msp"]}, "noisy": {},
        "ood": {"digits_id": {"recipe": {"model": "small_cnn"}, "seeds": [0], "val": 60, "near": ["notmnist"],
                              "far": []}},
    }  # fmt: skip
    plan = Plan(resolve_config(raw))
    inputs = Inputs(plan, tmp_path / "results", "ood", "digits_id", torch.device("cpu"))
    ood = inputs.ood_sets()["ood:notmnist"]
    assert isinstance(ood, ImageSet) and ood.pixels.shape == (12, 8, 8, 1)
    assert json.loads((tmp_path / "data/notmnist/meta.json").read_text())["problems"] == {"empty file": 1}
    assert load.image_folder(tmp_path / "data", "digits_id") is None
