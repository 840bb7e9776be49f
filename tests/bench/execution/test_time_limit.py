"""A run in stretches: what is asked of Snakemake and when, and what the next stretch does."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from sgoif.bench.execution.launch.time_limit import TIME_IS_UP, ended_in_time, run_in_order

# Stands in for Snakemake: after SIGTERM it starts nothing and waits for its job, by SIGINT it ends.
SCHEDULER = """
import signal, sys, time
def said(word):
    print(word, flush=True)
signal.signal(signal.SIGTERM, lambda *_: said("no new jobs"))
said("started")
try:
    end = time.monotonic() + float(sys.argv[1])
    while time.monotonic() < end:
        time.sleep(0.01)
    said("finished")
except KeyboardInterrupt:
    said("interrupted")
    if sys.argv[2] == "stubborn":
        time.sleep(60)
    sys.exit(1)
"""


def started(seconds: float, kind: str = "") -> subprocess.Popen:
    process = subprocess.Popen([sys.executable, "-c", SCHEDULER, str(seconds), kind], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"started\n"
    return process


@pytest.mark.parametrize(
    ("takes", "limit", "words", "asked"),
    [
        (0.1, 30, ["finished"], False),
        (0.1, None, ["finished"], False),
        (0.95, 1.0, ["no new jobs", "finished"], True),
        (60, 1.0, ["no new jobs", "interrupted"], True),
    ],
)
def test_a_process_is_asked_to_start_nothing_before_it_is_interrupted(takes, limit, words, asked, monkeypatch):
    monkeypatch.setattr("sgoif.bench.execution.launch.time_limit.RESERVE", 0.5)
    process = started(takes)
    with ended_in_time(process, limit) as event:
        said = process.communicate()[0].decode().split("\n")[:-1]
    assert said == words and event.is_set() == asked


def test_what_does_not_end_is_killed(monkeypatch):
    monkeypatch.setattr("sgoif.bench.execution.launch.time_limit.SECONDS_TO_END", 0.2)
    process, before = started(60, "stubborn"), time.monotonic()
    with ended_in_time(process, 0.3):
        process.communicate()
    assert process.returncode == -9 and time.monotonic() - before < 20


def test_configurations_are_run_in_order_until_the_time_is_up(capsys):
    files, seen = [Path("a.yaml"), Path("b.yaml"), Path("c.yaml")], []

    def run(ends: dict[str, int]):
        def one(config: Path, seconds: float) -> int:
            seen.append(config.name)
            assert 0 < seconds <= 60
            return ends.get(config.name, 0)

        return one

    assert run_in_order(files, 60, run({})) == 0 and seen == ["a.yaml", "b.yaml", "c.yaml"]
    seen.clear()
    assert run_in_order(files, 60, run({"b.yaml": TIME_IS_UP})) == TIME_IS_UP and seen == ["a.yaml", "b.yaml"]
    assert "The time is up in b.yaml" in capsys.readouterr().out
    seen.clear()
    assert run_in_order(files, 60, run({"a.yaml": 1})) == 1 and len(seen) == 3, "a failure does not stop the others"
    assert run_in_order(files, 60, run({"a.yaml": 1, "b.yaml": TIME_IS_UP})) == 1
    assert "The time is up in b.yaml; the same command goes on from there. a.yaml had failed" in capsys.readouterr().out
    seen.clear()
    assert run_in_order(files, -1, run({})) == TIME_IS_UP and seen == []
