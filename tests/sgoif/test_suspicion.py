"""What ranks wrong labels: suspicion, the temperature by number of classes, and the count by the confident joint."""

import numpy as np
import pytest
import torch
from torch import nn

from sgoif import InfluenceConfig, OnlineInfluence, estimate_wrong
from sgoif.removal import confident_joint_count
from sgoif.result import InfluenceResult, level, rival_margin


def result(score, margin, agreement, **config) -> InfluenceResult:
    ones = torch.ones(len(score))
    return InfluenceResult(
        torch.tensor(score), ones, ones, ones, ones.long(), ones, torch.tensor(margin), torch.tensor(agreement),
        torch.tensor(score)[None], config=InfluenceConfig(**config),
    )  # fmt: skip


def test_rival_margin_by_hand():
    logits = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 5.0]])
    torch.testing.assert_close(rival_margin(logits, torch.tensor([0, 1])), torch.tensor([-1.0, 2.0]))


def test_suspicion_is_score_and_margin_by_squared_agreement():
    found = result([3.0, -1.0], [1.0, -1.0], [0.2, 0.6])
    expected = torch.tensor([3.0, -1.0]) / 5**0.5 + 0.4**2 * torch.tensor([1.0, -1.0])
    torch.testing.assert_close(found.suspicion, expected)
    torch.testing.assert_close(result([3.0, -1.0], [1.0, -1.0], [0.2, 0.6], memory=False).suspicion, found.score)
    assert torch.equal(level(torch.zeros(3)), torch.zeros(3))


def test_examples_never_visited_say_nothing_about_agreement():
    found = result([1.0, 1.0], [1.0, 1.0], [0.5, 0.0])
    found = InfluenceResult(**{**vars(found), "visits": torch.tensor([1, 0])})
    torch.testing.assert_close(found.suspicion, torch.full((2,), 1.25))


def test_the_watched_run_adds_up_margin_and_agreement():
    torch.manual_seed(0)
    model = nn.Linear(5, 3)
    x, y = torch.randn(8, 5), torch.randint(0, 3, (8,))
    influence = OnlineInfluence(model, 8, 3, InfluenceConfig(window=1.0), total_steps=2)
    seen = []
    for _ in range(2):
        with influence.watch(torch.arange(8), y):
            logits = model(x)
            nn.functional.cross_entropy(logits, y).backward()
        seen.append(logits.detach())
        with torch.no_grad():
            model.weight += 0.1
        influence.step()
    found, logits = influence.scores(), torch.stack(seen)
    torch.testing.assert_close(found.margin, torch.stack([rival_margin(f, y) for f in seen]).mean(0))
    torch.testing.assert_close(found.agreement, logits.softmax(2)[:, torch.arange(8), y].mean(0))


def test_temperature_is_as_stated_up_to_ten_classes_and_falls_to_one():
    config = InfluenceConfig(temperature=4.0)
    assert [config.softening(c) for c in (2, 10)] == [4.0, 4.0]
    assert config.softening(100) == pytest.approx(1 + 3 * 0.1**0.5)
    assert 1 < config.softening(10_000) < config.softening(1000) < config.softening(100)
    assert InfluenceConfig(temperature=1.0).softening(100) == 1.0


def test_confident_joint_count_is_cleanlabs():
    count = pytest.importorskip("cleanlab.count")
    rng = np.random.default_rng(0)
    given = rng.integers(0, 4, 600)
    probabilities = rng.dirichlet(np.ones(4), 600)
    probabilities[np.arange(600), given] += rng.random(600)
    probabilities /= probabilities.sum(1, keepdims=True)
    joint = count.compute_confident_joint(given, probabilities, calibrate=True)
    theirs = joint.sum() - np.trace(joint)
    ours = confident_joint_count(torch.from_numpy(probabilities), torch.from_numpy(given))
    assert abs(ours - theirs) <= 2  # cleanlab rounds every cell


def test_the_largest_count_wins_and_a_skewed_hump_is_not_two():
    given = torch.zeros(1000, dtype=torch.long)
    given[500:] = 1
    negative = -torch.rand(1000).square() - 0.1
    assert estimate_wrong(negative, given)[0] == 0
    believed = torch.eye(2)[given].clone()
    believed[:200] = torch.tensor([0.0, 1.0])
    assert estimate_wrong(negative, given, believed)[0] == 200
