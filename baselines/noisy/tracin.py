"""TracIn (TracInCP). Pruthi, Liu, Kale & Sundararajan, NeurIPS 2020 (arXiv:2002.08484).

How much training on example i changes the loss of example j, summed over checkpoints c of the plain run with learning
rates eta_c and per-example gradients g (eval mode, no augmentation, given labels):

    TracIn(i, j) = sum_c eta_c g_i(theta_c) . g_j(theta_c)

    score         s_i = TracIn(i, i), the self-influence: a label that only its own gradient supports is suspicious
    `anchor`      s_i = -mean_v TracIn(i, v) over the trusted images v: training on i raises their loss

`layers="head"` takes the gradients of the last linear layer, f = s (W z + b). With the error e = p - onehot(y):

    g_i = s e_i (x) [z_i, 1]        ||g_i||^2 = s^2 ||e_i||^2 (||z_i||^2 + 1)

`layers="all"` takes those of every parameter, one example at a time (vmap).
Removal rule: the suspicious component of a two-Gaussian mixture (`removal.by_mixture`).
Trusted labels serve the `anchor` variant only.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from sgoif.bench.methods.base import Detection, NoisyLabelDetector, NoisyTask
from sgoif.bench.methods.score_threshold import by_mixture
from sgoif.training.images import ImageSet
from sgoif.training.models import Network


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
        own, anchor = torch.zeros(2, len(task.train), dtype=torch.float64)
        for epoch in task.plain.checkpoint_epochs:
            squared, product = one_checkpoint(task, task.plain.network(epoch))
            rate = task.plain.learning_rate(epoch)
            own += rate * squared.double().cpu()
            if product is not None:
                anchor += rate * product.double().cpu()
            task.session.check_time()
        scores = own.numpy()
        variants = {} if task.trusted is None else {"anchor": -anchor.numpy()}
        return Detection(scores, remove=by_mixture(scores), variants=variants)

    @staticmethod
    def head_products(task: NoisyTask, net: Network) -> tuple[Tensor, Tensor | None]:
        """[N] g_i . g_i and g_i . mean_v g_v of one checkpoint, last layer."""
        logits, features = task.predict(net, features=True)
        own = head_self_influence(logits, features, task.labels, net.scale)
        if task.trusted is None:
            return own, None
        images, labels = task.trusted
        anchor = head_gradient(*task.predict(net, images, features=True), labels.to(logits.device), net.scale)
        return own, head_influence(logits, features, task.labels, anchor, net.scale)

    def all_products(self, task: NoisyTask, net: Network) -> tuple[Tensor, Tensor | None]:
        """[N] g_i . g_i and g_i . mean_v g_v of one checkpoint, all parameters."""
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
        return torch.cat(own), torch.cat(product) if product else None

    def chunks(self, net: Network, images: ImageSet, labels: Tensor):
        for index in torch.arange(len(images), device=images.device).split(self.params.chunk):
            yield all_gradients(net, images.batch(index), labels.to(images.device)[index])
