"""Progress messages with an estimate of the time left."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from sgoif.utils import interrupt

if TYPE_CHECKING:
    from sgoif.training.session import Session

Progress = Callable[[int, int], None]  # (number done, number in all)
REPORT_EVERY = 16  # images
MIN_SECONDS = 2  # before a rate is trusted


class RemainingTime:
    """Estimates the time left from the share of the work done since the first call of `left`."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.first_share: float | None = None

    def left(self, share: float) -> str:
        """Return ", about 3 min left", or "" while nothing is known. `share` of the work is done (0 to 1)."""
        if self.first_share is None:
            self.first_share = share
            return ""
        seconds = time.perf_counter() - self.started
        done = share - self.first_share
        if seconds < MIN_SECONDS or done <= 0 or share >= 1:
            return ""
        return f", about {format_duration(seconds * (1 - share) / done)} left"


def format_duration(seconds: float) -> str:
    """Return a duration in words: 12 s, 3 min, 1 h 20 min."""
    if seconds < 90:
        return f"{max(round(seconds), 1)} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def image_progress(session: Session, what: str) -> Progress:
    """Return a function that reports the progress of a loop over images, and ends it after Ctrl-C."""
    remaining = RemainingTime()

    def report(done: int, total: int) -> None:
        interrupt.raise_if_pending()
        if done % REPORT_EVERY == 0 or done == total:
            share = done / total
            session.progress(f"{what}: {done}/{total}{remaining.left(share)}", done=done == total, share=share)

    return report
