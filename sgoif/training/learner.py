"""A network with its optimiser, schedule and precision: `step = learner.stepper(forward)`, then `step(batch)`."""

import contextlib
import importlib
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif.backend.collectives import sum_
from sgoif.training import arm_convolutions, distributed
from sgoif.training.compute_counter import WORK
from sgoif.training.cuda_graphs import Graphed, captures
from sgoif.training.images import Batch, Batches, ImageSource, mix_seed
from sgoif.training.models import Network, build
from sgoif.training.recipe import Recipe
from sgoif.utils import interrupt


class Diverged(RuntimeError):
    """The loss became NaN or infinite; the cell ends as a typed failure."""


def compiles(recipe: Recipe, device: torch.device) -> bool:
    """Whether networks in training are compiled."""
    return recipe.compile and device.type == "cuda"


def load_compiler(recipe: Recipe, device: torch.device) -> None:
    """Imports what the first optimiser and compiling would: seconds, once in a process, that no cell's clock should
    count."""
    importlib.import_module("torch._dynamo")
    if compiles(recipe, device):
        importlib.import_module("torch._inductor.compile_fx")


@contextlib.contextmanager
def seeded_weights(seed: int):
    """Networks and heads built inside get initial weights that are a function of `seed` alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(mix_seed(seed, "weights"))
        yield


class Learner:
    """One network in training.

    The learning rate is a pure function of the step, so the state is weights, optimiser moments and a step count.
    Weights of the submodules named in `undecayed` get no weight decay.
    """

    def __init__(
        self,
        recipe: Recipe,
        n_classes: int,
        images: ImageSource,
        total_steps: int,
        seed: int,
        network: Network | None = None,
        undecayed: tuple[str, ...] = (),
    ):
        self.recipe, self.total_steps, self.steps_done = recipe, total_steps, 0
        self.device = images.device
        if network is None:
            with seeded_weights(seed):
                network = build(recipe.model, n_classes, images.channels, images.size)
        network = distributed.synced(network, self.device)
        self.net = network.to(self.device, memory_format=torch.channels_last)
        # a captured step reads its learning rate from the device
        self._graph = captures(recipe, self.device)
        self._rate = torch.tensor(recipe.lr, device=self.device) if self._graph else None
        self.optimizer = self._make_optimizer(undecayed)
        self._compiled = torch.compile(self.net.backbone, dynamic=False) if compiles(recipe, self.device) else None
        self._loss_sum = torch.zeros((), device=self.device)

    @classmethod
    def for_batches(cls, recipe: Recipe, n_classes: int, batches: Batches, seed: int, epochs: int | None = None, **kw):
        """A learner that will see `epochs` (default: the recipe's) passes over `batches`."""
        total = batches.steps * (recipe.epochs if epochs is None else epochs)
        return cls(recipe, n_classes, batches.images, total, seed, **kw)

    def _make_optimizer(self, undecayed: tuple[str, ...]) -> torch.optim.Optimizer:
        r, fused = self.recipe, self.device.type == "cuda"
        decay, plain = [], []  # norms and biases are not decayed
        for name, p in self.net.named_parameters():
            (decay if p.ndim > 1 and not name.startswith(undecayed) else plain).append(p)
        groups = [{"params": decay, "weight_decay": r.weight_decay}, {"params": plain, "weight_decay": 0.0}]
        lr = r.lr if self._rate is None else self._rate
        if r.optimizer == "adam":
            return torch.optim.Adam(groups, lr=lr, fused=fused, capturable=self._rate is not None)
        nesterov = r.nesterov and r.momentum > 0
        return torch.optim.SGD(groups, lr=lr, momentum=r.momentum, nesterov=nesterov, fused=fused)

    def passing(self) -> contextlib.AbstractContextManager:
        """What batches pass through the network in: the recipe's precision on a GPU, quick gradients on a CPU."""
        if self.device.type == "cpu":
            return arm_convolutions.by_products()
        if self.recipe.precision == "bfloat16" and self.device.type == "cuda":
            return torch.autocast("cuda", torch.bfloat16)
        return contextlib.nullcontext()

    @property
    def lr(self) -> float:
        return self.recipe.lr_at(min(self.steps_done, self.total_steps - 1), self.total_steps)

    def __call__(self, x: Tensor) -> Tensor:
        """Logits in float32, in training mode."""
        WORK.step(x)
        with self.passing():
            return (self.net(x) if self._compiled is None else self.net.classify(self._compiled(x))).float()

    def hooked(self, x: Tensor) -> Tensor:
        """Logits in float32, in training mode, by the network as it is: hooks do not fire inside a compiled one."""
        WORK.step(x)
        with self.passing():
            return self.net(x).float()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [n, K] in float32 and penultimate features [n, d], in training mode."""
        WORK.step(x)
        with self.passing():
            z = (self._compiled or self.net.features)(x)
            return self.net.classify(z).float(), z

    def features(self, x: Tensor) -> Tensor:
        """Penultimate features in float32, in training mode: for methods with a head of their own."""
        WORK.step(x)
        with self.passing():
            return (self._compiled or self.net.features)(x).float()

    def stepper(self, forward: Callable[[Batch], tuple], *peers: "Learner") -> Callable[[Batch], tuple]:
        """A function that does one whole step on a batch: `forward` gives (loss, …), then backward and update.

        With `peers`, learners that are trained in the same step, the first results of `forward` are one loss for each.
        On a GPU it becomes a CUDA graph after the first steps, so `forward` must not look at values; numbers that
        change from step to step are brought along with the batch (`Batch.bring`). Returns what `forward` returned,
        tensors detached.
        """
        learners = (self, *peers)

        def whole(batch: Batch) -> tuple:
            results = forward(batch)
            for learner, loss in zip(learners, results, strict=False):
                loss.backward()
                learner._apply(loss)
            return tuple(t.detach() if isinstance(t, Tensor) else t for t in results)

        run = Graphed(whole) if self._graph else whole
        cost = 0

        def step(batch: Batch) -> tuple:
            nonlocal cost
            interrupt.check()
            before = WORK.passes
            for learner in learners:
                learner._pace()
            if self.steps_done == 0 and self._compiled is not None:
                result = self._first(run, batch)
            else:
                result = run(batch)
            for learner in learners:
                learner.steps_done += 1
            cost = WORK.passes - before or cost  # a replay does not pass through `forward`
            WORK.passes = before + cost
            return result

        return step

    def _first(self, run: Callable[[Batch], tuple], batch: Batch) -> tuple:
        start = time.perf_counter()
        result = run(batch)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        WORK.compiling += time.perf_counter() - start
        return result

    def plain_stepper(self) -> Callable[[Batch], tuple]:
        """Ordinary training: one step of cross-entropy to the given labels."""
        return self.stepper(lambda batch: (F.cross_entropy(self(batch.x), batch.labels),))

    def _pace(self) -> None:
        if self._rate is not None:
            self._rate.fill_(self.lr)
        else:
            for group in self.optimizer.param_groups:
                group["lr"] = self.lr

    def _apply(self, loss: Tensor) -> None:
        distributed.average_gradients(self.net.parameters())
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self._loss_sum += loss.detach()

    def check_finite(self) -> None:
        """Raise `Diverged` if any loss since the last check was not finite. One device sync: called once an epoch."""
        sum_(self._loss_sum)
        if not torch.isfinite(self._loss_sum):
            raise Diverged(f"the training loss became {self._loss_sum.item()} before step {self.steps_done}")
        self._loss_sum.zero_()

    def state_dict(self) -> dict:
        return {
            "net": self.net.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "steps_done": self.steps_done,
        }

    def load_state_dict(self, state: dict) -> None:
        self.net.load_state_dict(state["net"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self._rate is not None:
            for group in self.optimizer.param_groups:
                group["lr"] = self._rate
        self.steps_done = state["steps_done"]


@torch.no_grad()
def predict(
    net: Network,
    images: ImageSource,
    indices=None,
    batch_size: int | None = None,
    precision: str = "float32",
    features: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Logits [n, K] and, if asked, penultimate features [n, d]; eval mode, no augmentation, dataset order, float32."""
    everything = torch.arange(len(images)) if indices is None else torch.as_tensor(indices)
    order = distributed.share_of(everything).to(images.device)
    batch_size = batch_size or (1024 if images.size <= 64 else 256)
    half = precision == "bfloat16" and images.device.type == "cuda"
    was_training = net.training
    net.eval()
    logits, penultimate = [], []
    for x in images.passes(order.split(batch_size)):
        with torch.autocast("cuda", torch.bfloat16) if half else contextlib.nullcontext():
            z = net.features(x)
            f = net.classify(z)
        logits.append(f.float())
        if features:
            penultimate.append(z.float())
    net.train(was_training)
    WORK.passes += len(order)
    n = len(everything)
    found = distributed.collect(torch.cat(logits), n)
    return found, distributed.collect(torch.cat(penultimate), n) if features else None
