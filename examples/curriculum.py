"""Curriculum reweighting: 40% wrong labels, the same training with and without weights from its own scores."""

import functools

from examples.digits import Training, accuracy, digits, flip_labels
from sgoif.applications import Curriculum

EPOCHS = 15  # long enough for the plain run to learn wrong labels by heart


@functools.cache
def measure(seed: int = 0, rate: float = 0.4) -> dict[str, float]:
    """Return the test accuracy of plain and of reweighted training."""
    x, true_labels, test_x, test_y = digits()
    labels, _ = flip_labels(true_labels, rate, seed)
    plain = Training(x, labels, seed, epochs=EPOCHS).run_unwatched()
    curriculum = Curriculum(labels)
    weighted, _ = Training(x, labels, seed, epochs=EPOCHS).run(
        weights=lambda index: curriculum.weights[index], each_epoch=curriculum.update
    )
    return {"plain": accuracy(plain, test_x, test_y), "weighted": accuracy(weighted, test_x, test_y)}


def main() -> None:
    m = measure(0)
    print(f"Test accuracy with 40% wrong labels: {m['plain']:.1%} plain, {m['weighted']:.1%} with the curriculum.")


if __name__ == "__main__":
    main()
