"""Bridge to cleanlab: label quality, table of label issues, Datalab issues, out-of-fold probabilities.

cleanlab's label quality lies in [0, 1] and is **lower for worse labels**. Our scores are higher for worse labels, and
an example with a positive score does harm. The map that keeps the order and sends zero to one half is

    quality_i = sigmoid(-s_i / r),     r = root mean square of the scores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from sgoif.applications.label_errors import Triage
from sgoif.errors import InfluenceError
from sgoif.interop.optional import import_optional

if TYPE_CHECKING:
    import pandas

    from sgoif.features.find import FeatureIssues

ISSUE = "influence_label"  # type of our issues in a Datalab


def label_quality(score: Tensor) -> np.ndarray:
    """Convert scores to cleanlab's label quality.

    Args:
        score: Scores, higher for worse labels, shape [N].

    Returns:
        Label quality in [0, 1], lower for worse labels, shape [N].

    Raises:
        InfluenceError: If the scores are not finite or not of shape [N].
    """
    score = torch.as_tensor(score).double().cpu()
    if score.dim() != 1 or not torch.isfinite(score).all():
        raise InfluenceError(f"label_quality: scores must be finite and of shape [N], not {tuple(score.shape)}")
    scale = score.square().mean().sqrt().clamp(min=torch.finfo(score.dtype).tiny)
    quality: np.ndarray = torch.sigmoid(-score / scale).numpy()
    return quality


def label_issues(found: Triage | FeatureIssues) -> pandas.DataFrame:
    """Make the table that `Datalab.get_issues("label")` gives.

    Args:
        found: Labels sorted for review.

    Returns:
        One row per example: is_label_issue, label_score, given_label, predicted_label.

    Raises:
        InfluenceError: If pandas is not installed.
    """
    return import_optional("pandas").DataFrame(
        {
            "is_label_issue": np.asarray(found.flagged),
            "label_score": label_quality(torch.as_tensor(found.suspicion)),
            "given_label": np.asarray(found.labels),
            "predicted_label": np.asarray(found.suggested),
        }
    )


def add_to_datalab(lab: Any, found: Triage | FeatureIssues) -> None:
    """Add label issues to a `cleanlab.Datalab` under the type `influence_label`, beside cleanlab's own.

    `lab.get_issues("influence_label")`, `lab.report()` and `lab.save()` then include them.

    Args:
        lab: The Datalab.
        found: Labels sorted for review, of the same examples.

    Raises:
        InfluenceError: If the numbers of examples differ, or cleanlab is not installed.
    """
    if len(lab.data) != len(found.labels):
        raise InfluenceError(
            f"add_to_datalab: the Datalab has {len(lab.data)} examples, the triage {len(found.labels)}"
        )
    import_optional("cleanlab.datalab.internal.issue_manager_factory").register(_issue_manager())
    lab.find_issues(issue_types={ISSUE: {"found": found}})


def _issue_manager() -> type:
    """The class that holds our issues inside a Datalab; made here because its base class is cleanlab's."""
    base: Any = import_optional("cleanlab.datalab.internal.issue_manager.issue_manager").IssueManager

    class InfluenceIssues(base):  # type: ignore[misc]
        """Labels that online influence calls harmful."""

        description = "Labels whose examples raise the loss of the anchors of their class (SG-OIF)."
        issue_name = ISSUE

        def find_issues(self, found: Triage | FeatureIssues, **_: Any) -> None:
            issues = label_issues(found)
            self.issues = issues[["is_label_issue", "label_score"]].set_axis(
                [f"is_{self.issue_name}_issue", self.issue_score_key], axis=1
            )
            self.summary = self.make_summary(score=float(issues["label_score"].mean()))
            self.info = {name: issues[name].to_numpy() for name in ("given_label", "predicted_label")}

        def collect_info(self) -> dict[str, Any]:
            info: dict[str, Any] = self.info
            return info

    return InfluenceIssues


def out_of_fold(x: np.ndarray, labels: np.ndarray, classifier: Any, folds: int = 5, seed: int = 0) -> Tensor:
    """Predict every example by a classifier that has not seen it, with cleanlab's cross-validation.

    Args:
        x: Inputs, shape [N, ...].
        labels: Labels, possibly noisy, shape [N].
        classifier: Any scikit-learn classifier.
        folds: Number of folds.
        seed: Seed of the split.

    Returns:
        Probabilities, shape [N, C]; pass them to `triage` as its `probabilities`.

    Raises:
        InfluenceError: If cleanlab is not installed.
    """
    count = import_optional("cleanlab.count", "cleanlab")
    predicted = count.estimate_cv_predicted_probabilities(x, labels, clf=classifier, cv_n_folds=folds, seed=seed)
    return torch.as_tensor(np.asarray(predicted)).float()
