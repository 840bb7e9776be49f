"""Tiny models, dense float64 oracles and one training loop, shared by the tests of the method."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sgoif import InfluenceConfig, OnlineInfluence
from sgoif.gradients.hooks import GradientHooks


class Net(nn.Module):
    """Body, head, and logits divided by `scale` after the head."""

    def __init__(self, body: nn.Module, features: int, classes: int, scale: float = 1.0) -> None:
        super().__init__()
        self.body, self.head, self.scale = body, nn.Linear(features, classes), scale

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x)) / self.scale


def linear_net(inputs: int = 6, classes: int = 3, scale: float = 1.0) -> Net:
    return Net(nn.Identity(), inputs, classes, scale)


def mlp(inputs: int = 6, hidden: int = 5, classes: int = 3, scale: float = 1.0) -> Net:
    return Net(nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh()), hidden, classes, scale)


def convnet(classes: int = 3) -> Net:
    body = nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(3, 4, 3, stride=2, bias=False),
        nn.ReLU(),
        nn.Flatten(),
    )
    return Net(body, 36, classes)


def blobs(n: int = 60, inputs: int = 6, classes: int = 3, seed: int = 0, dtype=torch.float64) -> tuple[Tensor, Tensor]:
    """Points around class centres."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(classes, (n,), generator=generator)
    centres = 2 * torch.randn(classes, inputs, generator=generator)
    return (centres[y] + torch.randn(n, inputs, generator=generator)).to(dtype), y


def per_example_gradients(model: nn.Module, x: Tensor, y: Tensor, config: InfluenceConfig) -> Tensor:
    """Dense rows g_i `[n, d]` of the softened cross-entropy T CE(f / T), one backward pass per example: the oracle."""
    hooks = GradientHooks(model, config, None)
    hooks.remove()
    parameters = [p for layer in hooks.layers.values() for p in layer.parameters(recurse=False)]
    rows = []
    for xi, yi in zip(x, y, strict=True):
        temperature = config.temperature
        loss = temperature * F.cross_entropy(model(xi[None]) / temperature, yi[None])
        grads = iter(torch.autograd.grad(loss, parameters))
        blocks = []
        for layer in hooks.layers.values():
            block = next(grads).flatten(1)
            blocks.append(torch.cat([block, next(grads)[:, None]], 1) if layer.bias is not None else block)
        rows.append(torch.cat([b.flatten() for b in blocks]))
    return torch.stack(rows)


def watch_once(influence: OnlineInfluence, model: nn.Module, x: Tensor, y: Tensor, index: Tensor | None = None) -> None:
    with influence.watch(torch.arange(len(y)) if index is None else index, y):
        F.cross_entropy(model(x), y).backward()


def caught(model: nn.Module, x: Tensor, y: Tensor, config: InfluenceConfig):
    """The `FactoredBatch` of one pass."""
    influence = OnlineInfluence(model, len(y), config=config)
    watch_once(influence, model, x, y)
    influence.close()
    return watched_batch(influence)


def watched_batch(influence: OnlineInfluence):
    """What was watched since the last step, as a `FactoredBatch`, taken out of the queue."""
    engine = influence._engine
    queue, temperature = engine.queue, engine.temperature()
    passes = queue.newest(influence.steps)
    queue.passes = [p for p in queue.passes if p.step != influence.steps]
    if influence.needs_backward:
        return queue.step_gradients(passes, temperature)
    return queue.to_batch(passes, temperature, influence.config.half_life)[0]


def train(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    influence: OnlineInfluence,
    epochs: int = 3,
    batch: int = 20,
    lr: float = 0.1,
    seed: int = 0,
) -> None:
    """Plain SGD over shuffled batches, watched."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for index in torch.randperm(len(y), generator=generator).split(batch):
            optimizer.zero_grad()
            watch_once(influence, model, x[index], y[index], index)
            optimizer.step()
            influence.step(optimizer)
        influence.end_epoch()


def quick(**changes) -> InfluenceConfig:
    """A configuration for short runs: checks every other step."""
    return InfluenceConfig(**{"solve_every": 2, "rank": 2, "hvp_budget": 1000.0, "half_life": 1.0, **changes})
