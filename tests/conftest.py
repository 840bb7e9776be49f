"""Settings of all tests.

Torch uses one thread: two workers on two cores with two threads each would wait for each other.
"""

import os
import signal

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported; subprocesses inherit it

import pytest


def pytest_collection_modifyitems(items):
    """Put the longest tests first, so that two workers end together."""
    items.sort(key=lambda item: "workflow/test_run" not in item.nodeid)


@pytest.fixture
def ctrl_c():
    """Install Python's own handler of SIGINT, since a background job inherits the signal as ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
