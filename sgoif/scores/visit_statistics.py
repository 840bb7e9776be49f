"""What every visit of every example left behind: sums per example, in segments of training.

A segment ends at every `end_epoch` and, when the length of training is known, where the score window begins. Closed
segments rest in host memory (24 bytes per example and segment), the open one on the device. Beside them, if asked for,
the sum of the predictions `[N, C]` over the window's visits (over all visits where the length is not known), the given
labels, and the sum of the margins against them over all visits.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sgoif.backend import collectives

LEAST = 0.2  # what the predictions of a step count for at least, however far network and labels agree
COLUMNS = ("score", "square", "confidence", "residual", "age", "visits")


@dataclass
class Segment:
    """Sums `[N, 6]` over the visits of steps [first, last), within one epoch; `spread` the largest |score| of a
    visit."""

    epoch: int
    first: int
    last: int
    sums: Tensor
    spread: Tensor


class Ledger:
    """Adds visits to the open segment and reads windows of segments."""

    def __init__(
        self,
        n_examples: int,
        window: float,
        total_steps: int | None,
        device: torch.device,
        dtype: torch.dtype,
        n_classes: int = 0,
    ) -> None:
        """`n_classes`: of the predictions to keep; 0 = none are."""
        self.n_examples, self.window, self.total_steps = n_examples, window, total_steps
        self.device, self.dtype = device, dtype
        self.closed: list[Segment] = []
        self.open = self._fresh(0, 0)
        self.beliefs = torch.zeros(n_examples if n_classes else 0, n_classes, device=device, dtype=dtype)
        self.given = torch.full((len(self.beliefs),), -1, device=device)
        self.margins = torch.zeros(len(self.beliefs), 2, device=device, dtype=dtype)  # sum, weight

    def _fresh(self, epoch: int, first: int) -> Segment:
        sums = torch.zeros(self.n_examples, len(COLUMNS), device=self.device, dtype=self.dtype)
        return Segment(epoch, first, first, sums, sums.new_zeros(()))

    @property
    def window_start(self) -> int | None:
        """First step of the score window, when the length of training is known."""
        return None if self.total_steps is None else round((1 - self.window) * self.total_steps)

    def add(self, index: Tensor, valid: Tensor, score: Tensor, certificate: Tensor, age: Tensor, upto: int) -> None:
        """One visit of each example: index, valid, score and age `[n]`, and the (confidence, residual) `[2]` they
        share. The visits belong to the steps before `upto`."""
        if self.open.last == self.window_start and self.open.first != self.open.last:
            self.close(self.open.epoch)
        visit = torch.empty(len(score), len(COLUMNS), device=score.device, dtype=score.dtype)
        visit[:, 0], visit[:, 1], visit[:, 2:4], visit[:, 4], visit[:, 5] = score, score.square(), certificate, age, 1.0
        self.open.sums.index_add_(0, index, visit * valid.unsqueeze(1))
        self.open.spread = torch.maximum(self.open.spread, score.abs().amax())
        self.open.last = upto

    def believe(
        self, index: Tensor, valid: Tensor, logits: Tensor, labels: Tensor, place: Tensor, steps: int, upto: int
    ) -> None:
        """What the network said at these visits of the last `steps` steps before `upto`: logits `[n, C]`, the labels
        it was given, and which of these steps each visit belongs to `[n]`.

        The more a network agrees with its labels, the less it says but them: a step counts by 1 - a (at least 0.2), a
        being its mean probability of the given label.
        """
        if not len(self.beliefs):
            return
        keep, own = valid.unsqueeze(1), labels.unsqueeze(1)
        logits = torch.where(keep, logits, 0)
        said = logits.softmax(1) * keep
        agreement = torch.stack([said.gather(1, own)[:, 0], valid.to(said.dtype)])
        agreed = agreement.new_zeros(2, steps).index_add_(1, place, agreement)
        collectives.sum_(agreed)
        fading = (1 - agreed[0] / agreed[1].clamp(min=1)).clamp(min=LEAST)[place].unsqueeze(1) * keep
        margin = logits.scatter(1, own, -torch.inf).amax(1, keepdim=True) - logits.gather(1, own)
        self.margins.index_add_(0, index, torch.cat([margin * fading, fading], 1))
        if self.window_start is None or upto > self.window_start:
            self.beliefs.index_add_(0, index, said * fading)
            self.given.index_copy_(0, index, labels)

    def close(self, next_epoch: int) -> None:
        """End the open segment; the next one belongs to `next_epoch`."""
        segment = self.open
        if segment.last > segment.first:
            segment.sums, segment.spread = segment.sums.cpu(), segment.spread.cpu()
            self.closed.append(segment)
        self.open = self._fresh(next_epoch, segment.last)

    def _segments(self) -> list[Segment]:
        segments = [*self.closed]
        if self.open.last > self.open.first:
            segments.append(
                Segment(self.open.epoch, self.open.first, self.open.last, self.open.sums.cpu(), self.open.spread.cpu())
            )
        return segments

    def read(self) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """Sums of the score window by column `[N]`, the spread of its scores, and scores per epoch `[E, N]` (mean
        over visits).

        When the length of training is not known, the window is made of the segments whose middle lies in it.
        """
        segments = self._segments()
        steps = segments[-1].last if segments else 0
        start = (1 - self.window) * steps if self.window_start is None else self.window_start
        late = [s for s in segments if (s.first + s.last) / 2 >= start] or segments
        sums = torch.zeros(self.n_examples, len(COLUMNS), dtype=torch.float64)
        spread = torch.zeros((), dtype=torch.float64)
        for segment in late:
            sums += segment.sums
            spread = torch.maximum(spread, segment.spread.double())
        epochs = torch.zeros(1 + max((s.epoch for s in segments), default=-1), 2, self.n_examples, dtype=torch.float64)
        for segment in segments:
            for row, column in zip(epochs[segment.epoch], (0, -1), strict=True):
                row += segment.sums[:, column]
        if collectives.active():  # collectives want the device
            sums, spread, epochs = sums.to(self.device), spread.to(self.device), epochs.to(self.device)
            collectives.sum_(sums, epochs)
            collectives.max_(spread)
            sums, spread, epochs = sums.cpu(), spread.cpu(), epochs.cpu()
        return dict(zip(COLUMNS, sums.T, strict=True)), spread, epochs[:, 0].div_(epochs[:, 1].clamp_(min=1))

    def read_beliefs(self) -> tuple[Tensor, Tensor, Tensor] | None:
        """Sums of predictions `[N, C]`, given labels `[N]` (-1: never visited), mean margins `[N]`, on the device; None
        if not kept."""
        if not len(self.beliefs):
            return None
        beliefs, given, margins = self.beliefs.clone(), self.given.clone(), self.margins.clone()
        collectives.sum_(beliefs, margins)
        collectives.max_(given)
        return beliefs, given, margins[:, 0] / torch.where(margins[:, 1] > 0, margins[:, 1], 1)

    def state_dict(self) -> dict:
        pack = [vars(s) | {"sums": s.sums.clone()} for s in (*self.closed, self.open)]
        kept = {name: getattr(self, name).clone() for name in ("beliefs", "given", "margins")}
        return {"segments": pack, "total_steps": self.total_steps, **kept}

    def load_state_dict(self, state: dict) -> None:
        *closed, last = (Segment(**s) for s in state["segments"])
        self.closed, self.total_steps = closed, state["total_steps"]
        last.sums = last.sums.to(self.device, self.dtype, copy=True)
        last.spread = last.spread.to(self.device, copy=True)
        self.open = last
        self.beliefs.copy_(state["beliefs"])
        self.given.copy_(state["given"])
        self.margins.copy_(state["margins"])
