"""Label-error triage: which labels to look at first, how many, and what they should probably say.

order      by `InfluenceResult.suspicion`: the influence score beside what the latent classes say
flagged    the first `count` of them, `count` estimated without any truth (`sgoif.estimate_wrong`)
interval   score -+ empirical-Bernstein half-width over the visits
suggested  argmax_k p_ik, without the given label where it is flagged; p_i the network's mean prediction over the
           visits, since at the end of training it may have learnt a wrong label by heart
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sgoif.errors import InfluenceError
from sgoif.label_noise.count import estimate_wrong
from sgoif.result import InfluenceResult


@dataclass(frozen=True)
class Triage:
    """All tensors are `[N]` in data-set order, but for `order`, which holds positions, most suspicious first."""

    order: Tensor
    flagged: Tensor
    suspicion: Tensor
    score: Tensor
    low: Tensor
    high: Tensor
    given: Tensor
    suggested: Tensor

    @property
    def count(self) -> int:
        """Estimated number of wrong labels."""
        return int(self.flagged.sum())

    def rows(self, top: int | None = None) -> list[dict[str, float | int | bool]]:
        """The first `top` examples (default: the flagged ones) as records, most suspicious first."""
        columns = ("suspicion", "score", "low", "high", "given", "suggested", "flagged")
        first = self.order[: self.count if top is None else top].tolist()
        return [{"index": i, **{name: getattr(self, name)[i].item() for name in columns}} for i in first]


def triage(result: InfluenceResult, given: Tensor, probabilities: Tensor | None = None) -> Triage:
    """Sorts the labels `given` `[N]` by the scores of a watched run; `probabilities` `[N, C]`: out-of-fold ones, if
    there are any, else the run's own `beliefs`."""
    if probabilities is None:
        probabilities = result.beliefs
    if probabilities is None:
        raise InfluenceError("triage: a run with config.memory = False keeps no predictions; hand over probabilities")
    given, probabilities = torch.as_tensor(given).long().cpu(), torch.as_tensor(probabilities).float().cpu()
    if probabilities.dim() != 2 or len(probabilities) != len(given):
        raise InfluenceError(
            f"triage: probabilities of shape {tuple(probabilities.shape)} for {len(given)} labels; expected [N, C]"
        )
    if not torch.isfinite(probabilities).all():
        raise InfluenceError("triage: probabilities must be finite")
    _, flagged = estimate_wrong(result.suspicion, given, result.trusted_odds)
    others = probabilities.scatter(1, given.unsqueeze(1), -torch.inf)
    suggested = torch.where(flagged.unsqueeze(1), others, probabilities).argmax(1)
    score, width = result.score, result.half_width
    suspicion = result.suspicion
    order = suspicion.argsort(descending=True, stable=True)
    return Triage(order, flagged, suspicion, score, score - width, score + width, given, suggested)
