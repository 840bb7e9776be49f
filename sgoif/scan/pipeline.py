"""`sgoif scan`: list, decode, train and watch, rank, show. Every stage can be interrupted and continued."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from sgoif.errors import UserError
from sgoif.scan.output_folder import claim, locked
from sgoif.scan.settings import Settings, choose
from sgoif.scan.sources.image_list import Listing, read
from sgoif.utils import interrupt


def scan(source: str, out: Path | None, said: dict, *, gallery: int | None, skip_tiny: bool, reading: dict) -> Path:
    """Scan `source` into the folder `out`, which is returned. `said`: settings given on the command line."""
    listing = read(source, **reading)
    out = Path(out) if out else Path(f"{Path(source).resolve().stem}-scan")
    if listing.kind == "folder" and out.resolve().is_relative_to(listing.base):
        raise UserError(f"--out {out} lies inside {source}, where it would be taken for a class; choose another place")
    with locked(out):
        _scan(listing, out, said, gallery, skip_tiny, reading)
    return out


def _scan(listing: Listing, out: Path, said: dict, gallery: int | None, skip_tiny: bool, reading: dict) -> None:
    import torch

    from sgoif.scan.network import try_out
    from sgoif.scan.pixel_cache import MappedImages, decode, moments, survey
    from sgoif.scan.report import write_all
    from sgoif.scan.train import watch
    from sgoif.training.session import Session

    device, digest = pick_device(said.get("device") or "auto"), listing.digest()
    if said.get("threads"):
        torch.set_num_threads(said["threads"])
    voice = Session(None, "", 0, label="scan")
    rows, side, grey = survey(listing, teller(voice, "looking at images"))
    if not rows:
        raise UserError(f"{listing.source}: none of its {len(listing)} files is a readable image")
    listing = listing.only(rows)
    listing = listing.only(listing.judgeable(skip_tiny))
    settings = choose(len(listing), side, grey, device, said)
    print(f"{len(listing)} images of {len(listing.classes)} classes from {listing.source}, into {out}")
    print(f"Training {settings.describe()}", flush=True)
    try_out(settings, len(listing.classes))
    identity = {"data": digest, "skip_tiny": skip_tiny, "gallery": gallery, **settings.to_dict()}
    if claim(out, listing, identity, {name: reading[name] for name in ("root", "split")}):
        return
    session = Session(out / "state", repr(identity), settings.seed, device, save_every=10, label="scan")
    begun = time.perf_counter()
    pixels, decoded = decode(listing, out / "state", settings.size, settings.channels, teller(voice, "decoding"))
    seconds = {"decode": time.perf_counter() - begun}
    listing = listing.only(decoded)
    rows = listing.judgeable(skip_tiny)
    listing, kept = listing.only(rows), np.array(decoded)[rows]
    tell_left_out(listing)
    mean, std = normalisation(settings) or moments(pixels, kept)
    images = MappedImages(pixels, kept, mean, std, torch.device(device))
    watched = watch(images, np.array(listing.labels), len(listing.classes), settings, session)
    write_all(out, listing, settings, watched, images, gallery, seconds | session.seconds)
    session.clear()


def pick_device(wanted: str) -> str:
    """cpu or cuda; `auto` is the GPU where there is one."""
    import torch

    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if wanted == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch sees no GPU here; leave it out to use the CPU")
    return wanted


def teller(voice, what: str):
    """Progress with the time left, for a loop over pictures."""
    from sgoif.scan.train import Clock

    clock = Clock()

    def tell(done: int, of: int) -> None:
        interrupt.check()
        if done % 16 == 0 or done == of:
            voice.say(f"{what}: {done}/{of}{clock.left(done / of)}", done=done == of, share=done / of)

    return tell


def tell_left_out(listing: Listing, most: int = 10) -> None:
    for name, reason in listing.left_out[:most]:
        print(f"  left out: {name} ({reason})")
    if len(listing.left_out) > most:
        print(f"  … and {len(listing.left_out) - most} more, see left_out.csv")


def normalisation(settings: Settings) -> tuple | None:
    """Mean and deviation that pretrained weights expect; None: take the data's own."""
    if not settings.pretrained:
        return None
    import timm

    about = timm.get_pretrained_cfg(settings.model)
    return about.mean[: settings.channels], about.std[: settings.channels]
