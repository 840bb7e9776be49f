"""Times of files after the clock was set back: Snakemake refuses an output that is older than its input."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path

SLACK_SECONDS = 5.0  # the clocks of a file server and of this machine may differ by this much


def settle_future_times(run_dir: Path, data: Path, now: float | None = None) -> int:
    """Give files from the future the present as their time, so that what is made from them next is not older.

    An output from before the clock was set back is then older than its input and is made again, once.

    Args:
        run_dir: The folder of a run, all of which is looked at. What may not be changed is left alone.
        data: The root of the prepared data, of which Snakemake looks at `meta.json` alone.
        now: Seconds since the epoch; by default the present.

    Returns:
        The number of files that were changed.
    """
    present = time.time() if now is None else now
    changed = 0
    for path in (*run_dir.rglob("*"), *data.glob("*/meta.json")):
        with contextlib.suppress(OSError):  # gone meanwhile, or somebody else's
            if path.is_file() and path.stat().st_mtime > present + SLACK_SECONDS:
                os.utime(path, (present, present))
                changed += 1
    if changed:
        print(
            f"note: {changed} files were from the future (was the clock set back?); they are from now", file=sys.stderr
        )
    return changed
