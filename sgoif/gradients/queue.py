"""The queue between watched passes and batches, and the validation of what the user hands over.

Watching a pass only stores its features, logits, indices and labels. The passes since the last check become ONE batch
when the directions are about to change. Until then the scoring direction is constant and the averages are sums, so the
result is the same as that of processing step by step, with far fewer kernel launches. In deep scopes the queue only
waits to be scored: curvature and anchors are updated from a sample of the current step, whose activations are released
at the end of that step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sgoif.backend import collectives
from sgoif.backend.integers import as_integers, describe
from sgoif.errors import BatchError
from sgoif.gradients.factored_batch import FactoredBatch
from sgoif.gradients.hooks import CapturedPass, GradientHooks

_MEANING = {
    "index": "it holds positions in the training set",
    "labels": "of mixed or smoothed targets pass the label with the largest share",
}
_RANGES = {
    "index": "positions in the training set count from 0, and n_examples is {}",
    "labels": "classes count from 0, n_classes is {}, and examples without a label stay out of watch()",
}
MAX_QUEUED_NUMBERS = 2**25  # features that may wait (128 MiB in float32); a longer queue is processed without a check


def _cast(what: str, given: object) -> str:
    """How whole numbers of another type or shape are passed; nothing if they may be something else."""
    if not isinstance(given, Tensor) or given.is_complex() or given.dim() not in (1, 2):
        return ""
    column = ".squeeze(1)" if given.dim() == 2 and given.shape[1] == 1 else ""
    whole = given.dtype == torch.bool or not given.is_floating_point() or bool((given == given.round()).all())
    return f"pass {what}{column}.long()" if whole and (column or given.dim() == 1) else ""


@dataclass
class Pass:
    """One watched forward and backward pass of optimiser step `step`."""

    step: int
    captured: CapturedPass
    index: Tensor  # [n] positions in the data set
    labels: Tensor  # [n]

    def __len__(self) -> int:
        return self.labels.shape[0]  # much faster than len() of a tensor

    @property
    def features(self) -> Tensor:
        """Inputs of the head, shape [n, d]."""
        assert self.captured.features is not None
        return self.captured.features

    @property
    def logits(self) -> Tensor:
        """Outputs of the model, shape [n, C]."""
        assert self.captured.logits is not None
        return self.captured.logits

    def tensors(self) -> list[Tensor]:
        """Return the tensors that scoring reads."""
        return [self.features, self.logits, self.index, self.labels]


class PassQueue:
    """Passes that wait to be scored or learnt from.

    Args:
        hooks: Builds batches from passes.
        n_examples: Number of training examples.
    """

    def __init__(self, hooks: GradientHooks, n_examples: int) -> None:
        self.hooks = hooks
        self.n_examples = n_examples
        self.passes: list[Pass] = []
        self.queued_numbers = 0  # entries of the features in the queue
        self.n_scored = 0  # passes at the front of the queue that are scored but not yet learnt from

    @staticmethod
    def validate(index: Tensor, labels: Tensor, n_examples: int, n_classes: int) -> tuple[Tensor, Tensor]:
        """Check shapes, types and, for host tensors, ranges; ranges on a device are checked later, without waiting.

        Raises:
            BatchError: If index or labels are not integers of shape [n] in range.
        """
        found = []
        for what, given, limit in (("index", index, n_examples), ("labels", labels, n_classes)):
            values = as_integers(given)
            if values is None or values.dim() != 1:
                got = f"watch(): {what} must be integers of shape [n], got {describe(given)}"
                raise BatchError(f"{got}; {_cast(what, given) or _MEANING[what]}")
            if values.is_cpu and values.numel():  # much faster than device.type and len() of a tensor
                lowest, highest = values.aminmax()
                low, high = lowest.item(), highest.item()
                if low < 0 or high >= limit:
                    outside = f"watch(): {what} {low if low < 0 else high} lies outside 0..{limit - 1}"
                    raise BatchError(f"{outside}; {_RANGES[what].format(limit)}")
            found.append(values)
        if found[0].shape != found[1].shape:
            raise BatchError(f"watch(): {len(found[0])} indices but {len(found[1])} labels")
        if not found[0].numel() and not collectives.active():  # one of several processes may have no share of a batch
            raise BatchError("watch(): the batch is empty; leave it out, with its step()")
        return found[0], found[1]

    def push(self, step: int, captured: CapturedPass, index: Tensor, labels: Tensor, copy: bool = False) -> None:
        """Append a pass.

        Args:
            step: Optimiser step that the pass belongs to.
            captured: What the hooks saw.
            index: Positions in the data set, shape [n].
            labels: Labels, shape [n].
            copy: Copy the tensors, because the next step overwrites their memory.
        """
        self.hooks.validate(captured, labels.shape[0])
        captured = captured.copied() if copy else captured
        assert captured.features is not None
        device = captured.features.device
        index, labels = (_owned(values, device) for values in (index, labels))
        self._append(Pass(step, captured, index, labels))

    def _append(self, newest: Pass) -> None:
        self.passes.append(newest)
        self.queued_numbers += newest.features.numel()

    def newest(self, step: int) -> list[Pass]:
        """Return the passes of optimiser step `step`, which is the newest or has none yet."""
        first = len(self.passes)
        while first and self.passes[first - 1].step == step:
            first -= 1
        return self.passes[first:]

    def unscored(self, upto: int | None = None) -> list[Pass]:
        """Return the passes that have not been scored, or those of them before optimiser step `upto`."""
        return [p for p in self.passes[self.n_scored :] if upto is None or p.step < upto]

    def mark_scored(self, passes: Sequence[Pass]) -> None:
        """Note that the first of the unscored passes have been scored."""
        self.n_scored += len(passes)

    def pop_all(self) -> list[Pass]:
        """Empty the queue and return its passes."""
        passes, self.passes, self.n_scored, self.queued_numbers = self.passes, [], 0, 0
        return passes

    def drop_scored(self) -> None:
        """Drop scored passes, and the layers' activations of the others."""
        self.passes, self.n_scored = self.unscored(), 0
        self.queued_numbers = sum(p.features.numel() for p in self.passes)
        for p in self.passes:
            p.captured.release_layers()

    def tensors(self) -> list[Tensor]:
        """Return the tensors of all queued passes."""
        return [t for p in self.passes for t in p.tensors()]

    def to_batch(
        self, passes: Sequence[Pass], temperature: Tensor | float, half_life: float
    ) -> tuple[FactoredBatch, Tensor]:
        """Return the head's gradients of the passes as one batch.

        Each example has recency 0.5 ^ (examples of later steps / half-life in examples), which is the weight that
        averaging step by step would leave it.

        Args:
            passes: Passes of one or several steps, oldest first.
            temperature: Softens the softmax.
            half_life: Half-life of running averages, in epochs.

        Returns:
            The batch, and the number of indices or labels that were out of range, a device scalar.
        """
        index = torch.cat([p.index for p in passes]).long()
        labels = torch.cat([p.labels for p in passes]).long()
        safe_index = index.clamp(0, self.n_examples - 1)
        safe_labels = labels.clamp(0, self.hooks.n_classes - 1)
        out_of_range = ((safe_index != index) | (safe_labels != labels)).sum()
        features = torch.cat([p.features for p in passes])
        logits = torch.cat([p.logits for p in passes])
        sizes = step_sizes(passes)
        recency = self._recency(list(sizes.values()), half_life, features.device)
        batch = self.hooks.head_batch(
            features, logits, safe_index, safe_labels, temperature, recency, tuple(sizes.values())
        )
        return batch, out_of_range

    def _recency(self, sizes: list[int], half_life: float, device: torch.device) -> Tensor:
        """Return the recency of each example, shape [n], from the sizes of the steps, oldest first."""
        later = 0
        factors: list[float] = []
        for size in reversed(sizes):
            factors.append(remaining_weight(later, half_life, self.n_examples))
            later += size
        return repeat_each(factors[::-1], sizes, device, self.hooks.dtype)

    def step_gradients(
        self, passes: Sequence[Pass], temperature: Tensor | float, limit: int | None = None
    ) -> FactoredBatch:
        """Return the gradients of all layers in scope for the first `limit` examples of one step's passes."""
        left = sum(len(p) for p in passes) if limit is None else limit
        parts = []
        for p in passes:
            if left > 0:
                parts.append(self.hooks.pass_batch(p.captured, p.index, p.labels, temperature, slice(0, left)))
                left -= len(p)
        return FactoredBatch.concatenate(parts)

    def state_dict(self) -> dict[str, Any]:
        """Return the queued passes without the activations of their layers."""
        stored = [
            {"step": p.step, "index": p.index, "labels": p.labels, **p.captured.scored_tensors()} for p in self.passes
        ]
        return {"passes": stored, "n_scored": self.n_scored}

    def load_state_dict(self, state: dict[str, Any], device: torch.device) -> None:
        """Restore what `state_dict` returned, on `device`."""
        self.n_scored, self.passes, self.queued_numbers = state["n_scored"], [], 0
        for stored in state["passes"]:
            tensors = {name: value.to(device) for name, value in stored.items() if name != "step"}
            index, labels = tensors.pop("index"), tensors.pop("labels")
            self._append(Pass(stored["step"], CapturedPass(**tensors), index, labels))


