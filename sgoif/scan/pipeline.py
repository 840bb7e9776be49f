"""`sgoif scan`: list, decode, train and score, rank, show. Every stage can be interrupted and continued."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sgoif.errors import InfluenceError, UserError
from sgoif.scan.output_folder import lock_folder
from sgoif.scan.progress import image_progress
from sgoif.scan.settings import COMPACT, EMBED, Settings, check_options
from sgoif.scan.sources.checked import match_checked, read_checked
from sgoif.scan.sources.class_names_file import read_class_names
from sgoif.scan.sources.image_listing import Listing
from sgoif.scan.sources.read import read_source
from sgoif.scan.task import ScanTask

if TYPE_CHECKING:
    from sgoif.scan.explain import Normalisation
    from sgoif.scan.pretrained.choice import ScanStart
    from sgoif.scan.train import TrainedScan
    from sgoif.training.models import Network
    from sgoif.training.session import Session

MAX_NAMED_FILES = 10  # printed of those left out; all of them are in left_out.csv


def scan(source: str, task: ScanTask) -> Path:
    """Scan the labels of a source.

    Args:
        source: A folder, a CSV file, or the name of a data set.
        task: Where to write, and how to read and train.

    Returns:
        The folder that was written.

    Raises:
        UserError: If the source, the settings or the folder cannot be used.
    """
    check_options(task.options)  # before all images are looked at
    model = task.options.get("model") or COMPACT
    if model != COMPACT:
        from sgoif.training.models import require_timm_model

        require_timm_model(model)
    listing = read_source(source, task.reading)
    if task.classes is not None:
        listing.shown_names = read_class_names(task.classes, listing.classes)
    out = task.folder(Path(source))
    if listing.kind == "folder" and listing.base is not None and out.resolve().is_relative_to(listing.base):
        raise UserError(f"--out {out} lies inside {source}, where it would be taken for a class; choose another place")
    with lock_folder(out):
        _scan_into(out, listing, task)
    return out


def _scan_into(out: Path, listing: Listing, task: ScanTask) -> None:
    from sgoif.scan.network import check_network
    from sgoif.scan.pixel_cache import survey_headers
    from sgoif.scan.pretrained.choice import choose_start
    from sgoif.scan.report import write_scan
    from sgoif.training.session import Session

    device = task.use_device()
    digest = listing.digest()
    checked = read_checked(task.checked, task.reading, listing.classes) if task.checked else None
    console = Session(None, "", 0, label="scan")
    rows, side, grey = survey_headers(listing, image_progress(console, "looking at images"))
    if not rows:
        raise UserError(f"{listing.source}: none of its {len(listing)} files is a readable image")
    listing = listing.subset(rows)
    listing = listing.subset(listing.rows_of_large_classes(task.skip_tiny))
    if checked is not None:
        checked.keep_to(listing.white)
        match_checked(checked, range(len(checked)), listing.classes)  # refused before anything is written
    start = choose_start(side, task.options)
    settings = start.settings(len(listing), side, grey, device, task.options)
    print(f"{len(listing)} images of {len(listing.classes)} classes from {listing.source}, into {out}")
    print(start.describe())
    print(f"Training {settings.describe()}", flush=True)
    network = check_network(settings, len(listing.classes), start.weights)
    session = task.open_session(out, listing, digest if checked is None else f"{digest}-{checked.digest()}", settings)
    if session is None:
        return
    work = _Work(out, listing, checked, settings, start, session, console, task.skip_tiny)
    trained, normalisation = work.train_head(network) if settings.method == EMBED else work.train_network()
    seconds = work.seconds | session.timers.seconds
    about, contents = start.report(), work.contents()
    write_scan(out, work.listing, settings, trained, normalisation, task.gallery_size, seconds, about, contents)
    session.clear()


@dataclass
class _Work:
    """A scan of images between its claim of the folder and its report; `listing` shrinks to what could be decoded."""

    out: Path
    listing: Listing
    checked: Listing | None
    settings: Settings
    start: ScanStart
    session: Session
    console: Session
    skip_tiny: bool
    seconds: dict[str, float] = field(default_factory=dict)
    rows: np.ndarray = field(default_factory=lambda: np.zeros(0, int))
    values: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def contents(self) -> Iterator[np.ndarray]:
        """Yield what each example consists of, once trained: its pixels, or its features, equal for equal pixels."""
        return (self.values[i] for i in self.rows)

    def train_network(self) -> tuple[TrainedScan, Normalisation]:
        """Decode the images, and train a network on them."""
        import torch

        from sgoif.scan.pixel_cache import MappedImages, channel_moments, decode_all
        from sgoif.scan.train import CheckedImages, train_and_score

        settings, state = self.settings, self.out / "state"
        with self._timed("decode"):
            progress = image_progress(self.console, "decoding")
            pixels, decoded = decode_all(self.listing, state, settings.size, settings.channels, progress)
        self.rows, self.values = self._keep(decoded), pixels
        moments = self.start.normalisation() or channel_moments(pixels, self.rows)
        device = torch.device(settings.device)
        trusted = None
        if self.checked is not None:
            (state / "checked").mkdir(exist_ok=True)
            progress = image_progress(self.console, "decoding checked images")
            right, decoded = decode_all(self.checked, state / "checked", settings.size, settings.channels, progress)
            rows, labels = self._checked_labels(decoded)
            trusted = CheckedImages(MappedImages(right, rows, *moments, device), labels, settings.batch_size)
        images = MappedImages(pixels, self.rows, *moments, device)
        labels, n_classes = np.array(self.listing.labels), len(self.listing.classes)
        trained = train_and_score(images, labels, n_classes, settings, self.session, self.start.weights, trusted)
        return trained, moments

    def train_head(self, network: Network) -> tuple[TrainedScan, Normalisation]:
        """Embeds the images with a pretrained network, and trains a head on their features."""
        import torch

        from sgoif.features.arrays import FeatureArray
        from sgoif.label_noise.projection import fit_projection
        from sgoif.scan.features.training import train_head_and_score
        from sgoif.scan.pretrained.embedding import Embedder

        state, moments = self.out / "state", self.start.normalisation()
        assert moments is not None
        embedder = Embedder(network, self.settings, moments, state)
        with self._timed("embed"):
            features, embedded = embedder.embed(
                self.listing, state / "features.npy", image_progress(self.console, "embedding")
            )
        self.rows, self.values = self._keep(embedded), features
        trusted = None
        if self.checked is not None:
            progress = image_progress(self.console, "embedding checked images")
            right, embedded = embedder.embed(self.checked, state / "checked.npy", progress)
            rows, codes = self._checked_labels(embedded)
            trusted = torch.from_numpy(right[rows].astype(np.float32)), torch.from_numpy(codes)
        array = FeatureArray(features, select=self.rows)
        try:
            projection = fit_projection(array)
        except InfluenceError as e:
            raise UserError(f"{self.listing.source}: {e}") from None
        for note in projection.notes():
            print(f"note: {note}", file=sys.stderr)
        labels, n_classes = np.array(self.listing.labels), len(self.listing.classes)
        trained = train_head_and_score(
            array, projection, labels, n_classes, self.settings, self.session, trusted, network.backbone
        )
        return trained, moments

    def _keep(self, decoded: list[int]) -> np.ndarray:
        """Reduces the listing to what could be decoded, and returns its positions before."""
        self.listing = self.listing.subset(decoded)
        rows = self.listing.rows_of_large_classes(self.skip_tiny)
        self.listing = self.listing.subset(rows)
        _print_left_out(self.listing.left_out, "left out", "; see left_out.csv")
        return np.array(decoded)[rows]

    def _checked_labels(self, decoded: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions of the checked images that can be used, and their classes."""
        assert self.checked is not None
        _print_left_out(self.checked.left_out, "left out of --checked")
        return match_checked(self.checked, decoded, self.listing.classes)

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.seconds[stage] = time.perf_counter() - started


def _print_left_out(left_out: list[tuple[str, str]], what: str, where: str = "") -> None:
    for name, reason in left_out[:MAX_NAMED_FILES]:
        print(f"  {what}: {name} ({reason})")
    if len(left_out) > MAX_NAMED_FILES:
        print(f"  … and {len(left_out) - MAX_NAMED_FILES} more{where}")
