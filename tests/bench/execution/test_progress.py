"""What a person sees of a run, from Snakemake's log."""

import io
from types import SimpleNamespace

import pytest

from sgoif.bench.config import load_config
from sgoif.bench.execution.launch.progress import (
    LINE_SECONDS,
    LogReader,
    Progress,
    describe,
    follow,
    weigh,
    weights_left,
)
from sgoif.bench.execution.plan import Plan
from tests.helpers.project_copy import MINI_CONFIG

START = """Using workflow specific profile profiles/default for setting default command line arguments.
Assuming unrestricted shared filesystem usage.

SNAKEMAKE
=========
  Host: vm

Building DAG of jobs...
Using shell: /usr/bin/bash
Provided cores: 2
Provided resources: gpu=Resource("gpu", 1)
Job stats:
job                          count
-------------------------  -------
prepare                          5
noisy_mixup                      1
total                            4

Select jobs to execute...
Execute 2 jobs...

[Mon Nov 16 13:20:31 2026]
"""
JOB = """{rule} {name}:
    output: results/mini/batches/x.json
    jobid: {number}
    wildcards: {wildcards}
    resources: tmpdir=/tmp
"""
NOISY = "task=noisy, dataset=digits, variant=, batch=0"
OOD = "task=ood, dataset=digits_id, variant=, batch=0"
MIXUP = JOB.format(rule="localrule", name="noisy_mixup", number=7, wildcards=NOISY)
MSP = JOB.format(rule="rule", name="ood_msp", number=8, wildcards=OOD)
TABLES = "localrule tables:\n    input: a\n    jobid: 3\n    reason: Missing\n"
FAILED = """error: data/digits is damaged; delete it and run again
RuleException:
CalledProcessError in file "workflow/rules/shared.smk", line 6:
Command 'set -euo pipefail;  python -m sgoif.bench batch' returned non-zero exit status 2.
[Mon Nov 16 17:04:19 2026]
Error in rule noisy_mixup:
    message: None
    jobid: 7
    shell:
        python -m sgoif.bench batch
        (command exited with non-zero exit code)
Exiting because a job execution failed. Look above for error messages
WorkflowError:
At least one job did not complete successfully.
"""


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def plan() -> Plan:
    return Plan(load_config(MINI_CONFIG))


@pytest.fixture
def now() -> list[float]:
    return [100.0]


@pytest.fixture
def reader(plan, now) -> LogReader:
    return LogReader(lambda rule, words: weigh(plan, rule, words), describe, clock=lambda: now[0])


def read(reader: LogReader, text: str) -> list[str]:
    return [error for line in text.splitlines(keepends=True) if (error := reader.read(line))]


def test_a_terminal_shows_one_line_that_is_rewritten(reader, plan, now, tmp_path):
    screen = Screen()
    progress = Progress(reader, weights_left(plan, tmp_path), screen)
    progress.show()
    assert screen.getvalue() == "\r\033[Kplanning"
    read(reader, START + MIXUP)
    progress.show()
    assert screen.getvalue().endswith("\r\033[K0 of 4, noisy labels: Mixup")
    now[0] += 60
    read(reader, MSP + "Finished jobid: 7 (Rule: noisy_mixup)\n1 of 4 steps (25%) done\n")
    progress.show()
    assert screen.getvalue().endswith(" min left") and "\r\033[K1 of 4, OOD detection: MSP, about " in screen.getvalue()
    progress.show(last=True)
    assert screen.getvalue().endswith("\r\033[K") and "\n" not in screen.getvalue()


def test_elsewhere_a_line_is_printed_now_and_then(reader, now):
    out = io.StringIO()
    progress = Progress(reader, [4.0], out)
    read(reader, START + MIXUP)
    for _ in range(3):
        now[0] += LINE_SECONDS / 4
        progress.show()
    read(reader, TABLES + "1 of 4 steps (25%) done\n")
    progress.show()
    assert out.getvalue() == "0 of 4, noisy labels: Mixup\n"
    now[0] += LINE_SECONDS
    progress.show()
    progress.show(last=True)
    assert out.getvalue() == "0 of 4, noisy labels: Mixup\n1 of 4, tables\n"


