"""Co-teaching. Han, Yao, Yu, Niu, Xu, Hu, Tsang & Sugiyama, NeurIPS 2018 (arXiv:1804.06872).

Two networks see the same minibatch of B examples. Each picks the ⌊(1 - R(t)) B⌋ examples of smallest loss and trains
the other one on them; the share R that is forgotten in epoch t rises to the noise rate τ while wrong labels are not
yet memorised:

    R(t) = τ · t / (T_k - 1)  for t < T_k,      τ afterwards              (t counted from 0, T_k = 5 % of the epochs)

The paper hands τ over as known. Here nobody knows the truth: both networks first train on everything for a quarter of
the epochs, and then, on the training images,

    τ = P( the networks contradict the given label | both predict the same class )

Networks learn right labels before they memorise wrong ones, and two that started apart rarely agree on the same
mistake. (All contradictions, agreed on or not, would also count what is not yet learned: far too high in short runs.)
R(t) then starts at its first non-zero value. A `noise_rate` that is given is used as published, from epoch 0 on.

Co-teaching was published as a trainer. Score:

    s_i = mean over epochs after warm-up and ramp of (CE(f₁, y_i) + CE(f₂, y_i)) / 2
    variant `not_selected`: share of these epochs in which neither network picked example i
                            (an epoch that did not show the example counts as none)

Yielded model: the first network (the paper tests both, one by one). Cost: 2 plain runs.
Deviations: optimiser, learning rate and augmentation are the recipe's; the released loss divides an already averaged
loss by its number of terms once more, which Adam hides and SGD would not: it is not copied.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif.bench.methods.base import Detection, NoisyLabelDetector, NoisyTask
from sgoif.bench.methods.peer_networks import Peers, among, exchange, mean_loss
from sgoif.bench.methods.robust_training import History
from sgoif.training.batches import Batch

MAX_NOISE_RATE = 0.9  # limit of an estimated τ: something must be left to learn from


class CoTeaching(NoisyLabelDetector):
    name = "coteaching"
    title = "Co-Teaching"
    group = "Methods of the paper"
    order = 5

    @dataclass(frozen=True)
    class Params:
        noise_rate: float | None = None  # τ; None: estimated as above
        ramp: float = 0.05  # T_k as a share of the epochs (published: 10 of 200)
        warmup: float = 0.25  # share of the epochs without forgetting before τ is estimated

    def __init__(self, **params):
        super().__init__(**params)
        p = self.params
        self.need(p.noise_rate is None or 0 <= p.noise_rate < 1, "noise_rate", "must be in [0, 1) or null")
        self.need(0 < p.ramp <= 1, "ramp", "a share in (0, 1]")
        self.need(0 < p.warmup < 1, "warmup", "a share in (0, 1)")

    @staticmethod
    def forget_rate(epoch: int, noise_rate: float, ramp_epochs: int) -> float:
        """R(t): linear from 0 in epoch 0 to τ in epoch T_k - 1, then constant."""
        if epoch >= ramp_epochs:
            return noise_rate
        return noise_rate * epoch / max(ramp_epochs - 1, 1)

    @staticmethod
    def kept(batch_size: int, forget_rate: float) -> int:
        """At least one: something is always learned from."""
        return max(int((1 - forget_rate) * batch_size), 1)

    @staticmethod
    def contradicted(first: Tensor, second: Tensor, y: Tensor) -> float:
        """Share of given labels contradicted, among the examples on whose class both networks agree."""
        agreed = first.argmax(1) == second.argmax(1)
        return float((agreed & (first.argmax(1) != y)).sum() / agreed.sum().clamp(min=1))

    def detect(self, task: NoisyTask) -> Detection:
        p, session, epochs = self.params, task.session, task.recipe.epochs
        ramp_epochs = max(round(p.ramp * epochs), 1)
        warm_epochs = max(round(p.warmup * epochs), 1) if p.noise_rate is None else 0
        batches = task.batches()
        peers, history = Peers(task, batches), History()

        def forward(batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
            (keep,) = batch.extra
            first, second = peers(batch.x)
            for_first, for_second = (among(order, keep) for order in exchange(first, second, batch.labels))
            losses = mean_loss(first, batch.labels, for_first), mean_loss(second, batch.labels, for_second)
            return *losses, (for_first | for_second).float()

        step = peers.stepper(forward)
        for epoch in session.epochs(epochs, peers, history):
            forget = self._forget(epoch, warm_epochs, ramp_epochs, history)
            picked = torch.zeros(len(task.labels), device=task.labels.device)
            keep = torch.tensor(self.kept(batches.batch_size, forget))
            for batch in batches.epoch(epoch):
                *_, chosen = step(batch.with_extra(keep))
                picked.index_copy_(0, batch.index, chosen)
            with session.timer("score"):
                logits = peers.predict(task)
                losses = torch.stack([F.cross_entropy(f, task.labels, reduction="none") for f in logits]).mean(0)
                contradicted = self.contradicted(*logits, task.labels)
                history.add(loss=losses, picked=picked, contradicted=contradicted, forget_rate=forget)
        with session.timer("score"):
            test_logits, _ = task.predict(peers.first.net, task.test)
        start = min(warm_epochs + ramp_epochs, epochs - 1)
        losses, picked = history.stack("loss"), history.stack("picked")
        return Detection(
            losses[start:].mean(0),
            test_logits.cpu().numpy(),
            epoch_scores=losses,
            variants={"not_selected": 1 - picked[start:].mean(0)},
            extras={"noise_rate": forget},
            curves=history.curves,
        )

    def _forget(self, epoch: int, warm_epochs: int, ramp_epochs: int, history: History) -> float:
        if self.params.noise_rate is not None:
            return self.forget_rate(epoch, self.params.noise_rate, ramp_epochs)
        if epoch < warm_epochs:
            return 0.0
        estimate = min(history.curves["contradicted"][warm_epochs - 1], MAX_NOISE_RATE)
        return self.forget_rate(epoch - warm_epochs + 1, estimate, ramp_epochs)
