"""Public packages that score training images after training, timed: captum's TracInCPFast, kronfluence's EK-FAC.

Both get what makes them fast: images normalised and on the device already, handed over a batch at a time, a backbone
whose parameters ask for no gradient where only the last layer counts. They compute in float32, as is their default.
"""

import copy
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sgoif.training.images import ImageSet
from sgoif.training.models import Network


class Feed(torch.utils.data.Dataset):
    """Images and labels that lie on the device; a DataLoader gets a batch of neighbours as one slice.

    `check` is called before each batch and may raise.
    """

    def __init__(self, images: ImageSet, labels: Tensor, count: int, check: Callable[[], None]):
        index = torch.arange(min(count, len(images)), device=images.device)
        self.x, self.y, self.check = images.batch(index), labels[: len(index)], check

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.x[index], self.y[index]

    def __getitems__(self, index: list[int]) -> tuple[Tensor, Tensor]:
        self.check()
        part = slice(index[0], index[-1] + 1)
        return self.x[part], self.y[part]


def as_is(batch):
    """The collation of a feed."""
    return batch


def classifier(net: Network) -> nn.Sequential:
    """A copy as the packages like it: backbone, then a last layer with the logit scale folded in; eval mode."""
    weight, bias = net.linear()
    head = nn.Linear(weight.shape[1], weight.shape[0]).to(weight.device)
    head.load_state_dict({"weight": weight, "bias": bias})
    return nn.Sequential(copy.deepcopy(net.backbone).requires_grad_(False), head).eval()


def wait(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def tracin(net: Network, feed: Feed, checkpoints: int, batch: int) -> float:
    """Seconds of captum's TracInCPFast self-influence (last layer) over `checkpoints` checkpoints: the same one, since
    only time is measured."""
    from captum.influence import TracInCPFast

    model, device = classifier(net), feed.y.device

    def load(model, file):
        model.load_state_dict(torch.load(file, map_location=device, weights_only=True))
        return 1.0

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint.pt"
        torch.save(model.state_dict(), path)
        loader = torch.utils.data.DataLoader(feed, batch, collate_fn=as_is)
        loss = nn.CrossEntropyLoss(reduction="sum")
        scorer = TracInCPFast(model, model[-1], loader, [str(path)] * checkpoints, load, loss)
        start = wait(device)
        scores = scorer.self_influence(outer_loop_by_checkpoints=True)
        seconds = wait(device) - start
    assert scores.shape == (len(feed),) and torch.isfinite(scores).all()
    return seconds


class Stages:
    """Seconds of the stages of one kronfluence run, and of a single batch in those that pass over the data."""

    def __init__(self, device: torch.device):
        self.device, self.marks = device, []
        self.seconds: dict[str, float] = {}
        self.per_batch: dict[str, float] = {}

    def batch_begins(self) -> None:
        self.marks.append(wait(self.device))

    def run(self, name: str, function, *args, **kw):
        self.marks = []
        start = wait(self.device)
        result = function(*args, **kw)
        self.seconds[name] = wait(self.device) - start
        if len(self.marks) > 1:
            self.per_batch[name] = statistics.median(b - a for a, b in zip(self.marks, self.marks[1:], strict=False))
        return result


def ekfac(net: Network, feed: Feed, last_layer: bool, batch: int) -> Stages:
    """kronfluence: EK-FAC factors and self-influence of the images in `feed`, stage by stage."""
    from kronfluence.analyzer import Analyzer, prepare_model
    from kronfluence.task import Task
    from kronfluence.utils.dataset import DataLoaderKwargs

    stages = Stages(feed.y.device)

    class Classification(Task):
        def compute_train_loss(self, batch, model, sample=False):
            if not last_layer:  # to tell what one more batch costs; waiting for the device would slow a full run down
                stages.batch_begins()
            logits = model(batch[0])
            labels = torch.distributions.Categorical(logits=logits.detach()).sample() if sample else batch[1]
            return F.cross_entropy(logits, labels, reduction="sum")

        def compute_measurement(self, batch, model):
            return self.compute_train_loss(batch, model)

        def get_influence_tracked_modules(self):
            return ["1"] if last_layer else None  # None: every linear layer and convolution

    task, device = Classification(), feed.y.device
    with tempfile.TemporaryDirectory() as folder:
        model = prepare_model(classifier(net), task)
        options = {"cpu": device.type == "cpu", "output_dir": folder, "disable_tqdm": True}
        analyzer = Analyzer("benchmark", model, task, **options)
        analyzer.set_dataloader_kwargs(DataLoaderKwargs(collate_fn=as_is))
        kw = {"per_device_batch_size": batch}
        stages.run("covariance", analyzer.fit_covariance_matrices, "ekfac", feed, **kw)
        stages.run("eigendecomposition", analyzer.perform_eigendecomposition, "ekfac")
        stages.run("lambda", analyzer.fit_lambda_matrices, "ekfac", feed, **kw)
        kw = {"per_device_train_batch_size": batch}
        found = stages.run("scores", analyzer.compute_self_scores, "self", "ekfac", feed, **kw)
        scores = analyzer.load_self_scores("self") if found is None else found
    assert all(len(s) == len(feed) for s in scores.values())
    return stages


def extrapolated(stages: Stages, done: int, wanted: int, batch: int) -> float:
    """Seconds for `wanted` images from a run over `done`: what a stage costs beside its batches once, its batches in
    proportion."""
    total = sum(stages.seconds.values())
    return total + sum(seconds * (wanted - done) / batch for seconds in stages.per_batch.values())
