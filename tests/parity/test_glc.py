"""GLC: corruption matrix and loss as the official code computes them, written out again; on digits; and watched."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import average_precision_score

from baselines.noisy.glc import GLC, posterior
from baselines.noisy.sgoif_glc import WatchedGLC
from sgoif.bench.methods.robust.loss_correction import corrected_loss, corruption, gold_training
from sgoif.errors import UserError
from tests.helpers.digit_tasks import noisy_task


def drawn():
    g = torch.Generator().manual_seed(0)
    return torch.randn(12, 3, generator=g), torch.randint(0, 3, (12,), generator=g)


def test_rows_of_the_matrix_are_mean_predictions_of_the_class():
    logits, clean = drawn()
    probs, clean = logits.softmax(1), clean.clamp(max=1)  # no image of the last class
    expected = np.eye(3)
    for label in (0, 1):
        expected[label] = np.mean(probs.numpy()[clean.numpy() == label], axis=0)
    np.testing.assert_allclose(corruption(probs, clean), expected, rtol=1e-6)


def test_loss_of_a_minibatch_is_that_of_the_official_code():
    """There: sums over silver (corrected) and gold (plain) examples, together over the size of the batch."""
    logits, labels = drawn()
    matrix = torch.tensor([[0.7, 0.2, 0.1], [0.3, 0.6, 0.1], [0.0, 0.4, 0.6]])
    gold = torch.arange(12) % 4 == 0
    rows = matrix.T[labels[~gold]]
    silver = -torch.log((F.softmax(logits[~gold], dim=1) * rows).sum(1)).sum(0)
    expected = (F.cross_entropy(logits[gold], labels[gold], reduction="sum") + silver) / 12
    torch.testing.assert_close(corrected_loss(logits, labels, matrix, gold).mean(), expected)


def test_posterior_by_hand():
    logits = torch.tensor([[0.2, 0.8]], dtype=torch.float64).log()
    matrix = torch.tensor([[0.9, 0.1], [0.4, 0.6]], dtype=torch.float64)
    wrong = posterior(logits, torch.tensor([0]), matrix)
    assert wrong.item() == pytest.approx(0.8 * 0.4 / (0.2 * 0.9 + 0.8 * 0.4))


def test_clean_labels_make_a_better_ranking_than_the_plain_run():
    task, wrong = noisy_task(n_train=600, rate=0.4)
    found = GLC().detect(task)
    plain = F.cross_entropy(task.plain.logits, task.labels, reduction="none").cpu().numpy()
    assert average_precision_score(wrong, found.scores) > average_precision_score(wrong, plain)
    assert set(found.variants) == set(GLC.candidates) - {GLC.ranked_by}
    assert found.test_logits.shape == (len(task.test), 10)
    task.trusted = None
    with pytest.raises(UserError, match="glc needs trusted images"):
        GLC().detect(task)


def test_sg_oif_watches_the_gold_training():
    task, wrong = noisy_task(n_train=600, rate=0.4)
    found = WatchedGLC().detect(task)
    assert average_precision_score(wrong, found.scores) > 0.9
    n = len(task.labels)
    parts = [found.scores, found.remove, *found.variants.values(), *found.epoch_scores]
    assert {len(part) for part in parts} == {n}, "trusted images are trained on, not ranked"
    assert found.extras["steps"] == task.recipe.epochs * gold_training(task, "").batches.steps
    task.trusted = None
    with pytest.raises(UserError, match="sgoif_glc needs trusted images"):
        WatchedGLC().detect(task)
