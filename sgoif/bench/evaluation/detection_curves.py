"""What figures draw and only the truth can tell: results/<run>/curves/noisy/<dataset>.json and <dataset>_gallery.npz.

Like `evaluate`, this reads what methods said and what is true; figures read these files and never the truth.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sgoif.bench.data import load
from sgoif.bench.data.noisy_labels import read_labels, setting_files
from sgoif.bench.data.readers.jpeg_archives import decode_image
from sgoif.bench.evaluation.cell_result import CellResult, read_cells
from sgoif.bench.evaluation.evaluate import check_identity
from sgoif.bench.methods.registry import OURS, is_variant
from sgoif.errors import UserError
from sgoif.utils.files import atomic_write_json, load_npz, save_npz

GRID = np.linspace(0, 1, 51)  # of recall, and of the share of examples looked at
LONGEST = 200  # points of a trace that are kept
GALLERY, THUMBNAIL, GREY = 32, 64, 128  # pictures shown, their largest side, the place of one that cannot be read
TRACES = ("residual", "confidence", "tolerance", "step_size")


def write_curves(run_dir: Path | str, data_root: Path | str, dataset: str, config: Mapping) -> list[Path]:
    """Writes precision-recall and cumulative-recall curves, traces and the gallery of a dataset; returns both files."""
    run_dir, spec = Path(run_dir), config["noisy"][dataset]
    cells = [c for c in read_cells(run_dir, "noisy", dataset, spec["methods"]) if c.name[0] in spec["settings"]]
    truths = {s: load_npz(setting_files(run_dir, dataset, s).truth) for s in spec["settings"]}
    shown = example_setting(spec["settings"])
    detectors, traces, top = defaultdict(list), [], {}
    for cell in cells:
        if cell.result.status != "ok":
            continue
        setting, seed, method = cell.name
        arrays, truth = cell.arrays(), truths[setting]
        check_identity(cell, arrays, truth["ids"])
        traces += _trace(cell, arrays)
        if "scores" in arrays and np.isfinite(arrays["scores"]).all():
            known = truth.get("known", slice(None))  # where the truth is known for some alone, those are ranked
            if truth["wrong"].any() and not is_variant(method):  # variants have tables and traces of their own
                detectors[setting, method].append(ranking_curves(arrays["scores"][known], truth["wrong"][known]))
            if method == OURS and setting == shown and not top:
                top = _gallery(run_dir, Path(data_root), dataset, (setting, seed), arrays["scores"], truth)
    curves = [
        {
            "setting": s,
            "method": m,
            "seeds": len(found),
            **{k: _short(np.mean([f[k] for f in found], 0)) for k in found[0]},
        }
        for (s, m), found in detectors.items()
    ]
    folder = run_dir / "curves" / "noisy"
    out = [folder / f"{dataset}.json", folder / f"{dataset}_gallery.npz"]
    atomic_write_json(out[0], {"grid": _short(GRID), "detectors": curves, "traces": traces}, seal=True)
    save_npz(out[1], **top)
    for path in out:
        path.touch()  # Snakemake compares times, so an unchanged file must look new too
    return out


def example_setting(settings: Mapping[str, Mapping]) -> str:
    """The setting shown where one has to do: people's mistakes before made ones, the paper's noise before others."""
    kinds = ("human", "class_conditional")
    return min(settings, key=lambda s: kinds.index(k) if (k := settings[s]["kind"]) in kinds else len(kinds))


def ranking_curves(scores: np.ndarray, wrong: np.ndarray) -> dict[str, np.ndarray]:
    """Precision where recall first reaches each point of the grid, and recall after looking at each share of examples.

    Examples of the same score come together: the first curve moves past all of them at once (as average precision
    does), the second counts them as if in random order, so it is linear between the ends of a tie.
    """
    order = np.argsort(-scores, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(scores[order])), scores.size - 1)  # the last of each group of ties
    looked, hits = ends + 1, np.cumsum(wrong[order])[ends]
    total = hits[-1]
    reached = np.searchsorted(hits, np.maximum(GRID * total - 1e-9, 0.5))  # at recall 0: the first hit
    recall = np.interp(GRID * scores.size, [0, *looked], [0, *hits]) / total
    return {"precision": (hits / looked)[reached], "recall": recall}


def _trace(cell: CellResult, arrays: Mapping[str, np.ndarray]) -> Iterable[dict[str, Any]]:
    """What a method noted on its way (`trace:<name>`), by epoch; null stands for a value that is not finite."""
    steps = arrays.get("trace:step")
    if steps is None or not len(steps):
        return
    setting, seed, method = cell.name
    kept = np.unique(np.linspace(0, len(steps) - 1, LONGEST).round().astype(int))
    epochs = cell.result.config["recipe"]["epochs"]
    total = cell.result.extras.get("steps") or float(steps[-1])
    found = {name: _short(arrays[f"trace:{name}"][kept]) for name in TRACES if f"trace:{name}" in arrays}
    yield {"setting": setting, "method": method, "seed": seed, "epoch": _short(steps[kept] / total * epochs), **found}


def _gallery(run_dir, data_root, dataset, where, scores, truth) -> dict[str, np.ndarray]:
    """The most suspicious examples of one cell: pictures, labels and true labels, names of the classes."""
    setting, seed = where
    top = np.argsort(-scores, kind="stable")[:GALLERY]
    labels = read_labels(setting_files(run_dir, dataset, setting).labels, data_root, dataset)
    classes = load.meta(data_root, dataset).get("classes") or [str(c) for c in range(int(labels.max()) + 1)]
    return {
        "images": _pictures(data_root, dataset, top),
        "labels": labels[top],
        "true_labels": truth["true_labels"][top],
        "wrong": truth["wrong"][top],
        "known": truth["known"][top] if "known" in truth else np.ones(len(top), dtype=bool),
        "classes": np.array([str(c) for c in classes]),
        "setting": np.array(setting),
        "seed": np.array(seed),
    }


def _pictures(data_root: Path, dataset: str, top: np.ndarray) -> np.ndarray:
    """uint8 [n, H, W(, 3)]: the training images at these positions, small, from arrays or from files."""
    about, tree = load.meta(data_root, dataset), load.image_folder(data_root, dataset)
    if tree is None:
        images = load.images(data_root, dataset, "train")
        images = np.stack([images[i] for i in top])
        small = max(images.shape[1:3]) <= THUMBNAIL
        return images if small else load.convert_images(images, 1 if images.ndim == 3 else 3, THUMBNAIL)
    paths = load.paths(data_root, dataset, "train")
    names = [paths[i].decode(errors="surrogateescape") for i in top]
    return np.stack([_from_file(tree / name, about["channels"]) for name in names])


def _from_file(path: Path, channels: int) -> np.ndarray:
    """A thumbnail; grey for a file that broke after it was listed, as in the training that scored it."""
    try:
        return decode_image(path.read_bytes(), THUMBNAIL, channels, path.name)
    except (UserError, OSError):
        return np.full((THUMBNAIL, THUMBNAIL) + ((3,) if channels == 3 else ()), GREY, np.uint8)


def _short(values: np.ndarray) -> list[float | None]:
    """Four significant digits: more cannot be seen."""
    return [float(f"{v:.4g}") if np.isfinite(v) else None for v in np.asarray(values, dtype=np.float64)]
