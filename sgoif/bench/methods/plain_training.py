"""Trains ordinarily, and records what methods read from the shared plain run (`sgoif.bench.methods.plain_run`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif.backend.collectives import size
from sgoif.bench.methods.robust.visits import FIELDS, VisitRecorder, measure
from sgoif.bench.methods.tasks import Indices, OODTask, Task
from sgoif.training import distributed
from sgoif.training.batches import Batch
from sgoif.training.images import ImageSource
from sgoif.training.learner import Learner
from sgoif.training.models import Network
from sgoif.training.predict import predict
from sgoif.training.session import save_torch


class _EpochRecord:
    """Learning rates and mean losses of the epochs so far; part of the resumable state."""

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.losses: list[float] = []

    def state_dict(self) -> dict[str, Any]:
        return {"rates": self.rates, "losses": self.losses}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rates = state["rates"]
        self.losses = state["losses"]


def _delete_other_checkpoints(folder: Path, kept: set[str]) -> None:
    """Delete networks of another recipe, and their seals, which nothing would write again."""
    for path in folder.glob("*"):
        if path.name.removeprefix(".").removesuffix(".sha256") not in kept:
            path.unlink()


def plain_run(task: Task, test: ImageSource, directory: Path) -> tuple[dict[str, np.ndarray], dict[str, list[float]]]:
    """Train ordinarily on a task, and keep checkpoints.

    Args:
        task: Data and recipe.
        test: Test images.
        directory: Folder whose `checkpoints/` receives the networks.

    Returns:
        The arrays that `PlainRun` reads: `epoch_lr` [E]; `margins`, `losses` and `errors` [E, N] with NaN where an
        example was not seen in an epoch; `test_logits` [M, K] and, unless `recipe.record` is nothing, `logits` [N, K]
        and `features` [N, d] (float32 for OOD detection, else float16); and the curves of loss and learning rate.
    """
    recipe, session = task.recipe, task.session
    batches = task.batches()
    learner = Learner.for_batches(recipe, task.n_classes, batches, task.seed)

    def forward(batch: Batch) -> tuple[Tensor, Tensor]:
        logits = learner(batch.x)
        return F.cross_entropy(logits, batch.labels), measure(logits, batch.labels)

    step = learner.stepper(forward)
    record, recorder = _EpochRecord(), VisitRecorder(len(task.train), session.device)
    kept_epochs = set(recipe.checkpoint_epochs())
    if distributed.is_main_process():
        _delete_other_checkpoints(directory / "checkpoints", {f"epoch{epoch}.pt" for epoch in kept_epochs})
    for epoch in session.epochs(recipe.epochs, learner, record, recorder):
        rates, total = [], torch.zeros((), device=session.device)
        for batch in batches.epoch(epoch):
            rates.append(learner.lr)
            loss, measured = step(batch)
            total += loss
            recorder.add(batch.index, measured)
        with session.timer("record"):
            recorder.end_epoch()
            record.rates.append(float(np.mean(rates)))
            record.losses.append(distributed.sum_over_processes(float(total)) / size() / batches.steps)
            if epoch in kept_epochs and distributed.is_main_process():
                save_checkpoint(learner.net, directory / "checkpoints" / f"epoch{epoch}.pt")
    arrays = {"epoch_lr": np.array(record.rates)}
    arrays |= dict(zip(FIELDS, torch.stack(recorder.epochs, 1).numpy(), strict=True))
    with session.timer("record"):
        arrays["test_logits"] = predict(learner.net, test)[0].cpu().numpy()
        if recipe.record != "nothing":
            logits, features = predict(learner.net, task.train, features=True)
            assert features is not None
            precision = torch.float32 if isinstance(task, OODTask) else torch.float16  # OOD scores feel rounding
            arrays["logits"] = logits.to(precision).cpu().numpy()
            arrays["features"] = features.to(precision).cpu().numpy()
    return arrays, {"loss": record.losses, "lr": record.rates}


def save_checkpoint(net: Network, path: Path) -> None:
    """Write the weights of a network, sealed."""
    save_torch(path, {k: v.cpu() for k, v in net.state_dict().items()})


def train_plainly(
    task: Task,
    indices: Indices | None = None,
    phase: str = "train",
    timer: str = "train",
    seed: int | None = None,
    class_weights: Tensor | None = None,
    **changes: Any,
) -> Learner:
    """Train ordinarily for as many steps as the recipe takes on all examples.

    Args:
        task: Data and recipe.
        indices: Positions in the training set that are used, shape [n]; default all.
        phase: Name of the resumable state in the session.
        timer: Name of the timer that the seconds are added to.
        seed: Default the task's.
        class_weights: Weights of the classes in the cross-entropy, shape [K]; default equal ones.
        **changes: Fields of the recipe that are replaced.

    Returns:
        The trained learner.
    """
    total_steps = task.batches().steps * task.recipe.epochs
    batches = task.batches(indices, seed=seed)
    epochs = max(round(total_steps / batches.steps), 1)  # the same number of steps, however few examples are left
    learner = task.learner(batches, seed=seed, epochs=epochs, **changes)
    weights = None if class_weights is None else class_weights.to(task.labels.device)
    step = learner.stepper(lambda batch: (F.cross_entropy(learner(batch.x), batch.labels, weights),))
    for epoch in task.session.epochs(epochs, learner, phase=phase, timer=timer):
        for batch in batches.epoch(epoch):
            step(batch)
    return learner
