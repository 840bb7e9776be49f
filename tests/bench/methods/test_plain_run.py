"""The shared plain run: what it records, and what it does not."""

from __future__ import annotations

import torch

from sgoif.utils.files import load_npz
from tests.helpers.digit_tasks import noisy_task, ood_task


def test_margins_losses_and_errors_of_a_visit_belong_together():
    """With ten classes: a positive margin leaves p_y above 1/10, and 1 - p_y <= ||p - onehot|| <= sqrt(2) (1 - p_y)."""
    task, _ = noisy_task(n_train=600, plain=True)
    visits = task.plain.visits
    seen = visits.margins.isfinite()
    assert torch.equal(seen, visits.losses.isfinite()) and torch.equal(seen, visits.errors.isfinite())
    margin, p, error = visits.margins[seen], visits.probabilities[seen], visits.errors[seen]
    assert (p[margin > 0] > 0.1).all() and (p[margin < 0] < 0.5 + 1e-3).all()
    assert (error >= 1 - p - 2e-3).all() and (error <= 2**0.5 * (1 - p) + 2e-3).all()


def test_margins_are_nan_exactly_where_an_example_sat_out_an_epoch():
    """The last short batch is dropped, so that every epoch leaves out other examples."""
    task, _ = noisy_task(n_train=600, plain=True)
    margins, batches = task.plain.visits.margins, task.batches()
    left_out = len(task.train) - batches.steps * batches.batch_size
    assert margins.shape == (task.recipe.epochs, len(task.train)) and 0 < left_out < batches.batch_size
    for epoch, row in enumerate(margins):
        seen = torch.cat([batch.index for batch in batches.epoch(epoch)])
        assert torch.equal(row.isfinite().nonzero().flatten(), seen.sort().values)
        assert int(row.isnan().sum()) == left_out
    assert margins.isfinite().any(0).all(), "an example is seen in some epoch"
    assert not torch.equal(margins[0].isnan(), margins[1].isnan())


def test_ood_methods_read_features_and_logits_that_are_not_rounded():
    """The sentinel passes the training images again in float32; what others read must not be coarser."""
    task, _, _ = ood_task()
    logits, features = task.predict(task.plain.network(), features=True)
    torch.testing.assert_close(task.plain.features, features, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(task.plain.logits, logits, rtol=1e-5, atol=1e-5)
    assert load_npz(task.plain.directory / "arrays.npz")["features"].dtype == "float32"
