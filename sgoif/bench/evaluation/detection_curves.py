"""Writes what figures draw and only the truth can tell: curves, traces and the gallery of a noisy dataset.

Files: results/<run>/curves/noisy/<dataset>.json and <dataset>_gallery.npz. Like `evaluate`, this reads what methods
found and what is true; figures read these files and never the truth.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sgoif.bench.data import load
from sgoif.bench.data.noisy_labels import SettingFiles, draw_of_seed, read_kept, setting_files
from sgoif.bench.data.readers.jpeg_archives import decode_image
from sgoif.bench.evaluation.cell_result import CellResult, read_cells
from sgoif.bench.evaluation.evaluate import check_identity
from sgoif.bench.methods.registry import OURS, is_variant
from sgoif.errors import UserError
from sgoif.utils.files import atomic_write_json, load_npz, save_npz

GRID = np.linspace(0, 1, 51)  # of recall, and of the share of examples looked at
MAX_TRACE_POINTS = 200
GALLERY_SIZE = 32  # images
THUMBNAIL_SIDE = 64  # pixels of the longer side
UNREADABLE_GREY = 128  # pixel value of an image that cannot be read
PROBABILITY_BINS = 10
LOG_ODDS = "variant:latent"  # SG-OIF's log-odds that a label is wrong
TRACES = ("residual", "confidence", "tolerance", "step_size")
Arrays = Mapping[str, np.ndarray]


def write_curves(run_dir: Path | str, data_root: Path | str, dataset: str, config: Mapping[str, Any]) -> list[Path]:
    """Write precision-recall and cumulative-recall curves, traces and the gallery of a dataset.

    Args:
        run_dir: Folder of the run.
        data_root: Folder of the prepared datasets.
        dataset: Name of the dataset.
        config: The resolved configuration.

    Returns:
        The paths of both files.

    Raises:
        UserError: If the files of a cell are damaged or do not fit the truth.
    """
    run_dir = Path(run_dir)
    spec = config["noisy"][dataset]
    truths: dict[SettingFiles, dict[str, np.ndarray]] = {}
    shown = example_setting(spec["settings"])
    curves: dict[tuple[str, str], list[dict[str, np.ndarray]]] = defaultdict(list)
    traces: list[dict[str, Any]] = []
    reliability: dict[str, list[np.ndarray]] = defaultdict(list)
    gallery: dict[str, np.ndarray] = {}
    for cell in read_cells(run_dir, "noisy", dataset, spec["methods"]):
        setting, seed, method = cell.name
        if setting not in spec["settings"] or cell.result.status != "ok":
            continue
        arrays = cell.arrays()
        files = setting_files(run_dir, dataset, setting, draw_of_seed(spec["settings"][setting], seed))
        if files not in truths:
            truths[files] = load_npz(files.truth)
        truth = truths[files]
        check_identity(cell, arrays, truth["ids"])
        traces += _trace(cell, arrays)
        if "scores" not in arrays or not np.isfinite(arrays["scores"]).all():
            continue
        if truth["wrong"].any() and not is_variant(method):  # variants have tables and traces of their own
            known = truth.get("known", slice(None))  # where the truth is known for some alone, those are ranked
            curves[setting, method].append(ranking_curves(arrays["scores"][known], truth["wrong"][known]))
            if method == OURS and LOG_ODDS in arrays:
                reliability[setting].append(probability_bins(arrays[LOG_ODDS][known], truth["wrong"][known]))
        if method == OURS and setting == shown and not gallery:
            gallery = _gallery(cell, files.labels, Path(data_root), arrays["scores"], truth)
    folder = run_dir / "curves" / "noisy"
    written = [folder / f"{dataset}.json", folder / f"{dataset}_gallery.npz"]
    averaged = [_average(setting, method, found) for (setting, method), found in curves.items()]
    calibrated = [_reliability(setting, np.sum(found, axis=0)) for setting, found in reliability.items()]
    content = {"grid": _rounded(GRID), "detectors": averaged, "traces": traces, "reliability": calibrated}
    atomic_write_json(written[0], content, seal=True)
    save_npz(written[1], **gallery)
    for path in written:
        path.touch()  # Snakemake compares times, so an unchanged file must look new too
    return written


def _average(setting: str, method: str, found: Sequence[dict[str, np.ndarray]]) -> dict[str, Any]:
    """Averages the curves of a method over seeds."""
    means = {name: _rounded(np.mean([curves[name] for curves in found], 0)) for name in found[0]}
    return {"setting": setting, "method": method, "seeds": len(found), **means}


def example_setting(settings: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the setting that is shown where there is room for one: human labels first, then the paper's noise."""
    preferred = ("human", "class_conditional")
    kinds = {name: noise["kind"] for name, noise in settings.items()}
    return min(kinds, key=lambda s: preferred.index(kinds[s]) if kinds[s] in preferred else len(preferred))


