"""TRAK self-influence against the authors' package, on the last layer."""

import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import roc_auc_score
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from baselines.noisy.trak import TRAK, leverages, margin_errors
from tests.helpers.digit_tasks import noisy_task

N, D, K = 40, 4, 3


def linear_task():
    g = torch.Generator().manual_seed(0)
    model = nn.Linear(D, K)
    with torch.no_grad():
        model.weight.copy_(torch.randn(K, D, generator=g))
        model.bias.copy_(torch.randn(K, generator=g))
    return model, torch.randn(N, D, generator=g), torch.randint(0, K, (N,), generator=g)


def test_the_score_is_the_diagonal_of_the_packages_scores_up_to_one_factor(tmp_path):
    trak = pytest.importorskip("trak")
    from trak.projectors import NoOpProjector
    from trak.utils import vectorize

    class OnCPU(NoOpProjector):
        def project(self, grads, model_id):
            return vectorize(grads, device="cpu")

    model, x, y = linear_task()
    u, a = margin_errors(model(x).detach(), y), F.pad(x, (0, 1), value=1.0)
    gradients = torch.einsum("nk,nd->nkd", u, a).flatten(1)
    damping = 0.01 * gradients.square().sum(0).mean() / (K * (D + 1))  # the package divides gradients by this root
    traker = trak.TRAKer(
        model, "image_classification", N, save_dir=str(tmp_path), device="cpu", projector=OnCPU(),
        proj_dim=K * (D + 1), use_half_precision=False, lambda_reg=float(damping), logging_level=50,
    )  # fmt: skip
    traker.load_checkpoint(model.state_dict(), model_id=0)
    batches = [tuple(t) for t in DataLoader(TensorDataset(x, y), batch_size=N)]
    traker.featurize(batch=batches[0], num_samples=N)
    traker.finalize_features()
    traker.start_scoring_checkpoint("self", model.state_dict(), model_id=0, num_targets=N)
    traker.score(batch=batches[0], num_samples=N)
    theirs = torch.as_tensor(traker.finalize_scores("self")).diagonal().double()
    missing = 1 - model(x).detach().softmax(1)[torch.arange(N), y]
    ours = (leverages(u, a, 0.01) * missing).double()
    torch.testing.assert_close(ours / ours.mean(), theirs / theirs.mean(), rtol=1e-3, atol=1e-4)


def test_gradient_of_the_margin_is_that_of_autograd():
    model, x, y = linear_task()
    logits = model(x).detach().double().requires_grad_()
    p = logits.softmax(1)[torch.arange(N), y]
    (p / (1 - p)).log().sum().backward()
    torch.testing.assert_close(margin_errors(logits.detach(), y), logits.grad)


def test_blocks_and_a_square_projection_change_nothing(monkeypatch):
    model, x, y = linear_task()
    u, a = margin_errors(model(x).detach().double(), y), F.pad(x.double(), (0, 1), value=1.0)
    whole = leverages(u, a, 0.01)
    monkeypatch.setattr("baselines.noisy.trak.BLOCK", 7)
    torch.testing.assert_close(leverages(u, a, 0.01), whole)
    turn = torch.linalg.qr(torch.randn(15, 15, generator=torch.Generator().manual_seed(1), dtype=torch.float64))[0]
    torch.testing.assert_close(leverages(u, a, 0.01, turn), whole)


@pytest.mark.parametrize("dimension", [2048, 100])
def test_detects_wrong_digits_projected_or_not(dimension):
    task, wrong = noisy_task(n_train=600)
    found = TRAK(dimension=dimension).detect(task)
    assert roc_auc_score(wrong, found.scores) > 0.8 and roc_auc_score(wrong, found.variants["ensemble"]) > 0.8
