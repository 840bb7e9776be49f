"""Compressed JSON: the same bytes for the same value, and one line about a file that is damaged."""

import time

import pytest

from sgoif.errors import UserError
from sgoif.utils.packed_json import read_packed_json, write_packed_json

VALUE = {"b": [1, 0.1, None, "ä"], "a": {"c": []}}


def test_the_same_value_is_the_same_file_at_any_time_and_by_any_name(tmp_path, monkeypatch):
    assert write_packed_json(tmp_path / "one.gz", VALUE)
    monkeypatch.setattr(time, "time", lambda: 1e9)
    assert write_packed_json(tmp_path / "two.gz", dict(reversed(VALUE.items())))
    assert (tmp_path / "one.gz").read_bytes() == (tmp_path / "two.gz").read_bytes()
    assert read_packed_json(tmp_path / "two.gz", "nobody") == VALUE
    assert not write_packed_json(tmp_path / "two.gz", VALUE), "an unchanged file is left alone"


def damaged(content: bytes) -> dict[str, bytes]:
    middle = len(content) // 2
    flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    wrong_sum = content[:-6] + bytes([content[-6] ^ 1]) + content[-5:]
    return {"cut off": content[:-9], "empty": b"", "flipped": flipped, "checksum": wrong_sum, "text": b"{}"}


@pytest.mark.parametrize("how", ["cut off", "empty", "flipped", "checksum", "text"])
def test_a_damaged_file_is_named_in_one_line(tmp_path, how):
    path = tmp_path / "records.json.gz"
    write_packed_json(path, VALUE)
    path.write_bytes(damaged(path.read_bytes())[how])
    with pytest.raises(UserError, match=r"records\.json\.gz is damaged or no compressed JSON \(.+\); get it again"):
        read_packed_json(path, "`make published`")


def test_a_missing_file_is_told_with_what_writes_it(tmp_path):
    with pytest.raises(UserError, match=r"there is no file .*; `make published` writes it"):
        read_packed_json(tmp_path / "none.json.gz", "`make published`")
