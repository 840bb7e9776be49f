"""The settings of a scan's training: they follow from the data and the device unless the command line gives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from sgoif.errors import UserError

NETWORK = "network"  # a scan that trains a network on images
EMBED = "embed"  # one that trains a head on the features of a pretrained network
FEATURES = "features"  # one that trains a head on features from a file
COMPACT = "compact"  # the network of a scan where no timm model is named
MAX_PIXELS = {"cpu": 64, "cuda": 128}  # side of the network's input where the images are larger
EMBED_PIXELS = 160  # side at which a CPU embeds photographs; a GPU takes the size that the weights were trained at
COMPACT_WIDTH = {"cpu": 16, "cuda": 64}  # channels of the compact network's first layer
TARGET_VISITS = 45_000  # examples seen in a training, within MIN_EPOCHS and MAX_EPOCHS
MIN_EPOCHS = 10
MAX_EPOCHS = 30
IMAGE_OPTIONS = ("model", "weights", "finetune", "from_scratch", "checked", "size", "shift", "flip")
LEAST = {"epochs": 2, "batch_size": 2, "shift": 0, "seed": 0, "width": 1, "size": 4}  # least value of a setting
NO_IMAGES = "with --features a head is trained, whatever they came from"
DEFAULT_INPUT_PIXELS = 224  # of a timm model that does not name its input size


@dataclass(frozen=True)
class Settings:
    """How a scan trains; an interrupted scan continues only under equal settings.

    Attributes:
        method: `NETWORK`, `EMBED` or `FEATURES`: what is trained, and on what.
        device: "cpu" or "cuda".
        model: "compact", or the name of a timm model; "" where features come from a file.
        weights: Start of the sha256 of the pretrained weights' file; "" from scratch.
        width: Channels of the compact network's first layer.
        size: Side of the network's input in pixels.
        channels: 1 for grey, 3 for colour.
        epochs: Passes over the data.
        batch_size: Examples per step.
        optimizer: "sgd" or "adam".
        lr: Peak learning rate; of a head, times the mean square norm of an example's features.
        weight_decay: Weight decay.
        shift: Largest random translation in pixels (augmentation).
        flip: Whether images are mirrored at random (augmentation).
        seed: Seed of weights, order and augmentation.

    Raises:
        UserError: If a value is out of range.
    """

    method: str
    device: str
    model: str
    weights: str
    width: int
    size: int
    channels: int
    epochs: int
    batch_size: int
    optimizer: str
    lr: float
    weight_decay: float
    shift: int
    flip: bool
    seed: int

    def __post_init__(self) -> None:
        unused = {EMBED: {"width"}, FEATURES: {"width", "size"}}.get(self.method, set())
        check_options({name: value for name, value in self.to_dict().items() if name not in unused})
        if self.method == NETWORK and self.shift >= self.size:
            raise UserError(f"--shift {self.shift}: must be less than the image's {self.size} pixels")

    def to_dict(self) -> dict[str, Any]:
        """Return the settings by name."""
        return asdict(self)

    def describe(self) -> str:
        """Return the sentence that is printed before training."""
        if self.method != NETWORK:
            inputs = f" on images of {self.size} pixels" if self.method == EMBED else ""
            return (
                f"a linear head{inputs} on {self.device}, {self.epochs} epochs in batches of {self.batch_size}, sgd at "
                f"{self.lr:g} over the features' mean square with weight decay {self.weight_decay:g}, seed {self.seed}"
            )
        network = f"{self.model} (width {self.width})" if self.model == COMPACT else self.model
        weights = "pretrained" if self.weights else "from scratch"
        flips = "with" if self.flip else "without"
        return (
            f"{network} {weights} on {self.device}, {self.size} pixels, {self.epochs} epochs in batches of "
            f"{self.batch_size}, {self.optimizer} at {self.lr:g} with weight decay {self.weight_decay:g}, "
            f"shifts of {self.shift} pixels {flips} mirror images, seed {self.seed}"
        )


def check_options(options: Mapping[str, Any]) -> None:
    """Check the range of settings that are given, which can be done before anything is read.

    Args:
        options: Settings by name; those that are None, and other names, are not looked at.

    Raises:
        UserError: If one is out of range.
    """
    for name, least in LEAST.items():
        value = options.get(name)
        if value is not None and value < least:
            raise UserError(f"--{name.replace('_', '-')} {value}: must be at least {least}")
    lr = options.get("lr")
    if lr is not None and not 0 < lr < float("inf"):
        raise UserError(f"--lr {lr}: must be above 0")


def choose_settings(
    n: int,
    side: int,
    grey: bool,
    device: str,
    options: Mapping[str, Any],
    model: str = COMPACT,
    weights: str = "",
) -> Settings:
    """Chooses the settings of a scan that trains a network.

    Args:
        n: Number of images.
        side: Their median shorter side in pixels.
        grey: Whether all of them are grey.
        device: "cpu" or "cuda".
        options: Settings by name from the command line; those that are not None replace the defaults. Other names are
            ignored.
        model: "compact", or the name of a timm model.
        weights: Identity of the weights that it starts from; "" from scratch.

    Raises:
        UserError: If an option is out of range or does not fit the others.
    """
    pretrained = bool(weights)
    values: dict[str, Any] = {
        "method": NETWORK,
        "device": device,
        "model": model,
        "weights": weights,
        "width": COMPACT_WIDTH[device],
        "size": _input_size(model, pretrained, min(max(side, 8), MAX_PIXELS[device])),
        "channels": 1 if grey and not pretrained else 3,
        "epochs": min(max(round(TARGET_VISITS / n), MIN_EPOCHS), MAX_EPOCHS),
        "batch_size": min(128 if n >= 10_000 else 64, max(n // 20, 8)),
        **_optimizer_defaults(model, pretrained),
        "flip": not grey,
        "seed": 0,
    }
    values |= _given(options)
    values.setdefault("shift", max(values["size"] // 16, 1))
    return Settings(**values)


def choose_embedding_settings(n: int, device: str, options: Mapping[str, Any], model: str, weights: str) -> Settings:
    """Chooses the settings of a scan that trains a head on the features of a pretrained network.

    Args:
        n: Number of images.
        device: "cpu" or "cuda".
        options: Settings by name from the command line, as in `choose_settings`.
        model: Name of the timm model.
        weights: Identity of its weights.

    Raises:
        UserError: If an option is out of range, or only for a network that is trained.
    """
    for name in ("shift", "flip"):
        if options.get(name) is not None:
            raise UserError(f"--{name} is for a network that is trained; add --finetune or --from-scratch")
    size = _input_size(model, True, 0)
    about = {"model": model, "weights": weights, "width": 0, "channels": 3, "shift": 0, "flip": False}
    if device == "cpu" and not _has_fixed_size(model):
        size = min(size, EMBED_PIXELS)
    values = {"method": EMBED, "device": device, **about, "size": size, **head_defaults(n), **_given(options)}
    return Settings(**values)


def choose_head_settings(n: int, device: str, options: Mapping[str, Any]) -> Settings:
    """Chooses the settings of a scan of n examples by features from a file.

    Args:
        n: Number of examples.
        device: "cpu" or "cuda".
        options: Settings by name from the command line; those that are not None replace the defaults. Other names are
            ignored.

    Raises:
        UserError: If an option is out of range, or only for images.
    """
    for name in IMAGE_OPTIONS:
        if options.get(name):
            hint = "in Python find_label_issues takes checked features" if name == "checked" else NO_IMAGES
            raise UserError(f"--{name.replace('_', '-')} is for images; {hint}")
    about_images = {"model": "", "weights": "", "width": 0, "size": 0, "channels": 0, "shift": 0, "flip": False}
    return Settings(**{"method": FEATURES, "device": device, **about_images, **head_defaults(n), **_given(options)})


def head_defaults(n: int) -> dict[str, Any]:
    """Return the settings of a head for n examples, by name."""
    from sgoif.features.head import HeadRecipe

    return {"optimizer": "sgd", **asdict(HeadRecipe.for_examples(n))}


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that the command line gives."""
    names = {f.name for f in fields(Settings)} - {"method", "device", "model", "weights"}
    return {name: value for name, value in options.items() if name in names and value is not None}


def _optimizer_defaults(model: str, pretrained: bool) -> dict[str, Any]:
    if model == COMPACT:
        return {"optimizer": "sgd", "lr": 0.2, "weight_decay": 5e-4}
    return {"optimizer": "adam", "lr": 3e-4 if pretrained else 1e-3, "weight_decay": 0.0}


def _input_size(model: str, pretrained: bool, size: int) -> int:
    """Return the side of the network's input for images of `size` pixels."""
    if model == COMPACT:
        return size
    if not pretrained:
        return max(size, 32)
    about = _pretrained_about(model)
    return int(about.input_size[-1]) if about and about.input_size else DEFAULT_INPUT_PIXELS


def _has_fixed_size(model: str) -> bool:
    about = _pretrained_about(model)
    return bool(about and about.fixed_input_size)


def _pretrained_about(model: str) -> Any:
    """Return what timm says about the weights of a model, or None."""
    import timm

    return timm.get_pretrained_cfg(model) if timm.is_model(model) else None
