"""The folder of a scan: who may write it, and what its files are called.

scan.json             what was scanned and how; written first, so that another scan is not mixed into it
ranking.csv/.parquet  every example, most suspicious first
left_out.csv          files that could not be used, with the reason
report.json           settings, versions, estimate, seconds; written last: it marks a finished scan
gallery.html          the page for reviewing
network.safetensors, explain.npz   what `sgoif explain` needs
state/                of a scan that is not finished
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sgoif.errors import UserError
from sgoif.scan.sources.image_list import Listing
from sgoif.utils.files import atomic_write_json, read_json


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """The folder is there, can be written, and no other scan is writing it."""
    try:
        if out.is_dir() and any(out.iterdir()) and not (out / "scan.json").is_file() and not (out / ".lock").is_file():
            raise UserError(f"--out {out} holds other files; choose an empty or new folder")
        out.mkdir(parents=True, exist_ok=True)
        handle = open(out / ".lock", "w")
    except OSError as e:
        raise UserError(f"--out {out} cannot be written ({e.strerror}); choose another place") from None
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"another scan is writing {out}; wait for it, or choose another --out") from None
        try:
            yield
        finally:
            if not (out / "scan.json").is_file():  # nothing came of it: leave no trace
                (out / ".lock").unlink(missing_ok=True)
                with suppress(OSError):
                    out.rmdir()


def claim(out: Path, listing: Listing, identity: dict, reading: dict) -> bool:
    """Make `out` the folder of this scan. True if it is already finished there; another scan's folder is refused."""
    path = out / "scan.json"
    if path.is_file():
        before = read_json(path)["identity"]
        changed = [name for name in identity if before.get(name) != identity[name]]
        if "data" in changed:
            raise UserError(f"the images or labels have changed since the scan in {out} began; use another --out")
        if changed:
            told = ", ".join(f"{name} {before.get(name)} -> {identity[name]}" for name in changed[:4])
            raise UserError(
                f"{out} holds a scan with other settings ({told}); use another --out, or delete that folder"
            )
        if (out / "report.json").is_file():
            print("This scan is finished; nothing to do")
            return True
        print("Going on with the scan that was interrupted")
    base = None if listing.base is None else str(listing.base)
    about = {"identity": identity, "source": listing.source, "kind": listing.kind, "base": base, "reading": reading}
    atomic_write_json(path, about)
    return False


def finished(out: Path) -> dict:
    """`scan.json` and `report.json` of a finished scan as one dictionary."""
    if not (out / "scan.json").is_file():
        raise UserError(f"{out} is not the folder of a scan: run `sgoif scan` first")
    if not (out / "report.json").is_file():
        raise UserError(f"the scan in {out} is not finished: run the same `sgoif scan` again")
    return read_json(out / "scan.json") | read_json(out / "report.json")


def opener(out: Path) -> Callable[[str], object]:
    """A function that opens an example of the scan by its name (PIL)."""
    from PIL import Image

    about = finished(out)
    if about["base"] is None:
        from sgoif.scan.sources.torchvision_sets import from_name

        kept = about["reading"]
        listing = from_name(about["source"], kept["root"], kept["split"], download=False)
        position = {name: i for i, name in enumerate(listing.names)}
        return lambda name: listing.open(position[name])
    base = Path(about["base"])
    return lambda name: Image.open(base / name)
