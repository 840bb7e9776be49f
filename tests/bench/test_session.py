"""Sessions: resuming, time accounts, the time limit, damaged checkpoints."""

import time

import numpy as np
import pytest
import torch

from sgoif.bench.session import OutOfTime, Session


class Counter:
    def __init__(self):
        self.value = torch.zeros(())

    def state_dict(self):
        return {"value": self.value.clone()}

    def load_state_dict(self, state):
        self.value = state["value"]


def count(session: Session, n: int = 6, stop_after: int | None = None) -> Counter:
    counter = Counter()
    for epoch in session.epochs(n, counter):
        counter.value += torch.rand(()) * (epoch + 1)
        if stop_after is not None and epoch + 1 == stop_after:
            raise KeyboardInterrupt
    return counter


def test_resumed_equals_uninterrupted(tmp_path):
    whole = count(Session(None, "k", seed=3))
    with pytest.raises(KeyboardInterrupt):
        count(Session(tmp_path / "w", "k", seed=3, save_every=0), stop_after=4)
    resumed = count(Session(tmp_path / "w", "k", seed=3, save_every=0))
    assert torch.equal(whole.value, resumed.value)


def test_another_key_starts_over(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        count(Session(tmp_path / "w", "k", seed=3, save_every=0), stop_after=4)
    assert (tmp_path / "w" / "train.pt").is_file()
    Session(tmp_path / "w", "other", seed=3)
    assert not (tmp_path / "w" / "train.pt").exists()


def test_a_damaged_checkpoint_is_said_and_computed_again(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        count(Session(tmp_path / "w", "k", seed=3, save_every=0), stop_after=4)
    (tmp_path / "w" / "train.pt").write_bytes(b"not a checkpoint")
    with pytest.warns(UserWarning, match="damaged"):
        again = count(Session(tmp_path / "w", "k", seed=3, save_every=0))
    assert torch.equal(again.value, count(Session(None, "k", seed=3)).value)


def test_cached_is_computed_once_and_survives(tmp_path):
    calls = []

    def compute():
        calls.append(1)
        return {"a": np.arange(3)}

    for _ in range(2):
        got = Session(tmp_path / "w", "k", seed=0).cached("part", compute)
    assert calls == [1] and got["a"].tolist() == [0, 1, 2]


def test_time_is_booked_on_the_innermost_account_once():
    session = Session(None, "k", seed=0)
    with session.timed("outer"):
        time.sleep(0.02)
        with session.timed("inner"):
            time.sleep(0.05)
        time.sleep(0.02)
    assert 0.03 < session.seconds["outer"] < 0.05 <= session.seconds["inner"] < 0.09


def test_a_cell_that_overruns_its_time_ends():
    with pytest.raises(OutOfTime, match="time limit"):
        for _ in Session(None, "k", seed=0, time_limit=0.01).epochs(5):
            time.sleep(0.02)


def test_seconds_survive_a_kill(tmp_path):
    session = Session(tmp_path / "w", "k", seed=0, save_every=0)
    for epoch in session.epochs(3, Counter()):
        time.sleep(0.02)
        if epoch == 2:
            break
    assert Session(tmp_path / "w", "k", seed=0).seconds["train"] > 0.03
