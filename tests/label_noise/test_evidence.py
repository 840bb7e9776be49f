"""How far each signal counts: by how far the suspected labels stand out in it."""

import pytest
import torch
from sklearn.metrics import average_precision_score

from sgoif.label_noise.class_mixture import fit_class_mixture
from sgoif.label_noise.class_names import name_probabilities, size_agreement
from sgoif.label_noise.evidence import SignalWeights, draw_in, guess_classes, read_labels, weigh_signals

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


@pytest.mark.parametrize("good", [0, 2, 3], ids=["influence", "predictions", "class influences"])
def test_a_signal_in_which_suspected_labels_stand_out_counts_more(good):
    signals = [signal(6.0 if place == good else 0.3, place) for place in range(4)]
    log_odds, weights = weigh_signals(signals[0], signals[1], torch.stack(signals[2:]), factors=(1.0, 1.0))
    found = suspicion(signals[0], signals[1], log_odds, weights)
    assert ranked_right(found) > 0.97
    assert ranked_right(found) > ranked_right(sum(x / x.square().mean().sqrt() for x in signals))
    assert weights.log_odds == 1


def test_a_signal_that_contradicts_the_others_does_not_count():
    good, against = signal(4.0, 0), -signal(4.0, 1)
    _, weights = weigh_signals(against, good, torch.stack([signal(4.0, 2), signal(4.0, 3)]), factors=(4.0, 4.0))
    assert weights.influence == 0 and weights.margin > 0


def test_margins_do_not_confirm_themselves():
    learnt = torch.arange(N) >= 800  # right labels with large margins; the wrong ones are learnt
    margin = 6 * learnt.double() + signal(0.0, 1)
    influence, first, second = signal(1.0, 0), signal(4.0, 2), signal(4.0, 3)
    log_odds, weights = weigh_signals(influence, margin, torch.stack([first, second]), factors=(4.0, 4.0))
    assert weights.margin == 0
    assert ranked_right(suspicion(influence, margin, log_odds, weights)) > 0.95


def test_influence_and_margins_count_by_their_factors():
    signals = [signal(4.0, seed) for seed in range(3)]
    full = weigh_signals(signals[0], signals[1], signals[2][None], factors=(4.0, 4.0))[1]
    none = weigh_signals(signals[0], signals[1], signals[2][None], factors=(0.0, 0.0))[1]
    assert none == SignalWeights(0.0, 1.0, 0.0)
    assert full.influence == pytest.approx(4, rel=0.4) and full.margin == pytest.approx(4, rel=0.4)


def test_log_odds_are_the_mean_of_both_by_their_weights():
    good, poor = 3 * signal(6.0, 0), signal(0.5, 1)
    mean, _ = weigh_signals(signal(4.0, 2), signal(4.0, 3), torch.stack([good, poor]), factors=(4.0, 4.0))
    share = ((mean - poor) / (good - poor)).median()
    torch.testing.assert_close(mean, share * good + (1 - share) * poor)
    assert share > 0.6
    alone, _ = weigh_signals(signal(4.0, 2), signal(4.0, 3), good[None], factors=(4.0, 4.0))
    torch.testing.assert_close(alone, good)


@pytest.mark.parametrize("n", [1, 2, 7])
def test_few_examples_and_signals_that_say_nothing_give_finite_weights(n):
    log_odds, weights = weigh_signals(torch.zeros(n), torch.zeros(n), torch.zeros(2, n).double(), factors=(4.0, 4.0))
    assert torch.isfinite(log_odds).all() and all(map(torch.isfinite, map(torch.tensor, vars(weights).values())))


