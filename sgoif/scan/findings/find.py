"""All that a scan finds beside single wrong labels and whole classes: copies under several labels, and outliers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from sgoif.label_noise.copies import content_digests
from sgoif.scan.findings.duplicates import Copies, find_copies
from sgoif.scan.findings.outliers import Outliers, find_outliers

REPORTED = 1_000  # groups of copies, and outliers, in report.json


@dataclass(frozen=True)
class ScanFindings:
    """What was found.

    Attributes:
        copies: Groups of copies under several labels.
        outliers: Examples unlike the rest.
        left_out: What was not searched for, and why; empty if everything was.
    """

    copies: list[Copies]
    outliers: Outliers
    left_out: str = ""

    def report(self, names: list[str], labels: list[str]) -> dict[str, Any]:
        """Return the entries of report.json.

        Args:
            names: Name of each example.
            labels: Name of each example's label.
        """

        def told(i: int) -> dict[str, str]:
            return {"path": names[i], "label": labels[i]}

        groups = [
            {"kind": c.kind, "similarity": c.similarity, "examples": [told(i) for i in c.examples]}
            for c in self.copies[:REPORTED]
        ]
        found: dict[str, Any] = {
            "copies": {**self._counts(), "groups": groups},
            "outliers": {
                "beyond_chance": self.outliers.beyond_chance,
                "farthest": [told(i) for i in self.outliers.examples[:REPORTED]],
            },
        }
        return found | ({"not_searched": self.left_out} if self.left_out else {})

    def _counts(self) -> dict[str, int]:
        kinds = [c.kind for c in self.copies]
        return {"exact": kinds.count("exact"), "near": kinds.count("near")}

    def sentences(self) -> list[str]:
        """Return what the command prints, a line each."""
        lines = []
        if self.copies:
            counts = self._counts()
            groups = "group" if counts["exact"] == 1 else "groups"
            lines.append(
                f"Copies under several labels: {counts['exact']} {groups} of exact and {counts['near']} of near copies"
            )
        if self.outliers.beyond_chance:
            examples = "example" if self.outliers.beyond_chance == 1 else "examples"
            lines.append(f"Unlike the rest: {self.outliers.beyond_chance} {examples}")
        return lines + ([f"Not searched: {self.left_out}"] if self.left_out else [])


NOTHING = ScanFindings([], Outliers([], 0))


def find_all(
    labels: np.ndarray, features: Tensor | None, logits: Tensor, contents: Iterable[np.ndarray] | None = None
) -> ScanFindings:
    """Find copies under several labels, and outliers.

    Args:
        labels: Labels, shape [N].
        features: Inputs of the classification layer, shape [N, d]; None of a set that is too large to keep them: then
            only exact copies are searched for.
        logits: Outputs of the network, shape [N, C].
        contents: What each example consists of, N arrays; None: its features, or its logits.
    """
    if contents is None:
        contents = (logits if features is None else features).cpu().numpy()
    digests = content_digests(contents)
    if features is None:
        left_out = f"near copies and outliers, since the features of {len(labels):,} examples are too many to keep"
        return ScanFindings(find_copies(labels, digests, None), Outliers([], 0), left_out)
    rows = features.float().cpu()
    return ScanFindings(find_copies(labels, digests, rows), find_outliers(rows, logits, labels))
