"""The cache of features: what was added is read back bit for bit, whatever became of the files."""

import numpy as np
import pytest

from sgoif.scan.pretrained.embedding_cache import EmbeddingCache, cache_root, pixel_key

ROWS = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float16)
KEYS = [pixel_key(np.full((2, 2, 3), i, np.uint8)) for i in range(5)]


def filled(folder, n=5):
    cache = EmbeddingCache(folder, 3)
    cache.add(KEYS[:n], ROWS[:n])
    return cache


def known(cache):
    return [i for i, key in enumerate(KEYS) if cache.get(key) is not None]


def test_rows_come_back_at_once_and_after_opening_again(tmp_path):
    for cache in (filled(tmp_path / "a"), EmbeddingCache(tmp_path / "a", 3)):
        assert all(np.array_equal(cache.get(key), row) for key, row in zip(KEYS, ROWS, strict=True))
        assert cache.get(b"x" * 32) is None


@pytest.mark.parametrize(("name", "size"), [("rows.bin", 6), ("index.bin", 36)])
def test_a_kill_while_adding_loses_the_last_rows_alone(tmp_path, name, size):
    """Rows without a record, and records without a row, are cut off; what is added then lies where it should."""
    filled(tmp_path, n=3)
    file = tmp_path / name
    file.write_bytes(file.read_bytes()[: -size // 2])
    cache = EmbeddingCache(tmp_path, 3)
    assert known(cache) == [0, 1]
    cache.add(KEYS[2:], ROWS[2:])
    again = EmbeddingCache(tmp_path, 3)
    assert known(again) == [0, 1, 2, 3, 4] and np.array_equal(again.get(KEYS[4]), ROWS[4])


def test_a_flipped_bit_is_noticed(tmp_path):
    filled(tmp_path)
    data = bytearray((tmp_path / "rows.bin").read_bytes())
    data[7] ^= 1  # in the second row
    (tmp_path / "rows.bin").write_bytes(data)
    assert known(EmbeddingCache(tmp_path, 3)) == [0, 2, 3, 4]


def test_two_scans_may_add_at_once(tmp_path):
    first, second = EmbeddingCache(tmp_path, 3), EmbeddingCache(tmp_path, 3)
    first.add(KEYS[:2], ROWS[:2])
    second.add(KEYS[2:], ROWS[2:])
    assert np.array_equal(second.get(KEYS[3]), ROWS[3]) and np.array_equal(first.get(KEYS[1]), ROWS[1])
    assert known(EmbeddingCache(tmp_path, 3)) == [0, 1, 2, 3, 4]


def test_keys_depend_on_content_alone(tmp_path, monkeypatch):
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    assert pixel_key(pixels) == pixel_key(pixels.copy()) == pixel_key(np.asfortranarray(pixels))
    assert pixel_key(pixels) != pixel_key(pixels[::-1])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_root().is_relative_to(tmp_path)
