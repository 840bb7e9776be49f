"""TracIn (TracInCP). Pruthi, Liu, Kale & Sundararajan, NeurIPS 2020 (arXiv:2002.08484).

How much training on example i changes the loss of example j, summed over checkpoints c of the plain run with learning
rates eta_c and per-example gradients g (eval mode, no augmentation, given labels):

    TracIn(i, j) = sum_c eta_c g_i(theta_c) . g_j(theta_c)

    `rates`       s_i = TracIn(i, i), the self-influence: a label that only its own gradient supports is suspicious
    `equal`       the same with equal weights instead of the rates eta_c
    `late`        with equal weights, over the checkpoints of the last half of training
    `late_soft`   as `late`, with the gradients of the loss at temperature 4, f / 4
    `late_error`  as `late`, of the error alone, ||e_i||^2: without the norm of the features
    `anchor`      s_i = -mean_v TracIn(i, v) over the trusted images v: training on i raises their loss (rates eta_c)

The authors' checkpoints have nearly the same rate. Under a one-cycle schedule the rates weigh the first half of
training, where a wrong label and one that is not learned yet look alike, three times as much as the second. Official
code: github.com/frederick0329/TracIn.

`layers="head"` takes the gradients of the last linear layer, f = s (W z + b). With the error e = p - onehot(y):

    g_i = s e_i (x) [z_i, 1]        ||g_i||^2 = s^2 ||e_i||^2 (||z_i||^2 + 1)

`layers="all"` takes those of every parameter, one example at a time (vmap), for `rates`, `equal`, `late`, `anchor`.
Removal rule: the suspicious component of a two-Gaussian mixture (`score_threshold.by_mixture`).
Trusted labels serve the `anchor` variant only.

Deviations: gradients of the last layer by default, and the checkpoints of the recipe's schedule.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif.bench.methods.base import Detection, NoisyLabelDetector
from sgoif.bench.methods.robust.visits import in_window
from sgoif.bench.methods.score_threshold import by_mixture
from sgoif.bench.methods.tasks import NoisyTask
from sgoif.training.images import ImageSource
from sgoif.training.models import Network

TEMPERATURE = 4.0  # of `late_soft`: SG-OIF's default


def errors(logits: Tensor, labels: Tensor) -> Tensor:
    """p - onehot(y), [n, K]."""
    return logits.softmax(1) - F.one_hot(labels, logits.shape[1])


def head_self_influence(logits: Tensor, features: Tensor, labels: Tensor, scale: float = 1.0) -> Tensor:
    """[n] squared gradient norm of the head's weight and bias."""
    return scale**2 * errors(logits, labels).square().sum(1) * (features.square().sum(1) + 1)


def head_gradient(logits: Tensor, features: Tensor, labels: Tensor, scale: float = 1.0) -> Tensor:
    """[K, d + 1] gradient of the mean loss in the head's weight and bias."""
    return scale * errors(logits, labels).T @ F.pad(features, (0, 1), value=1.0) / len(labels)


def head_influence(logits: Tensor, features: Tensor, labels: Tensor, direction: Tensor, scale: float = 1.0) -> Tensor:
    """[n] product of each example's head gradient with `direction` [K, d + 1]."""
    return scale * (errors(logits, labels) @ direction * F.pad(features, (0, 1), value=1.0)).sum(1)


def all_gradients(net: Network, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """Per-example gradients of every parameter, [n, ...] each."""

    def loss(parameters, x, y):
        logits = torch.func.functional_call(net, parameters, (x[None],))
        return F.cross_entropy(logits, y[None])

    parameters = {name: p.detach() for name, p in net.named_parameters()}
    return torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(parameters, x, y)


class TracIn(NoisyLabelDetector):
    name = "tracin"
    title = "TracIn"
    group = "Methods of the paper"
    order = 7
    reads_plain = True
    uses_trusted = True
    candidates: ClassVar = {
        "rates": "self-influence over all checkpoints, weighted by their learning rates (published)",
        "equal": "self-influence over all checkpoints with equal weights",
        "late": "self-influence over the checkpoints of the last half of training, equal weights",
        "late_soft": "the same at temperature 4",
        "late_error": "squared norm of the error alone over the checkpoints of the last half of training",
        "anchor": "minus the mean influence on the trusted images",
    }
    ranked_by = "late_error"

    @dataclass(frozen=True)
    class Params:
        layers: str = "head"  # "head" or "all"
        chunk: int = 32  # layers="all": examples whose gradients are in memory at once

    def __init__(self, **params):
        super().__init__(**params)
        self.need(self.params.layers in ("head", "all"), "layers", "head or all")
        self.need(self.params.chunk >= 1, "chunk", "at least 1")

    def detect(self, task: NoisyTask) -> Detection:
        one_checkpoint = {"head": self.head_products, "all": self.all_products}[self.params.layers]
        totals = defaultdict(lambda: torch.zeros(len(task.train), dtype=torch.float64))
        for epoch in task.plain.checkpoint_epochs:
            found = one_checkpoint(task, task.plain.network(epoch))
            found = {name: values.double().cpu() for name, values in found.items()}
            rate = task.plain.learning_rate(epoch)
            totals["rates"] += rate * found["own"]
            totals["equal"] += found["own"]
            if "anchor" in found:
                totals["anchor"] -= rate * found["anchor"]
            if in_window(epoch, task.recipe.epochs):
                totals["late"] += found["own"]
                for name in ("soft", "error"):
                    if name in found:
                        totals[f"late_{name}"] += found[name]
            task.session.check_time()
        return self.detection({name: values.numpy() for name, values in totals.items()}, remove=by_mixture)

    @staticmethod
    def head_products(task: NoisyTask, net: Network) -> dict[str, Tensor]:
        """[N] g_i . g_i (`own`, at temperature 4 `soft`), ||e_i||^2, g_i . mean_v g_v of a checkpoint, last layer."""
        logits, features = task.predict(net, features=True)
        found = {
            "own": head_self_influence(logits, features, task.labels, net.scale),
            "soft": head_self_influence(logits / TEMPERATURE, features, task.labels, net.scale / TEMPERATURE),
            "error": errors(logits, task.labels).square().sum(1),
        }
        if task.trusted is not None:
            images, labels = task.trusted
            anchor = head_gradient(*task.predict(net, images, features=True), labels.to(logits.device), net.scale)
            found["anchor"] = head_influence(logits, features, task.labels, anchor, net.scale)
        return found

    def all_products(self, task: NoisyTask, net: Network) -> dict[str, Tensor]:
        """[N] g_i . g_i (`own`) and g_i . mean_v g_v (`anchor`) of one checkpoint, all parameters."""
        anchor = None
        if task.trusted is not None:
            images, labels = task.trusted
            parts = [{n: g.sum(0) for n, g in part.items()} for part in self.chunks(net, images, labels)]
            anchor = {name: sum(part[name] for part in parts) / len(images) for name in parts[0]}
        own, product = [], []
        for part in self.chunks(net, task.train, task.labels):
            own.append(sum(g.flatten(1).square().sum(1) for g in part.values()))
            if anchor is not None:
                product.append(sum(g.flatten(1) @ anchor[name].flatten() for name, g in part.items()))
        return {"own": torch.cat(own), **({"anchor": torch.cat(product)} if product else {})}

    def chunks(self, net: Network, images: ImageSource, labels: Tensor):
        for index in torch.arange(len(images), device=images.device).split(self.params.chunk):
            yield all_gradients(net, images.batch(index), labels.to(images.device)[index])
