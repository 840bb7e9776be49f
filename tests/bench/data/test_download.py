import errno
from dataclasses import replace

import pytest

from sgoif.bench.data import download
from sgoif.bench.data.dataset import OfficialFile
from sgoif.errors import UserError
from tests.helpers.tiny_archives import md5, shop

DATA = bytes(range(256)) * 4000  # about 1 MB


def source(server, data=DATA) -> OfficialFile:
    return OfficialFile(server.url + "a.bin", "a.bin", f"md5:{md5(data)}", len(data))


def test_whole_file_with_progress(tmp_path):
    seen = []
    with shop({"a.bin": DATA}) as server:
        path = download.fetch(source(server), tmp_path, lambda *step: seen.append(step))
        again = download.fetch(source(server), tmp_path)
        assert len(server.asked) == 1, "a verified file is not fetched twice"
    assert path == again == tmp_path / "a.bin" and path.read_bytes() == DATA
    assert seen[-1] == ("a.bin", len(DATA), len(DATA)) and [p.name for p in tmp_path.iterdir()] == ["a.bin"]


def test_a_broken_connection_is_continued(tmp_path):
    with shop({"a.bin": DATA}) as server:
        server.cut = [300_000, 200_000]
        path = download.fetch(source(server), tmp_path, wait=0)
        assert [asked for _, asked in server.asked] == [None, "bytes=300000-", "bytes=500000-"]
    assert path.read_bytes() == DATA


def test_a_later_call_continues_an_earlier_one(tmp_path):
    with shop({"a.bin": DATA}) as server:
        server.cut = [1000]
        with pytest.raises(UserError, match=r"connection broke.*, or put the file there by hand: .*a\.bin"):
            download.fetch(source(server), tmp_path, attempts=1)
        assert not (tmp_path / "a.bin").exists()
        assert download.fetch(source(server), tmp_path).read_bytes() == DATA
        assert server.asked[-1][1] == "bytes=1000-"


def test_a_server_without_ranges_starts_over(tmp_path):
    with shop({"a.bin": DATA}, ranges=False) as server:
        server.cut = [1000]
        assert download.fetch(source(server), tmp_path, wait=0).read_bytes() == DATA


def test_a_complete_part_only_needs_its_name(tmp_path):
    (tmp_path / "a.bin.part").write_bytes(DATA)
    with shop({"a.bin": DATA}) as server:
        assert download.fetch(source(server), tmp_path).read_bytes() == DATA


@pytest.mark.parametrize("served", [DATA[:-1] + b"x", DATA[:-1], DATA + b"x"])
def test_wrong_bytes_are_refused_and_deleted(tmp_path, served):
    with shop({"a.bin": served}) as server:
        with pytest.raises(UserError, match=r"checksum md5:.*deleted: run again") as e:
            download.fetch(source(server), tmp_path, wait=0)
    assert "\n" not in str(e.value) and not list(tmp_path.iterdir())


def test_a_damaged_finished_file_is_fetched_again(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"rubbish")
    with shop({"a.bin": DATA}) as server:
        assert download.fetch(source(server), tmp_path).read_bytes() == DATA


def test_missing_on_the_server_is_not_tried_again(tmp_path):
    with shop({}) as server:
        with pytest.raises(UserError, match="HTTP 404"):
            download.fetch(source(server), tmp_path)
        assert len(server.asked) == 1


def test_a_busy_server_is_tried_again(tmp_path):
    with shop({"a.bin": DATA}) as server:
        server.errors = [503, 429]
        assert download.fetch(source(server), tmp_path, wait=0).read_bytes() == DATA


def test_no_network(tmp_path):
    with shop({}) as server:
        gone = source(server)
    with pytest.raises(UserError, match=r"cannot download http://127.*by hand") as e:
        download.fetch(gone, tmp_path, attempts=2, wait=0)
    assert "\n" not in str(e.value)


def test_disk_full(tmp_path, monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(download, "_transfer", full)
    with pytest.raises(UserError, match="disk is full"):
        download.fetch(OfficialFile("http://127.0.0.1:9/a", "a", None), tmp_path)


def test_sha256_works_too(tmp_path):
    import hashlib

    with shop({"a.bin": DATA}) as server:
        good = replace(source(server), checksum="sha256:" + hashlib.sha256(DATA).hexdigest())
        assert download.fetch(good, tmp_path).read_bytes() == DATA
