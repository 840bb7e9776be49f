"""MentorNet. Jiang, Zhou, Leung, Li & Fei-Fei, ICML 2018 (arXiv:1712.05055).

A mentor weighs every example of a minibatch by its loss ℓ_i; the student minimises  L = mean_i v_i ℓ_i  (no gradient
through v). The mentor sees ℓ_i, its distance to a moving percentile of the batch, and how far training is (e of 100):

    m ← ρ m + (1 - ρ) percentile_p(ℓ),    d_i = ℓ_i - m                       (ρ = 0.5, p = 0.7)

p = 0.7 is the released default; the released commands for PD take 0.75 at 20 and 40 % noise and 0.5 at 80 %
(`percentile: null`, the variant `given`: p follows the noise rate that is told, linearly between 40 and 80 %).

* `predefined` (PD, the main row), here in the closed form that the published mentor network approximates:
      v = 1 for e ≤ 18;      v = 1[d ≤ 0] for 18 < e < 90;      v = clip(1 - d / γ, 0, 1) from e = 90 on
* `data_driven` (DD): v = σ(mentor(ℓ, d, 0, e)) is learned from trusted images (`task.trusted`). Some of their labels
  are flipped at random, they train along with the rest, and the mentor learns to tell the flipped from the untouched by
  the (ℓ, d, e) seen so far. It is learned at 21 % of training, where burn-in ends, and again at 75 %. Beyond what it
  has seen, its clock stands still (the released flag `fixed_epoch_after_burn_in`).

Example dropout, as published: a random half of the weights is zeroed for the first 17 % of training, 5 % later.

MentorNet was published as a trainer. Candidates: the losses, margins and probabilities of its own training steps, and

    weight:  s_i = 1 - mean_t v_i(t) + 0.001 c_i / (1 + c_i)

over the epochs after burn-in, with the weights v that the mentor gave in the training steps, before example dropout, to
losses of the kind its percentile is of; c_i, the mean loss over the same visits, breaks ties, since weights are 0 or 1.
Official code: github.com/google/mentornet (`code/utils.py`, `training_mentornet/models.py`).

Cost: 1 plain run; the mentor is tiny. PD reads no trusted label.
Deviations: the recipe's weight decay is not scaled by mean v; the mentor takes 500 Adam steps on a table of the
trusted examples instead of 30,000 on 100,000 rows. DD takes p = 0.7 and learns from d against the moving average
(released: 0.8, 0.6, 0.5 at 20, 40, 80 %, and d against one percentile of all).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sgoif.bench.methods.base import Detection
from sgoif.bench.methods.robust.training import History, RobustTrainer, with_trusted
from sgoif.bench.methods.robust.visits import VisitRecorder, candidate_scores, late_mean, measure
from sgoif.bench.methods.tasks import NoisyTask
from sgoif.errors import UserError
from sgoif.training.batches import Batch, Batches
from sgoif.training.seeds import mix_seed, torch_generator

BURN_IN, LATE = 18, 90  # percent of training between which PD is self-paced
UPDATES = (21, 75)  # percent of training at which DD's mentor is learned
DROPOUT = (0.5, 17, 0.05)  # share of weights zeroed before and after 17 percent
TIE = 1e-3  # weight of the loss in the score: below one epoch's share in the mean of v


class MentorNet(RobustTrainer):
    name = "mentornet"
    title = "MentorNet"
    group = "Methods of the paper"
    order = 4
    shown_variants: ClassVar = {
        "data_driven": {
            "title": "MentorNet, data-driven †",
            "group": "Given all clean labels that were set aside",
            "order": 1,
            "ranked": False,
        },
        "given": {
            "title": "MentorNet, noise rate given",
            "group": "Told the noise rate",
            "order": 2,
            "ranked": False,
        },
    }
    candidates: ClassVar = {
        "weight": "one minus the mean weight that the mentor gave after burn-in, ties broken by the loss",
        **RobustTrainer.candidates,
    }
    ranked_by = "last_loss"
    uses_trusted = True  # by the data-driven mentor alone
    told_noise = True  # used if `percentile` is null

    @dataclass(frozen=True)
    class Params:
        mentor: str = "predefined"  # or "data_driven"
        percentile: float | None = 0.7  # p; None: by the noise rate that is told
        decay: float = 0.5  # ρ
        gamma: float = 1.0  # γ
        flips: float = 0.4  # data-driven: share of the trusted labels that is flipped
        mentor_steps: int = 500  # data-driven: Adam steps each time the mentor is learned

    def __init__(self, **params):
        super().__init__(**params)
        p = self.params
        self.need(p.mentor in ("predefined", "data_driven"), "mentor", 'must be "predefined" or "data_driven"')
        self.need(p.percentile is None or 0 < p.percentile < 1, "percentile", "a share in (0, 1) or null")
        self.need(0 <= p.decay < 1, "decay", "must be in [0, 1)")
        self.need(p.gamma > 0, "gamma", "must be above 0")
        self.need(0 < p.flips < 1, "flips", "a share in (0, 1)")
        self.need(p.mentor_steps >= 1, "mentor_steps", "must be at least 1")

    # --- formulas -----------------------------------------------------------------------------------------------------

    @staticmethod
    def moving_percentile(average: Tensor, losses: Tensor, percentile: float, decay: float) -> Tensor:
        """The percentile is the nearest loss: `torch.quantile` by "nearest", with its place known before its value."""
        place = int(np.rint(np.float32(percentile) * np.float32(len(losses) - 1)))
        return decay * average + (1 - decay) * losses.sort().values[place]

    @staticmethod
    def released_percentile(noise_rate: float) -> float:
        """p of the released commands: 0.75 up to 40 % noise, 0.5 from 80 % on."""
        return float(np.interp(noise_rate, [0.4, 0.8], [0.75, 0.5]))

    @staticmethod
    def predefined(difference: Tensor, percent: Tensor | int, gamma: float = 1.0) -> Tensor:
        """PD's weights [n] from d [n]."""
        percent = torch.as_tensor(percent, device=difference.device)
        late = torch.where(percent < LATE, (difference <= 0).float(), (1 - difference / gamma).clamp(0, 1))
        return torch.where(percent <= BURN_IN, torch.ones_like(late), late)

    @staticmethod
    def dropped(n: int, percent: int) -> Tensor:
        """Example dropout: [n] bool, all but ⌊(1 - rate) n⌋ at random."""
        rate = DROPOUT[0] if percent < DROPOUT[1] else DROPOUT[2]
        kept = torch.randperm(n)[: int(n * (1 - rate))]
        return torch.ones(n, dtype=torch.bool).index_fill(0, kept, False)

    # --- training -----------------------------------------------------------------------------------------------------

    def detect(self, task: NoisyTask) -> Detection:
        p, session = self.params, task.session
        learned = p.mentor == "data_driven"
        batches, trusted_is_right = self._with_trusted(task) if learned else (task.batches(), None)
        student, history = task.learner(batches), History()
        percentile = p.percentile or self.released_percentile(task.noise_facts(self.name).rate)
        mentor = Mentor(replace(p, percentile=percentile), task.seed, task.labels.device)
        n, device = len(task.labels), task.labels.device
        recorder = VisitRecorder(n if trusted_is_right is None else n + len(trusted_is_right), device)

        def forward(batch: Batch) -> tuple[Tensor, ...]:
            percent, dropped = batch.extra
            logits = student(batch.x)
            losses = F.cross_entropy(logits, batch.labels, reduction="none")
            weights = mentor.weigh(losses.detach(), percent, learning=True)
            loss = (weights.masked_fill(dropped, 0.0) * losses).mean()
            return loss, losses, weights, measure(logits, batch.labels)

        step, start = student.stepper(forward), UPDATES[0] if learned else BURN_IN
        for epoch in session.epochs(task.recipe.epochs, student, mentor, history, recorder):
            given = torch.full((len(batches.labels),), torch.nan, device=device)
            for batch in batches.epoch(epoch):
                percent = min(100 * student.steps_done // student.total_steps, 99)
                if learned:
                    mentor.learn_if_due(percent)
                dropped = self.dropped(len(batch.labels), percent)
                _, losses, weights, measured = step(batch.with_extra(torch.tensor(percent), dropped))
                recorder.add(batch.index, measured)
                if percent > start:
                    given.index_copy_(0, batch.index, weights)
                if learned:
                    mentor.watch(batch.index - n, losses, percent, trusted_is_right)
            recorder.end_epoch()
            history.add(weight=given[:n])
        with session.timer("score"):
            test_logits, _ = task.predict(student.net, task.test)
            losses = F.cross_entropy(task.predict(student.net)[0], task.labels, reduction="none")
        visits = recorder.visits().first(n)
        weights = torch.from_numpy(history.stack("weight"))
        after = weights.isfinite()
        late_loss = late_mean(torch.where(after, visits.losses, torch.nan) if after.any() else visits.losses)
        scores = {
            "weight": 1
            - late_mean(weights if after.any() else torch.ones_like(weights))
            + TIE * late_loss / (1 + late_loss),
            "last_loss": losses.cpu().numpy(),
            **candidate_scores(visits),
        }
        mean_weight = weights.nan_to_num(0.0).sum(1) / after.sum(1)
        return self.detection(
            scores,
            test_logits=test_logits.cpu().numpy(),
            extras={"trusted_labels": float(len(trusted_is_right)) if learned else 0.0, "percentile": percentile},
            curves={"mean_weight": mean_weight.nan_to_num(1.0).tolist()},
        )

    def _with_trusted(self, task: NoisyTask) -> tuple[Batches, Tensor]:
        """Batches of the training set followed by the trusted images, some mislabelled; which of these are right."""
        if task.trusted is None:
            raise UserError('params.mentornet.mentor: "data_driven" needs trusted labels, and this task has none')
        images, clean = task.trusted
        g = torch_generator(task.seed, "flips")
        flip = torch.rand(len(clean), generator=g) < self.params.flips
        other = torch.randint(1, task.n_classes, (len(clean),), generator=g)
        labels = torch.where(flip, (clean.cpu() + other) % task.n_classes, clean.cpu())
        return with_trusted(task, images, labels), (~flip).to(task.labels.device)


class Mentor:
    """The moving percentile, the learned mentor if there is one, and the table it learns from. Resumable state.

    What a captured step reads (`average`, `clock`, the weights of `net`) changes in place.
    """

    def __init__(self, params: MentorNet.Params, seed: int, device):
        self.params, self.seed, self.device = params, seed, device
        self.average = torch.zeros((), device=device)
        self.net, self.learned_at = MentorModel(seed).to(device), -1
        self.clock = torch.tensor(-1, device=device)  # the last percent of which the mentor has learned; -1: none
        self.table = torch.empty(0, 4, device=device)  # loss, difference, percent, label is right

    @torch.no_grad()
    def weigh(self, losses: Tensor, percent: Tensor | int, learning: bool = False) -> Tensor:
        """v [n]; `learning` moves the percentile."""
        p = self.params
        if learning:
            self.average.copy_(MentorNet.moving_percentile(self.average, losses, p.percentile, p.decay))
        difference = losses - self.average
        if p.mentor == "predefined":
            return MentorNet.predefined(difference, percent, p.gamma)
        percent = torch.as_tensor(percent, device=losses.device).minimum(self.clock)
        weights = self.net(losses, difference, percent.expand(losses.shape)).sigmoid()
        return torch.where(self.clock < 0, torch.ones_like(weights), weights)

    def watch(self, position: Tensor, losses: Tensor, percent: int, is_right: Tensor) -> None:
        """Write down the trusted examples of a minibatch (those with `position` >= 0)."""
        mine = position >= 0
        rows = [losses, losses - self.average, torch.full_like(losses, percent)]
        right = is_right[position.clamp(min=0)].float()
        self.table = torch.cat([self.table, torch.stack([*rows, right], 1)[mine]])

    def learn_if_due(self, percent: int) -> None:
        """A new mentor at each of UPDATES, from the table since the one before."""
        due = max((u for u in UPDATES if u <= percent), default=None)
        if due is None or self.learned_at >= due or len(self.table) == 0:
            return
        net = MentorModel(self.seed).to(self.device)
        net.learn(self.table, self.params.mentor_steps, self.seed)
        self.net.load_state_dict(net.state_dict())
        self.clock.copy_(self.table[-1, 2])
        self.learned_at, self.table = due, self.table[:0]

    def state_dict(self) -> dict:
        state = {name: getattr(self, name) for name in ("average", "learned_at", "clock", "table")}
        return {**state, "net": self.net.state_dict()}

    def load_state_dict(self, state: dict) -> None:
        self.average.copy_(state["average"])
        self.clock.copy_(state["clock"])
        self.learned_at, self.table = state["learned_at"], state["table"].to(self.device)
        self.net.load_state_dict(state["net"])


class MentorModel(nn.Module):
    """The published mentor: a bidirectional LSTM (one unit each way) over (ℓ, d), label and epoch embeddings, 20 tanh.

    Its label input is always 0, and the epoch embedding is random and fixed.
    """

    def __init__(self, seed: int):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(mix_seed(seed, "mentor"))
            self.lstm = nn.LSTM(2, 1, bidirectional=True, batch_first=True)
            self.label, self.epoch = nn.Embedding(2, 2), nn.Embedding(100, 5)
            self.hidden, self.out = nn.Linear(2 + 2 + 5, 20), nn.Linear(20, 1)
        self.epoch.weight.requires_grad_(False)

    def forward(self, losses: Tensor, difference: Tensor, percent: Tensor) -> Tensor:
        """Logits of v [n]."""
        _, (_, state) = self.lstm(torch.stack([losses, difference], 1)[:, None])
        percent = percent.long().clamp(0, 99)
        features = torch.cat([*state, self.label(torch.zeros_like(percent)), self.epoch(percent)], 1)
        return self.out(self.hidden(features).tanh()).squeeze(1)

    def learn(self, table: Tensor, steps: int, seed: int, batch_size: int = 32) -> None:
        """Binary cross-entropy on rows (loss, difference, percent, label is right)."""
        optimizer = torch.optim.Adam((w for w in self.parameters() if w.requires_grad), lr=0.1)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.01 ** (1 / steps))
        g = torch_generator(seed, "mentor-batches")
        picks = torch.randint(0, len(table), (steps, min(batch_size, len(table))), generator=g).to(table.device)
        for pick in picks:
            loss, difference, percent, right = table[pick].unbind(1)
            F.binary_cross_entropy_with_logits(self(loss, difference, percent), right).backward()
            nn.utils.clip_grad_norm_(self.parameters(), 5.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            schedule.step()
