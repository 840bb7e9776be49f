"""The longest tests first, so that two workers end together; and a Ctrl-C that arrives in a test of the background."""

import signal

import pytest


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: "workflow/test_run" not in item.nodeid)


@pytest.fixture
def ctrl_c():
    """Python's own handler of SIGINT: a job in the background inherits the signal ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
