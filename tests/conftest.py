"""The longest tests first, so that two workers end together."""


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: "workflow/test_run" not in item.nodeid)
