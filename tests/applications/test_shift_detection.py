"""The shift sentinel on planted cases, and its statistics against dense float64 ones."""

import math

import pytest
import torch

from sgoif.applications.shift_detection import Activations, ShiftConfig, ShiftSentinel
from sgoif.applications.streaming_moments import MahalanobisMetric, Moments, pooled
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

    def activations(self, features, stage=None):
        rows = self.randn(len(features), RANK) @ self.basis[RANK : 2 * RANK] if stage is None else stage
        return Activations([rows + 0.01 * self.randn(*rows.shape)], features, features @ self.head.T)

    def draw(self, n):
        labels = torch.randint(0, CLASSES, (n,), generator=self.g)
        noise = self.randn(n, RANK) @ self.basis[:RANK] + 0.05 * self.randn(n, WIDTH)
        return self.activations(self.means[labels] + noise), labels


@pytest.fixture
def world():
    return World()


def fitted(world, config=None, batches=4):
    sentinel = ShiftSentinel(CLASSES, config)
    for _ in range(batches):
        sentinel.observe(*world.draw(300))
    sentinel.calibrate([world.draw(200)[0]])
    return sentinel


def split(activations, size):
    parts = zip(
        activations.stages[0].split(size), activations.features.split(size), activations.logits.split(size), strict=True
    )
    return [Activations([a], z, f) for a, z, f in parts]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_passes_of_another_precision_give_the_scores_of_their_numbers_in_float32(dtype):
    def scores(precision):
        world = World()

        def batch(n):
            drawn, labels = world.draw(n)
            parts = [part.to(dtype).to(precision) for part in (drawn.stages[0], drawn.features, drawn.logits)]
            return Activations([parts[0]], *parts[1:]), labels

        sentinel = ShiftSentinel(CLASSES)
        sentinel.observe(*batch(300))
        sentinel.calibrate([batch(200)[0]])
        return sentinel.score(batch(50)[0])

    torch.testing.assert_close(scores(dtype), scores(torch.float32))


# --- planted cases ----------------------------------------------------------------------------------------------------


def test_features_outside_the_training_subspace_score_higher(world):
    sentinel = fitted(world)
    usual, _ = world.draw(200)
    away = world.activations(usual.features + 3 * world.randn(200, RANK) @ world.basis[-RANK:])
    assert sentinel.score(away).quantile(0.05) > sentinel.score(usual).quantile(0.95)


def test_a_stage_with_unseen_activations_scores_higher_by_its_leverage(world):
    sentinel = fitted(world, ShiftConfig(output=0, kinship=0, leverage=1))
    usual, _ = world.draw(200)
    strange = world.activations(usual.features, stage=usual.stages[0] + world.randn(200, RANK) @ world.basis[:RANK])
    assert sentinel.score(strange).min() > sentinel.score(usual).quantile(0.99)


def test_class_means_score_low(world):
    sentinel = fitted(world)
    at_means = world.activations(world.means)
    usual, _ = world.draw(500)
    assert sentinel.score(at_means).max() < sentinel.score(usual).quantile(0.5)
    assert (
        sentinel.score(world.activations(torch.zeros(1, WIDTH))) > sentinel.score(at_means).max()
    )  # between all classes


def test_every_component_sees_its_own_shift(world):
    sentinel = fitted(world)
    usual, _ = world.draw(300)
    away = world.activations(world.randn(300, RANK) @ world.basis[-RANK:], stage=5 * world.randn(300, WIDTH))
    before, after = sentinel.components(usual), sentinel.components(away)
    assert set(before) == {"output", "kinship", "leverage_1", "leverage_2"}
    for name in before:
        assert after[name].median() > before[name].median(), name


def test_one_component_is_enough(world):
    """A shift that shows in a single layer, against classes as clear as ever."""
    sentinel = fitted(world)
    usual, _ = world.draw(200)
    clear = world.activations(
        world.means.repeat(50, 1), stage=usual.stages[0] + 3 * world.randn(200, RANK) @ world.basis[:RANK]
    )
    assert sentinel.score(clear).quantile(0.05) > sentinel.score(usual).quantile(0.95)


def test_doubt_between_classes_that_training_confuses_is_forgiven(world):
    """Classes 0 and 1 share their mean, so B is large between them; doubt between 2 and 3 is news."""
    world.means[:2] = world.means[:2].sum(0)
    sentinel = fitted(world)
    logits = 6.0 * torch.tensor([[1.0, 1, 0, 0], [0, 0, 1, 1]])
    confused, new = sentinel.output_side(Activations([], torch.zeros(2, WIDTH), logits))
    assert new > 1.2 * confused


def test_the_score_is_the_log_of_a_ratio_with_mean_one(world):
    held, _ = world.draw(400)
    sentinel = fitted(world)
    sentinel.calibrate(split(held, 100))
    assert sentinel.score(held).exp().mean() == pytest.approx(1, abs=1e-4)
    fresh, _ = world.draw(2000)
    for alpha in (0.05, 0.2):
        assert (sentinel.score(fresh) > math.log(1 / alpha)).float().mean() <= alpha


def test_shares_of_one_are_the_parts_alone_and_order_images_as_they_do(world):
    sentinel = fitted(world)
    test, _ = world.draw(100)
    parts = sentinel.components(test)
    torch.testing.assert_close(sentinel.mix(parts), sentinel.score(test))
    for part in ("output", "kinship"):
        alone = sentinel.mix(parts, ShiftConfig(**{p: float(p == part) for p in ("output", "kinship", "leverage")}))
        assert torch.equal(alone.argsort(), parts[part].argsort())
    pair = sentinel.mix(parts, ShiftConfig(output=0, kinship=0.5, leverage=0.5))
    moved = {**parts, "output": parts["output"] + 5}
    torch.testing.assert_close(sentinel.mix(moved, ShiftConfig(output=0, kinship=0.5, leverage=0.5)), pair)
    with pytest.raises(InfluenceError, match="not calibrated"):
        ShiftSentinel(CLASSES).mix(parts)


