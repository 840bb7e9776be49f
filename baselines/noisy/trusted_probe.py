"""A probe on trusted features: what a few clean labels are worth without any influence.

Multinomial logistic regression from the plain run's penultimate features to the labels of the trusted images:

    q = softmax(V z + b) fitted to the trusted images            s_i = 1 - q(x_i)[y_i]

with an L2 penalty of 1 / (2 C) on V and standardised features (scikit-learn's default, C = 1). The control for methods
that are given clean labels: a method that uses them should be better than this. No paper; the linear probe is that of
Alain & Bengio (arXiv:1610.01644).
Removal rule: the probe predicts another class. Cost: a pass over the trusted images beyond the plain run.
Deviations: none; there is no published detector to differ from.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sgoif.bench.methods.base import Detection, NoisyLabelDetector
from sgoif.bench.methods.score_threshold import at_most
from sgoif.bench.methods.tasks import NoisyTask
from sgoif.errors import UserError


def fit_probe(features: np.ndarray, labels: np.ndarray, n_classes: int, strength: float):
    """A function from features [n, d] to probabilities [n, K]; classes without a trusted image have probability 0."""
    from sklearn.linear_model import LogisticRegression

    mean, std = features.mean(0), np.maximum(features.std(0), 1e-6)
    probe = LogisticRegression(C=strength, max_iter=1000).fit((features - mean) / std, labels)

    def predict(x: np.ndarray) -> np.ndarray:
        p = np.zeros((len(x), n_classes))
        p[:, probe.classes_] = probe.predict_proba((x - mean) / std)
        return p

    return predict


class TrustedProbe(NoisyLabelDetector):
    name = "trusted_probe"
    title = "probe on trusted features †"
    group = "Given all clean labels that were set aside"
    order = 4
    ranked = False
    reads_plain = True
    uses_trusted = True

    @dataclass(frozen=True)
    class Params:
        strength: float = 1.0  # C

    def __init__(self, **params):
        super().__init__(**params)
        self.need(self.params.strength > 0, "strength", "must be above 0")

    def detect(self, task: NoisyTask) -> Detection:
        if task.trusted is None:
            raise UserError("trusted_probe needs trusted images (noisy.<dataset>.val): it is fitted to them")
        images, clean = task.trusted
        _, features = task.predict(task.plain.network(), images, features=True)
        known = features.double().cpu().numpy()
        probe = fit_probe(known, clean.cpu().numpy(), task.n_classes, self.params.strength)
        p, labels = probe(task.plain.features.double().cpu().numpy()), task.labels.cpu().numpy()
        scores = 1 - p[np.arange(len(labels)), labels]
        return Detection(scores, remove=at_most(p.argmax(1) != labels, scores))
