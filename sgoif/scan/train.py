"""The training that is watched, and what it leaves: scores, the evidence behind them, and the state `explain` needs."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif import InfluenceResult, OnlineInfluence
from sgoif.errors import UserError
from sgoif.scan.network import build
from sgoif.scan.settings import Settings
from sgoif.training.images import Batch, Batches, ImageSet
from sgoif.training.learner import Diverged, Learner, predict, seeded_weights
from sgoif.training.models import Network
from sgoif.training.recipe import Recipe
from sgoif.training.session import Session


class Evidence:
    """Per example and anchor (class), sums over its visits in the score window of -w_v t_v <phi_v, g_i>: the part each
    anchor has in the score `[N, K]`; they add up to it."""

    def __init__(self, influence: OnlineInfluence):
        self.influence = influence
        device = influence.ledger.device
        self.anchors = torch.zeros(influence.n_examples, influence.parts.anchors.count, device=device)
        self.visits = torch.zeros(influence.n_examples, 1, device=device)

    def add(self, batch: Batch, features: Tensor, logits: Tensor) -> None:
        """To be called between a step's pass and `influence.step`, while the directions that score it still stand."""
        influence = self.influence
        if influence.steps < influence.ledger.window_start:
            return
        influence.lane.join()
        temperature = influence.temperature()
        factored = influence.capture.head_batch(features, logits, batch.index, batch.labels, temperature)
        weights = influence.parts.controller.weights()
        parts = -factored.inner(influence.parts.directions.phi.nan_to_num(0.0)) * weights
        valid = factored.valid.unsqueeze(1).float()
        self.anchors.index_add_(0, batch.index, parts.float() * valid)
        self.visits.index_add_(0, batch.index, valid)

    def read(self) -> np.ndarray:
        """Means over the visits `[N, K]`."""
        return (self.anchors / self.visits.clamp(min=1)).cpu().numpy()

    def state_dict(self) -> dict[str, Any]:
        return {"anchors": self.anchors, "visits": self.visits}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.anchors.copy_(state["anchors"])
        self.visits.copy_(state["visits"])


@dataclass
class Watched:
    """What a finished training leaves."""

    result: InfluenceResult
    anchors: np.ndarray  # [N, K]
    network: Network
    influence: OnlineInfluence
    features: Tensor  # [N, d] at the end of training
    logits: Tensor  # [N, C]


def recipe_of(settings: Settings) -> Recipe:
    said = {name: getattr(settings, name) for name in ("epochs", "batch_size", "optimizer", "lr", "weight_decay")}
    return Recipe(model="small_cnn", shift=settings.shift, flip=settings.flip, graph=False, **said)


def watch(images: ImageSet, given: np.ndarray, n_classes: int, settings: Settings, session: Session) -> Watched:
    """Train on the given labels and score them. Resumes where `session` has saved an epoch."""
    require_memory(len(images), n_classes)
    recipe = recipe_of(settings)
    labels = torch.from_numpy(given)
    batches = Batches(images, labels, settings.batch_size, settings.seed, shift=settings.shift, flip=settings.flip)
    with seeded_weights(settings.seed):
        network = build(
            settings.model, n_classes, settings.channels, settings.size, settings.width, settings.pretrained
        )
    learner = Learner.for_batches(recipe, n_classes, batches, settings.seed, network=network)
    influence = OnlineInfluence(learner.net, len(images), n_classes, total_steps=learner.total_steps)
    evidence = Evidence(influence)

    def forward(batch: Batch):
        logits, features = learner.forward(batch.x)
        return F.cross_entropy(logits, batch.labels), logits, features

    step, clock = learner.stepper(forward), Clock()
    try:
        for epoch in session.epochs(recipe.epochs, learner, influence, evidence):
            for batch in batches.epoch(epoch):
                _, logits, features = step(batch)
                influence.observe(batch.index, batch.labels, features, logits)
                evidence.add(batch, features, logits)
                influence.step(learner.optimizer)
                done = learner.steps_done / learner.total_steps
                session.say(f"training: epoch {epoch + 1}/{recipe.epochs}{clock.left(done)}", share=done)
            influence.end_epoch()
    except Diverged:
        raise UserError(f"the training diverged at --lr {settings.lr:g}; try a tenth of it, in another --out") from None
    except torch.OutOfMemoryError:
        raise UserError(
            f"out of GPU memory with batches of {settings.batch_size}; halve --batch-size or --size"
        ) from None
    logits, features = predict(learner.net, images, batch_size=256, features=True)
    return Watched(influence.scores(), evidence.read(), learner.net, influence, features, logits)


def require_memory(n: int, n_classes: int) -> None:
    """Evidence is kept per example and class; told before the training if it cannot fit."""
    import os

    need = 3 * 2 * 4 * n * n_classes  # anchors and beliefs in float32, and copies of both while a state is saved
    have = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    if need > have:
        raise UserError(
            f"{n} images of {n_classes} classes need about {need / 2**30:.1f} GiB of memory for their evidence, "
            f"{have / 2**30:.1f} GiB are free; scan a part of the classes at a time"
        )


class Clock:
    """Time left, from the share done since this process began."""

    def __init__(self) -> None:
        self.started, self.from_share = time.perf_counter(), None

    def left(self, share: float) -> str:
        if self.from_share is None:
            self.from_share = share
            return ""
        passed, gone = time.perf_counter() - self.started, share - self.from_share
        if passed < 2 or gone <= 0 or share >= 1:
            return ""
        return f", about {duration(passed * (1 - share) / gone)} left"


def duration(seconds: float) -> str:
    """12 s, 3 min, 1 h 20 min."""
    if seconds < 90:
        return f"{max(round(seconds), 1)} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
