"""What is asked of every robust trainer on the digits: it finds the wrong labels and still learns the right ones."""

import numpy as np
from sklearn.metrics import roc_auc_score

from sgoif.bench.methods.base import Detection, NoisyLabelDetector
from tests.helpers.digit_tasks import digits, noisy_task


def accuracy(logits) -> float:
    return float((np.asarray(logits).argmax(1) == digits()[1][1200:1697]).mean())


def check_behaviour(
    method: NoisyLabelDetector, auroc: float = 0.95, rate: float = 0.4, slack: float = 0.03
) -> Detection:
    """Run on digits with `rate` wrong labels; the test accuracy may lie `slack` below the plain run's."""
    task, wrong = noisy_task(rate=rate)
    detection = method.detect(task)
    n, epochs = len(wrong), task.recipe.epochs
    assert detection.scores.shape == (n,)
    assert np.isfinite(detection.scores).all()
    assert roc_auc_score(wrong, detection.scores) > auroc
    for name, scores in detection.variants.items():
        assert scores.shape == (n,)
        assert roc_auc_score(wrong, scores) > 0.8, name
    if detection.epoch_scores is not None:
        assert detection.epoch_scores.shape == (epochs, n)
    assert accuracy(detection.test_logits) > accuracy(task.plain.test_logits) - slack
    assert task.session.timers.seconds["train"] > 0
    assert task.session.timers.seconds["score"] > 0
    return detection
