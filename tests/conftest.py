"""Settings of all tests.

Torch uses one thread: two workers on two cores with two threads each would wait for each other. Nothing is forced to
the disk in the tests' own process: fake runs write thousands of small files, and only a loss of power would tell.
"""

import os
import signal

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported; subprocesses inherit it

import pytest

# A shell that runs the tests in the background ignores SIGINT, and every process started here would do so too.
signal.signal(signal.SIGINT, signal.default_int_handler)

LONGEST = (
    "workflow/test_run.py", "test_types.py", "chaos/test_chaos.py", "docs/test_commands.py", "contract/test_ood.py",
    "training/test_distributed.py", "training/test_cuda_graphs.py", "workflow/", "bench/sharing/", "test_benchmarks.py",
    "test_wheel.py",
)  # fmt: skip


def pytest_collection_modifyitems(items):
    """Put the longest files first, so that two workers end together."""

    def place(item):
        file = item.nodeid.partition("::")[0]
        return next((n for n, name in enumerate(LONGEST) if name in file), len(LONGEST))

    items.sort(key=place)


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk():
    """Let `os.fsync` do nothing; a test of its calls puts its own in the place."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield
