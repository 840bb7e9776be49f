"""The shift sentinel on planted cases, and its statistics against dense float64 ones."""

import pytest
import torch

from sgoif.adaptors.shift import Metric, Moments, ShiftConfig, ShiftSentinel, Trace, pooled, with_one
from sgoif.errors import BatchError, InfluenceError

CLASSES, WIDTH, RANK = 4, 24, 8


class World:
    """Features around class means inside a subspace; a stage whose rows follow another subspace; a linear head."""

    def __init__(self, seed: int = 0):
        self.g = torch.Generator().manual_seed(seed)
        self.basis = torch.linalg.qr(self.randn(WIDTH, WIDTH)).Q
        self.means = 6 * self.basis[:CLASSES]
        self.head = self.basis[:CLASSES]

    def randn(self, *shape):
        return torch.randn(*shape, generator=self.g)

    def trace(self, features, stage=None):
        rows = self.randn(len(features), RANK) @ self.basis[RANK : 2 * RANK] if stage is None else stage
        return Trace([rows + 0.01 * self.randn(*rows.shape)], features, features @ self.head.T)

    def draw(self, n):
        labels = torch.randint(0, CLASSES, (n,), generator=self.g)
        noise = self.randn(n, RANK) @ self.basis[:RANK] + 0.05 * self.randn(n, WIDTH)
        return self.trace(self.means[labels] + noise), labels


@pytest.fixture
def world():
    return World()


def fitted(world, config=None, batches=4):
    sentinel = ShiftSentinel(CLASSES, config)
    for _ in range(batches):
        sentinel.observe(*world.draw(300))
    sentinel.calibrate([world.draw(200)[0]])
    return sentinel


def split(trace, size):
    parts = zip(trace.stages[0].split(size), trace.features.split(size), trace.logits.split(size), strict=True)
    return [Trace([a], z, f) for a, z, f in parts]


# --- planted cases ----------------------------------------------------------------------------------------------------


def test_features_outside_the_training_subspace_score_higher(world):
    sentinel = fitted(world)
    usual, _ = world.draw(200)
    away = world.trace(usual.features + 3 * world.randn(200, RANK) @ world.basis[-RANK:])
    assert sentinel.score(away).quantile(0.05) > sentinel.score(usual).quantile(0.95)


def test_a_stage_with_unseen_activations_scores_higher_by_its_leverage(world):
    sentinel = fitted(world, ShiftConfig(output=0, energy=0))
    usual, _ = world.draw(200)
    strange = world.trace(usual.features, stage=usual.stages[0] + world.randn(200, RANK) @ world.basis[:RANK])
    assert sentinel.score(strange).min() > sentinel.score(usual).quantile(0.99)
    assert (sentinel.score(usual) == 0).float().mean() > 0.7  # inside the bulk a leverage says nothing


def test_class_means_score_low(world):
    sentinel = fitted(world)
    at_means = world.trace(world.means, stage=torch.zeros(CLASSES, WIDTH))
    usual, _ = world.draw(500)
    assert sentinel.score(at_means).max() < sentinel.score(usual).quantile(0.5)
    assert sentinel.score(world.trace(torch.zeros(1, WIDTH))) > sentinel.score(at_means).max()  # between all classes


def test_every_component_sees_its_own_shift(world):
    sentinel = fitted(world)
    usual, _ = world.draw(300)
    away = world.trace(world.randn(300, RANK) @ world.basis[-RANK:], stage=5 * world.randn(300, WIDTH))
    before, after = sentinel.components(usual), sentinel.components(away)
    assert set(before) == {"output", "energy", "leverage_1", "leverage_2", "support", "residual", "influence"}
    for name in before:
        assert after[name].median() > before[name].median(), name


# --- statistics -------------------------------------------------------------------------------------------------------


def test_leverage_is_the_diagonal_of_the_hat_matrix(world):
    x = world.randn(60, 7).double()
    moments = Moments(1, 7)
    moments.add(x, torch.zeros(60, dtype=torch.long))
    hat = (x @ torch.linalg.inv(x.T @ x) @ x.T).diagonal()
    torch.testing.assert_close(
        Metric(moments.second_moment(), 1e-12).leverage(x.float()).double() / 60, hat, rtol=1e-5, atol=1e-6
    )


def test_streaming_is_the_same_as_one_batch(world):
    trace, labels = world.draw(500)
    z = trace.features.double()
    moments = Moments(CLASSES, WIDTH)
    for rows, y in zip(trace.features.split(77), labels.split(77), strict=True):
        moments.add(rows, y)
    means = torch.stack([z[labels == k].mean(0) for k in range(CLASSES)])
    torch.testing.assert_close(moments.mean, z.mean(0))
    torch.testing.assert_close(moments.class_means, means)
    torch.testing.assert_close(moments.covariance(), torch.cov(z.T, correction=0))
    torch.testing.assert_close(moments.within(), torch.cov((z - means[labels]).T, correction=0))
    ones = torch.cat([z, torch.ones(500, 1)], 1)
    torch.testing.assert_close(with_one(moments), ones.T @ ones / 500)


