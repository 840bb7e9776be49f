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

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgoif.errors import UserError
from sgoif.scan.decode import Unreadable, with_white
from sgoif.scan.settings import EMBED, FEATURES
from sgoif.scan.sources.image_listing import Listing
from sgoif.scan.sources.regular_files import open_image_file
from sgoif.scan.sources.torchvision_sets import list_dataset
from sgoif.utils.files import atomic_write_json, read_json, try_lock

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_NAMED_CHANGES = 4  # in an error message
REMAKE = "make the scan again with `sgoif scan`, in a new folder"
TO_EXPLAIN = ("network.safetensors", "explain.npz")  # not of a set that is too large to keep its features
ALWAYS = ("ranking.csv", "left_out.csv", "gallery.html", *TO_EXPLAIN)  # of a finished scan
OWN = {*ALWAYS, "scan.json", "report.json", "ranking.parquet", ".lock"}  # what nothing else may replace
WRITTEN_LATER = {"cleaned.csv", "explain.html"}  # by `sgoif apply` and `sgoif explain`, again and again
NEEDED = {"source", "kind", "base", "reading", "settings", "classes"}  # of scan.json and report.json together


@contextmanager
def lock_folder(out: Path) -> Iterator[None]:
    """Create the folder if needed, and keep other scans from writing it meanwhile.

    Raises:
        UserError: If it holds other files, cannot be written, or another scan is writing it.
    """
    try:
        if _holds_other_files(out):
            raise UserError(f"--out {out} holds other files; choose an empty or new folder")
        out.mkdir(parents=True, exist_ok=True)
        handle = open(out / ".lock", "w")
    except OSError as e:
        raise UserError(f"--out {out} cannot be written ({e.strerror}); choose another place") from None
    with handle:
        state = try_lock(handle)
        if state == "taken":
            raise UserError(f"another scan is writing {out}; wait for it, or choose another --out")
        if state == "unsupported":
            print(f"note: {out} has no locks; do not start two scans with this --out at once", file=sys.stderr)
        try:
            yield
        finally:
            if not (out / "scan.json").is_file():  # the scan was refused: leave no trace
                (out / ".lock").unlink(missing_ok=True)
                with suppress(OSError):
                    out.rmdir()


def _holds_other_files(out: Path) -> bool:
    ours = (out / "scan.json").is_file() or (out / ".lock").is_file()
    return out.is_dir() and any(out.iterdir()) and not ours


def claim_folder(
    out: Path, listing: Listing, identity: dict[str, Any], reading: dict[str, str], inputs: list[str] | None = None
) -> bool:
    """Make `out` the folder of this scan by writing scan.json.

    Args:
        out: The folder, locked.
        listing: The examples.
        identity: Data and settings; a scan continues only under the same ones.
        reading: What is needed to open a named data set again.
        inputs: Files that were named on the command line: `apply` and `explain` do not write over them.

    Returns:
        True if this scan is already finished there.

    Raises:
        UserError: If the folder belongs to a scan of other data or settings.
    """
    path = out / "scan.json"
    if path.is_file():
        _check_identity(out, read_json(path).get("identity", {}), identity)
        reason = _why_unfinished(out)
        if not reason:
            print("This scan is finished; nothing to do")
            return True
        (out / "report.json").unlink(missing_ok=True)
        print(reason)
    base = None if listing.base is None else str(listing.base)
    about = {"identity": identity, "source": listing.source, "kind": listing.kind, "base": base, "reading": reading}
    atomic_write_json(path, {**about, "inputs": inputs or [], "white": listing.white})
    return False


def _why_unfinished(out: Path) -> str:
    """Return why a scan has to go on, or to be made again; nothing if it is finished."""
    if not (out / "report.json").is_file():
        return "Going on with the scan that was interrupted"
    try:
        report = read_json(out / "report.json")
    except UserError:
        return f"Making the scan again, because {out / 'report.json'} is damaged"
    expected = [name for name in ALWAYS if name not in TO_EXPLAIN or keeps_features(report)]
    missing = [name for name in expected if not (out / name).is_file()]
    return f"Making the scan again, because {out / missing[0]} is gone" if missing else ""


