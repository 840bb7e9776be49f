import os

from sgoif.bench.execution.clock import SLACK_SECONDS, settle_future_times

NOW = 1_700_000_000.0


def _file(path, time):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(path.name)
    os.utime(path, (time, time))
    return path


def test_files_from_the_future_are_from_now(tmp_path, capsys):
    run, data = tmp_path / "run", tmp_path / "data"
    old = _file(run / "metrics" / "old.json", NOW - 60)
    near = _file(run / "near.json", NOW + SLACK_SECONDS / 2)
    late = [_file(run / "cells" / "a" / "late.json", NOW + 86400), _file(data / "digits" / "meta.json", NOW + 3600)]
    image = _file(data / "digits" / "train_images.npy", NOW + 3600)
    assert settle_future_times(run, data, now=NOW) == 2
    assert [p.stat().st_mtime for p in late] == [NOW, NOW]
    assert old.stat().st_mtime == NOW - 60 and near.stat().st_mtime == NOW + SLACK_SECONDS / 2
    assert image.stat().st_mtime == NOW + 3600, "nobody compares the times of arrays"
    assert late[0].read_text() == "late.json"
    assert capsys.readouterr().err.startswith("note: 2 files were from the future")
    assert settle_future_times(run, data, now=NOW) == 0 and not capsys.readouterr().err


def test_what_is_not_there_or_not_ours_is_left_alone(tmp_path, monkeypatch):
    assert settle_future_times(tmp_path / "none", tmp_path / "neither") == 0
    late = _file(tmp_path / "run" / "late.json", NOW + 86400)

    def utime(*args, **kwargs):
        raise PermissionError(1, "not yours")

    monkeypatch.setattr(os, "utime", utime)
    assert settle_future_times(tmp_path / "run", tmp_path / "data", now=NOW) == 0
    assert late.stat().st_mtime == NOW + 86400
