"""Catching gradients inside the training step that makes them anyway.

Head scope needs the input of the classifying Linear layer and the model's logits, both seen by forward hooks; the
output gradient p - onehot(y) has a closed form. Other scopes also catch the output gradient of each layer in the same
backward pass, and take the score along at once (`aim.py`). That pass carries the user's own loss, so each example's
output gradients are multiplied by ||p_T - onehot(y)|| / ||gradient that reached the head's output||: mean or sum
reduction, loss scaling and accumulation cancel, and for T = 1 and plain cross-entropy the result is exactly the
per-example gradient.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from sgoif.config import InfluenceConfig
from sgoif.errors import BatchError, CaptureError, ScopeError
from sgoif.gradients.dot_product import Aim
from sgoif.gradients.factored_batch import FactoredBatch
from sgoif.gradients.layers import ConvBatch, LayerBatch, RowBatch, TokenBatch, in_precision, with_bias
from sgoif.gradients.parameter_space import Space


def unwrap(model: nn.Module) -> nn.Module:
    """The user's own module inside torch.compile and (Distributed)DataParallel wrappers."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            inner = model.module
        if inner is None:
            return model
        model = inner


def find_head(model: nn.Module, n_classes: int | None, name: str) -> tuple[str, nn.Linear]:
    """The classifying layer: the named one, else the last Linear (with `n_classes` outputs when that is known)."""
    modules = dict(model.named_modules())
    if name:
        if not isinstance(modules.get(name), nn.Linear):
            raise ScopeError(f"config.head = {name!r} is not the name of an nn.Linear in {type(model).__name__}")
        return name, modules[name]
    linears = [(n, m) for n, m in modules.items() if isinstance(m, nn.Linear) and n_classes in (None, m.out_features)]
    if not linears:
        outputs = "" if n_classes is None else f" with {n_classes} outputs"
        raise ScopeError(
            f"{type(model).__name__} has no nn.Linear{outputs} to serve as its head; name one in config.head"
        )
    return linears[-1]


def layers_in_scope(model: nn.Module, head: str, scope: str) -> tuple[dict[str, nn.Module], list[str]]:
    """Supported layers in scope by name, and the names of the parameters that the scope leaves out."""
    pattern = re.compile(scope.removeprefix("blocks:")) if scope.startswith("blocks:") else None
    chosen = {}
    for name, module in model.named_modules():
        wanted = name == head if scope == "head" else pattern is None or pattern.search(name) is not None
        supported = isinstance(module, nn.Linear) or (isinstance(module, nn.Conv2d) and module.groups == 1)
        if wanted and supported and module.weight.requires_grad | (scope == "head"):
            chosen[name] = module
    if not chosen:
        raise ScopeError(
            f"scope {scope!r} holds no trainable nn.Linear or ungrouped nn.Conv2d of {type(model).__name__}"
        )
    inside = {id(p) for module in chosen.values() for p in module.parameters(recurse=False)}
    return chosen, [name for name, p in model.named_parameters() if id(p) not in inside]


@dataclass
class Record:
    """What the hooks saw during one forward and backward pass: what stays of it until it is scored, and outside head
    scope the factors of every layer's gradients, which only the step itself may learn from."""

    features: Tensor | None = None
    head_output: Tensor | None = None
    logits: Tensor | None = None
    head_gradient: Tensor | None = None
    along: Tensor | None = None  # [n] <phibar, g_i> over the layers below the head, as scaled as the user's loss
    inputs: dict[str, Tensor] = field(default_factory=dict)
    gradients: dict[str, Tensor] = field(default_factory=dict)

    def copied(self) -> Record:
        """What stays until it is scored, in memory of its own; the layers' factors where they are."""
        kept = {name: getattr(self, name) for name in SMALL}
        clones = {name: t.detach().clone() for name, t in kept.items() if t is not None}
        return Record(**clones, inputs=dict(self.inputs), gradients=dict(self.gradients))

    def forget_layers(self) -> None:
        self.inputs, self.gradients = {}, {}


SMALL = ("features", "logits", "head_gradient", "along")


