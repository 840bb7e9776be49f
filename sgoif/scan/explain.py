"""`sgoif explain`: the training images that help and harm one prediction most.

Up-weighting training image i changes the loss of the prediction y for an image t, in the last layer, by

    I(i, t) = -<H^-1 g_t, g_i>,     g = (softmax(f / T) - onehot(y)) (x) [z, 1],

with the curvature H, the features z and the logits f that the scan ended with. Negative: it lowers the loss and helps
the prediction; positive: it harms it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sgoif.errors import UserError
from sgoif.scan.decode import Unreadable, decode_square, with_white
from sgoif.scan.output_folder import REMAKE, image_opener, keeps_features, other_version, read_finished
from sgoif.scan.settings import EMBED, FEATURES, Settings
from sgoif.scan.sources.image_listing import Listing
from sgoif.scan.sources.regular_files import open_image_file, require_no_special
from sgoif.utils.files import atomic_write_bytes, load_npz, save_npz

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

    from sgoif.scan.train import TrainedScan

MAX_NAMED_CLASSES = 12  # in an error message
ARRAYS = {"features", "logits", "labels", "names", "classes", "normalisation", "temperature"}  # of explain.npz


Normalisation = tuple[Sequence[float], Sequence[float]]  # mean and deviation of every channel


def save_state(out: Path, listing: Listing, trained: TrainedScan, normalisation: Normalisation) -> None:
    """Write what `explain` needs: the weights as safetensors, the rest as npz, nothing that is unpickled.

    Nothing is written of a set that is too large to keep its features.

    Args:
        out: Folder of the scan.
        listing: The examples.
        trained: State of the training.
        normalisation: Of the images; empty where there are none.
    """
    from safetensors.torch import save

    if trained.features is None:
        return
    influence = trained.influence
    curvature = {f"curvature:{k}": v.cpu().numpy() for k, v in influence.curvature_state_dict().items()}
    save_npz(
        out / "explain.npz",
        features=trained.features.half().cpu().numpy(),
        logits=trained.logits.float().cpu().numpy(),
        labels=np.array(listing.labels),
        names=np.array(listing.names),
        classes=np.array(listing.classes),
        normalisation=np.array(normalisation),
        temperature=np.array(influence.counters()["temperature"]),
        **curvature,
    )
    weights = {name: value.detach().cpu().contiguous() for name, value in trained.network.state_dict().items()}
    atomic_write_bytes(out / "network.safetensors", save(weights))


@dataclass
class Explanation:
    """Influence of every training example on one prediction; negative helps, positive harms.

    Attributes:
        label: The class whose prediction is explained.
        probabilities: Class probabilities of the network, shape [C].
        influence: Influence of each training example, shape [N].
        names: Names of the training examples.
        labels: Their labels, shape [N].
        classes: Names of the classes.
    """

    label: int
    probabilities: np.ndarray
    influence: np.ndarray
    names: list[str]
    labels: np.ndarray
    classes: list[str]

    def helpful(self, n: int) -> np.ndarray:
        """Return the positions of up to `n` examples that help, the most helpful first."""
        first = np.argsort(self.influence, kind="stable")[:n]
        return first[self.influence[first] < 0]

    def harmful(self, n: int) -> np.ndarray:
        """Return the positions of up to `n` examples that harm, the most harmful first."""
        first = np.argsort(-self.influence, kind="stable")[:n]
        return first[self.influence[first] > 0]


def explain(image: str, out: Path, label: str | None = None) -> Explanation:
    """Compute the influence of every training example on what the network says about an image.

    Args:
        image: An image file, or the name of an example of the scan.
        out: Folder of a finished scan.
        label: The class to explain; None: the predicted one.

    Raises:
        UserError: If there is no such image, class or finished scan.
    """
    import torch

    settings, state = _read_state(out)
    classes: list[str] = state["classes"].tolist()
    names: list[str] = state["names"].tolist()
    if label is not None and label not in classes:
        raise UserError(f"--label {label}: no such class; there are: {', '.join(classes[:MAX_NAMED_CLASSES])}")
    if settings.method == FEATURES:
        logits, features = _of_example(image, names, state, out)
    else:
        logits, features = _of_image(image, names, settings, state, out)
    chosen = int(logits[0].argmax()) if label is None else classes.index(label)
    target = _logit_gradient(logits, torch.tensor([chosen]), float(state["temperature"]))
    return Explanation(
        label=chosen,
        probabilities=logits[0].softmax(0).numpy(),
        influence=_influence_on(target, features, state, out).numpy(),
        names=names,
        labels=state["labels"],
        classes=classes,
    )


def _of_example(image: str, names: list[str], state: dict[str, np.ndarray], out: Path) -> tuple[Tensor, Tensor]:
    """Return logits [1, C] and features [1, d] of an example of a scan by features."""
    import torch

    if image not in names:
        raise UserError(f"{image} is no example of the scan in {out}, which was of features; name one of its ranking")
    i = names.index(image)
    return torch.from_numpy(state["logits"][i : i + 1]), torch.from_numpy(state["features"][i : i + 1]).float()


def _of_image(
    image: str, names: list[str], settings: Settings, state: dict[str, np.ndarray], out: Path
) -> tuple[Tensor, Tensor]:
    """Return logits [1, C] and features [1, d] of an image file, or of an example of the scan."""
    if image not in names:
        require_no_special(Path(image), "name an image file, or an example of the scan")
    if image not in names and not Path(image).is_file():
        raise UserError(f"{image} is neither a file nor an example of the scan in {out}")
    try:
        pixels = decode_square(lambda _: open_image(image, out), 0, settings.size, settings.channels)
    except Unreadable as e:
        raise UserError(f"{image} is not a readable image ({e})") from None
    return _predict(out, settings, len(state["classes"]), pixels, state["normalisation"])


def _read_state(out: Path) -> tuple[Settings, dict[str, np.ndarray]]:
    """Return the settings and the arrays of explain.npz of a finished scan."""
    about = read_finished(out)
    path = out / "explain.npz"
    require_no_special(path, REMAKE)
    if not path.exists() and not keeps_features(about):
        raise UserError(f"the scan in {out} has too many examples to keep what explain needs; scan a part of them")
    if not path.exists():
        raise UserError(f"{path} is gone; run the same `sgoif scan` again")
    try:
        state = load_npz(path)
    except UserError:
        raise UserError(f"{path} is damaged; delete it and run the same `sgoif scan` again") from None
    if not ARRAYS <= set(state):
        raise UserError(other_version(out))
    with _refuse_other_versions(out):
        return Settings(**about["settings"]), state


@contextmanager
def _refuse_other_versions(out: Path) -> Iterator[None]:
    """Report missing and unknown names or shapes in the files of a scan in one line."""
    try:
        yield
    except (TypeError, RuntimeError, KeyError):
        raise UserError(other_version(out)) from None


def open_image(image: str, out: Path) -> Image:
    """Open a file, or else an example of the scan in `out` by its name, in the range of the scan."""
    if not Path(image).is_file():
        return image_opener(out)(image)
    return with_white(open_image_file, read_finished(out).get("white", 0))(image)


def _predict(
    out: Path, settings: Settings, n_classes: int, pixels: np.ndarray, normalisation: np.ndarray
) -> tuple[Tensor, Tensor]:
    """Return logits [1, C] and features [1, d] of the scan's network for one image."""
    import torch

    from sgoif.scan.network import build_network, with_projection
    from sgoif.training.images import ImageSet
    from sgoif.training.predict import predict

    try:
        network = build_network(settings, n_classes)
    except UserError:
        raise UserError(f"this timm cannot build {settings.model} as the scan in {out} had it; {REMAKE}") from None
    weights = _read_weights(out / "network.safetensors")
    with _refuse_other_versions(out):
        if settings.method == EMBED:
            network = with_projection(network, weights)
        network.load_state_dict(weights)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    mean, std = normalisation.tolist()
    logits, features = predict(network, ImageSet(pixels[None], mean, std), features=True)
    assert features is not None
    return logits, features


