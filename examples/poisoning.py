"""Poisoning localisation: 30 of 1,200 digits carry a bright corner and a false label; 20 odd predictions tell which."""

import functools

import torch

from examples.digits import Training, batches, digits
from sgoif.applications import localise

PLANTED, SUSPECTS = 30, 20


def stamp(x: torch.Tensor) -> torch.Tensor:
    """The trigger: a bright 2 x 2 patch in the lower right corner."""
    x = x.clone()
    x[:, :, 6:, 6:] = 1.0
    return x


@functools.cache
def measure(seed: int = 0) -> dict[str, float]:
    """Return how well the backdoor works, is located, and is removed."""
    x, y, test_x, test_y = digits()
    x, y, target = x.clone(), y.clone(), seed % 10
    others = (y != target).nonzero()[:, 0]
    planted = others[torch.randperm(len(others), generator=torch.Generator().manual_seed(seed))[:PLANTED]]
    x[planted], y[planted] = stamp(x[planted]), target
    truth = torch.zeros(len(y), dtype=torch.bool)
    truth[planted] = True
    triggered = stamp(test_x[test_y != target])

    model = Training(x, y, seed).run_unwatched()
    fooled = model(triggered).argmax(1) == target
    found = localise(model, list(batches(x, y)), y, triggered[fooled][:SUSPECTS], target)
    cleaned = Training(x, y, seed, keep=(~found.flagged).nonzero()[:, 0]).run_unwatched()
    return {
        "fooled": fooled.float().mean().item(),
        "flagged": int(found.flagged.sum()),
        "precision": (truth & found.flagged).sum().item() / max(int(found.flagged.sum()), 1),
        "recall": (truth & found.flagged).sum().item() / PLANTED,
        "top": truth[found.order[:PLANTED]].float().mean().item(),
        "fooled_after": (cleaned(triggered).argmax(1) == target).float().mean().item(),
    }


def main() -> None:
    m = measure(0)
    print(f"The trigger fools the network on {m['fooled']:.1%} of the test images.")
    print(f"{m['top']:.1%} of the {PLANTED} highest-ranked examples are planted; {m['flagged']} are flagged,")
    print(f"{m['precision']:.1%} of them rightly, {m['recall']:.1%} of the planted ones among them.")
    print(f"Trained without the flagged, the network is fooled on {m['fooled_after']:.1%}.")


if __name__ == "__main__":
    main()
