"""The pieces of scope `all`: patches, thinned factors, and scores that are computed during the backward pass."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from sgoif import OnlineInfluence
from sgoif.backend import linalg
from sgoif.curvature.kfac import KroneckerCurvature
from sgoif.gradients import layers
from sgoif.gradients.layer_ops import patches_of
from sgoif.gradients.layers import MAX_FACTOR_ROWS, DenseGradients, LinearGradients
from tests.helpers.networks import Net, blobs, convnet, mlp, quick, train, watch_once, watched_batch


@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 3, "padding": 1},
        {"kernel_size": (3, 2), "stride": (2, 1), "dilation": (1, 2), "padding": (0, 2)},
        {"kernel_size": 5, "padding": "same"},
        {"kernel_size": 3, "padding": 1, "padding_mode": "reflect"},
    ],
)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_patches_times_weights_are_the_convolution(options, memory_format):
    conv = nn.Conv2d(3, 4, bias=False, **options)
    images = torch.randn(2, 3, 9, 8).to(memory_format=memory_format)
    found = patches_of(conv, images) @ conv.weight.flatten(1).T
    torch.testing.assert_close(found, conv(images).permute(0, 2, 3, 1).flatten(1, 2), rtol=1e-4, atol=1e-5)


def test_a_thinned_factor_counts_every_example_alike():
    """Where all places of an example look the same, some of them say as much as all, if none is forgotten."""
    n, places = 48, 64
    assert n * places > 2 * MAX_FACTOR_ROWS
    vectors, mass = torch.randn(n, 5, dtype=torch.float64), torch.rand(n, dtype=torch.float64)
    batch = DenseGradients(vectors.unsqueeze(1).expand(n, places, 5), torch.zeros(n, places, 2), torch.float64)
    factor = torch.ones(5, 5, dtype=torch.float64)
    batch.add_to_input_factor(factor, 0.5, mass)
    exact = 0.5 + places * (vectors * mass.unsqueeze(1)).T @ vectors
    assert torch.linalg.matrix_norm(factor - exact) < 0.05 * torch.linalg.matrix_norm(exact)


def test_a_thinned_factor_sees_every_place():
    places = 16 * 16
    inputs = torch.eye(places, dtype=torch.float64).expand(64, places, places)
    factor = torch.zeros(places, places, dtype=torch.float64)
    DenseGradients(inputs, torch.zeros(64, places, 1), torch.float64).add_to_input_factor(
        factor, 0.0, torch.ones(64).double()
    )
    counts = factor.diagonal()
    assert counts.min() > 0.7 * 64 and counts.max() < 1.3 * 64
    torch.testing.assert_close(counts.sum(), torch.tensor(64.0 * places, dtype=torch.float64))


def test_long_rows_in_pieces_are_the_same_product(monkeypatch):
    rows = torch.randn(3, 1000, dtype=torch.float64)
    others = torch.randn(4, 1000, dtype=torch.float64)
    basis, lengths = linalg.orthonormal_rows(rows)
    monkeypatch.setattr(linalg, "MAX_ROW_LENGTH", 100)
    monkeypatch.setattr(linalg, "ROW_CHUNK_LENGTH", 64)
    torch.testing.assert_close(linalg.matmul_nt(rows, others), rows @ others.T)
    for found, expected in zip(linalg.orthonormal_rows(rows), (basis, lengths), strict=True):
        torch.testing.assert_close(found, expected)


def test_precision_of_products_is_given_back():
    before = torch.backends.cuda.matmul.allow_tf32
    with linalg.tf32_products(enabled=not before):
        assert torch.backends.cuda.matmul.allow_tf32 is not before
        with linalg.tf32_products(enabled=before):
            assert torch.backends.cuda.matmul.allow_tf32 is before
        assert torch.backends.cuda.matmul.allow_tf32 is not before
    assert torch.backends.cuda.matmul.allow_tf32 is before


def test_weighted_sums_in_parts_are_the_same(monkeypatch):
    batch = LinearGradients(torch.randn(50, 4, dtype=torch.float64), torch.randn(50, 3, dtype=torch.float64))
    weights = torch.rand(50, 7, dtype=torch.float64)
    whole = torch.einsum("nk,no,ni->koi", weights, batch.e, batch.a)
    torch.testing.assert_close(batch.weighted_sum(weights), whole)
    monkeypatch.setattr(layers, "MAX_WEIGHTED_ENTRIES", 8 * 7 * 3)
    torch.testing.assert_close(batch.weighted_sum(weights), whole)


@pytest.mark.parametrize("sizes", [[50], [0, 50, 0], [1, 0, 8, 9, 32], [7] * 7 + [1], [0, 0, 0], [1, 0, 0, 2, 0]])
@pytest.mark.parametrize(("at_once", "membership"), [(1, 0), (5000, 0), (5000, 2**21)])
def test_sums_over_groups_of_any_size(sizes, at_once, membership, monkeypatch):
    """Empty groups, full blocks, one more than a block; all at once, one block at a time, or as one product."""
    monkeypatch.setattr(layers, "MAX_GROUP_BLOCK_ROWS", 8)
    monkeypatch.setattr(layers, "MAX_MEMBERSHIP_ENTRIES", membership)
    monkeypatch.setattr(layers, "MAX_WEIGHTED_ENTRIES", at_once)
    groups = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    groups = groups[torch.randperm(len(groups))]
    count, n, options = len(sizes), len(groups), {"dtype": torch.float64}
    member = torch.nn.functional.one_hot(groups, count).double()
    weights = torch.rand(n, **options)
    rows = LinearGradients(torch.randn(n, 5, **options), torch.randn(n, 3, **options))
    sample = DenseGradients(torch.randn(n, 2, 5, **options), torch.randn(n, 2, 3, **options), torch.float64)
    member *= weights.unsqueeze(1)
    expected = torch.einsum("nk,no,ni->koi", member, rows.e, rows.a)
    torch.testing.assert_close(rows.group_sums(groups, weights, count), expected)
    torch.testing.assert_close(sample.group_sums(groups, weights, count), sample.weighted_sum(member))


@pytest.mark.parametrize(("membership", "sorts"), [(50 * 4 * 3, False), (50 * 4 * 3 - 1, True)])
def test_small_sums_over_groups_need_no_sorting(membership, sorts, monkeypatch):
    monkeypatch.setattr(layers, "MAX_MEMBERSHIP_ENTRIES", membership)
    seen = []
    blocks = layers.group_blocks
    monkeypatch.setattr(layers, "group_blocks", lambda *given: seen.append(given) or blocks(*given))
    LinearGradients(torch.randn(50, 5), torch.randn(50, 3)).group_sums(torch.arange(50) % 4, torch.ones(50), 4)
    assert bool(seen) is sorts


def rounded(values: torch.Tensor) -> torch.Tensor:
    """To the ten bits of mantissa that TF32 keeps."""
    return ((values.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def test_tensor_cores_may_do_the_head_scopes_long_products(monkeypatch):
    """Where the flag lets a GPU round products to TF32, rounding on a CPU moves scores by less than 0.1%. Scores
    themselves and the sums of anchors and curvature are never rounded."""
    seen, rounds = {}, []

    def product(name, function):
        def noted(self, *given):
            fast = torch.backends.cuda.matmul.allow_tf32
            seen.setdefault(name, set()).add(fast)
            if fast and rounds:
                self = LinearGradients(rounded(self.a), self.e)
                given = tuple(rounded(g) for g in given)
            return function(self, *given)

        return noted

    for name in ("project", "outer", "weighted_sum", "group_sums"):
        monkeypatch.setattr(LinearGradients, name, product(name, getattr(LinearGradients, name)))
    note = KroneckerCurvature.update
    monkeypatch.setattr(
        KroneckerCurvature,
        "update",
        lambda self, *a: seen.setdefault("update", set()).add(torch.backends.cuda.matmul.allow_tf32) or note(self, *a),
    )
    found, (x, y) = [], blobs(n=300, classes=5, dtype=torch.float32)
    for rounding in ([], ["now"]):
        rounds += rounding
        torch.manual_seed(0)
        model = mlp(classes=5).float()
        influence = OnlineInfluence(model, len(y), config=quick())
        train(model, x, y, influence)
        found.append(influence.scores().score)
    assert seen == {
        "project": {False, True},
        "outer": {True},
        "weighted_sum": {False},
        "group_sums": {False},
        "update": {False},
    }
    difference = torch.linalg.vector_norm(found[1] - found[0]) / torch.linalg.vector_norm(found[0])
    assert 0 < difference < 1e-3


def tokens():
    class Pooled(nn.Module):
        def forward(self, x):
            return x.mean(1)

    return Net(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4, bias=False), Pooled()), 4, 3)


CASES = {
    "mlp": (mlp, lambda: blobs(24)[0], "all"),
    "convnet": (convnet, lambda: torch.randn(24, 1, 8, 8).double(), "all"),
    "tokens": (tokens, lambda: torch.randn(24, 5, 3).double(), "all"),
    "without the head": (mlp, lambda: blobs(24)[0], "blocks:^body"),
}


@pytest.mark.parametrize("case", CASES)
def test_scores_of_the_backward_pass_are_dot_products(case):
    make, data, scope = CASES[case]
    torch.manual_seed(0)
    model, x, y = make().double(), data(), torch.arange(24) % 3
    influence = OnlineInfluence(model, 24, 3, quick(scope=scope, update_every=1))
    for _ in range(4):
        watch_once(influence, model, x, y)
        influence.step()
    with influence.capture_graph() as captured:
        loss = 3 * F.cross_entropy(model(x), y)
    loss.backward()
    influence.record_replay(torch.arange(24), y, captured)
    engine = influence._engine
    passes = engine.queue.newest(influence.steps)
    head, _ = engine.queue.to_batch(passes, engine.temperature(), influence.config.half_life)
    score = engine.scope.score(head, passes).score
    batch = watched_batch(influence)
    expected = -batch.dot(influence._engine.parts.directions.scoring_direction)[:, 0]
    assert expected.abs().max() > 0
    torch.testing.assert_close(score, expected)


def test_kronecker_factors_hold_gradients_whose_positions_agree():
    """Where all positions of an image agree, A (x) B is the second moment of the gradient, not a part of it."""
    a, e = torch.rand(1, 1, 3, dtype=torch.float64), torch.rand(1, 1, 2, dtype=torch.float64)
    layer = DenseGradients(a.expand(1, 9, 3), e.expand(1, 9, 2), torch.float64)
    inputs, outputs = torch.zeros(3, 3, dtype=torch.float64), torch.zeros(2, 2, dtype=torch.float64)
    layer.add_to_input_factor(inputs, 1.0, torch.ones(1, dtype=torch.float64))
    layer.add_to_output_factor(outputs, 1.0)
    flat = layer.gradients.flatten()
    torch.testing.assert_close(torch.kron(outputs, inputs), torch.outer(flat, flat))