def _owned(values: Tensor, device: torch.device) -> Tensor:
    """Return values on the device in memory of their own: a loader may use its buffers again before they are scored."""
    moved = values.to(device, non_blocking=True)
    return moved.clone() if moved.device == values.device else moved


def remaining_weight(examples: int, half_life: float, n_examples: int) -> float:
    """Return the weight that an exponential average keeps after `examples` more examples per process.

    Args:
        examples: Examples seen since, per process.
        half_life: Half-life in epochs.
        n_examples: Examples of an epoch.
    """
    return float(0.5 ** (examples * collectives.size() / (half_life * n_examples)))


def step_sizes(passes: Sequence[Pass]) -> dict[int, int]:
    """Return the number of examples of each optimiser step, oldest first."""
    sizes: dict[int, int] = {}
    for p in passes:
        sizes[p.step] = sizes.get(p.step, 0) + len(p)
    return sizes


def repeat_each(values: Sequence[float], sizes: Sequence[int], device: torch.device, dtype: torch.dtype) -> Tensor:
    """Repeat value j sizes[j] times, shape [sum(sizes)].

    Only the short lists are copied to the device: a long copy from pageable memory would make the host wait.
    """
    if len(values) == 1:
        return torch.full((sizes[0],), values[0], device=device, dtype=dtype)
    numbers = torch.tensor(values, dtype=torch.float64).to(device, dtype, non_blocking=True)
    repeats = torch.tensor(sizes).to(device, non_blocking=True)
    return torch.repeat_interleave(numbers, repeats, output_size=sum(sizes))
