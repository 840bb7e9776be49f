"""The side stream keeps what its work reads until that work is done, without a GPU: streams and events are fakes."""

import contextlib

import pytest
import torch

from sgoif.backend.cuda import SideStream


class FakeEvent:
    done = False

    def query(self) -> bool:
        return self.done


class FakeStream:
    device = "cuda:0"

    def __init__(self) -> None:
        self.events: list[FakeEvent] = []

    def wait_stream(self, other: "FakeStream") -> None:
        pass

    def record_event(self) -> FakeEvent:
        self.events.append(FakeEvent())
        return self.events[-1]


@pytest.fixture
def side(monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: FakeStream())
    monkeypatch.setattr(torch.cuda, "stream", contextlib.nullcontext)
    made = SideStream(torch.device("cpu"), enabled=True)
    made.stream = FakeStream()
    return made


def held(side: SideStream) -> list[torch.Tensor]:
    return [tensor for _, tensors in side._held for tensor in tensors]


def test_inputs_are_held_until_the_work_that_reads_them_is_done(side):
    first, second = torch.ones(1), torch.zeros(2)
    with side.run([first]):
        pass
    with side.run([second]):
        pass
    assert held(side) == [first, second]
    side.stream.events[0].done = True
    with side.run():
        pass
    assert held(side) == [second]


def test_inputs_are_held_where_the_work_fails(side):
    tensor = torch.ones(1)
    with pytest.raises(RuntimeError), side.run([tensor]):
        raise RuntimeError
    assert held(side) == [tensor]


def test_a_training_stream_that_waits_may_reuse_the_memory(side):
    with side.run([torch.ones(1)]):
        pass
    side.synchronise()
    assert held(side) == []


def test_without_a_gpu_nothing_is_held():
    side = SideStream(torch.device("cpu"), enabled=True)
    with side.run([torch.ones(1)]):
        pass
    assert side.stream is None and held(side) == []
