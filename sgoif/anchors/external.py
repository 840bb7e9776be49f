"""External anchor data (held-out or trusted examples) under the current parameters: gradients and predictions."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from sgoif.backend.eval_mode import eval_mode
from sgoif.backend.integers import as_integers, describe
from sgoif.errors import BatchError
from sgoif.gradients.hooks import GradientHooks
from sgoif.gradients.layer_ops import stored_weight
from sgoif.gradients.queue import Pass

AnchorData = Iterable[tuple[Tensor, Tensor]]
LocatedBatch = tuple[Tensor, Tensor, int]  # a batch (x, y) and the position of its first example in the data
RandomStates = tuple[Tensor, tuple[Any, ...], tuple[Any, ...]]  # of torch, numpy and Python, as `torch.load` reads them


class OwnRandomNumbers:
    """A stream of random numbers beside that of training.

    A DataLoader draws from torch's global generator whenever it is iterated, shuffled or not. Dropout, order and
    augmentation of the training would be others.
    """

    def __init__(self) -> None:
        self.states: RandomStates | None = None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Let torch (on the CPU), numpy and Python draw from this stream, which begins where training is."""
        outside = self._read()
        if self.states is not None:
            self._write(*self.states)
        try:
            yield
        finally:
            self.states = self._read()
            self._write(*outside)

    @staticmethod
    def _read() -> RandomStates:
        of_numpy = cast(tuple[Any, ...], np.random.get_state(legacy=True))
        keys = torch.from_numpy(of_numpy[1].astype(np.int64))
        return torch.get_rng_state(), (of_numpy[0], keys, *of_numpy[2:]), random.getstate()

    @staticmethod
    def _write(of_torch: Tensor, of_numpy: tuple[Any, ...], of_python: tuple[Any, ...]) -> None:
        torch.set_rng_state(of_torch)
        np.random.set_state((of_numpy[0], of_numpy[1].numpy().astype(np.uint32), *of_numpy[2:]))
        random.setstate(of_python)


