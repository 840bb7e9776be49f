"""DivideMix. Li, Socher & Hoi, ICLR 2020 (arXiv:2002.07394).

Two networks train on everything for a while. Then, before every epoch, a mixture of two Gaussians is fitted to the
losses of each network (normalised to [0, 1]), and w_i is the posterior of the component with the smaller mean. The
*other* network takes the examples with w_i > 0.5 as labelled (X), the rest as unlabelled (U), and trains by MixMatch on
two augmented views of each:

    x:  y_i <- sharpen( w_i y_i + (1 - w_i) p_i ),   p_i the network's own mean over both views
    u:  q_i <- sharpen( mean of both networks over both views ),        sharpen(p)_k ~ p_k^(1/T),  T = 0.5
    all views are mixed with a random partner, lambda' = max(lambda, 1 - lambda), lambda ~ Beta(4, 4)
    L = CE(x) + lambda_u ramp(t) mean (p - q)^2 (u) + sum_k 1/K log( (1/K) / mean p_k )

Official code: github.com/LiJunnan1992/DivideMix (`Train_cifar.py`): alpha 4, T 0.5, lambda_u with a linear ramp over
16 of 300 epochs, warm-up 10 of 300 (CIFAR-100: 30), sklearn's mixture with 10 steps and covariance floor 5e-4;
asymmetric noise, of which the program is told, adds the mean negative entropy to the loss of the warm-up. lambda_u is
not the program's 25 everywhere. The paper's Table 7 has one for each noise: on CIFAR-10 0 for 20% and for asymmetric
noise and 25 for 50%, on CIFAR-100 25 for 20% and 150 for more. Here the border lies half-way, at 35%.

DivideMix was published as a trainer. Candidates: one minus the mean of w by both networks over the last half of
training, and losses, margins and probabilities of both networks over its passes, which the mixtures need anyway.
Yielded model: the sum of both networks' logits, as published. Cost: 6 plain runs.
Deviations: optimiser, schedule and augmentation are the recipe's; a warm-up of a quarter of the recipe instead of 3 %,
since a short recipe has learned nothing by then; an epoch has the recipe's number of steps, whatever the size of X, so
that the schedule of the learning rate ends; half a batch each of X and U: the mixed batch is twice the recipe's.
An epoch in which X or U has fewer than two examples is one of warm-up. lambda_u is constant within an epoch (released:
it rises within it, too).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif.bench.methods.base import Detection, NoisyLabelDetector
from sgoif.bench.methods.robust.losses import MANY_CLASSES
from sgoif.bench.methods.robust.peer_networks import Peers
from sgoif.bench.methods.robust.training import History
from sgoif.bench.methods.robust.visits import VisitRecorder, candidate_scores, in_window, late_mean, measure
from sgoif.bench.methods.score_threshold import at_most
from sgoif.bench.methods.tasks import NoiseFacts, NoisyTask
from sgoif.training.batches import Batch, Batches
from sgoif.training.cost.compute_counter import COMPUTE
from sgoif.training.learner import Learner
from sgoif.training.seeds import mix_seed, numpy_generator

RAMP = 16 / 300  # share of the epochs in which the weight of the unlabelled rises
MUCH_NOISE = 0.35  # between 20% and 50%, for which weights are published


def published_weight(n_classes: int, noise: NoiseFacts) -> float:
    """lambda_u that the paper has for a number of classes and a noise, or for the nearest ones that it has."""
    if n_classes >= MANY_CLASSES:
        return 150.0 if noise.rate > MUCH_NOISE else 25.0
    return 25.0 if noise.rate > MUCH_NOISE and noise.pattern == "symmetric" else 0.0


def clean_probability(losses: np.ndarray, seed: int) -> np.ndarray:
    """[N] posterior of the component with the smaller mean, of two Gaussians fitted to the normalised losses [N]."""
    from sklearn.mixture import GaussianMixture

    x = (losses - losses.min()) / max(losses.max() - losses.min(), 1e-12)
    mixture = GaussianMixture(n_components=2, max_iter=10, tol=1e-2, reg_covar=5e-4, random_state=seed % 2**32)
    posterior = mixture.fit(x[:, None]).predict_proba(x[:, None])
    return posterior[:, mixture.means_.argmin()]


def sharpen(p: Tensor, temperature: float) -> Tensor:
    """p_k^(1/T), normalised, [n, K]."""
    powered = p ** (1 / temperature)
    return powered / powered.sum(1, keepdim=True)


def semi_loss(logits: Tensor, targets: Tensor, labelled: int, weight: Tensor) -> Tensor:
    """The loss of a mixed batch whose first `labelled` rows are of X, for mixed targets [n, K]."""
    p = logits.softmax(1)
    supervised = -(logits[:labelled].log_softmax(1) * targets[:labelled]).sum(1).mean()
    unsupervised = (p[labelled:] - targets[labelled:]).square().mean()
    prior = 1 / logits.shape[1]
    penalty = (prior * torch.log(prior / p.mean(0))).sum()
    return supervised + weight * unsupervised + penalty


class DivideMix(NoisyLabelDetector):
    name = "dividemix"
    title = "DivideMix"
    group = "Later robust trainers"
    order = 5
    candidates: ClassVar = {
        "mixture": "one minus the mean posterior of the clean component over the last half of training",
        "window_loss": "mean cross-entropy of both networks over the passes of the last half of training",
        "window_margin": "minus the mean margin of both networks over these passes",
        "window_doubt": "one minus the mean probability of the label over these passes (geometric mean of both)",
    }
    ranked_by = "window_margin"
    told_noise = True  # used if `pattern` is "told" or `weight` is None

    @dataclass(frozen=True)
    class Params:
        alpha: float = 4.0  # of the Beta distribution
        temperature: float = 0.5  # T
        threshold: float = 0.5  # of w
        weight: float | None = None  # lambda_u; if None, as published for the noise, which is told
        warmup: float = 0.25  # share of the epochs
        pattern: str = "told"  # or "symmetric", "asymmetric": whether the warm-up is penalised for confidence

    def __init__(self, **params):
        super().__init__(**params)
        p = self.params
        self.need(p.alpha > 0, "alpha", "must be above 0")
        self.need(p.temperature > 0, "temperature", "must be above 0")
        self.need(0 < p.threshold < 1, "threshold", "a share in (0, 1)")
        self.need(p.weight is None or p.weight >= 0, "weight", "must not be negative")
        self.need(0 < p.warmup < 1, "warmup", "a share in (0, 1)")
        patterns = ("told", "symmetric", "asymmetric")
        self.need(p.pattern in patterns, "pattern", 'must be "told", "symmetric" or "asymmetric"')

    def detect(self, task: NoisyTask) -> Detection:
        p, session, epochs = self.params, task.session, task.recipe.epochs
        pattern = task.noise_facts(self.name).pattern if p.pattern == "told" else p.pattern
        full = published_weight(task.n_classes, task.noise_facts(self.name)) if p.weight is None else p.weight
        batches, n = task.batches(), len(task.labels)
        peers, history = Peers(task, batches), History()
        recorder, everything = VisitRecorder(n, task.labels.device), torch.arange(n, device=task.labels.device)
        warm = [_warm_stepper(learner, pattern == "asymmetric") for learner in (peers.first, peers.second)]
        mixed = [_mixed_stepper(learner) for learner in (peers.first, peers.second)]
        warm_epochs = max(round(p.warmup * epochs), 1)
        for epoch in session.epochs(epochs, peers, history, recorder):
            clean = history.arrays.get("second", [None])[-1], history.arrays.get("first", [None])[-1]
            for number in range(2):  # each network takes the other's division
                if epoch >= warm_epochs and divided(clean[number], p.threshold):
                    weight = full * float(np.clip((epoch - warm_epochs) / (RAMP * epochs), 0, 1))
                    self._mixmatch(task, peers, number, mixed[number], clean[number], epoch, weight)
                else:
                    for batch in batches.epoch(epoch):
                        warm[number](batch)
            with session.timer("score"):
                logits = peers.predict(task)
                for name, f in zip(("first", "second"), logits, strict=True):
                    losses = F.cross_entropy(f, task.labels, reduction="none").cpu().double().numpy()
                    found = clean_probability(losses, mix_seed(task.seed, name, epoch))
                    history.add(**{name: torch.from_numpy(found)})
            if in_window(epoch, epochs):
                recorder.add(everything, sum(measure(f, task.labels) for f in logits) / 2)
            recorder.end_epoch()
        with session.timer("score"):
            test_logits = sum(peers.predict(task, task.test))
        doubt = 1 - (history.stack("first") + history.stack("second")) / 2
        found = candidate_scores(recorder.visits())
        scores = {"mixture": late_mean(torch.from_numpy(doubt), 0.5)}
        scores |= {name: found[name] for name in ("window_loss", "window_margin", "window_doubt")}
        return self.detection(
            scores,
            test_logits=test_logits.cpu().numpy(),
            remove=at_most(doubt[-1] > 1 - p.threshold, doubt[-1]),
            extras={"labelled": float((doubt[-1] <= 1 - p.threshold).mean()), "weight": full},
        )

    def _mixmatch(self, task: NoisyTask, peers: Peers, number: int, step, clean: Tensor, epoch: int, weight: float):
        """One epoch of a network on the division `clean` [N] by the other one."""
        p, half = self.params, max(task.recipe.batch_size // 2, 1)
        labelled = clean > p.threshold
        own, other = (peers.first, peers.second) if number == 0 else (peers.second, peers.first)
        sets = [task.batches(part.nonzero().flatten(), batch_size=half) for part in (labelled, ~labelled)]
        seed = mix_seed(task.seed, "divide", number, epoch)
        x_batches, u_batches = (_forever(part, mix_seed(seed, i)) for i, part in enumerate(sets))
        rng, clean = numpy_generator(seed), clean.float().to(task.labels.device)
        for _ in range(task.batches().steps):
            x, u = next(x_batches), next(u_batches)
            views = [x, other_view(x, rng), u, other_view(u, rng)]
            targets = self._targets(own, other, views, clean[x.index])
            share = float(rng.beta(p.alpha, p.alpha))
            share = max(share, 1 - share)
            images = torch.cat([view.x for view in views])
            partner = torch.from_numpy(rng.permutation(len(images))).to(images.device)
            inputs = share * images + (1 - share) * images[partner]
            goal = share * targets + (1 - share) * targets[partner]
            x.extra = (
                inputs,
                goal,
                torch.zeros(2 * len(x.labels), device=images.device),
                torch.tensor(weight).to(images),
            )
            step(x)

    @torch.no_grad()
    def _targets(self, own: Learner, other: Learner, views: list[Batch], clean: Tensor) -> Tensor:
        """[n, K] targets of the views: refined labels of X twice, guessed ones of U twice."""
        x, x2, u, u2 = views
        k, t = own.net.head.out_features, self.params.temperature
        mine = (probabilities(own, x.x, True) + probabilities(own, x2.x, True)) / 2
        refined = clean[:, None] * F.one_hot(x.labels, k) + (1 - clean[:, None]) * mine
        guess = [probabilities(net, view.x, net is own) for net in (own, other) for view in (u, u2)]
        x_targets, u_targets = sharpen(refined, t), sharpen(sum(guess) / 4, t)
        return torch.cat([x_targets, x_targets, u_targets, u_targets])


def divided(clean: Tensor | None, threshold: float) -> bool:
    """Whether a division [N] leaves something on either side."""
    return clean is not None and 2 <= int((clean > threshold).sum()) <= len(clean) - 2


def probabilities(learner: Learner, x: Tensor, training: bool) -> Tensor:
    """[n, K] of images, in training or eval mode."""
    COMPUTE.forward_passes += len(x)
    learner.net.train(training)
    with learner.forward_context():
        p = learner.net(x).float().softmax(1)
    learner.net.train()
    return p


def other_view(batch: Batch, rng: np.random.Generator) -> Batch:
    """The same images, shifted and flipped anew."""
    shift = flip = None
    if batch.shift is not None:
        shift = torch.from_numpy(rng.integers(0, 2 * batch.pad + 1, batch.shift.shape)).to(batch.shift)
    if batch.flip is not None:
        flip = torch.from_numpy(rng.random(len(batch.flip)) < 0.5).to(batch.flip)
    return replace(batch, shift=shift, flip=flip)


def _warm_stepper(learner: Learner, penalised: bool):
    """A step of cross-entropy, with the mean negative entropy added for asymmetric noise."""

    def forward(batch: Batch) -> tuple[Tensor]:
        logits = learner(batch.x)
        loss = F.cross_entropy(logits, batch.labels)
        if penalised:
            log_p = logits.log_softmax(1)
            loss = loss + (log_p.exp() * log_p).sum(1).mean()
        return (loss,)

    return learner.stepper(forward)


def _mixed_stepper(learner: Learner):
    """A step on mixed images and targets, which the batch carries; a tensor tells how many rows are of X."""

    def forward(batch: Batch) -> tuple[Tensor]:
        inputs, targets, labelled, weight = batch.extra
        return (semi_loss(learner(inputs), targets, len(labelled), weight),)

    return learner.stepper(forward)


def _forever(batches: Batches, seed: int) -> Iterator[Batch]:
    """Minibatches without end, a function of the seed alone."""
    for lap in range(10**6):
        yield from batches.epoch(mix_seed(seed, lap))
