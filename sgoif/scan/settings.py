"""How a scan trains: everything follows from the data's size and the device unless it is said on the command line."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields

from sgoif.errors import UserError

COMPACT = "compact"  # the network of a scan where no timm model is named
LARGEST = {"cpu": 64, "cuda": 128}  # pixels a side, where the pictures are larger
WIDTH = {"cpu": 16, "cuda": 64}  # of the compact network
VISITS = 45_000  # examples seen in a training of few examples; 10 to 30 epochs


@dataclass(frozen=True)
class Settings:
    """One frozen record; a scan can only be continued under the same one."""

    device: str  # cpu or cuda
    model: str  # compact, or a timm model
    pretrained: bool
    width: int  # channels of the compact network's first layer
    size: int  # pixels a side that the network sees
    channels: int
    epochs: int
    batch_size: int
    optimizer: str
    lr: float
    weight_decay: float
    shift: int  # augmentation: largest random translation in pixels
    flip: bool  # augmentation: random mirror image
    seed: int

    def __post_init__(self) -> None:
        limits = {"width": 1, "size": 4, "epochs": 2, "batch_size": 2, "shift": 0, "seed": 0}
        for name, least in limits.items():
            if getattr(self, name) < least:
                raise UserError(f"--{name.replace('_', '-')} {getattr(self, name)}: must be at least {least}")
        if not 0 < self.lr < float("inf"):
            raise UserError(f"--lr {self.lr}: must be above 0")
        if self.shift >= self.size:
            raise UserError(f"--shift {self.shift}: must be less than the picture's {self.size} pixels")

    def to_dict(self) -> dict:
        return asdict(self)

    def describe(self) -> str:
        """The one paragraph that is printed before training."""
        network = f"{self.model} (width {self.width})" if self.model == COMPACT else self.model
        weights = "pretrained" if self.pretrained else "from scratch"
        flips = "with" if self.flip else "without"
        return (
            f"{network} {weights} on {self.device}, {self.size} pixels, {self.epochs} epochs in batches of "
            f"{self.batch_size}, {self.optimizer} at {self.lr:g} with weight decay {self.weight_decay:g}, "
            f"shifts of {self.shift} pixels {flips} mirror images, seed {self.seed}"
        )


def choose(n: int, side: int, grey: bool, device: str, said: dict) -> Settings:
    """Defaults for `n` pictures of median shorter side `side`; entries of `said` that are not None replace them."""
    model = said.get("model") or COMPACT
    pretrained = bool(said.get("pretrained"))
    if pretrained and model == COMPACT:
        raise UserError("--pretrained needs --model: name a timm model that has weights, e.g. resnet18")
    size = min(max(side, 8), LARGEST[device])
    if model != COMPACT:
        size = _native_size(model) if pretrained else max(size, 32)
    batch_size = min(128 if n >= 10_000 else 64, max(n // 20, 8))
    values = {
        "device": device,
        "model": model,
        "pretrained": pretrained,
        "width": WIDTH[device],
        "size": size,
        "channels": 1 if grey else 3,
        "epochs": min(max(round(VISITS / n), 10), 30),
        "batch_size": batch_size,
        "optimizer": "sgd" if model == COMPACT else "adam",
        "lr": 0.2 if model == COMPACT else 3e-4 if pretrained else 1e-3,
        "weight_decay": 5e-4 if model == COMPACT else 0.0,
        "flip": not grey,
        "seed": 0,
    }
    known = {f.name for f in fields(Settings)}
    values |= {name: value for name, value in said.items() if name in known - {"device"} and value is not None}
    values.setdefault("shift", max(values["size"] // 16, 1))
    return Settings(**values)


def _native_size(model: str) -> int:
    import timm

    about = timm.get_pretrained_cfg(model) if timm.is_model(model) else None
    return about.input_size[-1] if about and about.input_size else 224
