"""How far each signal counts: by how far the labels that all signals suspect stand out in it."""

import pytest
import torch

from sgoif.label_noise.class_mixture import fit_class_mixture
from sgoif.label_noise.evidence import SignalWeights, read_labels, weigh_signals

N = 1000
WRONG = torch.arange(N) < 200


def signal(separation: float, seed: int) -> torch.Tensor:
    """A signal in which wrong labels are higher by `separation` standard deviations."""
    noise = torch.randn(N, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return separation * WRONG.double() + noise


def ranked_right(suspicion: torch.Tensor) -> float:
    return WRONG[suspicion.argsort(descending=True)[:200]].double().mean().item()


def suspicion(influence, margin, log_odds, weights: SignalWeights) -> torch.Tensor:
    over = [x / x.square().mean().sqrt() for x in (influence, log_odds, margin)]
    return weights.influence * over[0] + weights.log_odds * over[1] + weights.margin * over[2]


@pytest.mark.parametrize("good", [0, 1, 2, 3], ids=["influence", "margin", "predictions", "class influences"])
def test_a_signal_in_which_suspected_labels_stand_out_counts_more(good):
    signals = [signal(6.0 if place == good else 0.3, place) for place in range(4)]
    log_odds, weights = weigh_signals(signals[0], signals[1], torch.stack(signals[2:]), noise_entropy=0.5)
    found = suspicion(signals[0], signals[1], log_odds, weights)
    assert ranked_right(found) > 0.97
    assert ranked_right(found) > ranked_right(sum(x / x.square().mean().sqrt() for x in signals))
    assert weights.log_odds == 1


def test_a_signal_that_contradicts_the_others_does_not_count():
    good, against = signal(4.0, 0), -signal(4.0, 1)
    _, weights = weigh_signals(against, good, torch.stack([signal(4.0, 2), signal(4.0, 3)]), noise_entropy=1.0)
    assert weights.influence == 0 and weights.margin > 0


def test_influence_and_margins_count_by_the_squared_noise_entropy():
    signals = [signal(4.0, seed) for seed in range(3)]
    full = weigh_signals(signals[0], signals[1], signals[2][None], noise_entropy=1.0)[1]
    none = weigh_signals(signals[0], signals[1], signals[2][None], noise_entropy=0.0)[1]
    assert none == SignalWeights(0.0, 1.0, 0.0)
    assert full.influence == pytest.approx(4, rel=0.4) and full.margin == pytest.approx(4, rel=0.4)


def test_log_odds_are_the_mean_of_both_by_their_weights():
    good, poor = 3 * signal(6.0, 0), signal(0.5, 1)
    mean, _ = weigh_signals(signal(4.0, 2), signal(4.0, 3), torch.stack([good, poor]), noise_entropy=1.0)
    share = ((mean - poor) / (good - poor)).median()
    torch.testing.assert_close(mean, share * good + (1 - share) * poor)
    assert share > 0.6
    alone, _ = weigh_signals(signal(4.0, 2), signal(4.0, 3), good[None], noise_entropy=1.0)
    torch.testing.assert_close(alone, good)


@pytest.mark.parametrize("n", [1, 2, 7])
def test_few_examples_and_signals_that_say_nothing_give_finite_weights(n):
    log_odds, weights = weigh_signals(torch.zeros(n), torch.zeros(n), torch.zeros(2, n).double(), noise_entropy=1.0)
    assert torch.isfinite(log_odds).all() and all(map(torch.isfinite, map(torch.tensor, vars(weights).values())))


def test_evidence_comes_from_predictions_and_class_influences():
    generator = torch.Generator().manual_seed(0)
    true = torch.arange(5).repeat(200)
    labels = torch.where(torch.rand(1000, generator=generator) < 0.2, (true + 1 + true.flip(0) % 4) % 5, true)
    records = torch.eye(5)[true] + 0.35 * torch.randn(1000, 5, generator=generator)
    predictions, margin, score = (2 * records).softmax(1), torch.randn(1000), torch.randn(1000)
    alone = read_labels(predictions, None, labels, score, margin)
    both = read_labels(predictions, records, labels, score, margin)
    by_predictions = fit_class_mixture(predictions.sqrt(), labels)
    torch.testing.assert_close(alone.log_odds, by_predictions.log_odds)
    assert both.noise_entropy == by_predictions.noise_entropy
    assert torch.equal(both.transition, by_predictions.transition)
    assert not torch.allclose(both.log_odds, alone.log_odds)
