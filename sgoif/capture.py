"""Catching gradients inside the training step that makes them anyway.

Head scope needs the input of the classifying Linear layer and the model's logits, both seen by forward hooks; the
output gradient p - onehot(y) has a closed form. Other scopes also catch the output gradient of each layer in the same
backward pass. That pass carries the user's own loss, so each example's output gradients are multiplied by ||p_T -
onehot(y)|| / ||gradient that reached the head's output||: mean or sum reduction, loss scaling and accumulation
cancel, and for T = 1 and plain cross-entropy the result is exactly the per-example gradient.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from sgoif.batch import FactoredBatch
from sgoif.config import InfluenceConfig
from sgoif.errors import BatchError, CaptureError, ScopeError
from sgoif.layers import ConvBatch, LayerBatch, PatchBatch, RowBatch, with_bias
from sgoif.space import Space


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
    """What the hooks saw during one forward and backward pass."""

    features: Tensor | None = None
    head_output: Tensor | None = None
    logits: Tensor | None = None
    head_gradient: Tensor | None = None
    inputs: dict[str, Tensor] = field(default_factory=dict)
    gradients: dict[str, Tensor] = field(default_factory=dict)


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
        self.recording = False
        self.record = Record()
        self._handles = [
            self.head.register_forward_hook(self._see_head),
            self.model.register_forward_hook(self._see_logits),
        ]
        if self.deep:
            self._handles += [
                module.register_forward_hook(self._see_layer(name)) for name, module in self.layers.items()
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
            if self.recording:
                record = self.record
                record.inputs[name] = inputs[0].detach()
                if output.requires_grad:
                    output.register_hook(lambda gradient: record.gradients.__setitem__(name, gradient.detach()))

        return hook

    def start(self) -> None:
        self.record, self.recording = Record(), True

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

    def pass_batch(self, record: Record, index: Tensor, labels: Tensor, temperature: Tensor | float) -> FactoredBatch:
        """Gradients of all layers in scope from one validated pass."""
        batch = self.head_batch(record.features, record.logits, index, labels, temperature)
        if not self.deep:
            return batch
        layers, scales, valid = self._deep_layers(record, batch.layers[0], batch.valid)
        return replace(batch, layers=tuple(layers), scales=tuple(scales), valid=valid)

    def _deep_layers(
        self, record: Record, head: RowBatch, valid: Tensor
    ) -> tuple[list[LayerBatch], list[Tensor | None], Tensor]:
        arrived = torch.linalg.vector_norm(record.head_gradient.to(self.dtype), dim=1)
        scale = torch.linalg.vector_norm(head.e, dim=1) / arrived
        for gradient in record.gradients.values():
            valid = valid & torch.isfinite(gradient.flatten(1).sum(1))
        scale = torch.where(valid & torch.isfinite(scale), scale, 0)
        layers: list[LayerBatch] = []
        for name, module in self.layers.items():
            layers.append(
                head if name == self.head_name else self._layer(module, record.inputs[name], record.gradients[name])
            )
        scales = [valid.to(self.dtype) if name == self.head_name else scale for name in self.layers]
        return layers, scales, valid

    def _layer(self, module: nn.Module, inputs: Tensor, gradient: Tensor) -> LayerBatch:
        if isinstance(module, nn.Conv2d):
            return ConvBatch(inputs, gradient, module, self.dtype)
        inputs, gradient = with_bias(inputs.to(self.dtype), module.bias is not None), gradient.to(self.dtype)
        if inputs.dim() == 2:
            return RowBatch(inputs, gradient)
        return PatchBatch(inputs.flatten(1, -2), gradient.flatten(1, -2))
