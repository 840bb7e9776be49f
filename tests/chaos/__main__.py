"""`python -m tests.chaos [FOLDER]`: every fault, in half an hour or so; the report goes to FOLDER (default: docs)."""

import sys
import tempfile
import time
from pathlib import Path

from tests.chaos import network, report
from tests.chaos.driver import LOST, Chaos


def main(folder: Path) -> int:
    before = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="sgoif-chaos-") as work:
        chaos = Chaos(Path(work))
        network.downloads(Path(work), chaos.record)
        network.killed(Path(work), chaos.record)
        chaos.kills()
        chaos.random_kills(6)
        chaos.orphan()
        chaos.two_runs()
        chaos.two_jobs()
        chaos.starve()
        chaos.small_disk()
        chaos.damaged_states()
        chaos.damages()
    folder.mkdir(parents=True, exist_ok=True)
    report.write(chaos.records, time.perf_counter() - before, folder)
    lost = [r for r in chaos.records if r["outcome"] == LOST]
    for r in lost:
        print(f"LOST {r['fault']}: {r['moment']}: {r['said']}", file=sys.stderr)
    print(f"{len(chaos.records)} faults, {len(lost)} lost; see {folder / 'chaos.md'}")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs")))
