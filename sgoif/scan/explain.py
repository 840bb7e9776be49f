"""`sgoif explain`: the training images that help and harm one prediction most.

Up-weighting training image i changes the loss of the prediction y for an image t, in the last layer, by

    I(i, t) = -<H^-1 g_t, g_i>,     g = (softmax(f / T) - onehot(y)) (x) [z, 1],

with the curvature H, the features z and the logits f that the scan ended with. Negative: it lowers the loss and helps
the prediction; positive: it harms it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sgoif.errors import UserError
from sgoif.scan.output_folder import finished, opener
from sgoif.scan.settings import Settings
from sgoif.scan.sources.image_list import Listing
from sgoif.utils.files import atomic_write_bytes, load_npz, save_npz


def save_state(out: Path, listing: Listing, watched, images) -> None:
    """Weights as safetensors, the rest as npz: nothing that is unpickled."""
    from safetensors.torch import save

    influence = watched.influence
    curvature = {f"curvature:{k}": v.cpu().numpy() for k, v in influence.parts.curvature.state_dict().items()}
    save_npz(
        out / "explain.npz",
        features=watched.features.half().cpu().numpy(),
        logits=watched.logits.float().cpu().numpy(),
        labels=np.array(listing.labels),
        names=np.array(listing.names),
        classes=np.array(listing.classes),
        normalisation=np.array([images.mean, images.std]),
        temperature=np.array(float(influence.temperature())),
        **curvature,
    )
    weights = {name: value.detach().cpu().contiguous() for name, value in watched.network.state_dict().items()}
    atomic_write_bytes(out / "network.safetensors", save(weights))


@dataclass
class Explanation:
    """Influence of every training example on one prediction; negative helps, positive harms."""

    label: int  # the prediction that is explained
    probabilities: np.ndarray  # [C] of the network
    influence: np.ndarray  # [N]
    names: list[str]
    labels: np.ndarray  # [N] given labels
    classes: list[str]

    def helpful(self, n: int) -> np.ndarray:
        return np.argsort(self.influence, kind="stable")[:n]

    def harmful(self, n: int) -> np.ndarray:
        return np.argsort(-self.influence, kind="stable")[:n]


def explain(image: str, out: Path, label: str | None = None) -> Explanation:
    """Explain what the scan's network says about `image`, a file or the name of an example of the scan; with `label`,
    what speaks for and against that label."""
    import torch
    from safetensors.torch import load_file

    from sgoif import InfluenceConfig
    from sgoif.curvature import Curvature
    from sgoif.gradients.parameter_space import Space
    from sgoif.scan.decode import Unreadable, square
    from sgoif.scan.network import build
    from sgoif.training.images import ImageSet
    from sgoif.training.learner import predict

    about, state = finished(out), load_npz(out / "explain.npz")
    settings = Settings(**about["settings"])
    classes = state["classes"].tolist()
    if label is not None and label not in classes:
        raise UserError(f"--label {label}: no such class; there are: {', '.join(classes[:12])}")
    names = state["names"].tolist()
    if image not in names and not Path(image).is_file():
        raise UserError(f"{image} is neither a file nor an example of the scan in {out}")
    try:
        pixels = square(lambda _: open_image(image, out), 0, settings.size, settings.channels)
    except Unreadable as e:
        raise UserError(f"{image} is not a readable image ({e})") from None
    network = build(settings.model, len(classes), settings.channels, settings.size, settings.width, False)
    network.load_state_dict(load_file(out / "network.safetensors"))
    network.to(memory_format=torch.channels_last)
    logits, features = predict(network, ImageSet(pixels[None], *state["normalisation"].tolist()), features=True)

    space = Space([(len(classes), features.shape[1] + 1)])
    config = InfluenceConfig(temperature=float(state["temperature"]))
    curvature = Curvature.registry[config.curvature](space, config, True, torch.float32)
    curvature.load_state_dict(
        {k.removeprefix("curvature:"): torch.from_numpy(v) for k, v in state.items() if k.startswith("curvature:")}
    )
    chosen = int(logits[0].argmax()) if label is None else classes.index(label)
    target = gradient(logits, torch.tensor([chosen]), config.temperature)  # [1, C]
    row = (target.T @ ones(features)).reshape(1, -1)  # [1, C (d + 1)]
    phi = curvature.solve(row).reshape(len(classes), -1)  # [C, d + 1]
    given = torch.from_numpy(state["labels"])
    errors = gradient(torch.from_numpy(state["logits"]), given, config.temperature)  # [N, C]
    influence = -(errors * (ones(torch.from_numpy(state["features"]).float()) @ phi.T)).sum(1)
    return Explanation(
        label=chosen,
        probabilities=logits[0].softmax(0).numpy(),
        influence=influence.numpy(),
        names=names,
        labels=state["labels"],
        classes=classes,
    )


def open_image(image: str, out: Path):
    """A file, or else an example of the scan by its name."""
    from PIL import Image

    return Image.open(image) if Path(image).is_file() else opener(out)(image)


def gradient(logits, labels, temperature: float):
    """softmax(f / T) - onehot(y), `[n, C]`."""
    import torch.nn.functional as F

    return (logits / temperature).softmax(1) - F.one_hot(labels, logits.shape[1])


def ones(features):
    """[z, 1]."""
    import torch

    return torch.cat([features, features.new_ones(len(features), 1)], dim=1)
