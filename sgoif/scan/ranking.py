"""The ranking of a scan: every example with its scores, most suspicious first."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sgoif.scan.probability import wrong_probability
from sgoif.scan.sources.image_listing import Listing

if TYPE_CHECKING:
    from sgoif import InfluenceResult

COLUMNS = (
    "rank",
    "path",
    "given_label",
    "suggested_label",
    "suggested_probability",
    "wrong_probability",
    "suspicion",
    "score",
    "interval_low",
    "interval_high",
    "confidence",
    "visits",
    "flagged",
)


@dataclass
class Ranking:
    """Scores of N examples in the order of the listing, and the order that sorts them.

    Attributes:
        order: Positions of the examples, most suspicious first, shape [N].
        suspicion: What is sorted by, shape [N].
        score: Influence score, shape [N].
        half_width: Half width of its interval, shape [N].
        confidence: Confidence of the score, shape [N].
        visits: Number of visits that were scored, shape [N].
        visited: Whether training has visited the example at all; if not, its label is not judged, shape [N].
        flagged: Whether the label is estimated to be wrong, shape [N].
        suggested: Most probable other class of a flagged example, else the label, shape [N].
        probability: Mean probability of the suggested class over the visits, shape [N].
        label_probability: Mean probability of the label over the visits, shape [N].
        wrong_probability: Probability that the label is wrong; it falls with the rank, shape [N].
        estimated: Estimated number of wrong labels.
    """

    order: np.ndarray
    suspicion: np.ndarray
    score: np.ndarray
    half_width: np.ndarray
    confidence: np.ndarray
    visits: np.ndarray
    visited: np.ndarray
    flagged: np.ndarray
    suggested: np.ndarray
    probability: np.ndarray
    label_probability: np.ndarray
    wrong_probability: np.ndarray
    estimated: int

    @classmethod
    def from_result(cls, result: InfluenceResult, labels: np.ndarray) -> Ranking:
        """Ranks the examples of a finished training.

        Args:
            result: Scores of the N examples.
            labels: Their labels, shape [N].
        """
        import torch

        values = result.numpy()
        issues = result.find_label_issues(torch.from_numpy(labels))
        suggested = issues.suggested.numpy()
        probabilities, each = values["mean_predictions"], np.arange(len(labels))
        return cls(
            order=issues.order.numpy(),
            suspicion=result.suspicion.numpy(),
            score=values["score"],
            half_width=values["half_width"],
            confidence=values["confidence"],
            visits=values["visits"],
            visited=values["visited"],
            flagged=issues.mask.numpy(),
            suggested=suggested,
            probability=probabilities[each, suggested],
            label_probability=probabilities[each, labels],
            wrong_probability=wrong_probability(result),
            estimated=issues.count,
        )

    def columns(self, listing: Listing) -> dict[str, list[Any]]:
        """Return the columns of ranking.csv, most suspicious example first."""
        order = self.order
        classes = np.array(listing.classes, dtype=object)
        columns = (
            np.arange(1, len(order) + 1),
            np.array(listing.names, dtype=object)[order],
            classes[np.array(listing.labels)[order]],
            classes[self.suggested[order]],
            self.probability[order],
            self.wrong_probability[order],
            self.suspicion[order],
            self.score[order],
            (self.score - self.half_width)[order],
            (self.score + self.half_width)[order],
            self.confidence[order],
            self.visits[order],
            self.flagged[order],
        )
        return {name: column.tolist() for name, column in zip(COLUMNS, columns, strict=True)}


def count_other_suggestions(ranking: Ranking) -> int:
    """Count the flagged examples whose suggested label is more probable than their label."""
    return int((ranking.flagged & (ranking.probability > ranking.label_probability)).sum())


def count_by_class(listing: Listing, ranking: Ranking) -> dict[str, dict[str, int]]:
    """Count the examples and the flagged examples of each class."""
    labels = np.array(listing.labels)
    return {
        name: {"examples": int((labels == c).sum()), "flagged": int(ranking.flagged[labels == c].sum())}
        for c, name in enumerate(listing.classes)
    }


def most_common_confusions(listing: Listing, ranking: Ranking, limit: int = 20) -> list[dict[str, Any]]:
    """Return the most common pairs of label and suggested label among the flagged examples."""
    pairs = Counter((listing.labels[i], int(ranking.suggested[i])) for i in np.flatnonzero(ranking.flagged))
    common = sorted(pairs.items(), key=lambda item: (-item[1], item[0]))[:limit]
    return [{"given": listing.classes[a], "suggested": listing.classes[b], "flagged": n} for (a, b), n in common]
