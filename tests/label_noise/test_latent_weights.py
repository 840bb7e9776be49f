"""What the latent classes are worth, how spread wrong labels are, and which label is whose, by hand."""

import math

import pytest
import torch

from sgoif.label_noise.latent_classes import LatentClasses, _match_labels, _match_trusted, _posterior_sums
from sgoif.label_noise.vmf_mixture import VMFMixtures


def classes(entropy: float = 0.0, stability: float = 1.0, labels: torch.Tensor | None = None) -> LatentClasses:
    eye = torch.eye(3) if labels is None else labels
    n = len(eye)
    return LatentClasses(torch.eye(n), 5.0, torch.full((n,), 1 / n), eye, torch.arange(n), entropy, stability)


@pytest.mark.parametrize(
    ("entropy", "stability", "weight"),
    [
        (0.0, 1.0, 1.0),
        (0.03, 1.0, 1.0),  # full weight up to half of 0.06
        (0.045, 1.0, 0.5),
        (0.06, 1.0, 0.0),
        (0.09, 1.0, 0.0),
        (0.0, 0.5, 1.0),  # from 0.3 to 0.5
        (0.0, 0.4, 0.5),
        (0.0, 0.3, 0.0),
        (0.0, 0.1, 0.0),
        (0.045, 0.4, 0.25),
    ],
)
def test_the_weight_falls_with_entropy_and_instability(entropy, stability, weight):
    assert classes(entropy, stability).latent_weight == pytest.approx(weight, abs=1e-9)


def spread(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def test_wrong_labels_of_a_class_are_spread_over_an_effective_number_of_labels():
    """exp(entropy) of the wrong labels, by their mass: 2 labels alike, 1 label, and none."""
    found = classes(labels=spread([0.8, 0.1, 0.1], [0.4, 0.6, 0.0], [0.0, 0.0, 1.0])).effective_error_classes
    assert found == pytest.approx((0.2 * 2 + 0.4 * 1) / 0.6)
    assert classes().effective_error_classes == 0
    uneven = classes(labels=spread([0.6, 0.3, 0.1], [0, 1, 0], [0, 0, 1])).effective_error_classes
    assert uneven == pytest.approx(math.exp(-0.75 * math.log(0.75) - 0.25 * math.log(0.25)))


@pytest.mark.parametrize(("size", "entropy"), [(11, 0.0), (21, 0.5), (31, 1.0), (41, 1.0)])
def test_noise_scatter_rises_from_ten_to_thirty_labels(size, entropy):
    even = (torch.ones(size, size) - torch.eye(size)) / (size - 1)
    assert classes(labels=even).effective_error_classes == pytest.approx(size - 1, rel=1e-5)
    assert classes(labels=even).noise_scatter == pytest.approx(entropy, abs=1e-5)


def test_labels_are_matched_one_to_one_unless_that_is_below_chance():
    """Label 2 is left with class 2, of which it has less than chance: it goes to its most frequent class."""
    joint = spread([50, 5, 0], [10, 40, 5], [30, 5, 1])
    assert _match_labels(joint, 146).tolist() == [0, 1, 0 if 1 * 146 < 36 * 6 else 2]
    fine = spread([50, 5, 5], [10, 40, 5], [30, 5, 10])
    assert _match_labels(fine, 160).tolist() == [0, 1, 2]


def test_trusted_examples_move_a_label_by_more_than_chance():
    """Votes of label 0: a classes' counts a and b move it if b - a > sqrt(a + b)."""
    mixture = VMFMixtures(torch.eye(2)[None], torch.tensor([200.0], dtype=torch.float64), torch.ones(1, 2))
    joint = torch.zeros(2, 2)

    def match(own: int, other: int) -> list[int]:
        points = torch.eye(2)[torch.tensor([0] * own + [1] * other)]
        return _match_trusted(torch.tensor([0, 1]), joint, mixture, (points, torch.zeros(own + other).long())).tolist()

    assert match(3, 6) == [0, 1]  # 3 = sqrt(9)
    assert match(2, 6) == [1, 1]
    assert match(6, 0) == [0, 1]


def test_posteriors_are_summed_by_label():
    mixture = VMFMixtures(torch.eye(2)[None], torch.tensor([2.0], dtype=torch.float64), torch.ones(1, 2))
    other = VMFMixtures(torch.eye(2)[None], torch.tensor([1.0], dtype=torch.float64), torch.ones(1, 2))
    u, labels = (
        torch.nn.functional.normalize(torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])),
        torch.tensor([0, 0, 1]),
    )
    joint, entropy, same = _posterior_sums(u, labels, mixture, (mixture, other))
    p, q = mixture.posterior(u)[:, 0], other.posterior(u)[:, 0]
    torch.testing.assert_close(joint, torch.stack([p[0] + p[1], p[2]]))
    torch.testing.assert_close(entropy, -(p * p.log()).sum())
    torch.testing.assert_close(same, (p * q).sum())