class Capture:
    """Hooks on a model that turn one forward/backward pass into a `FactoredBatch`."""

    def __init__(self, model: nn.Module, config: InfluenceConfig, n_classes: int | None) -> None:
        self.model = unwrap(model)
        self.head_name, self.head = find_head(self.model, n_classes, config.head)
        self.n_classes = n_classes or self.head.out_features
        self.layers, self.left_out = layers_in_scope(self.model, self.head_name, config.scope)
        self.deep = config.scope != "head"
        self.space = Space(
            [(w.shape[0], w[0].numel() + (m.bias is not None)) for m in self.layers.values() for w in [m.weight]]
        )
        self.dtype = torch.promote_types(self.head.weight.dtype, torch.float32)
        self.aim = Aim(self.layers, self.space, self.dtype)
        self.recording = self.scoring = False
        self.record = Record()
        self._handles = [
            self.head.register_forward_hook(self._see_head),
            self.model.register_forward_hook(self._see_logits),
        ]
        if self.deep:
            self._handles += [
                module.register_forward_hook(self._see_layer(name))
                for name, module in self.layers.items()
                if name != self.head_name
            ]

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()

    def _see_head(self, module: nn.Module, inputs: tuple, output: Tensor) -> None:
        if self.recording:
            self.record.features, self.record.head_output = inputs[0].detach(), output.detach()
            if self.deep and output.requires_grad:
                record = self.record
                output.register_hook(lambda gradient: setattr(record, "head_gradient", gradient.detach()))

    def _see_logits(self, module: nn.Module, inputs: tuple, output: object) -> None:
        """The model's own logits, after any scaling that follows the head; else the head's output is used."""
        if self.recording and isinstance(output, Tensor):
            self.record.logits = output.detach()

    def _see_layer(self, name: str):
        def hook(module: nn.Module, inputs: tuple, output: Tensor) -> None:
            if self.recording and output.requires_grad:
                record, given, scoring = self.record, inputs[0].detach(), self.scoring

                def arrived(gradient: Tensor) -> None:
                    a, e = in_precision(given, gradient.detach(), self.dtype)
                    record.inputs[name], record.gradients[name] = a, e
                    if scoring:
                        along = self.aim.along(name, a, e)
                        record.along = along if record.along is None else record.along + along

                output.register_hook(arrived)

        return hook

    def start(self, scoring: bool = True) -> Record:
        """Record the forward pass that follows until `stop`, and the backward pass of what it computed."""
        self.record, self.recording, self.scoring = Record(), True, scoring
        return self.record

    def stop(self) -> Record:
        self.recording = False
        record, self.record = self.record, Record()
        return record

    def validate(self, record: Record, count: int) -> None:
        """Complain if the passes did not go through the head; afterwards `record.logits` are the logits to use."""
        if record.features is None:
            raise CaptureError(
                f"no forward pass reached the head {self.head_name!r} inside watch(); if the model is compiled, "
                "create OnlineInfluence before its first forward pass"
            )
        if record.features.dim() != 2:
            shape = tuple(record.features.shape)
            raise CaptureError(f"the head {self.head_name!r} got inputs of shape {shape}; expected [batch, features]")
        if record.features.shape[0] != count:
            seen = record.features.shape[0]
            raise BatchError(f"watch() was given {count} labels, but the model saw a batch of {seen} examples")
        missing = [name for name in self.layers if name != self.head_name and name not in record.gradients]
        if self.deep and (missing or record.head_gradient is None):
            names = ", ".join(missing) or self.head_name
            raise CaptureError(f"no gradient reached {names} inside watch(): call loss.backward() there")
        if record.logits is None or record.logits.shape != record.head_output.shape:
            record.logits = record.head_output

    def head_batch(
        self,
        features: Tensor,
        logits: Tensor,
        index: Tensor,
        labels: Tensor,
        temperature: Tensor | float,
        recency: Tensor | None = None,
        step_sizes: tuple[int, ...] | None = None,
    ) -> FactoredBatch:
        """Head-scope gradients (p - onehot(y)) (x) [features, 1]; examples that are not finite get zero rows."""
        features, logits = features.to(self.dtype), logits.to(self.dtype)
        valid = torch.isfinite(features.sum(1) + logits.sum(1))
        keep = valid.unsqueeze(1)
        logits = torch.where(keep, logits, 0)
        onehot = (labels.unsqueeze(1) == torch.arange(self.n_classes, device=labels.device)) & keep
        probs = torch.softmax(logits / temperature, dim=1) * keep
        return FactoredBatch(
            space=self.space,
            layers=(
                RowBatch(
                    torch.where(keep, with_bias(features, self.head.bias is not None), 0), probs - onehot.to(self.dtype)
                ),
            ),
            scales=(None,),
            index=index,
            labels=labels,
            probs=probs,
            agreement=(torch.softmax(logits, dim=1) * onehot).sum(1),
            valid=valid,
            recency=torch.ones_like(valid, dtype=self.dtype) if recency is None else recency,
            temperature=temperature,
            step_sizes=step_sizes or (len(labels),),
            closed_form=not self.deep,
        )

    def pass_batch(
        self, record: Record, index: Tensor, labels: Tensor, temperature: Tensor | float, rows: slice = slice(None)
    ) -> FactoredBatch:
        """Gradients of all layers in scope of the chosen examples of one validated pass."""
        batch = self.head_batch(record.features[rows], record.logits[rows], index[rows], labels[rows], temperature)
        if not self.deep:
            return batch
        head, scale = batch.layers[0], self.rescaling(batch, record.head_gradient[rows])
        layers: list[LayerBatch] = []
        valid = batch.valid
        for name, module in self.layers.items():
            if name == self.head_name:
                layers.append(head)
            else:
                gradient = record.gradients[name][rows]
                valid = valid & torch.isfinite(gradient.sum(tuple(range(1, gradient.dim())), dtype=self.dtype))
                layers.append(self._layer(module, record.inputs[name][rows], gradient))
        scale = torch.where(valid, scale, 0)
        scales = tuple(valid.to(self.dtype) if name == self.head_name else scale for name in self.layers)
        return replace(batch, layers=tuple(layers), scales=scales, valid=valid)

    def rescaling(self, batch: FactoredBatch, head_gradient: Tensor) -> Tensor:
        """What turns the gradients of the user's loss into those of the softened cross-entropy, `[n]`; 0 where that is
        not finite."""
        arrived = torch.linalg.vector_norm(head_gradient.to(self.dtype), dim=1)
        scale = torch.linalg.vector_norm(batch.layers[0].e, dim=1) / arrived
        return torch.where(torch.isfinite(scale), scale, 0)

    def along(self, batch: FactoredBatch, head_gradient: Tensor, along: Tensor | None) -> tuple[Tensor, Tensor]:
        """<phibar, g_i> `[n]` outside head scope, from the head's part of a batch and what was taken along below it;
        and which examples are finite. Zero for those that are not."""
        total = batch.probs.new_zeros(len(batch))
        if along is not None:
            total = along * self.rescaling(batch, head_gradient)
        if self.head_name in self.layers:
            total = total + batch.layers[0].inner(self.aim.block(self.head_name))[:, 0]
        valid = batch.valid & torch.isfinite(total)
        return torch.where(valid, total, 0), valid

    def arithmetic(self, record: Record) -> int:
        """Floating-point operations that training spent on the layers in scope for one recorded pass."""
        below = [name for name in self.layers if name != self.head_name]
        inputs = dict(zip(self.layers, (columns for _, columns in self.space.shapes), strict=True))
        return 6 * sum(record.gradients[name].numel() * inputs[name] for name in below)

    def _layer(self, module: nn.Module, inputs: Tensor, gradient: Tensor) -> LayerBatch:
        if isinstance(module, nn.Conv2d):
            return ConvBatch(inputs, gradient, module, self.dtype)
        inputs = with_bias(inputs, module.bias is not None)
        if inputs.dim() == 2:
            return RowBatch(inputs.to(self.dtype), gradient.to(self.dtype))
        return TokenBatch(inputs.flatten(1, -2), gradient.flatten(1, -2), self.dtype)
