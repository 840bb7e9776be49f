"""Shift sentinel: a network for digits meets patches of photographs, and says which images it was not made for."""

import functools
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from examples.digits import CLASSES, Training, batches, digits
from sgoif.applications import Activations, ShiftSentinel, pooled


def patches(count: int, seed: int) -> Tensor:
    """Random 8 x 8 patches of scikit-learn's two sample photographs, `[count, 1, 8, 8]` in 0 … 1."""
    from sklearn.datasets import load_sample_image

    generator, out = torch.Generator().manual_seed(seed), []
    photos = [torch.tensor(load_sample_image(name)).float().mean(2) / 255 for name in ("china.jpg", "flower.jpg")]
    for n in range(count):
        photo = photos[n % 2]
        row, column = (int(torch.randint(side - 8, (1,), generator=generator)) for side in photo.shape)
        out.append(photo[row : row + 8, column : column + 8])
    return torch.stack(out).unsqueeze(1)


@torch.no_grad()
def activations(model: nn.Sequential, x: Tensor) -> Activations:
    """One forward pass, stopped after the two convolutional stages and before the head."""
    first = model[:4](x)
    second = model[4:7](first)
    features = model[7:-1](second)
    return Activations([*pooled(first), *pooled(second)], features, model[-1](features))


def in_parts(model: nn.Sequential, x: Tensor) -> Iterator[Activations]:
    """Forward passes of at most 256 images."""
    return (activations(model, part) for part in x.split(256))


def auroc(inside: Tensor, outside: Tensor) -> float:
    """Probability that an outside score is above an inside one."""
    above = (outside.unsqueeze(1) > inside).double() + 0.5 * (outside.unsqueeze(1) == inside)
    return above.mean().item()


@functools.cache
def measure(seed: int = 0) -> dict[str, float]:
    """Return the AUROC of the sentinel and of the network's confidence."""
    x, y, test_x, _ = digits()
    model = Training(x[:1000], y[:1000], seed).run_unwatched()
    sentinel = ShiftSentinel(CLASSES)
    for _, images, labels in batches(x[:1000], y[:1000]):
        sentinel.observe(activations(model, images), labels)
    sentinel.calibrate(in_parts(model, x[1000:]))
    inside, outside = activations(model, test_x), activations(model, patches(400, seed))
    confidence = [-a.logits.softmax(1).amax(1) for a in (inside, outside)]
    return {"sentinel": auroc(sentinel.score(inside), sentinel.score(outside)), "confidence": auroc(*confidence)}


def main() -> None:
    m = measure(0)
    print(
        f"AUROC of digits against photographs: {m['sentinel']:.3f}; by the network's confidence: {m['confidence']:.3f}."
    )


if __name__ == "__main__":
    main()
