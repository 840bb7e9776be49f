"""Co-teaching. Han, Yao, Yu, Niu, Xu, Hu, Tsang & Sugiyama, NeurIPS 2018 (arXiv:1804.06872).

Two networks see the same minibatch of B examples. Each picks the ⌊(1 - R(t)) B⌋ examples of smallest loss and trains
the other one on them; the share R that is forgotten in epoch t rises to the noise rate τ while wrong labels are not
yet memorised:

    R(t) = τ · t / (T_k - 1)  for t < T_k,      τ afterwards                        (t counted from 0)

The paper hands τ over as known (`noise_rate: told`, the variant `given`), and its ramp T_k takes 10 of 200 epochs: 5 %.
In a short recipe that is a single epoch, so that R would jump to τ at the peak of the learning rate; here T_k is 30 %.
Without being told, both networks first train on everything for a quarter of the epochs, and then, on the training
images,

    τ = P( the networks contradict the given label | both predict the same class )

Networks learn right labels before they memorise wrong ones, and two that started apart rarely agree on the same
mistake. (All contradictions, agreed on or not, would also count what is not yet learned: far too high in short runs.)
R(t) then starts at its first non-zero value. With a `noise_rate` that is given R is 0 in the first epoch.

Co-teaching was published as a trainer. Its candidates are means over both networks of what their training steps said;
`not_selected` is the share of epochs after warm-up and ramp in which neither network picked example i (an epoch that
did not show the example counts as none).

Official code: github.com/bhanML/Co-teaching (`main.py`, `loss.py`).
Yielded model: the first network (the paper tests both, one by one). Cost: 2 plain runs.
Deviations: optimiser, learning rate and augmentation are the recipe's; the released loss divides an already averaged
loss by its number of terms once more, which Adam hides and SGD would not: it is not copied. The released program
begins at t = 1, so that its first epoch forgets already; with a given rate of asymmetric noise that is weaker here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif.bench.methods.base import Detection, NoisyLabelDetector
from sgoif.bench.methods.robust.peer_networks import Peers, among, exchange, mean_loss
from sgoif.bench.methods.robust.training import History
from sgoif.bench.methods.robust.visits import VisitRecorder, candidate_scores, measure
from sgoif.bench.methods.tasks import NoisyTask
from sgoif.training.batches import Batch
from sgoif.training.distributed import sum_

MAX_NOISE_RATE = 0.9  # limit of an estimated τ: something must be left to learn from
TOLD = "told"


class CoTeaching(NoisyLabelDetector):
    name = "coteaching"
    title = "Co-Teaching"
    group = "Methods of the paper"
    order = 5
    shown_variants: ClassVar = {
        "given": {
            "title": "Co-Teaching, noise rate given",
            "group": "Told the noise rate",
            "order": 1,
            "ranked": False,
        }
    }
    candidates: ClassVar = {
        "last_loss": "mean cross-entropy of both networks after the last epoch",
        "window_loss": "mean cross-entropy of both networks over the last half of training",
        "window_margin": "minus the mean margin of both networks over the last half of training",
        "window_doubt": "one minus the mean probability of the label over the last half (geometric mean of both)",
        "mean_loss": "mean cross-entropy of both networks over all of training",
        "mean_margin": "minus the mean margin of both networks over all of training",
        "mean_doubt": "one minus the mean probability of the label over all of training (geometric mean of both)",
        "not_selected": "share of late epochs in which neither network picked the example",
    }
    ranked_by = "last_loss"
    distributes = True
    told_noise = True  # used if `noise_rate` is "told"

    @dataclass(frozen=True)
    class Params:
        noise_rate: float | str | None = None  # τ; "told": that of the setting; None: estimated as above
        ramp: float = 0.3  # T_k as a share of the epochs (published: 10 of 200)
        warmup: float = 0.25  # share of the epochs without forgetting before τ is estimated

    def __init__(self, **params):
        super().__init__(**params)
        p = self.params
        is_rate = not isinstance(p.noise_rate, str) and (p.noise_rate is None or 0 <= p.noise_rate < 1)
        self.need(p.noise_rate == TOLD or is_rate, "noise_rate", f'must be in [0, 1), "{TOLD}" or null')
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
        given = task.noise_facts(self.name).rate if p.noise_rate == TOLD else p.noise_rate
        ramp_epochs = max(round(p.ramp * epochs), 1)
        warm_epochs = max(round(p.warmup * epochs), 1) if given is None else 0
        batches = task.batches()
        peers, history = Peers(task, batches), History()
        recorder = VisitRecorder(len(task.labels), task.labels.device)

        def forward(batch: Batch) -> tuple[Tensor, ...]:
            (keep,) = batch.extra
            first, second = peers(batch.x)
            for_first, for_second = (among(order, keep) for order in exchange(first, second, batch.labels))
            losses = mean_loss(first, batch.labels, for_first), mean_loss(second, batch.labels, for_second)
            measured = (measure(first, batch.labels) + measure(second, batch.labels)) / 2
            return *losses, (for_first | for_second).float(), measured

        step = peers.stepper(forward)
        for epoch in session.epochs(epochs, peers, history, recorder):
            forget = self._forget(epoch, warm_epochs, ramp_epochs, history, given)
            picked = torch.zeros(len(task.labels), device=task.labels.device)
            keep = torch.tensor(self.kept(batches.batch_size, forget))
            for batch in batches.epoch(epoch):
                *_, chosen, measured = step(batch.with_extra(keep))
                picked.index_copy_(0, batch.index, chosen)
                recorder.add(batch.index, measured)
            recorder.end_epoch()
            sum_(picked)  # every process has its own examples
            history.add(picked=picked, forget_rate=forget)
            if epoch + 1 == warm_epochs:
                with session.timer("score"):
                    history.add(contradicted=self.contradicted(*peers.predict(task), task.labels))
        with session.timer("score"):
            test_logits, _ = task.predict(peers.first.net, task.test)
            losses = [F.cross_entropy(f, task.labels, reduction="none") for f in peers.predict(task)]
        start = min(warm_epochs + ramp_epochs, epochs - 1)
        scores = {
            "last_loss": torch.stack(losses).mean(0).cpu().numpy(),
            **candidate_scores(recorder.visits()),
            "not_selected": 1 - history.stack("picked")[start:].mean(0),
        }
        return self.detection(
            scores, test_logits=test_logits.cpu().numpy(), extras={"noise_rate": forget}, curves=history.curves
        )

    def _forget(
        self, epoch: int, warm_epochs: int, ramp_epochs: int, history: History, given: float | None = None
    ) -> float:
        """R(t) of an epoch, for a τ that was given or is estimated after the warm-up."""
        if given is not None:
            return self.forget_rate(epoch, given, ramp_epochs)
        if epoch < warm_epochs:
            return 0.0
        estimate = min(history.curves["contradicted"][-1], MAX_NOISE_RATE)
        return self.forget_rate(epoch - warm_epochs + 1, estimate, ramp_epochs)