@pytest.mark.parametrize("size", [1, 64, 333])
def test_batch_splits_change_nothing(world, size):
    trace, labels = world.draw(400)
    held, _ = world.draw(100)
    test, _ = world.draw(50)
    config = ShiftConfig(bank=150, support=1, residual=1, influence=1)
    whole, parts = ShiftSentinel(CLASSES, config), ShiftSentinel(CLASSES, config)
    whole.observe(trace, labels)
    for part, y in zip(split(trace, size), labels.split(size), strict=True):
        parts.observe(part, y)
    assert torch.equal(whole._rows, parts._rows) and len(parts._rows) == 150
    whole.calibrate([held])
    parts.calibrate(split(held, size))
    again = torch.cat([parts.score(t) for t in split(test, size)])
    torch.testing.assert_close(whole.score(test), again, rtol=1e-3, atol=1e-3)


def test_damping_goes_from_mahalanobis_to_plain_length(world):
    x = world.randn(200, 5) * torch.tensor([1.0, 2, 3, 4, 5])
    cov = torch.cov(x.T.double(), correction=0)
    exact = (x.double() @ torch.linalg.inv(cov) * x).sum(1).float()
    torch.testing.assert_close(Metric(cov, 1e-9).leverage(x), exact, rtol=1e-4, atol=1e-4)
    huge = Metric(cov, 1e8)
    torch.testing.assert_close(huge.leverage(x) * float(huge.damping), x.square().sum(1), rtol=1e-4, atol=1e-4)


def test_damping_keeps_a_dead_direction_finite():
    dead = torch.diag(torch.tensor([1.0, 0.0]))
    assert torch.isfinite(Metric(dead, 0.01).leverage(torch.tensor([[0.0, 1.0]]))).all()
    assert torch.isfinite(Metric(torch.zeros(2, 2), 0.01).leverage(torch.ones(1, 2))).all()


def test_expected_influence_is_the_mean_over_labels_of_the_last_layer(world):
    """Against g' (A (x) B)^-1 g with g = (p - e_y) (x) (z, 1), class by class, dense in float64."""
    config = ShiftConfig(damping=0.05)
    sentinel = fitted(world, config)
    test, _ = world.draw(5)

    def inverse(m):
        return torch.linalg.inv(m + config.damping * m.diagonal().mean() * torch.eye(len(m)))

    a_inv = inverse(with_one(sentinel.features))
    b_inv = inverse(torch.diag(sentinel.outputs.mean) - sentinel.outputs.second_moment())
    precision = torch.kron(b_inv, a_inv)
    expected = []
    for z, f in zip(test.features.double(), test.logits.double(), strict=True):
        p = f.softmax(0)
        total = 0.0
        for y in range(CLASSES):
            g = torch.kron(p - torch.eye(CLASSES, dtype=torch.float64)[y], torch.cat([z, torch.ones(1)]))
            total += p[y] * (g @ precision @ g)
        expected.append(total)
    got = (sentinel.input_side(test) * sentinel.output_side(test)).double()
    torch.testing.assert_close(got, torch.stack(expected), rtol=1e-2, atol=1e-3)


def test_the_bank_is_bounded_and_prefers_agreeing_examples(world):
    sentinel = ShiftSentinel(CLASSES, ShiftConfig(bank=50))
    trace, _ = world.draw(400)
    wrong = (trace.logits.argmax(1) + 1) % CLASSES
    mixed = torch.where(torch.arange(400) % 2 == 0, trace.logits.argmax(1), wrong)
    sentinel.observe(trace, mixed)
    kept = (sentinel._rows[:, None] == trace.features[None]).all(2).nonzero()[:, 1]
    assert len(kept) == 50 and (kept % 2 == 0).all()


# --- pooling and wrong use --------------------------------------------------------------------------------------------


def test_pooling_gives_what_and_where(world):
    maps = world.randn(3, 5, 8, 8)
    what, where = pooled(maps, width=100)  # 4 x 4 cells of 5 channels
    torch.testing.assert_close(what, torch.cat([maps.mean((2, 3)), maps.flatten(2).std(2, correction=0)], 1))
    assert where.shape == (3, 5 * 16)
    torch.testing.assert_close(where[:, 0], maps[:, 0, :2, :2].mean((1, 2)))
    assert [v.shape[1] for v in pooled(maps, width=1)] == [10]
    assert torch.equal(pooled(maps[:, :, :1, :1])[0], maps[:, :, 0, 0])


def test_wrong_use_says_what_to_do(world):
    sentinel = ShiftSentinel(CLASSES)
    trace, labels = world.draw(20)
    with pytest.raises(InfluenceError, match="observe first"):
        sentinel.components(trace)
    with pytest.raises(BatchError, match="labels"):
        sentinel.observe(trace, labels[:-1])
    sentinel.observe(trace, labels)
    with pytest.raises(InfluenceError, match="not calibrated"):
        sentinel.score(trace)
    with pytest.raises(InfluenceError, match="no held-back"):
        sentinel.calibrate([])
    for wrong in ({"damping": 0}, {"bank": 0}, {"leverage": -1}):
        with pytest.raises(InfluenceError, match=next(iter(wrong))):
            ShiftConfig(**wrong)
