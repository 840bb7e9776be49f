"""The shared plain run: ordinary training on the given labels, with everything post-hoc methods need written down."""

import pickle
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from sgoif.bench import processes
from sgoif.bench.errors import UserError
from sgoif.bench.files import load_npz
from sgoif.bench.images import ImageSource
from sgoif.bench.learner import Learner, predict
from sgoif.bench.models import Network, build
from sgoif.bench.recipe import Recipe
from sgoif.bench.session import save_torch
from sgoif.distributed import size


class NotRecorded(ValueError):
    """A method asks for what the recipe told the plain run not to keep; its cell ends as a typed failure."""


@dataclass
class PlainRun:
    """A finished plain run, read lazily from its cell folder."""

    directory: Path
    recipe: Recipe
    n_classes: int
    channels: int
    size: int
    device: torch.device

    def __post_init__(self):
        self._arrays = None

    def _array(self, name: str) -> Tensor:
        if self._arrays is None:
            self._arrays = load_npz(self.directory / "arrays.npz")
        return torch.from_numpy(self._arrays[name]).to(self.device).float()

    def _recorded(self, name: str, *enough: str) -> Tensor:
        if self.recipe.record not in enough:
            raise NotRecorded(f"the plain run wrote down no {name}: recipe.record is {self.recipe.record}")
        return self._array(name)

    @property
    def epoch_logits(self) -> Tensor:
        """[E, N, K] logits of every training image after every epoch (eval mode, no augmentation)."""
        return self._recorded("epoch_logits", "every_epoch")

    @property
    def logits(self) -> Tensor:
        """[N, K] those of the end."""
        return self._recorded("epoch_logits", "every_epoch", "end")[-1]

    @property
    def features(self) -> Tensor:
        """[N, d] penultimate features of the training images at the end."""
        return self._recorded("features", "every_epoch", "end")

    @property
    def test_logits(self) -> Tensor:
        return self._array("test_logits")

    @property
    def checkpoint_epochs(self) -> list[int]:
        return self.recipe.checkpoint_epochs()

    def learning_rate(self, epoch: int) -> float:
        """Mean learning rate of the epoch that ends in this checkpoint."""
        rates = self._array("epoch_lr")
        return float(rates[epoch])

    def network(self, epoch: int | None = None) -> Network:
        """The network as it was after `epoch` (default: the last), in eval mode."""
        epoch = self.checkpoint_epochs[-1] if epoch is None else epoch
        net = build(self.recipe.model, self.n_classes, self.channels, self.size)
        path = self.directory / "checkpoints" / f"epoch{epoch}.pt"
        try:
            net.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
        except (RuntimeError, pickle.UnpicklingError, EOFError, FileNotFoundError, TypeError) as e:
            raise UserError(f"{path} is not a checkpoint of this network ({type(e).__name__})") from None
        return net.to(self.device, memory_format=torch.channels_last).eval()


class _Record:
    """Per-epoch logits and learning rates, part of the resumable state."""

    def __init__(self):
        self.logits: list[Tensor] = []
        self.rates: list[float] = []
        self.losses: list[float] = []

    def state_dict(self):
        return {"logits": self.logits, "rates": self.rates, "losses": self.losses}

    def load_state_dict(self, state):
        self.logits, self.rates, self.losses = [t.cpu() for t in state["logits"]], state["rates"], state["losses"]


def plain_run(task, test: ImageSource, directory: Path) -> tuple[dict[str, np.ndarray], dict[str, list[float]]]:
    """Trains on `task`, keeps checkpoints in `directory`; returns the arrays and the per-epoch curves."""
    recipe, session = task.recipe, task.session
    batches = task.batches()
    learner = Learner.for_batches(recipe, task.n_classes, batches, task.seed)
    step = learner.plain_stepper()
    record = _Record()
    keep = set(recipe.checkpoint_epochs())
    for epoch in session.epochs(recipe.epochs, learner, record):
        rates, total = [], torch.zeros((), device=session.device)
        for batch in batches.epoch(epoch):
            rates.append(learner.lr)
            total += step(batch)[0]
        with session.timed("record"):
            if recipe.record == "every_epoch":
                logits, _ = predict(learner.net, task.train, precision=recipe.precision)
                record.logits.append(logits.half().cpu())
            record.rates.append(float(np.mean(rates)))
            record.losses.append(processes.total(float(total)) / size() / batches.steps)
            if epoch in keep and processes.first():
                save_checkpoint(learner.net, directory / "checkpoints" / f"epoch{epoch}.pt")
    arrays = {"epoch_lr": np.array(record.rates)}
    with session.timed("record"):
        arrays["test_logits"] = predict(learner.net, test)[0].cpu().numpy()
        if recipe.record != "nothing":
            logits, features = predict(learner.net, task.train, features=True)
            record.logits = record.logits or [logits.half().cpu()]
            arrays["epoch_logits"] = torch.stack(record.logits).numpy()
            arrays["features"] = features.half().cpu().numpy()
    return arrays, {"loss": record.losses, "lr": record.rates}


def save_checkpoint(net: Network, path: Path) -> None:
    save_torch(path, {k: v.cpu() for k, v in net.state_dict().items()})
