"""Detectors that read the features of the plain run, against closed forms, by hand and on digits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import roc_auc_score

from baselines.noisy.ekfac import EKFAC, self_influence
from baselines.noisy.fine import FINE, alignments, lower_posterior
from baselines.noisy.simifeat import SimiFeat, neighbours, released_votes, votes
from baselines.noisy.trusted_probe import TrustedProbe, fit_probe
from sgoif.errors import UserError
from tests.helpers.digit_tasks import noisy_task


def test_alignment_is_the_cosine_to_the_first_right_singular_vector_of_the_class():
    g = torch.Generator().manual_seed(0)
    z, y = torch.randn(40, 5, generator=g, dtype=torch.float64), torch.arange(40) % 2
    expected = np.zeros(40)
    for k in (0, 1):
        members = z[y == k].numpy()
        first = np.linalg.svd(members)[2][0]  # as the released code has it
        expected[y == k] = np.abs(members @ first) / np.linalg.norm(members, axis=1)
    np.testing.assert_allclose(alignments(z, y), expected, rtol=1e-8)


def test_the_less_aligned_are_told_from_the_rest_within_a_class():
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.normal(0.9, 0.02, 60), rng.normal(0.3, 0.1, 20)])
    posterior = lower_posterior(values, 0)
    assert (posterior[:60] < 0.5).all() and (posterior[60:] > 0.5).all()
    assert not lower_posterior(np.ones(9), 0).any() and not lower_posterior(np.arange(3.0), 0).any()


def test_neighbours_leave_the_example_itself_out_in_any_block():
    g = torch.Generator().manual_seed(1)
    z = torch.randn(30, 4, generator=g)
    cosine = F.normalize(z, dim=1) @ F.normalize(z, dim=1).T
    cosine.fill_diagonal_(-2)
    expected = cosine.sort(dim=1, descending=True)
    for block in (7, 100):
        similarity, index = neighbours(z, 5, block)
        assert torch.equal(index, expected.indices[:, :5])
        torch.testing.assert_close(similarity, expected.values[:, :5])
    assert neighbours(z[:3], 10)[1].shape == (3, 2)


def test_votes_by_hand():
    labels = torch.tensor([0, 1, 1, 2])
    index = torch.tensor([[1, 2], [0, 3], [1, 3], [0, 1]])
    weights = torch.tensor([[0.5, 0.25], [1.0, 1.0], [0.9, -0.2], [0.3, 0.1]])
    expected = [[0, 1, 0], [0.5, 0, 0.5], [0, 1, 0], [0.75, 0.25, 0]]
    np.testing.assert_allclose(votes(labels, weights, index, 3), expected, rtol=1e-6)


def test_the_released_score_is_that_of_the_official_code():
    """There: ten nearest by 1 - cosine, the image itself first, whose distance is extrapolated from the next two.

    The votes of an image have unit length over the classes.
    """
    g = torch.Generator().manual_seed(3)
    z, labels, k = torch.rand(30, 4, generator=g), torch.randint(0, 3, (30,), generator=g), 10
    unit = F.normalize(z, dim=1)
    values, indices = (1 - unit @ unit.T).topk(k, dim=1, largest=False)
    values[:, 0] = 2 * values[:, 1] - values[:, 2]
    counts = torch.zeros(30, 3)
    for c in range(3):
        counts[:, c] = ((1 - values) * (labels[indices] == c)).sum(1)
    found = released_votes(labels, *neighbours(z, k), 3)
    torch.testing.assert_close(found.float(), F.normalize(counts, p=2.0, dim=1), rtol=1e-4, atol=1e-5)


def test_ekfac_is_the_exact_inverse_where_the_factors_are_independent():
    """With the same prediction for all, F = S (x) A exactly, and EK-FAC inverts it."""
    g = torch.Generator().manual_seed(2)
    z, y = torch.randn(50, 3, generator=g, dtype=torch.float64), torch.randint(0, 4, (50,), generator=g)
    logits, c = torch.tensor([[0.5, -1.0, 0.3, 1.0]], dtype=torch.float64).repeat(50, 1), 0.5
    p, a = logits.softmax(1), F.pad(z, (0, 1), value=1.0)
    fisher = c**2 * torch.kron(torch.diag(p[0]) - torch.outer(p[0], p[0]), a.T @ a / 50)
    gradients = c * torch.einsum("nk,nd->nkd", p - F.one_hot(y, 4), a).reshape(50, 16)
    damped = fisher + 0.1 * fisher.trace() / 16 * torch.eye(16, dtype=torch.float64)
    expected = (gradients * torch.linalg.solve(damped, gradients.T).T).sum(1)
    torch.testing.assert_close(self_influence(logits, z, y, c, 0.1), expected, rtol=1e-6, atol=1e-9)


def test_the_probe_knows_the_classes_it_was_given():
    rng = np.random.default_rng(0)
    centres = 4 * np.eye(3)
    y = np.arange(60) % 2
    probe = fit_probe(centres[y] + 0.1 * rng.normal(size=(60, 3)), y, 3, 1.0)
    p = probe(centres)
    assert p[:2].argmax(1).tolist() == [0, 1] and (p[:, 2] == 0).all() and np.allclose(p.sum(1), 1)


@pytest.mark.parametrize(("kind", "auroc"), [(FINE, 0.8), (SimiFeat, 0.93), (EKFAC, 0.85), (TrustedProbe, 0.93)])
def test_detects_wrong_digits(kind, auroc):
    task, wrong = noisy_task(n_train=600)
    found = kind().detect(task)
    assert roc_auc_score(wrong, found.scores) > auroc
    for name, scores in found.variants.items():
        assert roc_auc_score(wrong, scores) > 0.8, name
    assert wrong[found.remove].mean() > 2 * wrong.mean() and found.remove[wrong].mean() > 0.4


def test_the_probe_needs_trusted_images():
    task, _ = noisy_task(n_train=600)
    task.trusted = None
    with pytest.raises(UserError, match="trusted_probe needs trusted images"):
        TrustedProbe().detect(task)