def test_evidence_comes_from_predictions_and_class_influences():
    generator = torch.Generator().manual_seed(0)
    true = torch.repeat_interleave(torch.arange(5), torch.tensor([400, 250, 150, 120, 80]))
    labels = torch.where(torch.rand(1000, generator=generator) < 0.2, (true + 1 + true.flip(0) % 4) % 5, true)
    records = torch.eye(5)[true] + 0.35 * torch.randn(1000, 5, generator=generator)
    predictions, (margin, score) = (2 * records).softmax(1), torch.randn(2, 1000, generator=generator)
    alone = read_labels(predictions, None, labels, score, margin)
    both = read_labels(predictions, records, labels, score, margin)
    first = fit_class_mixture(predictions.sqrt(), labels)
    agreement = size_agreement(torch.bincount(labels).double(), [first.class_sizes])
    by_predictions = fit_class_mixture(predictions.sqrt(), labels, tail=agreement)
    assert agreement > 0.1, "or both fits are the same"
    names = name_probabilities(by_predictions.transition, agreement)
    torch.testing.assert_close(alone.log_odds, by_predictions.log_odds(names))
    agreement = size_agreement(
        torch.bincount(labels).double(),
        [first.class_sizes, fit_class_mixture(records - records.mean(1, keepdim=True), labels).class_sizes],
    )
    by_predictions = fit_class_mixture(predictions.sqrt(), labels, tail=agreement)
    assert both.noise_entropy == by_predictions.noise_entropy
    assert torch.equal(both.transition, by_predictions.transition)
    assert not torch.allclose(both.log_odds, alone.log_odds)


def test_a_few_huge_class_influences_do_not_set_the_scale_of_all_others():
    generator = torch.Generator().manual_seed(0)
    true = torch.arange(1000) % 5
    wrong = torch.rand(1000, generator=generator) < 0.2
    labels = torch.where(wrong, (true + 1) % 5, true)
    records = torch.eye(5)[true] + 0.3 * torch.randn(1000, 5, generator=generator)
    score, margin = torch.randn(2, 1000, generator=generator)
    predictions = torch.full((1000, 5), 0.2)  # say nothing
    expected = read_labels(predictions, records, labels, score, margin).log_odds
    huge = records.clone()
    huge[:3] *= 1e5
    found = read_labels(predictions, huge, labels, score, margin).log_odds
    assert average_precision_score(wrong[3:], found[3:]) > average_precision_score(wrong[3:], expected[3:]) - 0.01


def test_class_influences_are_drawn_in_beyond_ten_median_lengths_alone():
    records = torch.tensor([[1.0, -1.0]] * 9 + [[9.0, -9.0], [-40.0, 40.0]])
    drawn = draw_in(records)
    assert torch.equal(drawn[:10], records[:10])
    torch.testing.assert_close(drawn[10], torch.tensor([-3.0, 3.0]))
    mostly_zero = torch.zeros(9, 2).index_fill_(0, torch.tensor([4]), 1.0)
    assert torch.equal(draw_in(mostly_zero), mostly_zero)


def test_outputs_that_no_label_has_do_not_count():
    generator = torch.Generator().manual_seed(0)
    true = torch.arange(1000) % 5
    labels = torch.where(torch.rand(1000, generator=generator) < 0.2, (true + 1) % 5, true)
    records = torch.eye(5)[true] + 0.35 * torch.randn(1000, 5, generator=generator)
    predictions, (margin, score) = (2 * records).softmax(1), torch.randn(2, 1000, generator=generator)
    narrow = read_labels(predictions, records, labels, score, margin)
    place = torch.tensor([2, 3, 5, 8, 11])
    wide, influences = torch.full((1000, 12), 1e-4), torch.randn(1000, 12, generator=generator)
    wide[:, place], influences[:, place] = predictions, records
    found = read_labels(wide, influences, place[labels], score, margin)
    torch.testing.assert_close(found.log_odds, narrow.log_odds, rtol=1e-4, atol=1e-4)
    assert found.noise_entropy == pytest.approx(narrow.noise_entropy)
    torch.testing.assert_close(found.transition[place][:, place], narrow.transition, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.transition.sum(1), torch.ones(12, dtype=torch.float64))
    trusted = (predictions[:50], true[:50])
    right = read_labels(predictions, records, labels, score, margin, trusted)
    found = read_labels(wide, influences, place[labels], score, margin, (wide[:50], place[true[:50]]))
    torch.testing.assert_close(found.log_odds, right.log_odds, rtol=1e-4, atol=1e-4)


def noisy_training(wrong_share: float):
    """Two of five classes exchange most labels. A network that learnt them predicts rows of the noise matrix."""
    generator = torch.Generator().manual_seed(0)
    transition = torch.eye(5, dtype=torch.float64)
    transition[:2, :2] = torch.tensor([[1 - wrong_share, wrong_share], [wrong_share, 1 - wrong_share]])
    true = torch.arange(5).repeat(200)
    labels = torch.multinomial(transition[true], 1, generator=generator)[:, 0]

    def predict(classes):
        blurred = transition[classes] + 0.15 * torch.rand(len(classes), 5, generator=generator, dtype=torch.float64)
        return blurred / blurred.sum(1, keepdim=True)

    return predict, true, labels


