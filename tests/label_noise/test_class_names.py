"""Which class a label names where most labels are wrong, and which labels are more frequent than their class."""

import math

import pytest
import torch

from sgoif.label_noise.class_mixture import fit_class_mixture
from sgoif.label_noise.class_names import label_excess, name_probabilities, size_agreement

DOUBLE = torch.float64


def test_every_class_has_one_name_and_every_name_one_class():
    transition = torch.rand(6, 6, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    names = name_probabilities(transition / transition.sum(1, keepdim=True))
    torch.testing.assert_close(names.sum(0), torch.ones(6, dtype=DOUBLE), atol=1e-6, rtol=0)
    torch.testing.assert_close(names.sum(1), torch.ones(6, dtype=DOUBLE))


def test_names_are_certain_where_most_labels_are_right():
    assert name_probabilities(torch.full((5, 5), 0.1, dtype=DOUBLE) + 0.5 * torch.eye(5)).diagonal().min() > 0.95
    assert name_probabilities(torch.eye(3, dtype=DOUBLE)).diagonal().min() > 0.999


def test_every_class_keeps_its_name_as_far_as_sizes_follow_the_labels():
    transition = torch.tensor([[0.6, 0.4], [0.5, 0.5]], dtype=DOUBLE)
    half, own = name_probabilities(transition, 0.5), torch.eye(2, dtype=DOUBLE)
    torch.testing.assert_close(half, (name_probabilities(transition) + own) / 2)
    assert torch.equal(name_probabilities(transition, 1.0), own)


def test_a_class_may_give_its_name_to_one_that_has_no_other():
    """Class 0 has mostly label 0, but a quarter of 1; class 1 has hardly label 1, and could be 0 as well."""
    transition = torch.tensor([[0.60, 0.25, 0.15], [0.30, 0.10, 0.60], [0.00, 0.00, 1.00]], dtype=DOUBLE)
    names = name_probabilities(transition)
    odds = (0.25 * 0.30 / (0.60 * 0.10)) ** 1.5  # class 2 is 2, and for two classes Sinkhorn's limit is a square root
    assert names[0, 1].item() == pytest.approx(odds / (1 + odds), abs=0.01) and names[2, 2] > 0.99


def test_uncertain_names_hedge_what_a_mixture_says():
    """Two classes exchange more than half of their labels: the mixture is certain of wrong names, the mean is not."""
    generator = torch.Generator().manual_seed(0)
    transition = torch.tensor([[0.35, 0.55, 0.10], [0.55, 0.35, 0.10], [0.0, 0.0, 1.0]], dtype=DOUBLE)
    true = torch.arange(3).repeat(300)
    labels = torch.multinomial(transition[true], 1, generator=generator)[:, 0]
    found = fit_class_mixture(torch.eye(3)[true] + 0.2 * torch.randn(900, 3, generator=generator), labels)
    doubtful, certain = (true < 2) & (labels < 2), (true == 2) & (labels == 2)
    plain, hedged = found.log_odds(), found.log_odds(name_probabilities(found.transition))
    assert hedged[doubtful].abs().mean() < 0.8 * plain[doubtful].abs().mean()
    torch.testing.assert_close(hedged[certain], plain[certain], rtol=0.05, atol=0.1)


def test_class_sizes_that_follow_the_labels_are_a_long_tail():
    labelled = torch.tensor([400.0, 200.0, 100.0, 100.0], dtype=DOUBLE)
    assert size_agreement(labelled, [labelled]) == pytest.approx(1)
    assert size_agreement(labelled, [torch.full((4,), 200.0, dtype=DOUBLE)]) == 0
    half = (labelled + 200) / 2
    assert size_agreement(labelled, [half]) == pytest.approx(0.5)
    nearly = 0.8 * labelled + 0.2 * 200
    assert size_agreement(labelled, [nearly]) == pytest.approx(0.64 / (0.64 + 0.04))  # the odds of the squares
    assert size_agreement(labelled, [half, labelled]) == pytest.approx(0.5 / (0.5 + (1 - 0.5**0.5) ** 2))  # their mean
    assert size_agreement(labelled, [labelled, torch.full((4,), 7.0, dtype=DOUBLE)]) == 0  # one sees no tail
    assert size_agreement(labelled, [labelled.flip(0)]) == 0 and size_agreement(labelled, [labelled**3]) == 1  # bounds
    assert size_agreement(torch.full((4,), 9.0, dtype=DOUBLE), [labelled]) == 1


def test_the_excess_of_a_label_is_its_share_over_that_of_its_class():
    labelled = torch.tensor([300.0, 100.0, 0.0, 0.0], dtype=DOUBLE)
    assert label_excess(labelled, 0.0).tolist() == pytest.approx([math.log(3), 0.0, 0.0, 0.0])
    assert label_excess(labelled, 1.0).abs().max() < 1e-12
    assert label_excess(labelled, 0.5)[0].item() == pytest.approx(math.log(3 / 2))
