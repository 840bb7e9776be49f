"""In-Run Data Shapley: the products against autograd, the sums by hand, and on digits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import roc_auc_score

from baselines.noisy import inrun_shapley
from baselines.noisy.inrun_shapley import InRunShapley, head_products, trusted_outputs
from sgoif.errors import UserError
from tests.helpers.digit_tasks import noisy_task


def test_products_are_those_of_the_last_layers_gradients():
    """Summed over v: -eta times it is the first-order change of the trusted loss by a step on example i."""
    g = torch.Generator().manual_seed(0)
    z, v_z = torch.randn(5, 3, generator=g), torch.randn(4, 3, generator=g)
    y, v_y = torch.randint(0, 3, (5,), generator=g), torch.randint(0, 3, (4,), generator=g)
    w, b, c = torch.randn(3, 3, generator=g, requires_grad=True), torch.zeros(3, requires_grad=True), 0.5
    logits, v_logits = c * (z @ w.T + b), c * (v_z @ w.T + b)
    found = head_products(logits.detach(), z, y, v_logits.detach(), v_z, v_y, c)
    g_val = torch.autograd.grad(F.cross_entropy(v_logits, v_y), (w, b), retain_graph=True)
    for i in range(5):
        g_i = torch.autograd.grad(F.cross_entropy(logits[i : i + 1], y[i : i + 1]), (w, b), retain_graph=True)
        assert found[i].item() == pytest.approx(
            sum((p * q).sum() for p, q in zip(g_i, g_val, strict=True)).item(), rel=1e-4
        )


def test_trusted_images_change_neither_mode_nor_statistics():
    task, _ = noisy_task(n_train=256, plain=False)
    learner = task.learner(task.batches())
    learner.net.train()
    before = {k: v.clone() for k, v in learner.net.state_dict().items()}
    trusted_outputs(learner, task.trusted[0].batch(torch.arange(8)))
    assert learner.net.training and all(torch.equal(v, before[k]) for k, v in learner.net.state_dict().items())


def test_sums_over_visits_with_and_without_rates(monkeypatch):
    """Every product is 1: scores count visits, and rates."""
    monkeypatch.setattr(inrun_shapley, "head_products", lambda logits, *_: torch.ones(len(logits)))
    task, _ = noisy_task(n_train=256, plain=False)  # 8 epochs of 2 steps, nobody sits out
    found = InRunShapley().detect(task)
    np.testing.assert_allclose(found.scores, -4.0)
    np.testing.assert_allclose(found.variants["window_equal"], -4.0)
    rates = np.array([task.recipe.lr_at(step, 16) for step in range(16)]).reshape(8, 2)
    assert np.isclose(-found.variants["all"].mean(), rates.mean(1).sum(), rtol=1e-5)
    assert np.isclose(-found.variants["window"].mean(), rates[4:].mean(1).sum(), rtol=1e-5)


def test_detects_wrong_digits_and_needs_trusted_images():
    task, wrong = noisy_task(n_train=600, plain=False)
    found = InRunShapley().detect(task)
    assert roc_auc_score(wrong, found.scores) > 0.75
    task.trusted = None
    with pytest.raises(UserError, match="inrun_shapley needs trusted images"):
        InRunShapley().detect(task)
