"""Chooses hyper-parameters of an OOD method on OOD validation images, as OpenOOD does (its "APS mode").

Every combination of the values of the method's `sweep` is fitted and scores the ID and the OOD validation images; the
combination of the largest AUROC is taken, of equal ones the first. No image that is tested on is among them.
"""

from __future__ import annotations

import itertools

import torch
from sklearn.metrics import roc_auc_score

from sgoif.bench.methods.base import OODDetector
from sgoif.bench.methods.tasks import OODTask
from sgoif.errors import UserError


def fit_searched(method: OODDetector, task: OODTask) -> OODDetector:
    """Return the method with the best values of its sweep, fitted.

    Args:
        method: A method with a sweep; it is not changed.
        task: The task, with OOD validation images.

    Raises:
        UserError: If there are no OOD validation images.
    """
    if task.ood_val is None:
        raise UserError(
            f"method {method.name} searches its hyper-parameters on OOD validation images: give the dataset "
            "`validation`, or leave `search` out"
        )
    is_ood = torch.cat([torch.zeros(len(task.val)), torch.ones(len(task.ood_val))]).numpy()
    best, highest = method, -1.0
    for values in itertools.product(*method.sweep.values()):
        tried = method.with_params(dict(zip(method.sweep, values, strict=True)))
        tried.fit(task)
        scores = torch.cat([tried.score(task.val), tried.score(task.ood_val)]).double().cpu().numpy()
        auroc = float(roc_auc_score(is_ood, scores))
        if auroc > highest:
            best, highest = tried, auroc
    return best
