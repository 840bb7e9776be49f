"""`FactoredBatch`: joining, the newest steps, stored and rebuilt, scaled and spoiled gradients."""

from dataclasses import replace

import pytest
import torch

from sgoif.gradients.factored_batch import PER_EXAMPLE, FactoredBatch
from sgoif.gradients.layers import LinearGradients, SequenceGradients
from sgoif.gradients.parameter_space import ParameterSpace

DOUBLE = torch.float64
SPACE = ParameterSpace([(2, 3)])


def head_batch(sizes: tuple[int, ...] = (4,), seed: int = 0) -> FactoredBatch:
    generator = torch.Generator().manual_seed(seed)
    n = sum(sizes)
    a, e = (torch.randn(n, width, generator=generator, dtype=DOUBLE) for width in (3, 2))
    return FactoredBatch(
        space=SPACE,
        layers=(LinearGradients(a, e),),
        scales=(None,),
        index=torch.arange(n) + 10 * seed,
        labels=torch.arange(n) % 2,
        logits=torch.randn(n, 2, generator=generator, dtype=DOUBLE),
        predicted=torch.rand(n, 2, generator=generator, dtype=DOUBLE),
        probs=torch.rand(n, 2, generator=generator, dtype=DOUBLE),
        valid=torch.arange(n) != 1,
        recency=torch.rand(n, generator=generator, dtype=DOUBLE),
        temperature=4.0,
        step_sizes=sizes,
        closed_form=True,
    )


def deep_batch(n: int = 4, seed: int = 0) -> FactoredBatch:
    """Two places an example; the gradients are scale_i sum_t e_it (x) a_it."""
    generator = torch.Generator().manual_seed(seed)
    a, e = (torch.randn(n, 2, width, generator=generator, dtype=DOUBLE) for width in (3, 2))
    scale = torch.rand(n, generator=generator, dtype=DOUBLE) + 1
    return replace(
        head_batch((n,), seed), layers=(SequenceGradients(a, e, DOUBLE),), scales=(scale,), closed_form=False
    )


def rows_of(batch: FactoredBatch) -> torch.Tensor:
    """Dense gradients [n, 6]."""
    layer, scale = batch.layers[0], batch.scales[0]
    subscripts = "no,ni->noi" if isinstance(layer, LinearGradients) else "nto,nti->noi"
    dense = torch.einsum(subscripts, layer.e, layer.a).flatten(1)
    return dense if scale is None else dense * scale[:, None]


@pytest.mark.parametrize("make", [head_batch, lambda seed: deep_batch(seed=seed)])
def test_joined_batches_are_one(make):
    first, second = make(seed=1), make(seed=2)
    joined = FactoredBatch.concatenate([first, second])
    torch.testing.assert_close(rows_of(joined), torch.cat([rows_of(first), rows_of(second)]))
    for name in PER_EXAMPLE:
        assert torch.equal(getattr(joined, name), torch.cat([getattr(first, name), getattr(second, name)])), name
    assert len(joined) == 8 and joined.step_sizes == (4, 4) and joined.temperature == 4.0
    assert joined.closed_form == first.closed_form and (joined.scales[0] is None) == (first.scales[0] is None)
    assert FactoredBatch.concatenate([first]) is first


@pytest.mark.parametrize(
    ("count", "sizes"), [(1, (4,)), (4, (4,)), (5, (3, 4)), (7, (3, 4)), (8, (2, 3, 4)), (99, (2, 3, 4))]
)
def test_the_newest_whole_steps_with_enough_examples(count, sizes):
    batch = head_batch((2, 3, 4))
    newest = batch.newest(count)
    n = sum(sizes)
    assert newest.step_sizes == sizes and len(newest) == n and (newest.recency == 1).all()
    assert torch.equal(newest.index, batch.index[9 - n :])
    torch.testing.assert_close(rows_of(newest), rows_of(batch)[9 - n :])
    assert deep_batch().newest(1).step_sizes == (4,)  # a sample of one step already


@pytest.mark.parametrize("make", [head_batch, deep_batch])
def test_dot_products_and_sums_are_those_of_the_dense_gradients(make):
    batch = make()
    dense, rows = rows_of(batch), torch.randn(5, 6, dtype=DOUBLE, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(batch.dot(rows), dense @ rows.T)
    ready = batch.materialised()
    weights = torch.rand(4, 5, dtype=DOUBLE)
    torch.testing.assert_close(ready.weighted_sum(weights), weights.T @ dense)
    groups = torch.tensor([2, 0, 2, 2])
    expected = torch.zeros(3, 6, dtype=DOUBLE).index_add(0, groups, weights[:, :1] * dense)
    torch.testing.assert_close(ready.group_sums(groups, weights[:, 0], 3), expected)
    count = 3  # one of the four is not finite
    torch.testing.assert_close(ready.matvec(rows, "fisher"), rows @ dense.T @ dense / count)


def test_the_gauss_newton_matrix_of_the_head():
    """H = mean_i (diag(p) - p p') / T (x) a a', over the finite examples."""
    batch, rows = head_batch(), torch.randn(2, 6, dtype=DOUBLE)
    layer, total = batch.head_layer, torch.zeros(6, 6, dtype=DOUBLE)
    for p, a in zip(batch.probs, layer.a, strict=True):
        total += torch.kron(torch.diag(p) - p[:, None] * p, a[:, None] * a) / 4.0
    torch.testing.assert_close(batch.matvec(rows, "ggn"), rows @ total.T / 3)


def test_what_is_not_finite_counts_nothing():
    batch = deep_batch()
    batch.layers[0].e[1], batch.scales[0][1] = torch.nan, 0
    rows = torch.randn(5, 6, dtype=DOUBLE)
    dots = batch.dot(rows)
    assert (dots[1] == 0).all() and torch.isfinite(dots).all() and (dots[[0, 2, 3]] != 0).all()
    assert torch.isfinite(batch.materialised().weighted_sum(torch.ones(4, 1, dtype=DOUBLE))).all()
    assert batch.count == 3 and batch.mass[1] == 0 and torch.equal(batch.mass[2:], batch.recency[2:])


@pytest.mark.parametrize("make", [head_batch, deep_batch])
def test_a_stored_batch_is_rebuilt(make):
    batch = make().materialised()
    again = FactoredBatch.from_tensors(SPACE, batch.tensors(), batch.closed_form)
    torch.testing.assert_close(rows_of(again), rows_of(batch))
    for name in PER_EXAMPLE:
        assert torch.equal(getattr(again, name), getattr(batch, name)), name
    assert again.step_sizes == (4,) and again.temperature == 4.0 and again.scales == (None,)


def test_gradients_are_materialised_once():
    batch = deep_batch()
    torch.testing.assert_close(rows_of(batch.materialised()), rows_of(batch))
    with pytest.raises(TypeError, match="materialised already"):
        batch.materialised().materialised()
    ready = head_batch()
    assert ready.materialised() is ready  # the head's gradients have no scale
