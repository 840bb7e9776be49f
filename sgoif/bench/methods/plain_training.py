"""Trains the shared plain run and records what methods read from it (`sgoif.bench.methods.plain_run`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif.backend.collectives import size, sum_
from sgoif.bench.methods.base import OODTask, Task
from sgoif.bench.methods.plain_run import margins
from sgoif.training import distributed
from sgoif.training.batches import Batch
from sgoif.training.images import ImageSource
from sgoif.training.learner import Learner
from sgoif.training.models import Network
from sgoif.training.predict import predict
from sgoif.training.session import save_torch


class _EpochRecord:
    """Margins, learning rates and losses of the epochs so far; part of the resumable state."""

    def __init__(self) -> None:
        self.margins: list[Tensor] = []
        self.rates: list[float] = []
        self.losses: list[float] = []

    def state_dict(self) -> dict[str, Any]:
        return {"margins": self.margins, "rates": self.rates, "losses": self.losses}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.margins = [t.cpu() for t in state["margins"]]
        self.rates = state["rates"]
        self.losses = state["losses"]


def plain_run(task: Task, test: ImageSource, directory: Path) -> tuple[dict[str, np.ndarray], dict[str, list[float]]]:
    """Train ordinarily on a task, and keep checkpoints.

    Args:
        task: Data and recipe.
        test: Test images.
        directory: Folder whose `checkpoints/` receives the networks.

    Returns:
        The arrays that `PlainRun` reads: `epoch_lr` [E], `margins` [E, N] with NaN where an example was not seen in an
        epoch, `test_logits` [M, K] and, unless `recipe.record` is nothing, `logits` [N, K] and `features` [N, d]
        (float32 for OOD detection, else float16); and the curves of loss and learning rate.
    """
    recipe, session = task.recipe, task.session
    batches = task.batches()
    learner = Learner.for_batches(recipe, task.n_classes, batches, task.seed)

    def forward(batch: Batch) -> tuple[Tensor, Tensor]:
        logits = learner(batch.x)
        return F.cross_entropy(logits, batch.labels), margins(logits.detach(), batch.labels)

    step = learner.stepper(forward)
    record = _EpochRecord()
    kept_epochs = set(recipe.checkpoint_epochs())
    for epoch in session.epochs(recipe.epochs, learner, record):
        rates, total = [], torch.zeros((), device=session.device)
        seen = torch.zeros(2, len(task.train), device=session.device)  # margins, visits
        for batch in batches.epoch(epoch):
            rates.append(learner.lr)
            loss, margin = step(batch)
            total += loss
            seen.index_copy_(1, batch.index, torch.stack([margin, torch.ones_like(margin)]))
        with session.timer("record"):
            sum_(seen)
            record.margins.append(torch.where(seen[1] > 0, seen[0], torch.nan).half().cpu())
            record.rates.append(float(np.mean(rates)))
            record.losses.append(distributed.sum_over_processes(float(total)) / size() / batches.steps)
            if epoch in kept_epochs and distributed.is_main_process():
                save_checkpoint(learner.net, directory / "checkpoints" / f"epoch{epoch}.pt")
    arrays = {"epoch_lr": np.array(record.rates), "margins": torch.stack(record.margins).numpy()}
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
