"""The shared plain run: ordinary training on the given labels, with everything post-hoc methods need written down."""

import pickle
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif.backend.collectives import size, sum_
from sgoif.errors import UserError
from sgoif.training import distributed
from sgoif.training.batches import Batch
from sgoif.training.images import ImageSource
from sgoif.training.learner import Learner, predict
from sgoif.training.models import Network, build_network
from sgoif.training.recipe import Recipe
from sgoif.training.session import save_torch
from sgoif.utils.files import load_npz


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

    def _recorded(self, name: str) -> Tensor:
        if self.recipe.record == "nothing":
            raise NotRecorded(f"the plain run wrote down no {name}: recipe.record is nothing")
        return self._array(name)

    @property
    def margins(self) -> Tensor:
        """[E, N] f_y - max_{k != y} f_k of every training image as it passed by in every epoch (training mode,
        augmented); NaN where it did not."""
        return self._array("margins")

    @property
    def logits(self) -> Tensor:
        """[N, K] logits of the training images at the end (eval mode, no augmentation)."""
        return self._recorded("logits")

    @property
    def features(self) -> Tensor:
        """[N, d] penultimate features of the training images at the end."""
        return self._recorded("features")

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
        net = build_network(self.recipe.model, self.n_classes, self.channels, self.size)
        path = self.directory / "checkpoints" / f"epoch{epoch}.pt"
        try:
            net.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
        except (RuntimeError, pickle.UnpicklingError, EOFError, FileNotFoundError, TypeError) as e:
            raise UserError(f"{path} is not a checkpoint of this network ({type(e).__name__})") from None
        return net.to(self.device, memory_format=torch.channels_last).eval()


class _Record:
    """Per-epoch margins and learning rates, part of the resumable state."""

    def __init__(self):
        self.margins: list[Tensor] = []
        self.rates: list[float] = []
        self.losses: list[float] = []

    def state_dict(self):
        return {"margins": self.margins, "rates": self.rates, "losses": self.losses}

    def load_state_dict(self, state):
        self.margins, self.rates, self.losses = [t.cpu() for t in state["margins"]], state["rates"], state["losses"]


def margins(logits: Tensor, labels: Tensor) -> Tensor:
    """f_y - max_{k != y} f_k for logits [..., N, K] and labels [N]."""
    given = labels.expand(logits.shape[:-1]).unsqueeze(-1)
    others = logits.scatter(-1, given, -torch.inf)
    return (logits.gather(-1, given) - others.max(dim=-1, keepdim=True).values).squeeze(-1)


def plain_run(task, test: ImageSource, directory: Path) -> tuple[dict[str, np.ndarray], dict[str, list[float]]]:
    """Trains on `task`, keeps checkpoints in `directory`; returns the arrays and the per-epoch curves."""
    recipe, session = task.recipe, task.session
    batches = task.batches()
    learner = Learner.for_batches(recipe, task.n_classes, batches, task.seed)

    def forward(batch: Batch) -> tuple[Tensor, Tensor]:
        logits = learner(batch.x)
        return F.cross_entropy(logits, batch.labels), margins(logits.detach(), batch.labels)

    step = learner.stepper(forward)
    record = _Record()
    keep = set(recipe.checkpoint_epochs())
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
            if epoch in keep and distributed.is_main_process():
                save_checkpoint(learner.net, directory / "checkpoints" / f"epoch{epoch}.pt")
    arrays = {"epoch_lr": np.array(record.rates), "margins": torch.stack(record.margins).numpy()}
    with session.timer("record"):
        arrays["test_logits"] = predict(learner.net, test)[0].cpu().numpy()
        if recipe.record != "nothing":
            logits, features = predict(learner.net, task.train, features=True)
            arrays["logits"] = logits.half().cpu().numpy()
            arrays["features"] = features.half().cpu().numpy()
    return arrays, {"loss": record.losses, "lr": record.rates}


def save_checkpoint(net: Network, path: Path) -> None:
    save_torch(path, {k: v.cpu() for k, v in net.state_dict().items()})