def ranking_curves(scores: np.ndarray, wrong: np.ndarray) -> dict[str, np.ndarray]:
    """Compute the precision-recall and the cumulative-recall curve of a ranking.

    Ties: the first curve moves past all examples of one score at once, as average precision does; the second counts
    them as if in random order, so it is linear between the ends of a tie.

    Args:
        scores: Higher is more suspicious, shape [n].
        wrong: Which labels are wrong, shape [n]; at least one.

    Returns:
        `precision` where recall first reaches each point of `GRID`, and `recall` after looking at each share of
        examples in `GRID`.
    """
    order = np.argsort(-scores, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(scores[order])), scores.size - 1)  # the last of each group of ties
    looked = ends + 1
    hits = np.cumsum(wrong[order])[ends]
    total = hits[-1]
    reached = np.searchsorted(hits, np.maximum(GRID * total - 1e-9, 0.5))  # at recall 0: the first hit
    recall = np.interp(GRID * scores.size, [0, *looked], [0, *hits]) / total
    return {"precision": (hits / looked)[reached], "recall": recall}


def probability_bins(log_odds: np.ndarray, wrong: np.ndarray) -> np.ndarray:
    """Count examples by how probable it is said to be that their label is wrong.

    Args:
        log_odds: Log-odds that a label is wrong, shape [n].
        wrong: Which labels are wrong, shape [n].

    Returns:
        Shape [3, `PROBABILITY_BINS`]: number of examples, sum of their probabilities, number of wrong labels.
    """
    probability = 1 / (1 + np.exp(-np.clip(log_odds.astype(np.float64), -500, 500)))
    bins = np.minimum((probability * PROBABILITY_BINS).astype(int), PROBABILITY_BINS - 1)
    weights = (np.ones(len(bins)), probability, wrong.astype(np.float64))
    return np.stack([np.bincount(bins, weights=w, minlength=PROBABILITY_BINS) for w in weights])


def _reliability(setting: str, sums: np.ndarray) -> dict[str, Any]:
    """Make the means of each bin of all seeds; 0 where a bin is empty."""
    count, probability, wrong = sums
    filled = np.maximum(count, 1)
    means = {"probability": _rounded(probability / filled), "wrong": _rounded(wrong / filled)}
    return {"setting": setting, "count": [int(c) for c in count], **means}


def _trace(cell: CellResult, arrays: Arrays) -> Iterator[dict[str, Any]]:
    """Yield what a method recorded during training (`trace:<name>`), by epoch; a value that is not finite is null."""
    steps = arrays.get("trace:step")
    if steps is None or not len(steps):
        return
    setting, seed, method = cell.name
    kept = np.unique(np.linspace(0, len(steps) - 1, MAX_TRACE_POINTS).round().astype(int))
    epochs = cell.result.config["recipe"]["epochs"]
    total = cell.result.extras.get("steps") or float(steps[-1])
    found = {name: _rounded(arrays[f"trace:{name}"][kept]) for name in TRACES if f"trace:{name}" in arrays}
    yield {"setting": setting, "method": method, "seed": seed, "epoch": _rounded(steps[kept] / total * epochs), **found}


def _gallery(
    cell: CellResult, labels_file: Path, data_root: Path, scores: np.ndarray, truth: Arrays
) -> dict[str, np.ndarray]:
    """Return the most suspicious examples of a cell: images, labels and true labels, names of the classes."""
    dataset = cell.result.cell.dataset
    setting, seed, _ = cell.name
    top = np.argsort(-scores, kind="stable")[:GALLERY_SIZE]
    kept, labels = read_kept(labels_file, data_root, dataset)
    classes = load.meta(data_root, dataset).get("classes") or [str(c) for c in range(int(labels.max()) + 1)]
    return {
        "images": _thumbnails(data_root, dataset, kept[top]),
        "labels": labels[top],
        "true_labels": truth["true_labels"][top],
        "wrong": truth["wrong"][top],
        "known": truth["known"][top] if "known" in truth else np.ones(len(top), dtype=bool),
        "classes": np.array([str(c) for c in classes]),
        "setting": np.array(setting),
        "seed": np.array(seed),
    }


def _thumbnails(data_root: Path, dataset: str, top: np.ndarray) -> np.ndarray:
    """Return the training images at some positions, reduced, uint8 of shape [n, H, W] or [n, H, W, 3]."""
    folder = load.image_folder(data_root, dataset)
    if folder is None:
        images = load.images(data_root, dataset, "train")
        images = np.stack([images[i] for i in top])
        if max(images.shape[1:3]) <= THUMBNAIL_SIDE:
            return images
        return load.convert_images(images, 1 if images.ndim == 3 else 3, THUMBNAIL_SIDE)
    paths = load.paths(data_root, dataset, "train")
    names = [paths[i].decode(errors="surrogateescape") for i in top]
    channels = load.meta(data_root, dataset)["channels"]
    return np.stack([_thumbnail(folder / name, channels) for name in names])


def _thumbnail(path: Path, channels: int) -> np.ndarray:
    """Return a reduced image; grey for a file that cannot be read any more, as in the training that scored it."""
    try:
        return decode_image(path.read_bytes(), THUMBNAIL_SIDE, channels, path.name)
    except (UserError, OSError):
        shape = (THUMBNAIL_SIDE, THUMBNAIL_SIDE, 3) if channels == 3 else (THUMBNAIL_SIDE, THUMBNAIL_SIDE)
        return np.full(shape, UNREADABLE_GREY, np.uint8)


def _rounded(values: np.ndarray) -> list[float | None]:
    """Round to four significant digits; a figure shows no more."""
    return [float(f"{v:.4g}") if np.isfinite(v) else None for v in np.asarray(values, dtype=np.float64)]
