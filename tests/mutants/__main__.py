"""`python -m tests.mutants --count 200 --seed 0 --jobs 16 --out FILE`: draws mutants and runs their nearest tests.

FILE gets every mutant as JSON, and the page beside it (`.md`) the killed share and the survivors. A later start with
the same FILE goes on where the first ended. Status 1 if fewer than `--least` of the mutants were noticed.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sgoif.utils.files import atomic_write_text
from sgoif.utils.paths import ROOT
from tests.mutants.campaign import Campaign
from tests.mutants.draw import draw
from tests.mutants.report import killed_share, page
from tests.mutants.workers import Worker


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200, help="mutants to draw (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="another seed draws others (%(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="mutants at a time (%(default)s)")
    parser.add_argument("--out", type=Path, default=ROOT / "results/mutants.json", help="the JSON file (%(default)s)")
    parser.add_argument("--only", nargs="+", default=[], metavar="PATH", help="draw from these files or folders alone")
    parser.add_argument("--budget", type=float, default=240, help="seconds of tests for one mutant (%(default)s)")
    parser.add_argument("--again", action="store_true", help="run the survivors of FILE again, as after a new test")
    parser.add_argument("--least", type=float, default=0.9, help="share that must be noticed (%(default)s)")
    parser.add_argument("--list", action="store_true", help="only list what is drawn")
    return parser.parse_args(given)


def main(given: list[str] | None = None) -> int:
    """Draw, run and report; returns the exit status."""
    options = arguments(given)
    mutants = draw(ROOT, options.count, options.seed, options.only)
    if options.list:
        for mutant in mutants:
            print(
                f"{mutant.file}:{mutant.line} {mutant.kind}", *mutant.diff((ROOT / mutant.file).read_text()), sep="\n"
            )
        return 0
    campaign = Campaign(ROOT, mutants, options.out, options.budget, options.again)
    with tempfile.TemporaryDirectory(prefix="sgoif-mutants-", ignore_cleanup_errors=True) as folder:
        with ThreadPoolExecutor(options.jobs) as pool:
            workers = list(pool.map(lambda i: Worker(ROOT, Path(folder) / str(i)), range(options.jobs)))
        try:
            campaign.run(workers, lambda text: print(text, flush=True))
        finally:
            atomic_write_text(options.out.with_suffix(".md"), page(campaign.finished()))
    share = killed_share(campaign.finished())
    print(f"{share:.1%} of {len(mutants)} mutants were noticed; see {options.out.with_suffix('.md')}")
    return 0 if share >= options.least else 1


if __name__ == "__main__":
    for stop in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stop, signal.default_int_handler)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("mutants: stopped; the same command goes on from here")