def test_trusted_examples_tell_which_of_two_labels_is_wrong():
    """Where 70% of the labels of two classes are exchanged, the labels alone take the wrong ones for right."""
    predict, true, labels = noisy_training(0.7)
    nothing = torch.zeros(1000, dtype=torch.float64)
    trusted = torch.arange(5).repeat(20)
    wrong = labels != true
    misled = read_labels(predict(true), None, labels, nothing, nothing).log_odds > 0
    found = read_labels(predict(true), None, labels, nothing, nothing, (predict(trusted), trusted)).log_odds > 0
    assert (misled == wrong).double().mean() < 0.65
    assert (found == wrong).double().mean() > 0.98


def test_labels_that_noise_made_frequent_have_an_excess_and_trusted_examples_need_none():
    """Half of class 0 has label 1: labels 1 are more frequent than their class, labels 0 less."""
    true = torch.arange(5).repeat(200)
    labels = torch.where((true == 0) & (torch.arange(1000) % 2 == 0), 1, true)
    records = torch.eye(5)[true] + 0.3 * torch.randn(1000, 5, generator=torch.Generator().manual_seed(0))
    predictions = (3 * records).softmax(1)
    nothing = torch.zeros(1000, dtype=torch.float64)
    found = read_labels(predictions, None, labels, nothing, nothing)
    assert found.excess[labels == 1].mean() > 0.3 > 0 > found.excess[labels == 0].mean()
    assert found.excess[labels > 1].abs().max() < 0.1
    told = read_labels(predictions, None, labels, nothing, nothing, (predictions[:100], true[:100]))
    assert (told.excess == 0).all()


def test_with_two_classes_noise_that_goes_one_way_is_left_to_the_class_model():
    """Influence and margins count where wrong labels go both ways, little where one class is learnt as the other."""
    generator = torch.Generator().manual_seed(0)
    true = torch.arange(1000) % 2
    flipped = torch.rand(1000, generator=generator) < 0.3
    predictions = (3 * torch.eye(2)[true] + torch.randn(1000, 2, generator=generator)).softmax(1)
    signal = torch.randn(1000, generator=generator).double()
    both_ways = torch.where(flipped, 1 - true, true)
    one_way = torch.where(flipped & (true == 0), 1, true)
    found = [read_labels(predictions, None, y, signal + 2 * (y != true), signal) for y in (both_ways, one_way)]
    assert found[0].weights.influence > 5 * found[1].weights.influence > 0
    trusted = predictions[:100], true[:100]
    told = read_labels(predictions, None, one_way, signal + 2 * (one_way != true), signal, trusted)
    assert told.weights.margin > 5 * found[1].weights.margin > 0


def test_with_trusted_examples_the_influence_counts_however_structured_the_noise_is():
    predict, true, labels = noisy_training(0.3)
    influence = (labels != true).double() + 0.1 * torch.randn(1000, generator=torch.Generator().manual_seed(1))
    trusted = torch.arange(5).repeat(20)
    alone = read_labels(predict(true), None, labels, influence, influence)
    told = read_labels(predict(true), None, labels, influence, influence, (predict(trusted), trusted))
    assert alone.noise_entropy < 0.3
    assert told.weights.influence > 3 * alone.weights.influence
    assert told.weights.margin < alone.weights.margin


def test_the_guess_is_the_class_of_the_nearest_trusted_mean():
    roots = torch.tensor([[0.9, 0.1, 0.0], [0.1, 0.9, 0.0], [0.0, 0.0, 1.0]])
    labels = torch.tensor([0, 1, 2])
    swapped = roots[:2].square().repeat_interleave(5, 0), torch.tensor([1] * 5 + [0] * 5)
    assert guess_classes(roots, labels, swapped).tolist() == [1, 0, 2]  # 2 has no trusted example: its label's mean
    alone = swapped[0][:1], torch.tensor([2])  # one trusted example and the mean of the label count alike
    assert guess_classes(roots, labels, alone).tolist() == [0, 1, 2]
    spoiled = torch.cat([swapped[0], torch.full((3, 3), torch.nan)]), torch.cat([swapped[1], torch.tensor([0, 1, 2])])
    assert guess_classes(roots, labels, spoiled).tolist() == [1, 0, 2]
