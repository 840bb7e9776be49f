"""Writer of the files of a finished scan: ranking, report, gallery, and the state for `sgoif explain`."""

from __future__ import annotations

import csv
import io
import platform
import shlex
import time
from collections.abc import Iterable
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sgoif.scan.explain import Normalisation, save_state
from sgoif.scan.findings.classes import find_class_issues
from sgoif.scan.findings.find import find_all
from sgoif.scan.page.gallery import PageEvidence, shown_examples, write_gallery
from sgoif.scan.ranking import Ranking, count_by_class, count_other_suggestions, most_common_confusions
from sgoif.scan.review import expected_wrong, summary_sentence
from sgoif.scan.settings import Settings
from sgoif.scan.sources.image_listing import Listing
from sgoif.utils import interrupt
from sgoif.utils.files import atomic_replace, atomic_write_json, atomic_write_text

if TYPE_CHECKING:
    from sgoif.scan.train import TrainedScan

REPORTED_PACKAGES = ("sgoif", "torch", "torchvision", "timm", "pillow", "numpy")


def write_scan(
    out: Path,
    listing: Listing,
    settings: Settings,
    trained: TrainedScan,
    normalisation: Normalisation,
    gallery_size: int | None,
    seconds: dict[str, float],
    start: dict[str, Any],
    contents: Iterable[np.ndarray] | None = None,
) -> None:
    """Write every file of a finished scan, report.json last, and print where they are.

    Args:
        out: Folder of the scan.
        listing: The examples.
        settings: How they were trained on.
        trained: Scores and state of the training.
        normalisation: Of the images, for `sgoif explain`; empty where there are none.
        gallery_size: Number of examples in the gallery; None: as many as are flagged, within limits.
        seconds: Duration of each stage.
        start: What was trained, from which weights, and why.
        contents: What each example consists of, as the pixels, to find exact copies by; None: its features.
    """
    ranking = Ranking.from_result(trained.result, np.array(listing.labels))
    table = ranking.columns(listing)
    write_csv(out / "ranking.csv", table)
    parquet = write_parquet(out / "ranking.parquet", table)
    left_out = {"path": [name for name, _ in listing.left_out], "why": [reason for _, reason in listing.left_out]}
    write_csv(out / "left_out.csv", left_out)
    save_state(out, listing, trained, normalisation)
    probabilities = trained.result.numpy()["mean_predictions"]
    places = trained.logits if trained.places is None else trained.places  # of huge sets the logits do
    evidence = PageEvidence(trained.anchors, probabilities, places.float().cpu().numpy())
    labels = np.array(listing.labels)
    started = time.perf_counter()
    findings = find_all(labels, trained.places, trained.logits, contents)
    seconds["findings"] = time.perf_counter() - started
    write_gallery(out / "gallery.html", listing, ranking, evidence, gallery_size, findings)
    report = {**make_report(listing, ranking, settings, seconds), "start": start}
    report |= findings.report(listing.names, [listing.classes[c] for c in listing.labels])
    report["class_issues"] = find_class_issues(labels, ranking.wrong_probability, probabilities, listing.classes)
    summary = summary_sentence(ranking.wrong_probability, shown_examples(ranking, gallery_size))
    interrupt.raise_if_pending()  # an import that Ctrl-C broke off would read as "pyarrow is missing"
    atomic_write_json(out / "report.json", report)
    _print_summary(out, [summary, *findings.sentences()], ranking, parquet)


def make_report(listing: Listing, ranking: Ranking, settings: Settings, seconds: dict[str, float]) -> dict[str, Any]:
    """Return the content of report.json."""
    import torch

    expected = expected_wrong(ranking.wrong_probability)
    return {
        "settings": settings.to_dict(),
        "classes": listing.classes,
        "examples": len(listing),
        "left_out": len(listing.left_out),
        "expected_wrong": {name: round(value, 1) for name, value in asdict(expected).items()},
        "flagged": ranking.estimated,
        "flagged_with_another_suggestion": count_other_suggestions(ranking),
        "by_class": count_by_class(listing, ranking),
        "confusions": most_common_confusions(listing, ranking),
        "mean_confidence": round(float(ranking.confidence.mean()), 5),
        "seconds": {name: round(value, 2) for name, value in seconds.items()},
        "versions": _versions(),
        "threads": torch.get_num_threads(),
    }


def _print_summary(out: Path, summary: list[str], ranking: Ranking, parquet: bool) -> None:
    print("\n".join(summary))
    print(f"For {count_other_suggestions(ranking)} of {ranking.estimated} flagged labels the network prefers another")
    print(f"Review   {out / 'gallery.html'}  (open it in a browser)")
    print(f"Ranking  {out / 'ranking.csv'}" + (" and .parquet" if parquet else "  (no Parquet: pyarrow is missing)"))
    print(f"Apply    sgoif apply {_quote_path(out)} --decisions decisions.csv   (what you export from the page)")


def _quote_path(path: Path) -> str:
    """Return a path as a word of a command that can be copied into a shell."""
    text = str(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


def write_csv(path: Path, table: dict[str, list[Any]]) -> None:
    """Write a table of columns; numbers get six digits, truth values are true and false."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table)
    for row in zip(*table.values(), strict=True):
        writer.writerow([_format_cell(value) for value in row])
    atomic_write_text(path, out.getvalue())


def _format_cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.6g}"
    return value


def write_parquet(path: Path, table: dict[str, list[Any]]) -> bool:
    """Write a table of columns as Parquet.

    Returns:
        False where pyarrow is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        return False
    with atomic_replace(path) as temporary:
        pyarrow.parquet.write_table(pyarrow.table(table), temporary)
    return True


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in REPORTED_PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