# --- statistics -------------------------------------------------------------------------------------------------------


def test_leverage_is_the_diagonal_of_the_hat_matrix(world):
    x = world.randn(60, 7).double()
    moments = Moments(1, 7)
    moments.add(x, torch.zeros(60, dtype=torch.long))
    hat = (x @ torch.linalg.inv(x.T @ x) @ x.T).diagonal()
    torch.testing.assert_close(
        MahalanobisMetric(moments.second_moment(), 1e-12).leverage(x.float()).double() / 60, hat, rtol=1e-5, atol=1e-6
    )


def test_streaming_is_the_same_as_one_batch(world):
    activations, labels = world.draw(500)
    z = activations.features.double()
    moments = Moments(CLASSES, WIDTH)
    for rows, y in zip(activations.features.split(77), labels.split(77), strict=True):
        moments.add(rows, y)
    means = torch.stack([z[labels == k].mean(0) for k in range(CLASSES)])
    torch.testing.assert_close(moments.mean, z.mean(0))
    torch.testing.assert_close(moments.class_means, means)
    torch.testing.assert_close(moments.covariance(), torch.cov(z.T, correction=0))


@pytest.mark.parametrize("size", [1, 64, 333])
def test_batch_splits_change_nothing(world, size):
    activations, labels = world.draw(400)
    held, _ = world.draw(100)
    test, _ = world.draw(50)
    whole, parts = ShiftSentinel(CLASSES), ShiftSentinel(CLASSES)
    whole.observe(activations, labels)
    for part, y in zip(split(activations, size), labels.split(size), strict=True):
        parts.observe(part, y)
    whole.calibrate([held])
    parts.calibrate(split(held, size))
    again = torch.cat([parts.score(t) for t in split(test, size)])
    torch.testing.assert_close(whole.score(test), again, rtol=1e-3, atol=1e-3)


def test_damping_goes_from_mahalanobis_to_plain_length(world):
    x = world.randn(200, 5) * torch.tensor([1.0, 2, 3, 4, 5])
    cov = torch.cov(x.T.double(), correction=0)
    exact = (x.double() @ torch.linalg.inv(cov) * x).sum(1).float()
    torch.testing.assert_close(MahalanobisMetric(cov, 1e-9).leverage(x), exact, rtol=1e-4, atol=1e-4)
    huge = MahalanobisMetric(cov, 1e8)
    torch.testing.assert_close(huge.leverage(x) * float(huge.damping), x.square().sum(1), rtol=1e-4, atol=1e-4)


def test_damping_keeps_a_dead_direction_finite():
    dead = torch.diag(torch.tensor([1.0, 0.0]))
    assert torch.isfinite(MahalanobisMetric(dead, 0.01).leverage(torch.tensor([[0.0, 1.0]]))).all()
    assert torch.isfinite(MahalanobisMetric(torch.zeros(2, 2), 0.01).leverage(torch.ones(1, 2))).all()


def test_a_matrix_that_damping_does_not_mend_is_named():
    with pytest.raises(InfluenceError, match="positive definite"):
        MahalanobisMetric(torch.diag(torch.tensor([2.0, -1.0])), 0.01)


def test_output_side_is_the_mean_over_labels_in_the_inverse_output_factor(world):
    """Against (e_y - p)' (B + damping)^-1 (e_y - p), label by label, at the softened p."""
    sentinel = fitted(world, ShiftConfig(damping=0.05, temperature=3))
    test, _ = world.draw(5)
    b = torch.diag(sentinel.outputs.mean) - sentinel.outputs.second_moment()
    inverse = torch.linalg.inv(b + 0.05 * b.diagonal().mean() * torch.eye(CLASSES))
    expected = []
    for f in test.logits.double():
        p = (f / 3).softmax(0)
        errors = torch.eye(CLASSES, dtype=torch.float64) - p
        expected.append((p * ((errors @ inverse) * errors).sum(1)).sum())
    torch.testing.assert_close(sentinel.output_side(test).double(), torch.stack(expected), rtol=1e-4, atol=1e-6)


def test_kinship_is_the_best_class_under_equal_round_classes(world):
    """-kinship = max_v (|z|^2 - |z - m_v|^2) / 2"""
    sentinel = fitted(world)
    test, _ = world.draw(50)
    means = sentinel.layers[-1].class_means.float()
    nearest = torch.cdist(test.features, means).square().amin(1)
    expected = (nearest - test.features.square().sum(1)) / 2
    torch.testing.assert_close(sentinel.components(test)["kinship"], expected, rtol=1e-3, atol=1e-3)


def test_temperature_falls_with_more_classes():
    assert ShiftSentinel(10).temperature == 4 == ShiftSentinel(2).temperature
    assert ShiftSentinel(100).temperature == pytest.approx(1 + 3 * 0.1**0.5)


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
    activations, labels = world.draw(20)
    with pytest.raises(InfluenceError, match="observe first"):
        sentinel.components(activations)
    with pytest.raises(BatchError, match="labels"):
        sentinel.observe(activations, labels[:-1])
    sentinel.observe(activations, labels)
    with pytest.raises(InfluenceError, match="not calibrated"):
        sentinel.score(activations)
    with pytest.raises(InfluenceError, match="no held-back"):
        sentinel.calibrate([])
    for wrong in ({"damping": 0}, {"temperature": 0}, {"leverage": -1}, {"output": 1}):
        with pytest.raises(InfluenceError, match=next(iter(wrong))):
            ShiftConfig(**wrong)
