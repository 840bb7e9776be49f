"""A network with its optimiser, schedule and precision: `step = learner.stepper(forward)`, then `step(batch)`."""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sgoif.backend.collectives import sum_
from sgoif.training import arm_convolutions, distributed
from sgoif.training.batches import Batch, Batches
from sgoif.training.cost.compute_counter import COMPUTE
from sgoif.training.cuda_graphs import GraphedStep, uses_cuda_graphs
from sgoif.training.images import ImageSource
from sgoif.training.models import Network, build_network
from sgoif.training.recipe import Recipe
from sgoif.training.seeds import seeded_weights
from sgoif.training.start import start_from
from sgoif.utils import interrupt

StepResult = tuple[Any, ...]
Step = Callable[[Batch], StepResult]


class Diverged(RuntimeError):
    """The loss became NaN or infinite; the cell ends as a typed failure."""


def uses_compile(recipe: Recipe, device: torch.device) -> bool:
    """Say whether networks in training are compiled: on a GPU, if the recipe asks for it."""
    return recipe.compile and device.type == "cuda"


def preload_compiler(recipe: Recipe, device: torch.device) -> None:
    """Import torch's compiler, so that its import time (seconds) is not charged to the first cell of a process."""
    importlib.import_module("torch._dynamo")
    if uses_compile(recipe, device):
        importlib.import_module("torch._inductor.compile_fx")


def compile_backbone(backbone: nn.Module, sizes_vary: bool) -> Callable[[Tensor], Tensor]:
    """Compile a backbone for batches of one size, which is fastest, or once for all sizes of batches.

    Args:
        backbone: Maps images [n, C, H, W] to features [n, d].
        sizes_vary: Whether n differs from call to call. A compilation for each n could take longer than training.
    """
    if not sizes_vary:
        return torch.compile(backbone, dynamic=False)
    compiled: Callable[[Tensor], Tensor] = torch.compile(backbone)

    def call(x: Tensor) -> Tensor:
        torch._dynamo.maybe_mark_dynamic(x, 0)  # type: ignore[no-untyped-call]
        return compiled(x)

    return call


