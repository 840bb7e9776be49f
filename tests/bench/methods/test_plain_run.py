"""The shared plain run: what it records, and what it does not."""

from __future__ import annotations

import torch

from sgoif.utils.files import load_npz
from tests.helpers.digit_tasks import noisy_task, ood_task


def test_margins_are_nan_exactly_where_an_example_sat_out_an_epoch():
    """The last short batch is dropped, so that every epoch leaves out other examples."""
    task, _ = noisy_task(n_train=600, plain=True)
    margins, batches = task.plain.margins, task.batches()
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
