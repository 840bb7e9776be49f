"""Sums over the visits of every training example, in segments of training.

A segment ends at every `end_epoch` and, when the length of training is known, where the score window begins. Closed
segments are kept in host memory (24 bytes per example and segment), the open one on the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sgoif.backend import collectives

COLUMNS = ("score", "square", "confidence", "residual", "age", "visits")


@dataclass
class Segment:
    """Sums over the visits of the steps [first, last), within one epoch.

    Attributes:
        epoch: The epoch that the steps belong to.
        first: First step.
        last: Step after the last one.
        sums: Sums by column (`COLUMNS`), shape [N, 6].
        score_range: Largest |score| of a visit, a scalar.
    """

    epoch: int
    first: int
    last: int
    sums: Tensor
    score_range: Tensor


@dataclass(frozen=True)
class WindowSums:
    """The visits in the score window, on the host in double precision.

    Attributes:
        columns: Name of a column (`COLUMNS`) -> its sums over the visits, shape [N].
        visited: Which examples had a visit that counts, in the window or before it, bool, shape [N].
        score_range: Largest |score| of a visit, a scalar.
        epoch_scores: Mean score per epoch, shape [E, N], of all epochs.
    """

    columns: dict[str, Tensor]
    visited: Tensor
    score_range: Tensor
    epoch_scores: Tensor


class VisitStatistics:
    """Adds visits to the open segment and reads the score window."""

    def __init__(
        self,
        n_examples: int,
        window: float,
        total_steps: int | None,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        """Start without any visit.

        Args:
            n_examples: Size N of the training set.
            window: Length of the score window as a share of training; the window ends with training.
            total_steps: Length of training, or None if it is not known.
            device: Device of the open segment.
            dtype: Precision of the sums on the device.
        """
        self.n_examples, self.window, self.total_steps = n_examples, window, total_steps
        self.device, self.dtype = device, dtype
        self.closed: list[Segment] = []
        self.open = self._empty_segment(0, 0)

    def _empty_segment(self, epoch: int, first: int) -> Segment:
        sums = torch.zeros(self.n_examples, len(COLUMNS), device=self.device, dtype=self.dtype)
        return Segment(epoch, first, first, sums, sums.new_zeros(()))

    @property
    def window_start(self) -> int | None:
        """First step of the score window, or None if the length of training is not known."""
        return None if self.total_steps is None else round((1 - self.window) * self.total_steps)

    def add(self, index: Tensor, valid: Tensor, score: Tensor, certificate: Tensor, age: Tensor, upto: int) -> None:
        """Add one visit of each example.

        Args:
            index: Positions in the training set, shape [n].
            valid: Which visits count, shape [n].
            score: Scores of the visits, shape [n].
            certificate: Confidence and residual, which all visits share, shape [2].
            age: Steps since the anchors had been checked, shape [n].
            upto: Step after the last one that the visits belong to.
        """
        if self.open.last == self.window_start and self.open.first != self.open.last:
            self.close(self.open.epoch)
        confidence, residual = certificate.unsqueeze(1).expand(2, len(score))
        visit = torch.stack(
            [score, score.square(), confidence, residual, age.to(score.dtype), torch.ones_like(score)], dim=1
        )
        self.open.sums.index_add_(0, index, visit * valid.unsqueeze(1))
        self.open.score_range = torch.maximum(self.open.score_range, score.abs().amax())
        self.open.last = upto

    def close(self, next_epoch: int) -> None:
        """End the open segment and move it to the host.

        Args:
            next_epoch: The epoch that the next segment belongs to.
        """
        segment = self.open
        if segment.last > segment.first:
            segment.sums, segment.score_range = segment.sums.cpu(), segment.score_range.cpu()
            self.closed.append(segment)
        self.open = self._empty_segment(next_epoch, segment.last)

    def _segments(self) -> list[Segment]:
        """All segments with a visit, on the host."""
        segments = [*self.closed]
        last = self.open
        if last.last > last.first:
            segments.append(Segment(last.epoch, last.first, last.last, last.sums.cpu(), last.score_range.cpu()))
        return segments

    def read(self) -> WindowSums:
        """Return the sums over the score window, of all processes together.

        If the length of training is not known, the window consists of the segments whose middle lies in it.
        """
        segments = self._segments()
        sums = torch.zeros(self.n_examples, len(COLUMNS), dtype=torch.float64)
        score_range = torch.zeros((), dtype=torch.float64)
        for segment in self._in_window(segments):
            sums += segment.sums
            score_range = torch.maximum(score_range, segment.score_range.double())
        n_epochs = 1 + max((s.epoch for s in segments), default=-1)
        epochs = torch.zeros(n_epochs, 2, self.n_examples, dtype=torch.float64)  # sums of scores, visits
        for segment in segments:
            for row, column in zip(epochs[segment.epoch], (0, -1), strict=True):
                row += segment.sums[:, column]
        if collectives.active():  # collectives need tensors on the device
            sums, score_range, epochs = sums.to(self.device), score_range.to(self.device), epochs.to(self.device)
            collectives.sum_(sums, epochs)
            collectives.max_(score_range)
            sums, score_range, epochs = sums.cpu(), score_range.cpu(), epochs.cpu()
        columns = dict(zip(COLUMNS, sums.T, strict=True))
        visited = (epochs[:, 1] > 0).any(0)
        return WindowSums(columns, visited, score_range, epochs[:, 0].div_(epochs[:, 1].clamp_(min=1)))

    def _in_window(self, segments: list[Segment]) -> list[Segment]:
        """The segments in the score window, or all of them if there are none in it.

        A training that has not reached its length, as after early stopping, is read as one of unknown length.
        """
        steps = segments[-1].last if segments else 0
        start = (1 - self.window) * min(steps, self.total_steps or steps)
        if self.window_start is not None and self.total_steps is not None and steps >= self.total_steps:
            start = self.window_start
        return [s for s in segments if (s.first + s.last) / 2 >= start] or segments

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of everything that a resumed run needs."""
        segments = [vars(s) | {"sums": s.sums.clone()} for s in (*self.closed, self.open)]
        return {"segments": segments, "total_steps": self.total_steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state that `state_dict` returned.

        Args:
            state: The state; it is copied.
        """
        *closed, last = (Segment(**s) for s in state["segments"])
        self.closed, self.total_steps = closed, state["total_steps"]
        last.sums = last.sums.to(self.device, self.dtype, copy=True)
        last.score_range = last.score_range.to(self.device, copy=True)
        self.open = last
