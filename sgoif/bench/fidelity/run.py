"""The analysed run: one training of the network, whose passes methods may watch and whose checkpoints they may read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sgoif.backend.eval_mode import eval_mode
from sgoif.bench.fidelity.problem import AttributionProblem
from sgoif.bench.fidelity.retrain import MOMENTUM, batch_order, initial_layers
from sgoif.training.learner import Learner

Watch = Callable[[Tensor, Tensor], AbstractContextManager[None]]


class AnalysedRun:
    """Trains the network of a problem, always the same way.

    Args:
        problem: The problem.

    Attributes:
        model: The network.
        optimizer: Its optimiser.
    """

    def __init__(self, problem: AttributionProblem) -> None:
        self.problem = problem
        self._learner: Learner | None = None
        if problem.images:
            seed = problem.seed_of("run")
            self._batches = problem.images.batches(seed)
            self._learner = problem.images.learner(seed, self._batches, graph=False)
            self.model: nn.Module = self._learner.net
            self.optimizer = self._learner.optimizer
            return
        self.model = problem.network()
        generator = problem.generator("run")
        sizes = (problem.x.shape[1], *problem.recipe.hidden, problem.n_classes)
        start = initial_layers(sizes, 1, generator)
        linears = [module for module in self.model.modules() if isinstance(module, nn.Linear)]
        with torch.no_grad():
            for linear, (weight, bias) in zip(linears, start, strict=True):
                linear.weight.copy_(weight[0].T)
                linear.bias.copy_(bias[0, 0])
        self._order = batch_order(problem.n, problem.recipe, generator)
        recipe = problem.recipe
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=recipe.lr, momentum=MOMENTUM, weight_decay=recipe.weight_decay
        )

    def train(
        self,
        watch: Watch = lambda index, labels: nullcontext(),
        after_step: Callable[[], None] = lambda: None,
        before_step: Callable[[], None] = lambda: None,
        after_epoch: Callable[[], None] = lambda: None,
    ) -> nn.Module:
        """Train, calling back around every step; return the network.

        Args:
            watch: Context of a step's forward and backward pass, given the examples and their labels.
            after_step: Called when the optimiser has stepped.
            before_step: Called when the learning rate of the step that comes is set.
            after_epoch: Called at the end of every epoch.
        """
        steps = self.problem.steps
        per_epoch = steps // self.problem.recipe.epochs
        for step, (index, x, rate) in enumerate(self._inputs()):
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            before_step()
            self.optimizer.zero_grad()
            y = self.problem.labels[index]
            with watch(index, y):
                F.cross_entropy(self._forward(x), y).backward()
            self.optimizer.step()
            after_step()
            if (step + 1) % per_epoch == 0:
                after_epoch()
        return self.model

    def _inputs(self) -> Iterator[tuple[Tensor, Tensor, float]]:
        """Yield examples, their inputs and the learning rate of every step."""
        problem = self.problem
        if self._learner is not None:
            for epoch in range(problem.recipe.epochs):
                for batch in self._batches.epoch(epoch):
                    yield batch.index, batch.x, self._learner.lr
                    self._learner.steps_done += 1
            return
        for step, index in enumerate(self._order):
            index = index.to(problem.x.device)
            yield index, problem.x[index], problem.recipe.lr * (1 - step / len(self._order))

    def _forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self._learner.forward_eager(x) if self._learner is not None else self.model(x)
        return logits


Factors = list[tuple[Tensor, Tensor]]  # inputs and output gradients of each layer, see `recorded_factors`


@contextmanager
def recorded_factors(model: nn.Module, factors: Factors) -> Iterator[None]:
    """Record one forward and backward pass inside, and add the factors of each layer's gradients to `factors`.

    A linear layer has inputs with a 1 appended [n, in + 1] and output gradients [n, out]. A convolution has them at
    each of t positions: patches [n, t, in] (with a 1 appended if it has a bias) and output gradients [n, t, out].
    """
    inputs: dict[nn.Module, Tensor] = {}
    gradients: dict[nn.Module, Tensor] = {}

    def keep(module: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> None:
        inputs[module] = given[0].detach()
        output.register_hook(lambda gradient: gradients.__setitem__(module, gradient.detach()))  # type: ignore[no-untyped-call]

    layers = [module for module in model.modules() if isinstance(module, nn.Linear | nn.Conv2d)]
    handles = [module.register_forward_hook(keep) for module in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
    for module in layers:
        a, e = inputs[module].float(), gradients[module].float()
        if isinstance(module, nn.Conv2d):
            a = F.unfold(a, module.kernel_size, module.dilation, module.padding, module.stride).mT  # type: ignore[arg-type]
            e = e.flatten(2).mT
        factors.append((F.pad(a, (0, 1), value=1.0) if module.bias is not None else a, e))


def gradient_factors(model: nn.Module, x: Tensor, y: Tensor) -> Factors:
    """Return the factors of each layer's gradients of the loss in eval mode; no `.grad` is set."""
    factors: Factors = []
    parameters = [p for p in model.parameters() if p.requires_grad]
    with eval_mode(model), recorded_factors(model, factors):
        loss = F.cross_entropy(model(x).float(), y, reduction="sum")
        torch.autograd.grad(loss, parameters, allow_unused=True)
    return factors


def gradient_products(targets: Factors, train: Factors) -> Tensor:
    """Return <g_v, g_i> of targets and examples, shape [M, n], from the factors of the same layers."""
    products = []
    for (a_v, e_v), (a_i, e_i) in zip(targets, train, strict=True):
        if a_v.dim() == 2:
            products.append((a_v @ a_i.T) * (e_v @ e_i.T))
        else:  # a sum over pairs of positions would be longer than the gradients themselves
            products.append((e_v.mT @ a_v).flatten(1) @ (e_i.mT @ a_i).flatten(1).T)
    return torch.stack(products).sum(0)