class Learner:
    """One network in training.

    The learning rate is a pure function of the step, so the state is weights, optimiser moments and a step count.

    Attributes:
        net: The network.
        optimizer: Its optimiser.
        recipe: How it is trained.
        total_steps: Number of steps of the whole training.
        steps_done: Number of steps done so far.
        device: Where the network lies.
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
        sizes_vary: bool = False,
    ) -> None:
        """Build the network and its optimiser on the device of the images.

        Args:
            recipe: How the network is trained.
            n_classes: Number of classes K.
            images: The training images; they determine channels, size and device.
            total_steps: Number of steps of the whole training.
            seed: Seed of the initial weights.
            network: A network to train as it is, instead of a new one of `recipe.model` at `recipe.start`.
            undecayed: Names of submodules whose weights get no weight decay.
            sizes_vary: Whether it is called with batches of several sizes.
        """
        self.recipe = recipe
        self.total_steps = total_steps
        self.steps_done = 0
        self.device = images.device
        if network is None:
            with seeded_weights(seed):
                network = build_network(recipe.model, n_classes, images.channels, images.size)
            if recipe.start is not None:
                network = start_from(network, recipe.start)
        network = distributed.sync_batch_norms(network, self.device)
        self.net: Network = network.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._uses_graphs = uses_cuda_graphs(recipe, self.device)
        # a captured step reads its learning rate from the device
        self._lr_on_device = torch.tensor(recipe.lr, device=self.device) if self._uses_graphs else None
        self.optimizer = self._make_optimizer(undecayed)
        self._compiled: Callable[[Tensor], Tensor] | None = None
        if uses_compile(recipe, self.device):
            self._compiled = compile_backbone(self.net.backbone, sizes_vary)
        self._loss_sum = torch.zeros((), device=self.device)

    @classmethod
    def for_batches(
        cls, recipe: Recipe, n_classes: int, batches: Batches, seed: int, epochs: int | None = None, **kw: Any
    ) -> Learner:
        """Make a learner that will be trained for some epochs of `batches`.

        Args:
            recipe: How the network is trained.
            n_classes: Number of classes K.
            batches: The batches of an epoch.
            seed: Seed of the initial weights.
            epochs: Number of epochs; None for the recipe's.
            **kw: `network`, `undecayed` and `sizes_vary` of the constructor.
        """
        total = batches.steps * (recipe.epochs if epochs is None else epochs)
        return cls(recipe, n_classes, batches.images, total, seed, **kw)

    def _make_optimizer(self, undecayed: tuple[str, ...]) -> torch.optim.Optimizer:
        recipe, fused = self.recipe, self.device.type == "cuda"
        decayed, plain = [], []  # norms and biases are not decayed, unless the recipe asks for it
        for name, p in self.net.named_parameters():
            if not p.requires_grad:
                continue
            if (p.ndim > 1 or recipe.decay_norms) and not name.startswith(undecayed):
                decayed.append(p)
            else:
                plain.append(p)
        groups: list[dict[str, Any]] = [
            {"params": decayed, "weight_decay": recipe.weight_decay},
            {"params": plain, "weight_decay": 0.0},
        ]
        lr: float | Tensor = recipe.lr if self._lr_on_device is None else self._lr_on_device
        if recipe.optimizer in ("adam", "adamw"):
            kind = torch.optim.Adam if recipe.optimizer == "adam" else torch.optim.AdamW
            return kind(groups, lr=lr, fused=fused, capturable=self._lr_on_device is not None)
        nesterov = recipe.nesterov and recipe.momentum > 0
        return torch.optim.SGD(groups, lr=lr, momentum=recipe.momentum, nesterov=nesterov, fused=fused)

    # --- forward passes ---------------------------------------------------------------------------------------------

    def forward_context(self) -> contextlib.AbstractContextManager[Any]:
        """Return the context of forward passes: the recipe's precision on a GPU, fast gradients on an ARM CPU."""
        if self.device.type == "cpu":
            return arm_convolutions.matmul_conv_gradients()
        if self.recipe.precision == "bfloat16" and self.device.type == "cuda":
            return torch.autocast("cuda", torch.bfloat16)
        return contextlib.nullcontext()

    def _features(self, x: Tensor) -> Tensor:
        return self.net.features(x) if self._compiled is None else self._compiled(x)

    def __call__(self, x: Tensor) -> Tensor:
        """Return the logits of images in training mode.

        Args:
            x: Normalised images, shape [n, C, H, W].

        Returns:
            float32, shape [n, K].
        """
        COMPUTE.add_batch(x)
        with self.forward_context():
            logits: Tensor = self.net(x) if self._compiled is None else self.net.classify(self._compiled(x))
            return logits.float()

    def forward_eager(self, x: Tensor) -> Tensor:
        """Return the same as `learner(x)` by the network as it is, since hooks do not fire inside a compiled one."""
        COMPUTE.add_batch(x)
        with self.forward_context():
            logits: Tensor = self.net(x)
            return logits.float()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return float32 logits [n, K] and penultimate features [n, d] of images in training mode."""
        COMPUTE.add_batch(x)
        with self.forward_context():
            z = self._features(x)
            return self.net.classify(z).float(), z

    def features(self, x: Tensor) -> Tensor:
        """Return float32 penultimate features [n, d] in training mode; for methods with a head of their own."""
        COMPUTE.add_batch(x)
        with self.forward_context():
            return self._features(x).float()

    # --- training steps ---------------------------------------------------------------------------------------------

    @property
    def lr(self) -> float:
        """Learning rate of the next step."""
        return self.recipe.lr_at(min(self.steps_done, self.total_steps - 1), self.total_steps)

    def stepper(self, forward: Step, *peers: Learner) -> Step:
        """Make a function that does one whole training step on a batch: forward, backward, update.

        On a GPU the step becomes a CUDA graph after the first calls. `forward` must then not look at values of tensors;
        numbers that change from step to step are passed with the batch (`Batch.with_extra`).

        Args:
            forward: Maps a batch to (loss, ...). With `peers`, its first results are one loss for each learner.
            *peers: Learners that are trained in the same step.

        Returns:
            A function that returns what `forward` returned, tensors detached.
        """
        learners = (self, *peers)

        def train_on(batch: Batch) -> StepResult:
            results = forward(batch)
            for learner, loss in zip(learners, results, strict=False):
                loss.backward()
                learner._apply_gradients(loss)
            return tuple(t.detach() if isinstance(t, Tensor) else t for t in results)

        run: Step = GraphedStep(train_on) if self._uses_graphs else train_on
        forward_passes = 0  # of one step

        def step(batch: Batch) -> StepResult:
            nonlocal forward_passes
            interrupt.raise_if_pending()
            before = COMPUTE.forward_passes
            for learner in learners:
                learner._set_learning_rate()
            if self.steps_done == 0 and self._compiled is not None:
                result = self._first_step(run, batch)
            else:
                result = run(batch)
            for learner in learners:
                learner.steps_done += 1
            # a replayed graph does not call `forward`, which counts: it costs what the last counted step did
            forward_passes = COMPUTE.forward_passes - before or forward_passes
            COMPUTE.forward_passes = before + forward_passes
            return result

        return step

    def _first_step(self, run: Step, batch: Batch) -> StepResult:
        """Do the first step of a compiled network and count its time as compiling."""
        start = time.perf_counter()
        result = run(batch)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        COMPUTE.compile_seconds += time.perf_counter() - start
        return result

    def plain_stepper(self) -> Step:
        """Make a function that does one step of ordinary training: cross-entropy to the labels of the batch."""
        return self.stepper(lambda batch: (F.cross_entropy(self(batch.x), batch.labels),))

    def _set_learning_rate(self) -> None:
        if self._lr_on_device is not None:
            self._lr_on_device.fill_(self.lr)
        else:
            for group in self.optimizer.param_groups:
                group["lr"] = self.lr

    def _apply_gradients(self, loss: Tensor) -> None:
        distributed.average_gradients(self.net.parameters())
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self._loss_sum += loss.detach()

    def check_finite(self) -> None:
        """Check the losses since the last check. It waits for the device, so it is called once per epoch.

        Raises:
            Diverged: If any of them was not finite.
        """
        sum_(self._loss_sum)
        if not torch.isfinite(self._loss_sum):
            raise Diverged(f"the training loss became {self._loss_sum.item()} before step {self.steps_done}")
        self._loss_sum.zero_()

    # --- state ------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return weights, optimiser state and step count."""
        return {
            "net": self.net.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "steps_done": self.steps_done,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state of `state_dict`."""
        self.net.load_state_dict(state["net"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self._lr_on_device is not None:
            for group in self.optimizer.param_groups:
                group["lr"] = self._lr_on_device
        self.steps_done = state["steps_done"]
