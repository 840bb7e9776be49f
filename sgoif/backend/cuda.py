"""Runs scoring on a side CUDA stream so that it overlaps with training.

Head-scope scoring never feeds back into training and reads copies only, so its few hundred small kernels can run in
the gaps that a training step leaves on the GPU. Without a GPU everything here runs in line.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


@functools.cache
def own_stream(device: int, purpose: str) -> torch.cuda.Stream:
    """Return the process's stream for a purpose.

    There is one stream per purpose because cuBLAS keeps a workspace for every stream it has used (32 MiB on an H200,
    for forward and for backward passes).
    """
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


class SideStream:
    """A CUDA stream beside the one that trains.

    Args:
        device: Device of the model.
        enabled: If False, or if the device is not a GPU, work runs in line and `synchronise` does nothing.
    """

    def __init__(self, device: torch.device, enabled: bool) -> None:
        self.stream: torch.cuda.Stream | None = None
        self._held: deque[tuple[torch.cuda.Event, list[Tensor]]] = deque()
        if enabled and device.type == "cuda":
            self.stream = own_stream(torch.cuda.current_device() if device.index is None else device.index, "beside")

    @contextmanager
    def run(self, inputs: Iterable[Tensor] = ()) -> Iterator[None]:
        """Run the body on the stream, after everything training has queued so far.

        Args:
            inputs: Tensors of the training stream that the body reads; their memory is not reused before it is done.
        """
        if self.stream is None:
            yield
            return
        while self._held and self._held[0][0].query():
            self._held.popleft()
        self.stream.wait_stream(torch.cuda.current_stream(self.stream.device))
        try:
            with torch.cuda.stream(self.stream):
                yield
        finally:
            self._hold(list(inputs))

    def _hold(self, inputs: list[Tensor]) -> None:
        """Keep tensors until the stream has done what is queued on it now.

        `Tensor.record_stream` would say the same, at the price of an event for every tensor that is freed.
        """
        if self.stream is not None and inputs:
            self._held.append((self.stream.record_event(), inputs))

    def synchronise(self) -> None:
        """Make the training stream wait for the work on this stream; the host does not wait."""
        if self.stream is not None:
            torch.cuda.current_stream(self.stream.device).wait_stream(self.stream)
            self._held.clear()