def test_what_is_left_follows_from_what_is_done(reader, now):
    progress = Progress(reader, [12.0, 12.0], io.StringIO())  # two of the four jobs are batches: 26 in all
    read(reader, START + MIXUP)  # two settings with two seeds, each trained for some time and again: 12
    progress.show()
    now[0] += 90
    read(reader, "Finished jobid: 7 (Rule: noisy_mixup)\n1 of 4 steps (25%) done\n" + TABLES)  # of size 1, half done
    assert progress.line() == "1 of 4, tables, about 2 min left"  # 90 s for 12.5, so 97 s for the other 13.5
    reader.finished_weight = 20.0
    assert progress.line() == "1 of 4, tables, less than a minute left"


def test_sizes_of_jobs(plan, tmp_path):
    words = {"task": "noisy", "dataset": "digits", "variant": "", "batch": "0"}
    assert weigh(plan, "plain", words) == 4 and weigh(plan, "folds", words) == 12
    assert weigh(plan, "noisy_mixup", words) == 12
    assert weigh(plan, "tables", {}) == 1 > weigh(plan, "corrupt", {"dataset": "digits", "setting": "n20_s0"})
    everything = weights_left(plan, tmp_path)
    batch = tmp_path / "batches/noisy/digits/folds/0.json"
    batch.parent.mkdir(parents=True)
    batch.write_text("{}")
    assert sum(everything) - sum(weights_left(plan, tmp_path)) == pytest.approx(12) and 0 not in everything


def test_errors_of_jobs_are_told_and_the_rest_is_not(reader):
    assert read(reader, START + MIXUP + FAILED) == ["error: data/digits is damaged; delete it and run again"]
    assert reader.failed == ["noisy_mixup"] and reader.remarks == []


@pytest.mark.parametrize(
    "line",
    [
        "/usr/bin/bash: line 1: 32415 Killed                  python -m sgoif.bench batch --config x > y 2>&1",
        "bash:  2368 Killed                  python -m sgoif.bench batch",
        "Killed",
    ],
)
def test_a_job_that_was_killed_is_noticed(reader, line):
    assert read(reader, START + MIXUP) == [] and not reader.killed
    read(reader, line + "\n" + FAILED.partition("\n")[2])
    assert reader.killed and reader.failed == ["noisy_mixup"] and reader.remarks == []


def test_what_is_not_routine_is_kept(reader):
    read(reader, START + 'MissingInputException in rule all in file "S2", line 1:\n    affected files:\n')
    assert reader.remarks == ['MissingInputException in rule all in file "S2", line 1:']


@pytest.mark.parametrize(
    ("rule", "wildcards", "words"),
    [
        ("plain", {"task": "ood", "dataset": "d", "variant": "", "batch": "0"}, "OOD detection: plain training"),
        ("noisy_sgoif", {"task": "tuning", "variant": "@no_gate", "batch": "0"}, "tuning: SG-OIF, no gate"),
        ("prepare", {"dataset": "digits"}, "preparing digits"),
        ("figure_ranks", {}, "figures"),
        ("new_rule", {}, "new_rule"),
    ],
)
def test_jobs_are_described_in_words(rule, wildcards, words):
    assert describe(rule, wildcards) == words


def test_a_finished_log_is_read_to_its_end(plan, tmp_path):
    log = tmp_path / "run.log"
    log.write_text(START + MIXUP + FAILED)
    out = io.StringIO()
    said = follow(SimpleNamespace(poll=lambda: 1), log, plan, tmp_path, out)
    assert said.failed == ["noisy_mixup"]
    assert out.getvalue().splitlines() == [
        f"4 jobs; what they and Snakemake say is in {log}",
        "error: data/digits is damaged; delete it and run again",
    ]
