"""Label-error triage: which labels to look at first, how many, and what they should probably be.

| field       | what it is                                                                                             |
|-------------|--------------------------------------------------------------------------------------------------------|
| `order`     | by `InfluenceResult.suspicion`: log-odds of the class model, influence score and margins               |
| `flagged`   | the labels that are probably wrong, by `InfluenceResult.find_label_issues`                             |
| `low, high` | score -+ `InfluenceResult.half_width` (`sgoif.scores.interval`)                                        |
| `suggested` | of a flagged label, the most probable other class by the mean prediction over the visits               |

The mean over the visits is used since at the end of training the network may have memorised a wrong label.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from sgoif.errors import InfluenceError
from sgoif.label_noise.issues import check_labels
from sgoif.result import InfluenceResult


@dataclass(frozen=True)
class Triage:
    """Labels sorted for review. All tensors are in data-set order, shape [N], except `order`.

    Attributes:
        order: Positions of the examples, most suspicious first, shape [N].
        flagged: Which labels are probably wrong, bool.
        suspicion: How suspicious each label is.
        score: Influence score.
        low: Lower end of the score's interval.
        high: Upper end of the score's interval.
        labels: The labels that were examined.
        suggested: The most probable other class where the label is flagged, else the label.
    """

    order: Tensor
    flagged: Tensor
    suspicion: Tensor
    score: Tensor
    low: Tensor
    high: Tensor
    labels: Tensor
    suggested: Tensor

    @property
    def count(self) -> int:
        """Estimated number of wrong labels."""
        return int(self.flagged.sum())

    def rows(self, top: int | None = None) -> list[dict[str, float | int | bool]]:
        """Return examples as records, most suspicious first.

        Args:
            top: How many; None for the flagged ones.

        Returns:
            One dictionary per example: index, suspicion, score, low, high, label, suggested, flagged.
        """
        columns = {
            "suspicion": self.suspicion,
            "score": self.score,
            "low": self.low,
            "high": self.high,
            "label": self.labels,
            "suggested": self.suggested,
            "flagged": self.flagged,
        }
        chosen = self.order[self.flagged[self.order]] if top is None else self.order[:top]
        return [{"index": i, **{name: values[i].item() for name, values in columns.items()}} for i in chosen.tolist()]


def triage(result: InfluenceResult, labels: Tensor, probabilities: Tensor | None = None) -> Triage:
    """Sort the labels of a training set for review.

    Args:
        result: Scores of a watched training run.
        labels: The labels it was trained on, shape [N].
        probabilities: Predicted probabilities, shape [N, C], for the suggestions, for example out-of-fold ones; None
            takes the run's own mean predictions.

    Returns:
        The triage.

    Raises:
        InfluenceError: If there are no probabilities, or they are not finite numbers of shape [N, C].
    """
    if probabilities is None:
        probabilities = result.mean_predictions
    if probabilities is None:
        raise InfluenceError("triage: a run with config.memory = False keeps no predictions; pass probabilities")
    labels = check_labels(labels, result.visited)
    issues = result.find_label_issues(labels, probabilities)
    return Triage(
        order=issues.order,
        flagged=issues.mask,
        suspicion=result.suspicion,
        score=result.score,
        low=result.score - result.half_width,
        high=result.score + result.half_width,
        labels=labels,
        suggested=issues.suggested,
    )
