"""How far anchors count: by the share of their class in the training labels, or alike."""

from types import SimpleNamespace

import pytest
import torch

from sgoif import InfluenceConfig, OnlineInfluence
from sgoif.anchors.bank import AnchorBank


def batch(labels: list[int], valid: list[bool] | None = None) -> SimpleNamespace:
    return SimpleNamespace(
        labels=torch.tensor(labels),
        index=torch.arange(len(labels)),
        valid=torch.tensor(valid or [True] * len(labels)),
    )


def bank(count: int = 3, **config) -> AnchorBank:
    return AnchorBank(InfluenceConfig(**config), count, 3, 4, torch.float64)


def test_anchors_count_by_the_share_of_their_class():
    kept = bank()
    assert kept.prior().tolist() == [1, 1, 1]  # nothing has been counted yet
    kept.count_labels(batch([0, 0, 0, 0, 1, 2, 2], [True] * 6 + [False]))
    assert kept.prior().tolist() == pytest.approx([2, 0.5, 0.5])
    kept.count_labels(batch([1, 2, 2]))
    assert kept.prior().tolist() == pytest.approx([4 / 3, 2 / 3, 1])


def test_buckets_of_one_class_share_its_examples_and_classes_share_a_bucket():
    many = bank(6)
    many.count_labels(batch([0, 0, 0, 0, 1, 1]))  # positions 0 to 5: even ones in the first bucket of a class
    assert many.prior().tolist() == pytest.approx([2, 2, 1, 1, 0, 0])
    few = bank(2)
    few.count_labels(batch([0, 1, 2, 2]))
    assert few.prior().tolist() == pytest.approx([1.5, 0.5])


def test_anchors_count_alike_if_asked_and_by_the_trusted_examples_if_there_are_any():
    alike = bank(anchor_prior="uniform")
    alike.count_labels(batch([0, 0, 0, 1]))
    assert alike.prior().tolist() == [1, 1, 1]
    trusted = bank(source="trusted")
    trusted.count_labels(batch([0, 0, 0, 1]))
    trusted.weight.copy_(torch.tensor([1.0, 1.0, 4.0]))
    assert trusted.prior().tolist() == pytest.approx([0.5, 0.5, 2])


def scores(anchor_prior: str) -> torch.Tensor:
    """One frequent and two rare classes on a line of well-separated points; all labels are right but the last."""
    torch.manual_seed(0)
    labels = torch.tensor([0] * 60 + [1] * 6 + [2] * 6 + [1])
    true = labels.clone()
    true[-1] = 0
    x = 3 * torch.eye(3)[true] + 0.3 * torch.randn(len(true), 3)
    model = torch.nn.Linear(3, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    config = InfluenceConfig(anchor_prior=anchor_prior, memory=False)
    influence = OnlineInfluence(model, len(x), 3, config, total_steps=60)
    for _ in range(60):
        with influence.watch(torch.arange(len(x)), labels):
            torch.nn.functional.cross_entropy(model(x), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
        influence.step(optimizer)
    return influence.scores().score


def test_right_labels_of_a_frequent_class_are_harmless_if_its_anchor_counts_more():
    weighted, alike = scores("labels"), scores("uniform")
    assert weighted.argmax() == len(weighted) - 1
    frequent = slice(0, 60)
    gap = (weighted[-1] - weighted[frequent].mean()) / weighted.std()
    assert gap > (alike[-1] - alike[frequent].mean()) / alike.std()
