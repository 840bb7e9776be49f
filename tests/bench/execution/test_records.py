"""The records of jobs: what is written is what is read, and what is malformed is refused with the reason."""

import pytest

from sgoif.bench.execution.plan import Cell
from sgoif.bench.execution.records import BatchEntry, MalformedRecord, ResultRecord

CELL = {"task": "noisy", "dataset": "digits", "setting": "n20", "seed": 3, "method": "aum"}
RESULT = {"cell": CELL, "key": "k", "status": "ok", "seconds": {"train": 2}, "shared": ["plain"], "arrays_sha256": "0"}


def test_a_result_is_read_as_it_was_written():
    result = ResultRecord.from_json(RESULT)
    assert (result.cell, result.seed, result.extras) == (Cell(**CELL), 3, {})
    assert ResultRecord.from_json(result.to_json()) == result
    assert result.to_json().items() >= RESULT.items()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cell": {**CELL, "seed": "3"}}, "`cell`"),
        ({"cell": {**CELL, "more": 1}}, "`cell`"),
        ({"status": "done"}, "status is 'done'"),
        ({"key": None}, "no `key`"),
        ({"seconds": {"train": "2"}}, "`seconds` is not a table of numbers"),
        ({"extras": {"steps": True}}, "`extras` is not a table of numbers"),
        ({"extras": [1]}, "`extras` is not of type dict"),
        ({"peak_memory_mb": "much"}, "`peak_memory_mb`"),
        ({"shared": ["other"]}, "`shared`"),
    ],
)
def test_a_malformed_result_is_refused(change, message):
    with pytest.raises(MalformedRecord, match=message):
        ResultRecord.from_json({**RESULT, **change})


def test_a_batch_entry_is_that_of_its_result():
    entry = BatchEntry.of(ResultRecord.from_json(RESULT))
    assert entry.to_json() == {
        "cell": CELL, "path": "cells/noisy/digits/n20/seed3/aum", "key": "k", "status": "ok", "reason": "",
        "arrays_sha256": "0",
    }  # fmt: skip
    assert BatchEntry.from_json(entry.to_json()) == entry
    with pytest.raises(MalformedRecord, match="path"):
        BatchEntry.from_json({**entry.to_json(), "path": "cells/../other"})
