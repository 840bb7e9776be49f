"""The analysed run: one training of the network, whose passes methods may watch and whose checkpoints they may read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sgoif.bench.fidelity.problem import AttributionProblem
from sgoif.bench.fidelity.retrain import MOMENTUM, batch_order, initial_layers

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
        self.model = problem.network()
        generator = problem.generator("run")
        sizes = (problem.x.shape[1], *problem.recipe.hidden, problem.n_classes)
        start = initial_layers(sizes, 1, generator)
        linears = [module for module in self.model if isinstance(module, nn.Linear)]
        with torch.no_grad():
            for linear, (weight, bias) in zip(linears, start, strict=True):
                linear.weight.copy_(weight[0].T)
                linear.bias.copy_(bias[0, 0])
        self.order = batch_order(problem.n, problem.recipe, generator)
        recipe = problem.recipe
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=recipe.lr, momentum=MOMENTUM, weight_decay=recipe.weight_decay
        )

    def train(
        self,
        watch: Watch = lambda index, labels: nullcontext(),
        after_step: Callable[[], None] = lambda: None,
        before_step: Callable[[Tensor, float], None] = lambda index, rate: None,
        after_epoch: Callable[[], None] = lambda: None,
    ) -> nn.Sequential:
        """Train, calling back around every step; return the network.

        Args:
            watch: Context of a step's forward and backward pass, given the examples and their labels.
            after_step: Called when the optimiser has stepped.
            before_step: Called with the examples and the learning rate of the step that comes.
            after_epoch: Called at the end of every epoch.
        """
        problem = self.problem
        per_epoch = len(self.order) // problem.recipe.epochs
        for step, index in enumerate(self.order):
            rate = problem.recipe.lr * (1 - step / len(self.order))
            self.optimizer.param_groups[0]["lr"] = rate
            index = index.to(problem.x.device)
            x, y = problem.x[index], problem.labels[index]
            before_step(index, rate)
            self.optimizer.zero_grad()
            with watch(index, y):
                F.cross_entropy(self.model(x), y).backward()
            self.optimizer.step()
            after_step()
            if (step + 1) % per_epoch == 0:
                after_epoch()
        return self.model


def gradient_factors(model: nn.Module, x: Tensor, y: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return (inputs with a 1 appended [n, in + 1], output gradients of the loss [n, out]) of each linear layer."""
    inputs: list[Tensor] = []
    outputs: list[Tensor] = []

    def keep(module: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> None:
        inputs.append(given[0].detach())
        outputs.append(output)

    handles = [module.register_forward_hook(keep) for module in model.modules() if isinstance(module, nn.Linear)]
    try:
        loss = F.cross_entropy(model(x), y, reduction="sum")
    finally:
        for handle in handles:
            handle.remove()
    errors = torch.autograd.grad(loss, outputs)
    return [(F.pad(a, (0, 1), value=1.0), e) for a, e in zip(inputs, errors, strict=True)]


def gradient_products(targets: Sequence[tuple[Tensor, Tensor]], train: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Return <g_v, g_i> of targets and examples, shape [M, n], from the factors of the same layers."""
    products = [(a_v @ a_i.T) * (e_v @ e_i.T) for (a_v, e_v), (a_i, e_i) in zip(targets, train, strict=True)]
    return torch.stack(products).sum(0)
