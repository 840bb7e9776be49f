"""`python -m tests.mutants --count 200 --seed 0 --jobs 16 --out FILE`: draws mutants and runs their nearest tests.

FILE gets every mutant as JSON, PAGE the share that was noticed and the survivors with their reasons (`survivors.toml`).
A later start with the same FILE goes on where the first ended. Status 1 if fewer than `--least` were noticed.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import signal
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sgoif.bench.execution.environment import commit
from sgoif.utils.files import atomic_write_text
from sgoif.utils.paths import ROOT
from tests.mutants.campaign import Campaign
from tests.mutants.draw import draw
from tests.mutants.report import killed_share, page
from tests.mutants.survivors import read_noticed, read_survivors
from tests.mutants.workers import Worker


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200, help="mutants to draw (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="another seed draws others (%(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="mutants at a time (%(default)s)")
    parser.add_argument("--out", type=Path, default=ROOT / "results/mutants.json", help="the JSON file (%(default)s)")
    parser.add_argument("--only", nargs="+", default=[], metavar="PATH", help="draw from these files or folders alone")
    parser.add_argument("--page", type=Path, help="the Markdown page (beside the JSON file)")
    parser.add_argument("--budget", type=float, default=120, help="seconds of tests for one mutant (%(default)s)")
    parser.add_argument("--limit", type=float, default=900, help="most seconds for one mutant (%(default)s)")
    parser.add_argument("--again", action="store_true", help="run the survivors of FILE again, as after a new test")
    parser.add_argument("--least", type=float, default=0.9, help="share that must be noticed (%(default)s)")
    parser.add_argument("--list", action="store_true", help="only list what is drawn")
    return parser.parse_args(given)


def facts(options: argparse.Namespace) -> dict[str, str]:
    """Say how the mutants were drawn, and when, where and of which commit they ran."""
    only = " ".join(["", "--only", *options.only]) if options.only else ""
    known = [f"commit {found}"] if (found := commit()) else []
    where = f"{platform.system()} {platform.machine()}, {options.jobs} at a time, Python {platform.python_version()}"
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {
        "command": f"python -m tests.mutants --count {options.count} --seed {options.seed}{only}",
        "occasion": ", ".join([today, *known, where]),
    }


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
    campaign = Campaign(ROOT, mutants, options.out, options.budget, options.limit, options.again)
    path = options.page or options.out.with_suffix(".md")
    with tempfile.TemporaryDirectory(prefix="sgoif-mutants-", ignore_cleanup_errors=True) as folder:
        with ThreadPoolExecutor(options.jobs) as pool:
            workers = list(pool.map(lambda i: Worker(ROOT, Path(folder) / str(i)), range(options.jobs)))
        try:
            campaign.run(workers, lambda text: print(text, flush=True))
        finally:
            atomic_write_text(path, page(campaign.finished(), facts(options), read_survivors(), read_noticed()))
    share = killed_share(campaign.finished())
    print(f"{share:.1%} of {len(mutants)} mutants were noticed; see {path}")
    return 0 if share >= options.least else 1


if __name__ == "__main__":
    for stop in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stop, signal.default_int_handler)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("mutants: stopped; the same command goes on from here")
