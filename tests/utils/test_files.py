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
