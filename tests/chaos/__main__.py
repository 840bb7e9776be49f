"""`python -m tests.chaos [FOLDER [FAMILY …]]`: every fault, in half an hour or so; the report goes to FOLDER (docs).

With families named, only those are injected again and take the place of their old records in the report.
"""

import sys
import tempfile
from pathlib import Path

from tests.chaos import corners, network, report
from tests.chaos.driver import LOST, Chaos


def downloads(chaos: Chaos) -> None:
    folder = chaos.project.folder.parent / "network"
    network.downloads(folder, chaos.record)
    network.killed(folder, chaos.record)


FAMILIES = {
    "downloads": downloads,
    "kills": Chaos.kills,
    "kills in the import": Chaos.kills_in_the_import,
    "random kills": Chaos.random_kills,
    "lingering job": Chaos.lingering_job,
    "two runs": Chaos.two_runs,
    "two jobs": Chaos.two_jobs,
    "full disk": Chaos.starve,
    "small disk": Chaos.small_disk,
    "damaged states": Chaos.damaged_states,
    "damaged files": Chaos.damages,
    "power loss": corners.power_loss,
    "clock": corners.clock,
    "umask": corners.umasks,
    "no locks": corners.no_locks,
}


def main(folder: Path, *chosen: str) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="sgoif-chaos-") as work:
        chaos = Chaos(Path(work))
        for name in chosen or FAMILIES:
            chaos.records = []
            FAMILIES[name](chaos)
            records = report.merge(folder, name, chaos.records, list(FAMILIES))
    lost = [r for r in records if r["outcome"] == LOST]
    for r in lost:
        print(f"LOST {r['fault']}: {r['moment']}: {r['said']}", file=sys.stderr)
    print(f"{len(records)} faults, {len(lost)} lost; see {folder / 'chaos.md'}")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs"), *sys.argv[2:]))
