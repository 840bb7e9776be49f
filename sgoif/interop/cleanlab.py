"""cleanlab: its label-quality convention, its table of label issues, its Datalab, its out-of-fold probabilities.

cleanlab's label quality lies in [0, 1] and is **lower for worse labels**; our scores are higher for worse ones and
have a meaningful zero (above it an example harms). The map that keeps the order and sends zero to one half is

    quality_i = sigmoid(-s_i / r),     r = root mean square of the scores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from sgoif.applications.label_errors import Triage
from sgoif.errors import InfluenceError
from sgoif.interop.optional import need

if TYPE_CHECKING:
    import pandas

ISSUE = "influence_label"


def label_quality(score: Tensor) -> np.ndarray:
    """Scores `[N]` (higher = more suspicious) in cleanlab's convention: `[N]` in [0, 1], lower = worse."""
    score = torch.as_tensor(score).double().cpu()
    if score.dim() != 1 or not torch.isfinite(score).all():
        raise InfluenceError(f"label_quality: scores must be finite and of shape [N], not {tuple(score.shape)}")
    scale = score.square().mean().sqrt().clamp(min=torch.finfo(score.dtype).tiny)
    return torch.sigmoid(-score / scale).numpy()


def label_issues(found: Triage) -> pandas.DataFrame:
    """The table that `Datalab.get_issues("label")` gives: is_label_issue, label_score, given_label, predicted_label."""
    return need("pandas").DataFrame(
        {
            "is_label_issue": found.flagged.numpy(),
            "label_score": label_quality(found.suspicion),
            "given_label": found.labels.numpy(),
            "predicted_label": found.suggested.numpy(),
        }
    )


def add_to_datalab(lab: Any, found: Triage) -> None:
    """Adds the triage to a `cleanlab.Datalab` as issues of the type `influence_label`, beside cleanlab's own.

    `lab.get_issues("influence_label")`, `lab.report()` and `lab.save()` then know them.
    """
    if len(lab.data) != len(found.labels):
        raise InfluenceError(
            f"add_to_datalab: the Datalab has {len(lab.data)} examples, the triage {len(found.labels)}"
        )
    need("cleanlab.datalab.internal.issue_manager_factory").register(_manager())
    lab.find_issues(issue_types={ISSUE: {"found": found}})


def _manager() -> type:
    base = need("cleanlab.datalab.internal.issue_manager.issue_manager").IssueManager

    class InfluenceIssues(base):
        """Labels that online influence calls harmful."""

        description = "Labels whose examples raise the loss of the anchors of their class (SG-OIF)."
        issue_name = ISSUE

        def find_issues(self, found: Triage, **_: Any) -> None:
            issues = label_issues(found)
            self.issues = issues[["is_label_issue", "label_score"]].set_axis(
                [f"is_{self.issue_name}_issue", self.issue_score_key], axis=1
            )
            self.summary = self.make_summary(score=float(issues["label_score"].mean()))
            self.info = {name: issues[name].to_numpy() for name in ("given_label", "predicted_label")}

        def collect_info(self) -> dict:
            return self.info

    return InfluenceIssues


def out_of_fold(x: np.ndarray, labels: np.ndarray, classifier: Any, folds: int = 5, seed: int = 0) -> Tensor:
    """`[N, C]` probabilities that cleanlab's cross-validation gives with any scikit-learn classifier: what a network
    that has not seen the example says, to be handed to `triage` as its `probabilities`."""
    count = need("cleanlab.count", "cleanlab")
    predicted = count.estimate_cv_predicted_probabilities(x, labels, clf=classifier, cv_n_folds=folds, seed=seed)
    return torch.as_tensor(np.asarray(predicted)).float()