def keeps_features(report: dict[str, Any]) -> bool:
    """Return whether a finished scan has what `explain` needs; one of very many features has not."""
    from sgoif.features.head import KEPT_ROWS

    method = report.get("settings", {}).get("method")
    return method not in (EMBED, FEATURES) or report.get("examples", 0) <= KEPT_ROWS


def require_free(path: Path, scan_folder: Path, about: dict[str, Any], others: Iterable[Path] = ()) -> None:
    """Refuses to write a file over one that somebody needs.

    Args:
        path: The file that is to be written.
        scan_folder: Folder of the scan.
        about: What `read_finished` tells of it.
        others: More files that must stay, resolved.

    Raises:
        UserError: If the path is a folder, a file of the scan, one of its inputs, one of the others, or any other file
            but the one that the command writes if nothing else is said.
    """
    if path.is_dir():
        raise UserError(f"--out {path} is a folder; name a file in it")
    target = path.resolve()
    inside = target.parent == scan_folder.resolve()
    if inside and target.name in OWN:
        raise UserError(f"--out {path} belongs to the scan; choose another name")
    originals = {Path(name) for name in about.get("inputs", [])} | set(others)
    if about["base"] is not None and about["kind"] == "csv":
        originals |= {Path(about["base"]) / Path(about["source"]).name, Path(about["source"]).resolve()}
    if target in originals:
        raise UserError(f"--out {path} is one of the originals; choose another name")
    if target.exists() and not (inside and target.name in WRITTEN_LATER):
        raise UserError(f"--out {path} exists and is not written over; choose another name")


def _check_identity(out: Path, before: dict[str, Any], identity: dict[str, Any]) -> None:
    changed = [name for name in identity if before.get(name) != identity[name]]
    if "data" in changed:
        raise UserError(f"the images or labels have changed since the scan in {out} began; use another --out")
    if changed:
        named = ", ".join(f"{name} {before.get(name)} -> {identity[name]}" for name in changed[:MAX_NAMED_CHANGES])
        raise UserError(f"{out} holds a scan with other settings ({named}); use another --out, or delete that folder")


def read_finished(out: Path) -> dict[str, Any]:
    """Return scan.json and report.json of a finished scan as one dictionary.

    Raises:
        UserError: If there is no finished scan in `out`, or another version wrote it.
    """
    if not (out / "scan.json").is_file():
        raise UserError(f"{out} is not the folder of a scan: run `sgoif scan` first")
    if not (out / "report.json").is_file():
        raise UserError(f"the scan in {out} is not finished: run the same `sgoif scan` again")
    found = {**read_json(out / "scan.json"), **read_json(out / "report.json")}
    if not NEEDED <= set(found):
        raise UserError(other_version(out))
    return found


def other_version(out: Path) -> str:
    """Return the message about a scan whose files this version cannot read."""
    return f"the scan in {out} was written by another version of sgoif; {REMAKE}"


def _no_picture(name: str) -> Image:
    raise Unreadable(f"{name} is an example by its features, without an image")


def image_opener(out: Path) -> Callable[[str], Image]:
    """Return a function that opens an example of a finished scan by its name."""
    about = read_finished(out)
    if about["base"] is None and about["kind"] == "features":
        return _no_picture
    white = about.get("white", 0)
    if about["base"] is None:
        reading = about["reading"]
        hint = "; run this in the folder where the scan was run"
        listing = list_dataset(about["source"], reading["root"], reading["split"], download=False, hint=hint)
        position = {name: i for i, name in enumerate(listing.names)}
        return with_white(lambda name: listing.open(position[name]), white)
    base = Path(about["base"])
    return with_white(lambda name: open_image_file(base / name), white)