class AnchorDataCycle:
    """Cycles through external anchor data, at most `max_examples` per check.

    The first check evaluates all data, so that every anchor has a target. If there are more than `max_examples`, each
    later check evaluates the next batches that fit (at least one). However large the data, a round lasts about an
    epoch at most (batches are not divided), so that no gradient is much older than that.

    Data that is shuffled or augmented by torch's, numpy's or Python's global random numbers goes on after a resume as
    it would have; a generator of its own must be saved by its owner.

    Args:
        data: Batches (x, y), iterated again and again.
        min_examples: Lower bound on `max_examples`.

    Attributes:
        epochs_per_check: Epochs between two checks, a fraction.
        size: Number of examples, once known.
        position: Examples of this round that have been evaluated.
        evaluated: Examples evaluated so far, with repetitions.
    """

    def __init__(self, data: AnchorData, min_examples: int) -> None:
        if not (hasattr(data, "__iter__") or hasattr(data, "__getitem__")):
            raise BatchError(f"anchor_data must be iterable over batches (x, y), not {describe(data)}")
        self.data = data
        self.min_examples = min_examples
        self.epochs_per_check = 0.0
        self.size = 0
        self.position = 0
        self.evaluated = 0
        self._round: Iterator[LocatedBatch] | None = None
        self._next_batch: LocatedBatch | None = None  # did not fit into the last check
        self._random_numbers = OwnRandomNumbers()
        self._random_before: RandomStates | None = None  # before the round

    @property
    def max_examples(self) -> int:
        """Examples per check, so many that a round takes an epoch at most."""
        return max(self.min_examples, math.ceil(self.epochs_per_check * self.size))

    @property
    def fits_one_check(self) -> bool:
        """Whether every check evaluates all data."""
        return self.size <= self.max_examples

    def next_batches(self) -> Iterator[LocatedBatch]:
        """Iterate over the batches of the next check."""
        if self.fits_one_check:
            for x, y, position in self.batches():
                self.evaluated += len(y)
                yield x, y, position
                self.size = position + len(y)
            return
        taken = 0
        while True:
            x, y, position = self._advance()
            if taken and taken + len(y) > self.max_examples:
                self._next_batch = x, y, position
                return
            taken += len(y)
            self.position = position + len(y)
            self.evaluated += len(y)
            yield x, y, position

    def _advance(self) -> LocatedBatch:
        """Return the next batch of the round, starting a new round at the end."""
        if self._round is None:
            self._random_before = self._random_numbers.states
            self._round = (batch for batch in self.batches() if batch[2] >= self.position)
        batch, self._next_batch = self._next_batch or next(self._round, None), None
        if batch is None:
            self._random_before = self._random_numbers.states
            self._round, self.position = self.batches(), 0
            batch = next(self._round)
        return batch

    def batches(self) -> Iterator[LocatedBatch]:
        """Iterate over all data once.

        Raises:
            BatchError: If the data is empty, e.g. an exhausted generator, or not of batches (x, y).
        """
        position = 0
        for batch in self._beside_training():
            if not isinstance(batch, tuple | list) or len(batch) != 2:
                given = f"{len(batch)} things" if isinstance(batch, tuple | list) else describe(batch)
                raise BatchError(f"anchor_data must be iterable over batches (x, y); one was {given}")
            x, y = as_batch(*batch, "anchor_data")
            yield x, y, position
            position += len(y)
        if position == 0:
            raise BatchError("anchor_data holds nothing; it is iterated several times, so pass a list or a DataLoader")

    def read_beside(self) -> Iterator[LocatedBatch]:
        """Iterate over all data once, so that later checks draw the same random numbers as without it."""
        states = self._random_numbers.states
        yield from self.batches()
        self._random_numbers.states = states

    def _beside_training(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Iterate over the data by random numbers of its own."""
        with self._random_numbers():
            batches = iter(self.data)
        while True:
            try:
                with self._random_numbers():
                    batch = next(batches)
            except StopIteration:
                return
            yield batch

    def state_dict(self) -> dict[str, Any]:
        """Return where the cycle stands, and the random numbers from which the rest of its round is read again."""
        within = self._round is not None
        states = self._random_before if within else self._random_numbers.states
        return {"size": self.size, "position": self.position, "evaluated": self.evaluated, "random_states": states}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        self._random_numbers.states = state["random_states"]
        self.size = state["size"]
        self.position = state["position"]
        self.evaluated = state["evaluated"]
        self._round = None
        self._next_batch = None


def as_batch(x: Any, y: Any, what: str) -> tuple[Any, Any]:
    """Return inputs and labels of a batch; inputs in arrays and lists become a tensor.

    Args:
        x: Inputs of the n examples.
        y: Their labels, shape [n].
        what: What the batch belongs to, for the message.

    Raises:
        BatchError: If it is a single example, or the inputs cannot be moved to a device.
    """
    if not hasattr(y, "__len__") or getattr(y, "ndim", 1) == 0:
        given = describe(y)
        raise BatchError(f"{what}: labels must be of shape [n], got {given}; put a DataLoader around the examples")
    if isinstance(x, np.ndarray | list | tuple):
        try:
            x = torch.as_tensor(x)
        except (TypeError, ValueError, RuntimeError):
            raise BatchError(f"{what}: inputs must be a tensor, got {describe(x)}") from None
    if not hasattr(x, "to"):
        raise BatchError(f"{what}: inputs must be a tensor, got {describe(x)}")
    return x, y


def _on_model_device(hooks: GradientHooks, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Check the labels and move both tensors to the model's device."""
    device, labels = stored_weight(hooks.head).device, as_integers(y)
    if labels is None or labels.dim() != 1:
        raise BatchError(f"anchor_data: labels must be integers of shape [n], got {describe(y)}")
    if isinstance(x, Tensor) and len(x) != len(labels):
        raise BatchError(f"anchor_data: a batch of {len(x)} examples has {len(labels)} labels")
    y = labels.long()
    if y.device.type == "cpu" and ((y < 0) | (y >= hooks.n_classes)).any():
        raise BatchError(f"anchor_data: a label lies outside 0..{hooks.n_classes - 1}")
    return x.to(device), y.to(device)


def anchor_passes(hooks: GradientHooks, batches: Iterable[LocatedBatch]) -> Iterator[Pass]:
    """Pass anchor data through the model in eval mode; parameters, gradients, modes and buffers stay as they are."""
    with eval_mode(hooks.model):
        for x, y, position in batches:
            x, y = _on_model_device(hooks, x, y)
            with hooks.evaluation_pass() as captured:
                hooks.evaluate(x, y)
            hooks.validate(captured, len(y))
            yield Pass(0, captured, torch.arange(position, position + len(y), device=y.device), y)


@torch.no_grad()
def anchor_predictions(hooks: GradientHooks, batches: Iterable[LocatedBatch]) -> tuple[Tensor, Tensor]:
    """Return the model's probabilities of external data, shape [m, C], and the labels, shape [m]."""
    with eval_mode(hooks.model):
        located = (_on_model_device(hooks, x, y) for x, y, _ in batches)
        predicted = [(hooks.run_model(x).to(hooks.dtype).softmax(1), y) for x, y in located]
    return torch.cat([p for p, _ in predicted]), torch.cat([y for _, y in predicted])
