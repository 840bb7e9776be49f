"""Label-error triage: find the wrong labels among 1,200 digits, say how many there are, and suggest right ones."""

import functools

from examples.digits import Training, digits, flip_labels
from sgoif.applications import Triage, triage


@functools.cache
def measure(seed: int = 0, rate: float = 0.2) -> tuple[dict[str, float], Triage]:
    """Return how well wrong labels are found, counted and corrected, and the triage itself."""
    x, true_labels, _, _ = digits()
    labels, wrong = flip_labels(true_labels, rate, seed)
    _, influence = Training(x, labels, seed).run()
    found = triage(influence.scores(), labels)
    hit = found.flagged & wrong
    return {
        "wrong": int(wrong.sum()),
        "flagged": found.count,
        "precision": (hit.sum() / found.flagged.sum()).item(),
        "recall": (hit.sum() / wrong.sum()).item(),
        "suggested_right": (found.suggested[hit] == true_labels[hit]).float().mean().item(),
    }, found


def main() -> None:
    m, found = measure(0)
    print(f"{m['wrong']} of 1200 labels are wrong; {m['flagged']} were flagged without knowing that.")
    print(f"Of the flagged {m['precision']:.1%} are wrong, of the wrong {m['recall']:.1%} were flagged;")
    print(f"for these the suggested label is right in {m['suggested_right']:.1%}. The first three:")
    for row in found.rows(3):
        print(
            f"  example {row['index']}: labelled {row['label']}, probably {row['suggested']}; "
            f"score {row['score']:.1f} in [{row['low']:.1f}, {row['high']:.1f}]"
        )


if __name__ == "__main__":
    main()
