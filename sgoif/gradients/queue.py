"""From watched passes to batches: checks of what the user hands over, and the queue that makes watching cheap.

Nothing but copying is done when a pass is watched: the features, logits, indices and labels of the steps since the last
check are kept (they exist anyway) and turned into ONE batch when the directions are about to change. Until then the
scoring direction stands still and the averages are sums, so the result is that of folding step by step, for a fraction
of the launches. Outside head scope the queue waits to be scored alone: curvature and anchors take a sample of the
examples of a step whose turn it is, and its activations do not outlive that step.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sgoif.backend import collectives
from sgoif.errors import BatchError
from sgoif.gradients.factored_batch import FactoredBatch
from sgoif.gradients.hooks import SMALL, Capture, Record

MOST_EXAMPLES = 16_384  # queued examples that are folded even though no check is due


@dataclass
class Pass:
    """One watched forward/backward pass of optimiser step `step`."""

    step: int
    record: Record
    index: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def tensors(self) -> list[Tensor]:
        return [self.record.features, self.record.logits, self.index, self.labels]


class Intake:
    """The queue of passes; `scored` of them have been scored but not yet learnt from (in head scope)."""

    def __init__(self, capture: Capture, n_examples: int) -> None:
        self.capture, self.n_examples = capture, n_examples
        self.queue: list[Pass] = []
        self.scored = 0

    @staticmethod
    def checked(index: Tensor, labels: Tensor, n_examples: int, n_classes: int) -> tuple[Tensor, Tensor]:
        """Shapes, types and, for host tensors, ranges; device tensors are checked when they are folded, without
        waiting."""
        found = []
        for what, values, limit in (("index", index, n_examples), ("labels", labels, n_classes)):
            values = torch.as_tensor(values)
            if values.dim() != 1 or values.is_floating_point() or values.dtype == torch.bool:
                raise BatchError(
                    f"watch(): {what} must be integers of shape [n], got {values.dtype} of shape {tuple(values.shape)}"
                )
            if values.device.type == "cpu" and ((values < 0) | (values >= limit)).any():
                wrong = int(values[(values < 0) | (values >= limit)][0])
                raise BatchError(f"watch(): {what} {wrong} lies outside 0..{limit - 1}")
            found.append(values)
        if found[0].shape != found[1].shape:
            raise BatchError(f"watch(): {len(found[0])} indices but {len(found[1])} labels")
        return found[0], found[1]

    def add(self, step: int, record: Record, index: Tensor, labels: Tensor, copy: bool = False) -> None:
        """`copy`: the record lives in memory that the next step overwrites."""
        self.capture.validate(record, len(labels))
        record = record.copied() if copy else record
        device = record.features.device
        index, labels = index.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        self.queue.append(Pass(step, record, index, labels))

    def __len__(self) -> int:
        return sum(len(p) for p in self.queue)

    def watched(self, step: int) -> int:
        """Number of examples watched for a step."""
        return sum(len(p) for p in self.queue if p.step == step)

    def tensors(self) -> list[Tensor]:
        """What the queued passes are made of."""
        return [t for p in self.queue for t in p.tensors()]

    def build(self, passes: list[Pass], temperature: Tensor | float, half_life: float) -> tuple[FactoredBatch, Tensor]:
        """The passes as one batch with the recency of each example, and how many indices or labels were out of range;
        outside head scope the head's part of it, which is enough to score.

        recency = 0.5 ^ (examples of later steps / half-life in examples), as averaging step by step would leave it.
        """
        index = torch.cat([p.index for p in passes]).long()
        labels = torch.cat([p.labels for p in passes]).long()
        limits = self.n_examples - 1, self.capture.n_classes - 1
        safe = index.clamp(0, limits[0]), labels.clamp(0, limits[1])
        wrong = ((safe[0] != index) | (safe[1] != labels)).sum()
        features = torch.cat([p.record.features for p in passes])
        logits = torch.cat([p.record.logits for p in passes])
        sizes = step_sizes(passes)
        recency = self._recency(sizes, half_life, features.device)
        return self.capture.head_batch(features, logits, *safe, temperature, recency, tuple(sizes.values())), wrong

    def _recency(self, sizes: dict[int, int], half_life: float, device: torch.device) -> Tensor:
        """`[n]`, see `build`."""
        later, factors = 0, []
        for size in reversed(sizes.values()):
            factors.insert(0, decay(later, half_life, self.n_examples))
            later += size
        return spread(factors, list(sizes.values()), device, self.capture.dtype)

    def of(self, step: int) -> list[Pass]:
        """The passes watched for a step."""
        return [p for p in self.queue if p.step == step]

    def gradients(self, passes: list[Pass], temperature: Tensor | float, limit: int | None = None) -> FactoredBatch:
        """The first `limit` examples of one step's passes, with the gradients of every layer in scope."""
        left = sum(len(p) for p in passes) if limit is None else limit
        parts = []
        for p in passes:
            if left > 0:
                parts.append(self.capture.pass_batch(p.record, p.index, p.labels, temperature, slice(0, left)))
                left -= len(p)
        return FactoredBatch.concatenate(parts)

    def release(self) -> None:
        """Outside head scope, let go of what later steps will not read: layers' activations and scored passes."""
        if self.capture.deep:
            self.queue, self.scored = self.queue[self.scored :], 0
            for p in self.queue:
                p.record.forget_layers()

    def state_dict(self) -> dict:
        kept = [{name: getattr(p.record, name) for name in SMALL} for p in self.queue]
        stored = [
            {"step": p.step, "index": p.index, "labels": p.labels}
            | {name: tensor for name, tensor in small.items() if tensor is not None}
            for p, small in zip(self.queue, kept, strict=True)
        ]
        return {"queue": stored, "scored": self.scored}

    def load_state_dict(self, state: dict, device: torch.device) -> None:
        self.scored, self.queue = state["scored"], []
        for p in state["queue"]:
            here = {name: p[name].to(device) for name in (*SMALL, "index", "labels") if name in p}
            index, labels = here.pop("index"), here.pop("labels")
            self.queue.append(Pass(p["step"], Record(**here), index, labels))


def decay(examples: int, half_life: float, n_examples: int) -> float:
    """What an exponential average with a half-life in epochs leaves after so many examples per process."""
    return 0.5 ** (examples * collectives.size() / (half_life * n_examples))


def step_sizes(passes: list[Pass]) -> dict[int, int]:
    """Optimiser step -> examples watched for it, oldest first."""
    sizes: dict[int, int] = {}
    for p in passes:
        sizes[p.step] = sizes.get(p.step, 0) + len(p)
    return sizes


def spread(values: list[float], sizes: list[int], device: torch.device, dtype: torch.dtype) -> Tensor:
    """Value j repeated sizes[j] times, `[sum(sizes)]`. Only the short lists travel: a long pageable copy would wait."""
    if len(values) == 1:
        return torch.full((sizes[0],), values[0], device=device, dtype=dtype)
    numbers = torch.tensor(values, dtype=torch.float64).to(device, dtype, non_blocking=True)
    repeats = torch.tensor(sizes).to(device, non_blocking=True)
    return torch.repeat_interleave(numbers, repeats, output_size=sum(sizes))
