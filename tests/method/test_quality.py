"""Wrong labels on real images (scikit-learn's digits): the default configuration against loss and margins, and the
removal rule."""

import functools

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.metrics import average_precision_score
from torch import nn

from sgoif import InfluenceConfig, OnlineInfluence
from sgoif.label_noise.count import estimate_label_errors

EPOCHS, BATCH = 10, 128


@functools.cache
def digits():
    images, labels = load_digits(return_X_y=True)
    return torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16, torch.tensor(labels)


def corrupted(kind, rate, seed):
    """Symmetric noise, or class-conditional: every class leaks into one other, at its own rate."""
    labels, rng = digits()[1].numpy().copy(), np.random.default_rng(seed)
    if kind == "symmetric":
        flip = rng.random(len(labels)) < rate
        return torch.tensor(np.where(flip, (labels + rng.integers(1, 10, len(labels))) % 10, labels))
    circle = rng.permutation(10)
    partner = dict(zip(circle, np.roll(circle, -1), strict=True))
    rates = np.clip(rate * (1 + rng.uniform(-0.6, 0.6, 10)), 0, 0.48)
    return torch.tensor([partner[label] if rng.random() < rates[label] else label for label in labels])


def network():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(),
        nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


@functools.cache
def detection(kind, rate, seed=1, **changes):
    """(which labels are wrong, result, last loss, negated mean margin) of one watched training."""
    images, truth = digits()
    given = corrupted(kind, rate, seed)
    torch.manual_seed(seed)
    model = network()
    steps = EPOCHS * (len(given) // BATCH)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=steps)
    influence = OnlineInfluence(model, len(given), 10, InfluenceConfig(**changes), total_steps=steps)
    loss, margin, visits = torch.zeros(len(given)), torch.zeros(len(given)), torch.zeros(len(given))
    for _ in range(EPOCHS):
        order = torch.randperm(len(given))[: len(given) // BATCH * BATCH]
        for index in order.split(BATCH):
            optimizer.zero_grad()
            with influence.watch(index, given[index]):
                logits = model(images[index])
                F.cross_entropy(logits, given[index]).backward()
            optimizer.step()
            influence.step(optimizer)
            schedule.step()
            logits = logits.detach()
            own = logits.gather(1, given[index, None])[:, 0]
            others = logits.scatter(1, given[index, None], -torch.inf).amax(1)
            loss[index] = F.cross_entropy(logits, given[index], reduction="none")
            margin[index] += own - others
            visits[index] += 1
        influence.end_epoch()
    return given, (given != truth).numpy(), influence.scores(), loss.numpy(), (-margin / visits.clamp(min=1)).numpy()


@pytest.mark.parametrize("rate", [0.2, 0.35])
def test_structured_noise_is_found_better_than_by_loss_and_margin(rate):
    _, wrong, result, loss, margin = detection("class-conditional", rate)
    ours, by_loss, by_margin = (average_precision_score(wrong, s) for s in (result.score.numpy(), loss, margin))
    assert ours > by_loss + 0.02 and ours > by_margin + 0.005, (ours, by_loss, by_margin)


@pytest.mark.parametrize("rate", [0.2, 0.4])
def test_symmetric_noise_is_found(rate):
    """Here every simple score is near 1; ours must not fall behind by more than half a point."""
    _, wrong, result, loss, margin = detection("symmetric", rate)
    ours, by_loss, by_margin = (average_precision_score(wrong, s) for s in (result.score.numpy(), loss, margin))
    assert ours > 0.99 and ours > max(by_loss, by_margin) - 0.005, (ours, by_loss, by_margin)
    top = result.score.argsort(descending=True)[: len(wrong) // 100].numpy()
    assert wrong[top].all()


@pytest.mark.parametrize(
    "kind, rate, slack",
    [("symmetric", 0.0, 0.02), ("symmetric", 0.2, 0.02), ("symmetric", 0.7, 0.1), ("class-conditional", 0.2, 0.03)],
)
def test_number_of_wrong_labels_without_the_truth(kind, rate, slack):
    given, wrong, result, *_ = detection(kind, rate)
    count, mask = estimate_label_errors(result.score, given)
    assert mask.sum() == count
    assert abs(count / len(wrong) - wrong.mean()) < slack, (count, wrong.sum())


def test_result_is_complete():
    given, _, result, *_ = detection("symmetric", 0.2)
    n = len(given)
    for name in ("score", "confidence", "residual", "half_width", "visits", "anchor_age"):
        assert getattr(result, name).shape == (n,)
    assert result.epoch_scores.shape == (EPOCHS, n)
    assert (
        result.scope["layers"] == ["10"] and "8.weight" in result.scope["left_out"] and result.scope["dimension"] == 650
    )
    assert result.counters["hvps_per_step"] <= InfluenceConfig().hvp_budget
    visited = result.visits > 0
    assert visited.float().mean() > 0.99 and torch.isfinite(result.residual[visited]).all()
    assert result.confidence[visited].mean() > 0.5 and result.residual[~visited].isinf().all()
    assert set(result.numpy()) >= {"score", "epoch_scores"}


def test_a_rare_class_of_two_keeps_its_labels_where_some_are_missed():
    """A digit against all others, a third of it called another: the second fit alone empties the class (0.1 to 0.2)."""
    images, digit = digits()
    truth = (digit == 3).long()
    missed = (truth == 1) & (torch.rand(len(truth), generator=torch.Generator().manual_seed(0)) < 0.3)
    given = torch.where(missed, 0, truth)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    influence = OnlineInfluence(model, len(given), 2)
    for _ in range(20):
        for index in torch.randperm(len(given)).split(64):
            optimizer.zero_grad()
            with influence.watch(index, given[index]):
                F.cross_entropy(model(images[index]), given[index]).backward()
            optimizer.step()
            influence.step(optimizer)
        influence.end_epoch()
    result = influence.scores()
    assert average_precision_score(missed, result.suspicion) > 0.8
    issues = result.find_label_issues(given)
    assert issues.mask[missed].float().mean() > 0.7 and issues.mask[truth == 1].sum() < 2 * missed.sum()


def test_a_few_huge_inputs_do_not_spoil_the_ranking_of_the_others():
    """Three images a thousand times as bright. Their gradients are as long; clipped, the network learns the others."""
    images, truth = digits()
    given = corrupted("symmetric", 0.05, 0)
    scaled = images.flatten(1).clone()
    huge = torch.tensor([100, 900, 1500])
    scaled[huge] *= 1000
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    with OnlineInfluence(model, len(given), 10) as influence:
        for _ in range(20):
            for index in torch.randperm(len(given)).split(64):
                optimizer.zero_grad()
                with influence.watch(index, given[index]):
                    F.cross_entropy(model(scaled[index]), given[index]).backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                influence.step(optimizer)
            influence.end_epoch()
    learnt = (model(scaled).argmax(1) == truth).float().mean()
    assert learnt > 0.9, "or no score can be right"
    wrong, suspicion = (given != truth).numpy(), influence.scores().suspicion.numpy()
    others = np.setdiff1d(np.arange(len(given)), huge.numpy())
    assert average_precision_score(wrong[others], suspicion[others]) > 0.9


def test_a_hundred_classes_of_thirty_examples_and_few_wrong_labels():
    """One class of the mixture of class influences gathers the atypical examples of all: AUC-PR 25, 973 flagged."""
    generator = torch.Generator().manual_seed(0)
    n, n_classes = 3000, 100
    truth = torch.arange(n) % n_classes
    x = (0.7 * torch.randn(n_classes, 50, generator=generator))[truth] + torch.randn(n, 50, generator=generator)
    wrong = torch.rand(n, generator=generator) < 0.01
    shift = torch.randint(1, n_classes, (n,), generator=generator)
    given = torch.where(wrong, (truth + shift) % n_classes, truth)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(50, 128), nn.ReLU(), nn.Linear(128, n_classes))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    with OnlineInfluence(model, n, n_classes) as influence:
        for _ in range(10):
            for index in torch.randperm(n).split(64):
                with influence.watch(index, given[index]):
                    F.cross_entropy(model(x[index]), given[index]).backward()
                optimizer.step()
                influence.step(optimizer)
                optimizer.zero_grad()
            influence.end_epoch()
    result = influence.scores()
    assert average_precision_score(wrong, result.suspicion) > 0.95
    assert wrong.sum() == 32 and result.find_label_issues(given).count < 100
