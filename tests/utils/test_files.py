import errno
import fcntl
import os
import threading

import numpy as np
import pytest

from sgoif.errors import UserError
from sgoif.utils import files


def test_npz_bytes_depend_on_the_arrays_alone(tmp_path):
    a, b = np.arange(6).reshape(2, 3), np.float64(0.5)
    assert files.save_npz(tmp_path / "x.npz", a=a, b=b)
    first = (tmp_path / "x.npz").read_bytes()
    stamp = (tmp_path / "x.npz").stat().st_mtime_ns
    assert not files.save_npz(tmp_path / "x.npz", b=b, a=np.asfortranarray(a).copy("C"))
    assert (tmp_path / "x.npz").stat().st_mtime_ns == stamp, "an unchanged file keeps its time"
    assert files.save_npz(tmp_path / "x.npz", a=a + 1, b=b) and (tmp_path / "x.npz").read_bytes() != first
    back = files.load_npz(tmp_path / "x.npz")
    assert np.array_equal(back["a"], a + 1) and back["b"].shape == () and back["b"] == 0.5


def test_no_pickles(tmp_path):
    with pytest.raises(ValueError):
        files.save_npz(tmp_path / "x.npz", a=np.array([{}]))
    np.savez(tmp_path / "y.npz", a=np.array([{}]))
    with pytest.raises(UserError, match=r"y\.npz is not a readable npz"):
        files.load_npz(tmp_path / "y.npz")
    for junk in (b"", b"PK\x03\x04", b"\x80\x04."):
        (tmp_path / "z.npz").write_bytes(junk)
        with pytest.raises(UserError, match=r"z\.npz is not a readable npz"):
            files.load_npz(tmp_path / "z.npz")
    np.save(tmp_path / "w.npy", np.arange(3))
    (tmp_path / "w.npy").rename(tmp_path / "w.npz")
    with pytest.raises(UserError, match=r"w\.npz is not a readable npz"):
        files.load_npz(tmp_path / "w.npz")
    with pytest.raises(UserError, match="missing"):
        files.load_npz(tmp_path / "none.npz")


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "deep" / "a.txt"
    files.atomic_write_text(path, "old")
    with pytest.raises(RuntimeError), files.atomic_replace(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old" and [p.name for p in path.parent.iterdir()] == ["a.txt"]


def test_json(tmp_path):
    path = tmp_path / "a.json"
    assert files.atomic_write_json(path, {"b": 1, "a": [1.5, "é"]}) and not files.atomic_write_json(
        path, {"a": [1.5, "é"], "b": 1}
    )
    assert files.read_json(path) == {"a": [1.5, "é"], "b": 1}
    with pytest.raises(ValueError):
        files.atomic_write_json(path, {"a": float("nan")})
    path.write_text("{")
    with pytest.raises(UserError, match=r"a\.json is not valid JSON"):
        files.read_json(path)


def test_hashes(tmp_path):
    import hashlib

    a = np.arange(12, dtype="<i4").reshape(3, 4)
    assert files.sha256_array(a) == hashlib.sha256(a.tobytes()).hexdigest() == files.sha256_array(np.asfortranarray(a))
    assert files.sha256_array(a.T) == hashlib.sha256(a.T.tobytes()).hexdigest()
    (tmp_path / "f").write_bytes(b"abc")
    assert files.sha256_file(tmp_path / "f") == hashlib.sha256(b"abc").hexdigest()
    assert files.digest_file(tmp_path / "f", "md5") == hashlib.md5(b"abc").hexdigest()


def _watch_syncs(monkeypatch):
    """What happens to the disk, in order: renames and syncs of folders."""
    seen, true_fsync, true_replace = [], os.fsync, os.replace

    def fsync(handle):
        name = os.path.realpath(f"/proc/self/fd/{handle}")
        seen.append(("sync", name)) if os.path.isdir(name) else None
        true_fsync(handle)

    def replace(old, new):
        seen.append(("rename", str(new)))
        true_replace(old, new)

    monkeypatch.setattr(files.os, "fsync", fsync)
    monkeypatch.setattr(files.os, "replace", replace)
    return seen


def test_a_new_name_is_on_the_disk_before_the_next_file(tmp_path, monkeypatch):
    seen = _watch_syncs(monkeypatch)
    folder = tmp_path / "deep" / "er"
    files.atomic_write_text(folder / "a", "text", seal=True)
    made = [("sync", str(tmp_path)), ("sync", str(folder.parent))]  # the new folders
    seal = [("rename", str(folder / ".a.sha256")), ("sync", str(folder))]
    assert seen == [*made, *seal, ("rename", str(folder / "a")), ("sync", str(folder))]


@pytest.mark.parametrize(("number", "fails"), [(errno.EINVAL, False), (errno.ENOTSUP, False), (errno.EIO, True)])
def test_folders_that_cannot_be_synced(tmp_path, monkeypatch, number, fails):
    true_fsync = os.fsync

    def fsync(handle):
        if os.path.isdir(f"/proc/self/fd/{handle}"):
            raise OSError(number, os.strerror(number))
        true_fsync(handle)

    monkeypatch.setattr(files.os, "fsync", fsync)
    if fails:
        with pytest.raises(OSError, match="Input/output"):
            files.atomic_write_text(tmp_path / "a", "text")
    else:
        files.atomic_write_text(tmp_path / "a", "text")
    assert (tmp_path / "a").read_text() == "text" and [p.name for p in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize(("mask", "mode"), [(0o077, 0o600), (0o027, 0o640), (0o002, 0o664), (0o000, 0o664)])
def test_modes_follow_the_umask_and_others_never_write(tmp_path, mask, mode):
    before = os.umask(mask)
    try:
        with files.atomic_replace(tmp_path / "a", seal=True) as temporary:
            temporary.write_text("text")
            during = temporary.stat().st_mode & 0o777
        files.save_npy(tmp_path / "b", np.arange(3))
    finally:
        os.umask(before)
    assert during == mode
    assert {p.name: p.stat().st_mode & 0o777 for p in tmp_path.iterdir()} == {"a": mode, ".a.sha256": mode, "b": mode}


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS])
def test_without_locks_the_work_goes_on_and_says_so(tmp_path, monkeypatch, capsys, number):
    def flock(handle, operation):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files.fcntl, "flock", flock)
    with files.file_lock(tmp_path / "a.lock"):
        pass
    said = capsys.readouterr().err
    assert "a.lock cannot be locked" in said and said.count("\n") == 1
    with open(tmp_path / "b", "w") as handle:
        assert files.try_lock(handle) == "unsupported"


def test_a_lock_is_held_taken_or_waited_for(tmp_path):
    with open(tmp_path / "a", "w") as first, open(tmp_path / "a", "w") as second:
        assert files.try_lock(first) == "held" and files.try_lock(second) == "taken"
        threading.Timer(0.05, fcntl.flock, (first, fcntl.LOCK_UN)).start()
        assert files.try_lock(second, wait=True) == "held"


def test_an_error_that_is_not_about_locks_is_raised(tmp_path, monkeypatch):
    def flock(handle, operation):
        raise OSError(errno.EIO, "disk")

    monkeypatch.setattr(files.fcntl, "flock", flock)
    with open(tmp_path / "a", "w") as handle, pytest.raises(OSError, match="disk"):
        files.try_lock(handle)
