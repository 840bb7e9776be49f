"""Sessions: resuming, timers, the time limit, damaged checkpoints."""

import time

import numpy as np
import pytest
import torch

from sgoif.training.cost.compute_counter import COMPUTE
from sgoif.training.session import OutOfTime, Session
from sgoif.utils.files import save_npz


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


def test_time_and_passes_count_for_the_innermost_timer_once(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])

    def work(seconds: float, passes: int) -> None:
        clock[0] += seconds
        COMPUTE.forward_passes += passes

    session = Session(None, "k", seed=0)
    with session.timer("outer"):
        work(2, 20)
        with session.timer("inner"):
            work(5, 50)
        work(3, 30)
    work(7, 70)  # outside every timer
    assert session.timers.seconds == {"outer": 5, "inner": 5}
    assert session.timers.forward_passes == {"outer": 50, "inner": 50}


def trained(session: Session, kill: str | None = None) -> dict[str, int]:
    """Two phases, a prediction after each, a part that is kept; killed in the phase named, after its third epoch."""

    def compute() -> dict:
        COMPUTE.forward_passes += 7
        return {}

    for phase in ("first", "second"):
        for epoch in session.epochs(4, Counter(), phase=phase):
            COMPUTE.forward_passes += 300
            if (kill, epoch) == (phase, 2):
                raise KeyboardInterrupt
        with session.timer("score"):
            COMPUTE.forward_passes += 100
            session.cached(f"{phase}-part", compute)
    return session.timers.total_forward_passes()


@pytest.mark.parametrize("kill", ["first", "second"])
def test_a_resumed_cell_counts_the_passes_of_an_uninterrupted_one(tmp_path, kill):
    whole = trained(Session(None, "k", seed=0))
    assert whole == {"train": 2400, "score": 214}
    with pytest.raises(KeyboardInterrupt):
        trained(Session(tmp_path / "w", "k", seed=0, save_every=0), kill)
    COMPUTE.reset()  # another process
    assert trained(Session(tmp_path / "w", "k", seed=0, save_every=0)) == whole


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
    assert Session(tmp_path / "w", "k", seed=0).timers.seconds["train"] > 0.03


def test_damaged_times_are_forgotten_and_the_cell_starts_over(tmp_path):
    session = Session(tmp_path / "w", "k", seed=0, save_every=0)
    for epoch in session.epochs(3, Counter()):
        if epoch == 2:
            break
    save_npz(tmp_path / "w" / "times.npz", names=np.array(["train"]), seconds=np.array([9.0]))  # no CPU seconds
    with pytest.warns(UserWarning, match="the cell starts over"):
        again = Session(tmp_path / "w", "k", seed=0)
    assert again.timers.seconds == {} and not (tmp_path / "w" / "train.pt").exists()
