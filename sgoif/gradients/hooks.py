"""Records the last layer's gradients inside the training step that computes them anyway.

Forward hooks see the input of the classifying Linear layer and the model's logits. The output gradient has the closed
form p - onehot(y), so head scope needs nothing else. `layer_hooks` extends this to several layers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from sgoif.backend.linalg import zero_rows_unless
from sgoif.config import InfluenceConfig
from sgoif.errors import BatchError, CaptureError, ScopeError
from sgoif.gradients.factored_batch import FactoredBatch
from sgoif.gradients.layer_ops import SupportedLayer, stored_weight, with_bias
from sgoif.gradients.layers import LinearGradients
from sgoif.gradients.parameter_space import ParameterSpace

MAX_SUM_ERROR = 0.01  # of the probabilities of an example, in half precision


def unwrap(model: nn.Module) -> nn.Module:
    """Return the user's own module inside torch.compile and (Distributed)DataParallel wrappers.

    Raises:
        ScopeError: If DataParallel would run it on parts of the batch.
    """
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            if isinstance(model, nn.DataParallel) and len(model.device_ids) > 1:
                raise ScopeError("nn.DataParallel on several GPUs splits every batch; use DistributedDataParallel")
            inner = model.module
        if inner is None:
            return model
        model = inner


def find_head(model: nn.Module, n_classes: int | None, name: str) -> tuple[str, nn.Linear]:
    """Return name and module of the classifying layer.

    Args:
        model: The model to search.
        n_classes: Number of outputs of the layer, if known.
        name: Name of the layer; "" for the last Linear layer that fits.

    Raises:
        ScopeError: If there is no such layer.
    """
    modules = dict(model.named_modules())
    if name:
        named = modules.get(name)
        if not isinstance(named, nn.Linear):
            raise ScopeError(f"config.head = {name!r} is not the name of an nn.Linear in {type(model).__name__}")
        if n_classes not in (None, named.out_features):
            raise ScopeError(f"config.head = {name!r} has {named.out_features} outputs, but n_classes = {n_classes}")
        return name, named
    linears = [(n, m) for n, m in modules.items() if isinstance(m, nn.Linear) and n_classes in (None, m.out_features)]
    if not linears:
        outputs = "" if n_classes is None else f" with {n_classes} outputs"
        kind = type(model).__name__
        single = any(isinstance(m, nn.Linear) and m.out_features == 1 for m in modules.values())
        cure = "; two classes need two logits, not one" if single and n_classes == 2 else ""
        raise ScopeError(
            f"{kind} has no nn.Linear{outputs} to serve as its head; the layer of the logits must be one{cure}"
        )
    return linears[-1]


def logits_of(output: object, n_classes: int, head_output: Tensor | None = None) -> Tensor | None:
    """Return the logits in what a model returns, or None if there are none.

    Args:
        output: A tensor; or a mapping, an object or a tuple, of which a tensor [n, C] counts: the output of the head
            itself where it is among several, so that logits and features are of one layer; else what is named
            `logits`; else, of a tuple, the first, unless it is unknown which of several belongs to the head.
        n_classes: Number of classes C.
        head_output: What the head returned in this pass; None if it is not known.
    """
    if isinstance(output, Tensor):
        return output
    named = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    parts: Iterable[object] = output.values() if isinstance(output, Mapping) else (named,)
    if is_tuple := isinstance(output, tuple | list):
        parts = output
    fitting = [c for c in parts if isinstance(c, Tensor) and c.dim() == 2 and c.shape[1] == n_classes]
    if len(fitting) > 1 and head_output is not None:
        own = [c for c in fitting if c.is_set_to(head_output)]
        fitting = own or [c for c in fitting if c is named]
    elif not is_tuple or named is not None:
        fitting = [c for c in fitting if c is named]
    return fitting[0] if fitting else None


def usual_logits(output: object) -> Tensor | None:
    """Return which of several outputs [n, C] is usually the logits: what is named so, else the first of a tuple."""
    if isinstance(output, Tensor):
        return None
    named = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    parts = [named, *(output if isinstance(output, tuple | list) else ())]
    return next((part for part in parts if isinstance(part, Tensor) and part.dim() == 2), None)


def layers_in_scope(model: nn.Module, head: str, scope: str) -> tuple[dict[str, SupportedLayer], list[str]]:
    """Return the supported layers in scope by name, and the names of the parameters that are left out.

    Raises:
        ScopeError: If the scope holds no supported layer.
    """
    pattern = re.compile(scope.removeprefix("blocks:")) if scope.startswith("blocks:") else None
    chosen: dict[str, SupportedLayer] = {}
    for name, module in model.named_modules():
        if scope == "head":
            wanted = name == head
        else:
            wanted = pattern is None or pattern.search(name) is not None
        supported = isinstance(module, nn.Linear) or (isinstance(module, nn.Conv2d) and module.groups == 1)
        if wanted and supported and (scope == "head" or stored_weight(module).requires_grad):
            chosen[name] = module
    if not chosen:
        raise ScopeError(
            f"scope {scope!r} holds no trainable nn.Linear or ungrouped nn.Conv2d of {type(model).__name__}"
        )
    inside = {id(p) for module in chosen.values() for p in module.parameters(recurse=False)}
    return chosen, [name for name, p in model.named_parameters() if id(p) not in inside]


def input_of(args: tuple[Tensor, ...], kwargs: dict[str, Tensor]) -> Tensor:
    """Return what an nn.Linear or nn.Conv2d was called with, by position or as `input`."""
    return args[0] if args else kwargs["input"]


@dataclass
class CapturedPass:
    """What the hooks saw during one forward and backward pass.

    `SCORED_FIELDS` are kept until the pass is scored. The factors of the layers, `inputs` and `gradients`, are used in
    deep scopes only and are released at the end of the step.
    """

    SCORED_FIELDS: ClassVar[tuple[str, ...]] = ("features", "logits", "head_gradient", "projection")

    features: Tensor | None = None  # [n, d] inputs of the head
    head_output: Tensor | None = None  # [n, C] as the head returned it; the loop may change it in place
    returned: Tensor | None = None  # [n, C] as the model returned it; the loop may change it in place
    logits: Tensor | None = None  # [n, C] copy of the outputs of the model
    head_gradient: Tensor | None = None  # [n, C] gradient of the user's loss at the head's output
    projection: Tensor | None = None  # [n] <phibar, g_i> below the head, in the scale of the user's loss
    inputs: dict[str, Tensor] = field(default_factory=dict)
    gradients: dict[str, Tensor] = field(default_factory=dict)

    def scored_tensors(self) -> dict[str, Tensor]:
        """Return the tensors that are kept until the pass is scored, by name."""
        named = {name: getattr(self, name) for name in self.SCORED_FIELDS}
        return {name: tensor for name, tensor in named.items() if tensor is not None}

    def copied(self) -> CapturedPass:
        """Copy what is kept until the pass is scored; the factors of the layers are shared."""
        clones: dict[str, Any] = {name: tensor.detach().clone() for name, tensor in self.scored_tensors().items()}
        return CapturedPass(**clones, inputs=dict(self.inputs), gradients=dict(self.gradients))

    def release_layers(self) -> None:
        """Drop the factors of the layers."""
        self.inputs, self.gradients = {}, {}


class GradientHooks:
    """Forward hooks on a model that turn a pass into a `FactoredBatch` of the last layer's gradients.

    Args:
        model: The model that is trained; wrappers of torch.compile and DataParallel are removed.
        config: Says which layers are in scope and which one is the head.
        n_classes: Number of outputs of the head, if known.

    Raises:
        ScopeError: If the model has no head or no supported layer in scope.
    """

    closed_form: ClassVar[bool] = True  # whether the Gauss-Newton matrix follows from activations and probabilities

    def __init__(self, model: nn.Module, config: InfluenceConfig, n_classes: int | None) -> None:
        self.model = unwrap(model)
        self.head_name, self.head = find_head(self.model, n_classes, config.head)
        self.n_classes = n_classes or self.head.out_features
        self.head_is_guessed = n_classes is None and not config.head
        self.layers, self.left_out = layers_in_scope(self.model, self.head_name, config.scope)
        weights = {name: stored_weight(m) for name, m in self.layers.items()}
        uninitialised = [name for name, weight in weights.items() if is_lazy(weight)]
        if uninitialised:
            raise ScopeError(f"layer {uninitialised[0]!r} has no weights yet: run a batch through the model first")
        self.space = ParameterSpace(
            [(len(w), w[0].numel() + (self.layers[name].bias is not None)) for name, w in weights.items()]
        )
        self.dtype = torch.promote_types(stored_weight(self.head).dtype, torch.float32)
        self.recording = False
        self.removed = False
        self.captured = CapturedPass()
        self._output_is_checked = False
        self._handles = [
            self.head.register_forward_hook(self._on_head_output, with_kwargs=True),
            self.model.register_forward_hook(self._on_logits),
        ]

    def remove(self) -> None:
        """Remove the hooks from the model."""
        self.removed = True
        for handle in self._handles:
            handle.remove()

    def _on_head_output(
        self, module: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor], output: Tensor
    ) -> None:
        if self.recording:
            given = input_of(args, kwargs)
            features = given.detach()
            # Nothing below the head is trained: these may be the caller's own numbers, in a buffer that is used again.
            self.captured.features = features if given.requires_grad else features.clone()
            self.captured.head_output, self.captured.logits = output.detach(), None

    def _on_logits(self, module: nn.Module, inputs: tuple[Tensor, ...], output: object) -> None:
        """Keep the model's own logits, after any scaling that follows the head; those of the head if there are none.

        They are copied, because a margin in the loss or a metric may change them in place before they are scored.
        """
        if not self.recording:
            return
        if self.head_is_guessed and not self._output_is_checked:
            self._require_head_of(output)
        head, logits = self.captured.head_output, self._logits_of(output)
        kept = self.captured.returned = None if logits is None else logits.detach()
        if head is not None and (kept is None or kept.shape != head.shape):
            kept = head
        self.captured.logits = None if kept is None else kept.clone()

    def _require_head_of(self, output: object) -> None:
        """Raise CaptureError if what is usually the logits is of another, narrower nn.Linear than the guessed head."""
        logits = usual_logits(output)
        widths = {m.out_features for m in self.model.modules() if isinstance(m, nn.Linear)}
        if logits is not None and logits.shape[1] < self.head.out_features and logits.shape[1] in widths:
            raise CaptureError(
                f"which layer classifies? The model returns several outputs. Its last nn.Linear, {self.head_name!r}, "
                f"has {self.head.out_features} values, what looks like the logits {logits.shape[1]}; pass n_classes, "
                "or name the layer of the logits in config.head"
            )

    def _logits_of(self, output: object) -> Tensor | None:
        return logits_of(output, self.head.out_features, self.captured.head_output)

    def start(self) -> CapturedPass:
        """Record the forward pass that follows until `stop`, and the backward pass of what it computes."""
        self.captured, self.recording = CapturedPass(), True
        return self.captured

    def stop(self) -> CapturedPass:
        """End the recording and return what it saw."""
        self.recording = False
        captured, self.captured = self.captured, CapturedPass()
        return captured

    @contextmanager
    def evaluation_pass(self) -> Iterator[CapturedPass]:
        """Record a pass of anchor data, which is not scored."""
        captured = self.start()
        try:
            yield captured
        finally:
            self.stop()

    def evaluate(self, x: Tensor, y: Tensor) -> None:
        """Run the pass that the gradients of anchor data need; every `.grad` stays as it is."""
        with torch.no_grad():
            F.cross_entropy(self.run_model(x).float(), y)

    def run_model(self, x: Tensor) -> Tensor:
        """Return the model's logits of anchor data.

        Raises:
            CaptureError: If the model returns no logits.
        """
        output = self.model(x)
        logits = self._logits_of(output)
        if logits is None:
            given = type(output).__name__
            raise CaptureError(f"with anchor_data the model must return its logits, not a {given} without them")
        return logits

    def validate(self, captured: CapturedPass, count: int) -> None:
        """Check that the pass went through the head, and choose the logits to use.

        Raises:
            CaptureError: If the pass did not reach the head, or with inputs of another shape than [n, features].
            BatchError: If the pass was not of `count` examples.
        """
        if captured.features is None:
            raise CaptureError(
                f"no forward pass reached the head {self.head_name!r} inside watch(); if another layer classifies, "
                "name it in config.head; if layers were replaced or the model is compiled, create OnlineInfluence "
                "after that and before the first forward pass"
            )
        if captured.features.dim() != 2:
            shape = tuple(captured.features.shape)
            raise CaptureError(f"the head {self.head_name!r} got inputs of shape {shape}; expected [batch, features]")
        if captured.features.shape[0] != count:
            seen = captured.features.shape[0]
            raise BatchError(
                f"watch() was given {count} labels, but the model saw a batch of {seen} examples; "
                "of several passes inside watch() the last one counts"
            )
        output, returned = captured.head_output, captured.returned
        if captured.logits is None and output is not None:  # the model's parts were called one by one
            captured.logits = output.clone()
        if not self._output_is_checked and captured.logits is not None and returned is not None and output is not None:
            self._check_output(captured.logits, returned, output)

    def _check_output(self, logits: Tensor, returned: Tensor, output: Tensor) -> None:
        """Check once that what follows the head leaves logits; only if something follows does it wait for the device.

        Raises:
            CaptureError: If the model returns probabilities, or was guessed to end in a layer that it does not end in.
        """
        if returned.shape != output.shape:
            if self.head_is_guessed and returned.dim() == 2 and len(returned) == len(output):
                raise CaptureError(
                    f"the model returns {returned.shape[1]} values for each example, but its last nn.Linear, "
                    f"{self.head_name!r}, {output.shape[1]}; name the layer of the logits in config.head"
                )
        elif returned.data_ptr() != output.data_ptr() and len(logits):
            if bool((logits >= 0).all() & ((logits.float().sum(1) - 1).abs() < MAX_SUM_ERROR).all()):
                raise CaptureError("the model returns probabilities; it must return logits or their log_softmax")
        self._output_is_checked = True

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
        """Return the head's gradients (p - onehot(y)) (x) [features, 1]; examples that are not finite get zero rows.

        Args:
            features: Inputs of the head, shape [n, d].
            logits: Outputs of the model, shape [n, C].
            index: Positions in the data set, shape [n].
            labels: Labels, shape [n].
            temperature: Softens the softmax.
            recency: Weight in running averages, shape [n]; ones if not passed.
            step_sizes: Examples of each step, oldest first; one step if not passed.
        """
        features, logits = features.to(self.dtype), logits.to(self.dtype)
        valid = torch.isfinite(features.sum(1) + logits.sum(1))
        onehot = labels.unsqueeze(1) == torch.arange(self.n_classes, device=labels.device)
        probs = torch.softmax(logits / temperature, dim=1)
        errors, inputs = probs - onehot.to(self.dtype), with_bias(features, self.head.bias is not None)
        predicted = torch.softmax(logits, dim=1)
        inputs, errors, logits, predicted, probs = zero_rows_unless(valid, inputs, errors, logits, predicted, probs)
        return FactoredBatch(
            space=self.space,
            layers=(LinearGradients(inputs, errors),),
            scales=(None,),
            index=index,
            labels=labels,
            logits=logits,
            predicted=predicted,
            probs=probs,
            valid=valid,
            recency=torch.ones_like(valid, dtype=self.dtype) if recency is None else recency,
            temperature=temperature,
            step_sizes=step_sizes or (len(labels),),
            closed_form=self.closed_form,
        )

    def pass_batch(
        self,
        captured: CapturedPass,
        index: Tensor,
        labels: Tensor,
        temperature: Tensor | float,
        rows: slice = slice(None),
    ) -> FactoredBatch:
        """Return the gradients of the chosen examples of one validated pass, for all layers in scope."""
        assert captured.features is not None and captured.logits is not None
        return self.head_batch(captured.features[rows], captured.logits[rows], index[rows], labels[rows], temperature)
