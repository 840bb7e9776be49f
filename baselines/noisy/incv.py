"""INCV, iterative noisy cross-validation. Chen, Liao, Chen & Zhang, ICML 2019 (arXiv:1905.05040).

Stage 1 finds a cleaner subset. With selected S = ∅ and candidates C = everything, four times:
split C at random into halves; for either half, train afresh (always from the same initial weights) on S and that half,
and predict the other one, H. What is predicted as labelled is selected; the worst of H is discarded for good:

    selected  = { i ∈ H : argmax f(x_i) = y_i }
    discarded = the ⌊r · |selected|⌋ largest CE(f(x_i), y_i) in H,     r = min(2, ε / (1 - ε))   (symmetric noise only)

The noise rate ε is solved for once, from the first half that is predicted (grid of 0.001):

    (1 - ε)² + ε² / (K - 1) = share of H that is selected

While the noise is low enough for a network to overfit late (all four iterations for ε ≤ 0.3, two for ε ≤ 0.6, else
one), the epoch with the best *noisy* held-out accuracy predicts; later the last epoch does.

Stage 2 is Co-teaching on S, whose own noise rate is ε_S = ε² / (ε² + c (1 - ε)²), c = K - 1 (asymmetric: 1). Of every
minibatch each network picks n = round(B (1 - ε_S min(1, e / T_k))) small-loss examples, in eval mode, for the other.
After e_warm epochs up to B/2 remaining candidates join the minibatch; still only n are used.

The released program is told whether the noise is symmetric or asymmetric (`pattern: told`): with asymmetric noise
nothing is discarded, c = 1 and e_warm is twice as long. Here class-conditional noise of sparsity 0 counts as symmetric,
and everything else that is not (sparse matrices, superclasses, human labels) as asymmetric.

Candidates. `selection`, from the last time i was held out, and in the order selected < still a candidate < discarded:

    s_i = CE(f_oof(x_i), y_i) + rank(i) · (1 + max_j CE_j),   rank = 0, 1, 2          `oof_loss`: CE alone

`stage2_loss` and `stage2_margin`: means of both networks over four passes, evenly spaced over the last half of stage 2.
Official code: github.com/chenpf1025/noisy_label_understanding_utilizing (`INCV_main.py`).

`remove` is everything not selected (the published detection set). Yielded model: the first network of stage 2.
Cost: 4 x 2 fits of a quarter of the recipe's steps = 2, plus two networks with a selection pass, about 2.7: 4.7 plain
runs (published fits count epochs of their smaller sets instead, about 1.4).
Deviations: optimiser, schedule and augmentation are the recipe's; either stage counts the recipe's *steps*, however
small its set is, as when a detector's suspects are removed, since half of a short recipe teaches nothing (and no
fit is shorter than `least_steps`); a discard
count of 0 discards nothing (in the released code the slice [-0:] would discard the whole half).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif.bench.methods.base import Detection, NoisyLabelDetector
from sgoif.bench.methods.robust.peer_networks import Peers, exchange
from sgoif.bench.methods.robust.visits import VisitRecorder, measure
from sgoif.bench.methods.tasks import NoisyTask
from sgoif.training.batches import Batch, Batches
from sgoif.training.seeds import mix_seed, numpy_generator

PASSES = 4  # over the training images, in the last half of stage 2


class INCV(NoisyLabelDetector):
    name = "incv"
    title = "INCV"
    group = "Methods of the paper"
    order = 1
    candidates: ClassVar = {
        "selection": "held-out cross-entropy in the order selected, candidate, discarded",
        "oof_loss": "held-out cross-entropy alone",
        "stage2_loss": "mean cross-entropy of both networks over passes in the last half of stage 2",
        "stage2_margin": "minus the mean margin of both networks over these passes",
    }
    ranked_by = "selection"
    told_noise = True  # used if `pattern` is "told"

    @dataclass(frozen=True)
    class Params:
        iterations: int = 4
        fit: float = (
            0.25  # length of one fit of stage 1, as a share of the recipe's steps (published: 50 of 200 epochs)
        )
        least_steps: int = 32  # … but no fit is shorter than this, unless the recipe is (published fits: 9,750 steps)
        pattern: str = "told"  # or "symmetric", "asymmetric": what is assumed of the noise
        ramp: float = 0.05  # T_k of stage 2 as a share of its epochs (published: 10 of 200)

    def __init__(self, **params):
        super().__init__(**params)
        p = self.params
        self.need(p.iterations >= 1, "iterations", "must be at least 1")
        self.need(0 < p.fit <= 1, "fit", "a share in (0, 1]")
        self.need(p.least_steps >= 1, "least_steps", "must be at least 1")
        self.need(0 < p.ramp <= 1, "ramp", "a share in (0, 1]")
        patterns = ("told", "symmetric", "asymmetric")
        self.need(p.pattern in patterns, "pattern", 'must be "told", "symmetric" or "asymmetric"')

    # --- formulas -----------------------------------------------------------------------------------------------------

    @staticmethod
    def noise_rate(agreement: float, n_classes: int) -> float:
        """The smallest ε = 0.001, 0.002, … with (1-ε)² + ε²/(K-1) ≤ agreement; (K-1)/K where there is none."""
        grid = np.arange(1, 1000) / 1000
        solved = (1 - grid) ** 2 + grid**2 / (n_classes - 1) <= agreement
        return float(grid[solved.argmax()]) if solved.any() else (n_classes - 1) / n_classes

    @staticmethod
    def discard(losses: np.ndarray, n_selected: int, noise_rate: float) -> np.ndarray:
        """Positions of the ⌊r · n_selected⌋ largest losses, r = min(2, ε / (1 - ε))."""
        count = int(min(2.0, noise_rate / (1 - noise_rate)) * n_selected)
        return np.argsort(-losses, kind="stable")[:count]

    @staticmethod
    def noise_of_selected(noise_rate: float, constant: int) -> float:
        """ε_S, with `constant` c = K - 1 or 1."""
        return noise_rate**2 / (noise_rate**2 + constant * (1 - noise_rate) ** 2)

    def by_best_epoch(self, iteration: int, noise_rate: float) -> bool:
        """Whether iteration 0, 1, … predicts with its best instead of its last epoch."""
        if self.params.pattern == "asymmetric" or noise_rate > 0.6:
            return iteration < 1
        return iteration < (2 if noise_rate > 0.3 else 4)

    # --- stages -------------------------------------------------------------------------------------------------------

    def detect(self, task: NoisyTask) -> Detection:
        if self.params.pattern == "told":
            told = {**asdict(self.params), "pattern": task.noise_facts(self.name).pattern}
            return INCV(score=self.score_name, **told).detect(task)
        y = task.labels.cpu().numpy()
        selected, discarded = np.zeros(len(y), dtype=bool), np.zeros(len(y), dtype=bool)
        losses, rate = np.zeros(len(y)), 0.0
        for iteration in range(self.params.iterations):
            candidates = np.flatnonzero(~selected & ~discarded)
            if len(candidates) < 2:
                break
            shuffled = numpy_generator(task.seed, "incv", iteration).permutation(candidates)
            halves = np.split(shuffled, [len(shuffled) // 2])
            chosen, worst = [], []
            for number, (seen, held) in enumerate(((halves[0], halves[1]), (halves[1], halves[0]))):
                train = np.concatenate([np.flatnonzero(selected), seen])
                best = self.by_best_epoch(iteration, rate)
                logits = self._held_out(task, train, held, best, f"incv-{iteration}-{number}")
                agree = logits.argmax(1) == y[held]
                losses[held] = F.cross_entropy(torch.from_numpy(logits), task.labels.cpu()[held], reduction="none")
                if iteration == 0 and number == 0:
                    rate = self.noise_rate(agree.mean(), task.n_classes)
                chosen.append(held[agree])
                worst.append(held[self.discard(losses[held], agree.sum(), rate)])
            selected[np.concatenate(chosen)] = True
            if self.params.pattern == "symmetric":
                discarded[np.concatenate(worst)] = True
                discarded &= ~selected
        recorder = VisitRecorder(len(y), task.labels.device)
        peers = self._second_stage(task, selected, ~selected & ~discarded, rate, recorder)
        with task.session.timer("score"):
            test_logits, _ = task.predict(peers.first.net, task.test)
        rank, visits = np.where(selected, 0, np.where(discarded, 2, 1)), recorder.visits()
        scores = {
            "selection": losses + rank * (1 + losses.max()),
            "oof_loss": losses,
            "stage2_loss": visits.mean_loss(),
            "stage2_margin": visits.mean_margin(),
        }
        return self.detection(
            scores,
            test_logits=test_logits.cpu().numpy(),
            remove=~selected,
            extras={"noise_rate": rate, "selected": float(selected.mean()), "discarded": float(discarded.mean())},
        )

    def _held_out(self, task: NoisyTask, train: np.ndarray, held: np.ndarray, best: bool, phase: str) -> np.ndarray:
        """Logits [|held|, K] of a network trained on `train`: of its best epoch by noisy accuracy, or its last."""

        def fit() -> dict[str, np.ndarray]:
            batches = task.batches(train, seed=mix_seed(task.seed, phase))
            epochs = _epochs(task, batches, self.params.fit, self.params.least_steps)
            learner, kept = task.learner(batches, epochs=epochs), _Best()
            step = learner.plain_stepper()
            for epoch in task.session.epochs(epochs, learner, kept, phase=phase):
                for batch in batches.epoch(epoch):
                    step(batch)
                if best or epoch + 1 == epochs:
                    with task.session.timer("score"):
                        logits, _ = task.predict(learner.net, indices=held)
                        accuracy = float((logits.argmax(1) == task.labels[torch.as_tensor(held)]).float().mean())
                        kept.offer(accuracy, logits)
            return {"logits": kept.logits.numpy()}

        return task.session.cached(phase, fit)["logits"]

    def _second_stage(
        self,
        task: NoisyTask,
        selected: np.ndarray,
        rest: np.ndarray,
        rate: float,
        recorder: VisitRecorder | None = None,
    ) -> Peers:
        """Train both networks; a recorder gets the training images as they see them in the last half."""
        p, size = self.params, task.recipe.batch_size
        batches = task.batches(np.flatnonzero(selected) if selected.any() else None)
        epochs = _epochs(task, batches)
        extra = min(int(rest.sum() * size / max(selected.sum(), 1)), size // 2)
        joining = task.batches(np.flatnonzero(rest), mix_seed(task.seed, "rest"), extra) if extra else None
        hard = p.pattern == "asymmetric" or rate > 0.6
        alone = (0.4 if hard else 0.2) * epochs  # e_warm: 80 or 40 of 200
        noise = self.noise_of_selected(rate, task.n_classes - 1 if p.pattern == "symmetric" else 1)
        # batch norm sees the chosen alone, so they cannot be a fixed shape with weights of 0 for the others
        peers = Peers(task, batches, epochs, sizes_vary=True)

        def forward(batch: Batch) -> tuple[Tensor, Tensor]:
            (places,) = batch.extra
            orders = exchange(*peers.eval_logits(batch.x), batch.labels)
            first, second = (order[places] for order in orders)
            return (
                F.cross_entropy(peers.first(batch.x[first]), batch.labels[first]),
                F.cross_entropy(peers.second(batch.x[second]), batch.labels[second]),
            )

        step = peers.stepper(forward)
        states = [peers] if recorder is None else [peers, recorder]
        passes = scored_epochs(epochs)
        for epoch in task.session.epochs(epochs, *states, phase="second-stage"):
            more = _forever(joining, epoch) if joining is not None and epoch > alone else None
            keep = round(batches.batch_size * (1 - noise * min(1.0, epoch / max(p.ramp * epochs, 1))))
            # its length is part of the shapes by which steps are captured, so each number kept has a graph of its own
            places = torch.arange(max(keep, 1), device=task.labels.device)
            for batch in batches.epoch(epoch):
                step((batch if more is None else batch.concatenate(next(more))).with_extra(places))
            if recorder is not None and epoch in passes:
                with task.session.timer("score"):
                    both = [measure(logits, task.labels) for logits in peers.predict(task)]
                    recorder.add(torch.arange(len(task.labels), device=task.labels.device), (both[0] + both[1]) / 2)
                    recorder.end_epoch()
        return peers


def scored_epochs(epochs: int) -> set[int]:
    """Epochs, counted from 0, after which the training images are scored: in the last half, the last too."""
    return {round(epochs * (0.5 + 0.5 * (i + 1) / PASSES)) - 1 for i in range(PASSES)}


class _Best:
    """The held-out logits with the best accuracy so far (the first of equals); resumable state."""

    def __init__(self):
        self.accuracy, self.logits = -1.0, torch.empty(0)

    def offer(self, accuracy: float, logits: Tensor) -> None:
        if accuracy > self.accuracy:
            self.accuracy, self.logits = accuracy, logits.cpu()

    def state_dict(self) -> dict:
        return {"accuracy": self.accuracy, "logits": self.logits}

    def load_state_dict(self, state: dict) -> None:
        self.accuracy, self.logits = state["accuracy"], state["logits"].cpu()


def _epochs(task: NoisyTask, batches: Batches, share: float = 1.0, least_steps: int = 1) -> int:
    """Epochs over `batches` that make `share` of the recipe's steps, or `least_steps` if more and within the recipe."""
    steps = task.recipe.epochs * task.batches().steps
    return max(round(max(share * steps, min(least_steps, steps)) / batches.steps), 1)


def _forever(batches: Batches, epoch: int) -> Iterator[Batch]:
    """Minibatches without end, a function of (seed, epoch) alone."""
    for lap in range(10**6):
        yield from batches.epoch(mix_seed(epoch, lap))