def _read_weights(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    require_no_special(path, REMAKE)
    try:
        return load_file(path)
    except SafetensorError as e:
        raise UserError(f"{path} is damaged ({e}); {REMAKE}") from None


def _influence_on(target: Tensor, features: Tensor, state: dict[str, np.ndarray], out: Path) -> Tensor:
    """Return -<H^-1 g_t, g_i> for every training example, shape [N].

    Args:
        target: Gradient of the explained prediction with respect to the logits, shape [1, C].
        features: Features of its image, shape [1, d].
        state: Arrays of explain.npz.
        out: Folder of the scan.
    """
    import torch

    from sgoif import InfluenceConfig
    from sgoif.curvature import Curvature
    from sgoif.gradients.parameter_space import ParameterSpace

    n_classes = target.shape[1]
    space = ParameterSpace([(n_classes, features.shape[1] + 1)])
    config = InfluenceConfig(temperature=float(state["temperature"]))
    curvature = Curvature.registry[config.curvature](space, config, True, torch.float32)
    saved = {name.removeprefix("curvature:"): v for name, v in state.items() if name.startswith("curvature:")}
    with _refuse_other_versions(out):
        curvature.load_state_dict({name: torch.from_numpy(value) for name, value in saved.items()})
    row = (target.T @ _append_ones(features)).reshape(1, -1)  # [1, C (d + 1)]
    phi = curvature.solve(row).reshape(n_classes, -1)  # [C, d + 1]
    labels = torch.from_numpy(state["labels"])
    errors = _logit_gradient(torch.from_numpy(state["logits"]), labels, config.temperature)  # [N, C]
    return -(errors * (_append_ones(torch.from_numpy(state["features"]).float()) @ phi.T)).sum(1)


def _logit_gradient(logits: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """Return softmax(f / T) - onehot(y), shape [n, C]."""
    import torch.nn.functional as F

    return (logits / temperature).softmax(1) - F.one_hot(labels, logits.shape[1])


def _append_ones(features: Tensor) -> Tensor:
    """Return [z, 1], shape [n, d + 1]."""
    import torch

    return torch.cat([features, features.new_ones(len(features), 1)], dim=1)
