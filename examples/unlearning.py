"""Unlearning prioritisation: forget 60 of 1,200 digits so that five predictions change; the ranking against chance."""

import functools

import torch
import torch.nn.functional as F
from torch import Tensor

from examples.digits import Training, batches, digits
from sgoif.applications import prioritise

REMOVED, TARGETS = 60, 5


@functools.cache
def measure(seed: int = 0) -> dict[str, float]:
    """Return the mean loss of the target predictions after training on different parts of the data.

    The parts are: everything, all but the top-ranked examples, all but as many random ones, and all but as many random
    ones of the targets' own class. The retrained networks start from other weights than the one that ranks.
    """
    x, y, test_x, test_y = digits()
    label = (3, 8, 9, 1, 5)[seed % 5]
    chosen = (test_y == label).nonzero()[:TARGETS, 0]
    targets = (test_x[chosen], test_y[chosen])
    model = Training(x, y, seed).run_unwatched()
    ranked = prioritise(model, list(batches(x, y)), len(y), [targets]).order
    generator = torch.Generator().manual_seed(seed)
    same = (y == label).nonzero()[:, 0]

    def without(removed: Tensor) -> float:
        keep = torch.ones(len(y), dtype=torch.bool)
        keep[removed] = False
        again = Training(x, y, seed + 100, keep=keep.nonzero()[:, 0]).run_unwatched()
        with torch.no_grad():
            return F.cross_entropy(again(targets[0]), targets[1]).item()

    return {
        "all": without(torch.zeros(0, dtype=torch.long)),
        "ranked": without(ranked[:REMOVED]),
        "random": without(torch.randperm(len(y), generator=generator)[:REMOVED]),
        "random_of_class": without(same[torch.randperm(len(same), generator=generator)[:REMOVED]]),
    }


def main() -> None:
    m = measure(0)
    print(f"Mean loss of {TARGETS} predictions: {m['all']:.3f} after training on all 1200 digits;")
    print(f"without {REMOVED} of them: {m['ranked']:.3f} if the top-ranked go, {m['random']:.3f} if random ones go,")
    print(f"{m['random_of_class']:.3f} if random ones of the same class go.")


if __name__ == "__main__":
    main()
