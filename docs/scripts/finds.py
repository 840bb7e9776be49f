"""Draws docs/images/finds.png: judged label errors of CIFAR-10's test set among the most suspicious labels.

    python docs/scripts/finds.py --images test_images.npy --labels test_labels.npy --features emb.npy [--judged FILE]

Images [N, 32, 32, 3], labels [N] and features [N, d] are of the 10,000 test images in their official order. It prints
how many judged errors are among the first n labels of the ranking, and how many of the judged labels that are right.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import sgoif
from examples.judged_errors import Judged, contact_sheet, judged_labels, parse_judged

OUT = Path(__file__).resolve().parents[1] / "images" / "finds.png"
NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
COUNTS = (25, 50, 100, 200, 500, 1000)
SHOWN = 12


def count_finds(order: np.ndarray, judged: list[Judged]) -> list[tuple[int, int, int]]:
    """Return (n, judged errors, other judged labels) among the first n of a ranking, for each of `COUNTS`."""
    wrong = {j.index for j in judged if j.wrong}
    right = {j.index for j in judged} - wrong
    return [(n, len(wrong & set(order[:n].tolist())), len(right & set(order[:n].tolist()))) for n in COUNTS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("images", "labels", "features"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--judged", type=Path, help="the published judgements; without it they are downloaded")
    args = parser.parse_args()
    images, labels, features = (np.load(path) for path in (args.images, args.labels, args.features))
    judged = parse_judged(args.judged.read_text()) if args.judged else judged_labels("cifar10", Path("data"))
    issues = sgoif.find_label_issues(features, labels)
    print(f"{sum(j.wrong for j in judged)} of {len(judged)} judged labels are wrong; {issues.count} labels are flagged")
    for n, wrong, right in count_finds(issues.order, judged):
        print(f"first {n}: {wrong} judged errors, {right} judged to be right, {n - wrong - right} not judged")
    by_index = {j.index: j for j in judged if j.wrong}
    shown = [int(i) for i in issues.order if int(i) in by_index][:SHOWN]
    place = {int(i): rank for rank, i in enumerate(issues.order, 1)}
    others = issues.result.mean_predictions.numpy().copy()
    others[np.arange(len(labels)), labels] = -1
    guess = others.argmax(1)
    captions = [f"#{place[i]}\n{NAMES[labels[i]]}?\nlooks like {NAMES[guess[i]]}" for i in shown]
    contact_sheet([images[i] for i in shown], captions, columns=6, side=150).save(OUT, optimize=True)


if __name__ == "__main__":
    main()
