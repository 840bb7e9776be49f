"""What a scan writes: the ranking, the report, the page, and the state for `explain`."""

from __future__ import annotations

import csv
import io
import platform
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sgoif.scan.sources.image_list import Listing
from sgoif.utils import interrupt
from sgoif.utils.files import atomic_write_json, atomic_write_text, replacing

COLUMNS = (
    "rank",
    "path",
    "given_label",
    "suggested_label",
    "suggested_probability",
    "suspicion",
    "score",
    "interval_low",
    "interval_high",
    "confidence",
    "visits",
    "flagged",
)


@dataclass
class Ranking:
    """All arrays in the order of the listing; `order` `[N]` sorts them, most suspicious first."""

    order: np.ndarray
    suspicion: np.ndarray  # [N] the influence score beside what the latent classes say: what is sorted by
    score: np.ndarray
    half_width: np.ndarray
    confidence: np.ndarray
    visits: np.ndarray
    flagged: np.ndarray
    suggested: np.ndarray  # [N] class with the greatest mean probability over the visits; may be the given one
    probability: np.ndarray  # [N] of that class
    estimated: int  # number of wrong labels

    @classmethod
    def of(cls, watched, given: np.ndarray) -> Ranking:
        import torch

        from sgoif import estimate_wrong

        values, suspicion = watched.result.numpy(), watched.result.suspicion
        estimated, flagged = estimate_wrong(suspicion, torch.from_numpy(given), watched.result.trusted_odds)
        kept = {name: values[name] for name in ("score", "half_width", "confidence", "visits")}
        return cls(
            order=np.argsort(-suspicion.numpy(), kind="stable"),
            suspicion=suspicion.numpy(),
            flagged=flagged.numpy(),
            suggested=values["beliefs"].argmax(1),
            probability=values["beliefs"].max(1),
            estimated=estimated,
            **kept,
        )

    def columns(self, listing: Listing) -> dict[str, list]:
        """The table by column, most suspicious first."""
        classes, order = np.array(listing.classes, dtype=object), self.order
        low, high = self.score - self.half_width, self.score + self.half_width
        named = (
            np.arange(1, len(order) + 1),
            np.array(listing.names, dtype=object)[order],
            classes[np.array(listing.labels)[order]],
            classes[self.suggested[order]],
            *(x[order] for x in (self.probability, self.suspicion, self.score, low, high, self.confidence)),
            self.visits[order],
            self.flagged[order],
        )
        return {name: column.tolist() for name, column in zip(COLUMNS, named, strict=True)}


def write_all(out: Path, listing: Listing, settings, watched, images, gallery: int | None, seconds: dict) -> None:
    """Every file of a finished scan; report.json last."""
    from sgoif.scan.explain import save_state
    from sgoif.scan.gallery import write_gallery

    ranking = Ranking.of(watched, np.array(listing.labels))
    table = ranking.columns(listing)
    write_csv(out / "ranking.csv", table)
    parquet = write_parquet(out / "ranking.parquet", table)
    write_csv(out / "left_out.csv", {"path": [n for n, _ in listing.left_out], "why": [r for _, r in listing.left_out]})
    save_state(out, listing, watched, images)
    write_gallery(out / "gallery.html", listing, ranking, watched.anchors, watched.result.beliefs.numpy(), gallery)
    report = {
        "settings": settings.to_dict(),
        "classes": listing.classes,
        "examples": len(listing),
        "left_out": len(listing.left_out),
        "estimated_wrong": ranking.estimated,
        "estimated_share": round(ranking.estimated / len(listing), 5),
        "flagged_with_another_suggestion": differing(listing, ranking),
        "by_class": by_class(listing, ranking),
        "confusions": confusions(listing, ranking),
        "mean_confidence": round(float(ranking.confidence.mean()), 5),
        "seconds": {name: round(value, 2) for name, value in seconds.items()},
        "versions": versions(),
        "threads": threads(),
    }
    interrupt.check()  # an import that it broke off would read as "pyarrow is missing"
    atomic_write_json(out / "report.json", report)
    print(
        f"About {ranking.estimated} of {len(listing)} labels look suspicious ({ranking.estimated / len(listing):.1%})"
    )
    print(f"For {differing(listing, ranking)} of them the network prefers another label")
    print(f"Review   {out / 'gallery.html'}  (open it in a browser)")
    print(f"Ranking  {out / 'ranking.csv'}" + (" and .parquet" if parquet else "  (no Parquet: pyarrow is missing)"))
    print(f"Apply    sgoif apply {out} --decisions decisions.csv   or   --top-estimated")


def write_csv(path: Path, table: dict[str, list]) -> None:
    """Numbers in six digits, truth values as true and false."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table)
    for row in zip(*table.values(), strict=True):
        writer.writerow(
            [f"{v:.6g}" if isinstance(v, float) else str(v).lower() if v is True or v is False else v for v in row]
        )
    atomic_write_text(path, out.getvalue())


def write_parquet(path: Path, table: dict[str, list]) -> bool:
    """False where pyarrow is not installed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        return False
    with replacing(path) as temporary:
        pyarrow.parquet.write_table(pyarrow.table(table), temporary)
    return True


def differing(listing: Listing, ranking: Ranking) -> int:
    """How many flagged examples have another label than the given one suggested."""
    return int((ranking.flagged & (ranking.suggested != np.array(listing.labels))).sum())


def by_class(listing: Listing, ranking: Ranking) -> dict[str, dict[str, int]]:
    labels = np.array(listing.labels)
    return {
        name: {"examples": int((labels == c).sum()), "flagged": int(ranking.flagged[labels == c].sum())}
        for c, name in enumerate(listing.classes)
    }


def confusions(listing: Listing, ranking: Ranking, most: int = 20) -> list[dict]:
    """The commonest (given, suggested) pairs among the flagged examples."""
    pairs = Counter(
        (listing.labels[i], int(ranking.suggested[i]))
        for i in np.flatnonzero(ranking.flagged)
        if listing.labels[i] != ranking.suggested[i]
    )
    told = sorted(pairs.items(), key=lambda item: (-item[1], item[0]))[:most]
    return [{"given": listing.classes[a], "suggested": listing.classes[b], "flagged": n} for (a, b), n in told]


def versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version()}
    for name in ("sgoif", "torch", "torchvision", "timm", "pillow", "numpy"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def threads() -> int:
    import torch

    return torch.get_num_threads()
