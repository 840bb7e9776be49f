"""The detector around SG-OIF: which labels it removes."""

from dataclasses import replace

import numpy as np
import torch

from sgoif.bench.methods.registry import load
from sgoif.influence import OnlineInfluence
from sgoif.label_noise.evidence import SignalWeights
from tests.helpers.digit_tasks import noisy_task

N = 40


def removed(monkeypatch, **changes) -> np.ndarray:
    """Return the examples removed when log-odds suspect the first ten, margins the last ten, influences the second
    ten."""
    task, _ = noisy_task(n_train=N, plain=False)
    read = OnlineInfluence.scores
    first, last = (torch.full((N,), -5.0) for _ in range(2))
    first[:10], last[-10:] = 5.0, 5.0
    said = {"log_odds": first, "margin": last, "score": first.roll(10)}

    def scores(self):
        return replace(read(self), **said, **changes)

    monkeypatch.setattr(OnlineInfluence, "scores", scores)
    return np.flatnonzero(load("noisy", "sgoif")().detect(task).remove)


def test_the_log_odds_say_how_many_and_the_suspicion_which(monkeypatch):
    assert removed(monkeypatch, weights=SignalWeights(0.0, 1.0, 0.0)).tolist() == list(range(10))
    assert removed(monkeypatch, weights=SignalWeights(0.0, 1.0, 3.0)).tolist() == list(range(N - 10, N))
    assert removed(monkeypatch, weights=SignalWeights(3.0, 1.0, 0.0)).tolist() == list(range(10, 20))
