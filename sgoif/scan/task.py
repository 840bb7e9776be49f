"""What a scan is asked to do, whatever it scans: where it writes, how it reads, on which device it trains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgoif.scan.output_folder import claim_folder
from sgoif.scan.settings import Settings
from sgoif.scan.sources.image_listing import Listing
from sgoif.scan.sources.read import ReadOptions
from sgoif.utils.device import pick_device

if TYPE_CHECKING:
    from sgoif.training.session import Session

SAVE_SECONDS = 10  # between two saved states of a training


@dataclass(frozen=True)
class ScanTask:
    """The options of `sgoif scan` that do not depend on what is scanned.

    Attributes:
        out: Folder to write; None: <name of the source>-scan in the current folder.
        options: Settings of the training by name, and `device` and `threads`; None means the default.
        gallery_size: Number of examples in the gallery; None: the flagged ones, within limits.
        skip_tiny: Leave classes with too few examples out.
        reading: How the source is read.
        checked: Folder or CSV of images whose labels are known to be right.
        classes: File with the names of the classes.
    """

    out: Path | None
    options: Mapping[str, Any]
    gallery_size: int | None
    skip_tiny: bool
    reading: ReadOptions
    checked: Path | None = None
    classes: Path | None = None

    def folder(self, source: Path) -> Path:
        """Return the folder to write for a source."""
        whole = source.resolve()
        return Path(self.out) if self.out else Path(f"{whole.name if whole.is_dir() else whole.stem}-scan")

    def use_device(self) -> str:
        """Set the number of threads and return the device, "cpu" or "cuda".

        Raises:
            UserError: If a GPU is asked for and there is none.
        """
        import torch

        device = pick_device(self.options.get("device") or "auto", "--device", "leave it out to use the CPU").type
        if self.options.get("threads"):
            torch.set_num_threads(self.options["threads"])
        return device

    def open_session(self, out: Path, listing: Listing, data: str, settings: Settings) -> Session | None:
        """Make `out` the folder of this scan, or go on with it.

        Args:
            out: The folder, locked.
            listing: The examples.
            data: What changes when the data do.
            settings: How to train.

        Returns:
            What saves and restores the state of the training; None if the scan is already finished.

        Raises:
            UserError: If the folder belongs to a scan of other data or settings.
        """
        from sgoif.training.session import Session

        about = {"data": data, "skip_tiny": self.skip_tiny, "gallery": self.gallery_size}
        identity = {**about, "classes": listing.shown_names, **settings.to_dict()}
        reading = {"root": self.reading.root, "split": self.reading.split}
        if claim_folder(out, listing, identity, reading, self._input_files()):
            return None
        state = out / "state"
        return Session(state, repr(identity), settings.seed, settings.device, save_every=SAVE_SECONDS, label="scan")

    def _input_files(self) -> list[str]:
        """Return the files that were named on the command line, resolved."""
        named = [self.options.get(name) for name in ("source", "features", "labels", "checked", "classes", "weights")]
        return [str(Path(name).resolve()) for name in named if name is not None and Path(name).is_file()]
