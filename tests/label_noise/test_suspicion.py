"""What ranks wrong labels: suspicion, the temperature by number of classes, and the count of wrong labels."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from sgoif import InfluenceConfig, InfluenceError, OnlineInfluence
from sgoif.label_noise.count import estimate_label_errors
from sgoif.label_noise.evidence import SignalWeights
from sgoif.result import InfluenceResult


def result(score, log_odds, **more) -> InfluenceResult:
    ones = torch.ones(len(score))
    return InfluenceResult(
        torch.tensor(score), ones, ones, ones, ones.long(), ones.bool(), ones, torch.tensor(score)[None],
        log_odds=None if log_odds is None else torch.tensor(log_odds),
        **{"weights": SignalWeights(1.0, 1.0, 0.0), "margin": 0 * ones, **more},
    )  # fmt: skip


def test_suspicion_is_the_weighted_sum_of_the_signals_each_over_its_root_mean_square():
    found = result([3.0, -1.0], [1.0, -7.0])
    torch.testing.assert_close(found.suspicion, torch.tensor([3 / 5**0.5 + 1 / 5, -1 / 5**0.5 - 7 / 5]))
    weights, margin = SignalWeights(influence=2.0, log_odds=0.5, margin=3.0), torch.tensor([1.0, -1.0])
    all_three = result([3.0, -1.0], [1.0, -7.0], weights=weights, margin=margin).suspicion
    torch.testing.assert_close(all_three, torch.tensor([6 / 5**0.5 + 0.1 + 3, -2 / 5**0.5 - 0.7 - 3]))
    excess = torch.tensor([0.0, 4.0])
    more = result([3.0, -1.0], [1.0, -7.0], weights=weights, margin=margin, excess=excess).suspicion
    torch.testing.assert_close(more, all_three / all_three.square().mean().sqrt() + torch.tensor([0.0, 2.0]))
    assert torch.equal(result([3.0, -1.0], None).suspicion, torch.tensor([3.0, -1.0]))
    assert torch.equal(result([0.0, 0.0], [0.0, 0.0]).suspicion, torch.zeros(2))  # and not 0 / 0


def issues(**more):
    """Two labels by the log-odds, three by the scores above zero."""
    predictions = torch.tensor([[0.2, 0.5, 0.3], [0.1, 0.2, 0.7], [0.6, 0.1, 0.3], [0.3, 0.3, 0.4]])
    weights = SignalWeights(0.1, 1.0, 0.0)
    found = result([3.0, 2.0, 1.0, -9.0], [-30.0, 30.0, -30.0, 30.0], weights=weights, mean_predictions=predictions)
    return found, found.find_label_issues(torch.tensor([1, 2, 0, 0]), **more)


def test_label_issues_are_the_most_suspicious_as_many_as_the_log_odds_expect():
    found, wrong = issues()
    assert wrong.count == 2 and wrong.mask.tolist() == [False, True, False, True]
    assert torch.equal(wrong.order, found.suspicion.argsort(descending=True)) and wrong.mask[wrong.order[:2]].all()
    assert wrong.suggested.tolist() == [1, 1, 0, 2]  # never the label itself where it is wrong, else the label


def test_examples_that_were_never_visited_are_neither_counted_nor_flagged():
    found = result([3.0, 2.0, 0.0, 0.0, -9.0], [30.0, -30.0, 0.0, 0.0, -30.0])
    unseen = replace(found, visited=torch.tensor([True, True, False, False, True]))
    assert found.find_label_issues([0, 1, 0, 1, 0]).count == 2  # an even chance each, if they were visited
    wrong = unseen.find_label_issues([0, 1, 0, 1, 0])
    assert wrong.count == 1 and wrong.mask.tolist() == [True, False, False, False, False]
    assert wrong.order.tolist() == [0, 1, 4, 2, 3]
    never = replace(found, visited=torch.zeros(5).bool()).find_label_issues([0, 1, 0, 1, 0])
    assert never.count == 0 and not never.mask.any()


@pytest.mark.parametrize("log_odds", [[1.0, -7.0, 0.0, 2.0], None])
def test_suspicion_is_lowest_where_an_example_was_never_visited_and_elsewhere_as_it_was(log_odds):
    found = result([3.0, -1.0, 0.0, 0.5], log_odds)
    unseen = replace(found, visited=torch.tensor([True, True, False, True])).suspicion
    assert torch.equal(unseen[[0, 1, 3]], found.suspicion[[0, 1, 3]])
    assert unseen[2] < unseen[1] < found.suspicion[2] and unseen[2] > unseen[1] - 1e-5


@pytest.mark.parametrize("memory", [True, False])
def test_examples_that_training_leaves_out_change_nothing_of_the_others(memory):
    """Also the count by scores alone, which once took their zeros for a component of its own."""
    torch.manual_seed(0)
    centres, true = 2 * torch.randn(4, 6), torch.arange(240) % 4
    x, labels = centres[true] + torch.randn(240, 6), torch.where(torch.rand(240) < 0.3, (true + 1) % 4, true)
    model = nn.Linear(6, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    influence = OnlineInfluence(model, 240, 4, InfluenceConfig(memory=memory))
    for _ in range(8):
        for index in torch.randperm(200).split(32):
            with influence.watch(index, labels[index]):
                nn.functional.cross_entropy(model(x[index]), labels[index]).backward()
            optimizer.step()
            influence.step(optimizer)
            optimizer.zero_grad()
        influence.end_epoch()
    found = influence.scores()
    assert torch.equal(found.visited, torch.arange(240) < 200)
    issues = found.find_label_issues(labels)
    assert set(issues.order[200:].tolist()) == set(range(200, 240)) and not issues.mask[200:].any()
    assert abs(issues.count - int((labels != true)[:200].sum())) < 20


def test_a_visit_before_the_window_counts_as_one():
    model, x, y = nn.Linear(2, 2), torch.randn(3, 2), torch.tensor([0, 1, 0])
    influence = OnlineInfluence(model, 3, 2, total_steps=4)
    for rows in ([0, 1], [0], [0], [0]):
        with influence.watch(torch.tensor(rows), y[rows]):
            model(x[rows])
        influence.step()
    found = influence.scores()
    assert found.visits.tolist() == [2, 0, 0] and found.visited.tolist() == [True, True, False]


def test_suggestions_come_from_other_probabilities_if_there_are_any():
    assert issues(probabilities=torch.tensor([[0.3, 0.2, 0.1]] * 4))[1].suggested.tolist() == [1, 0, 0, 1]
    alone = result([3.0, -1.0], None).find_label_issues(torch.tensor([0, 1]))
    assert alone.suggested.tolist() == [0, 1] and alone.mask.tolist() == [True, False]


@pytest.mark.parametrize(
    "labels, probabilities, message",
    [
        ([0.0, 1.0], None, r"must be integers of shape \[N\], got torch.float32"),
        ([True, False], None, "must be integers"),
        ([0, -1], None, "label -1; classes count from 0"),
        ([0, 1, 0], None, r"labels of shape \(3,\) for 2 examples"),
        ([0, 1], torch.ones(3, 2), r"shape \(3, 2\) for 2 labels"),
        ([0, 1], torch.full((2, 2), torch.nan), "finite"),
        ([0, 2], torch.ones(2, 2), "label 2 of 2 classes"),
    ],
)
def test_label_issues_check_their_input(labels, probabilities, message):
    with pytest.raises(InfluenceError, match=message):
        result([3.0, -1.0], None).find_label_issues(torch.tensor(labels), probabilities)


def test_a_training_that_diverged_is_told():
    with pytest.raises(InfluenceError, match="the training diverged, so that its scores are not finite"):
        result([3.0, torch.inf], None).find_label_issues(torch.tensor([0, 1]))


def watched(memory: bool, window: float = 0.5) -> tuple[InfluenceResult, torch.Tensor, torch.Tensor]:
    """Four steps over seven of eight examples: (result, logits [4, 7, 3], labels [7])."""
    torch.manual_seed(0)
    model = nn.Linear(5, 3)
    x, y = torch.randn(7, 5), torch.randint(0, 3, (7,))
    influence = OnlineInfluence(model, 8, 3, InfluenceConfig(window=window, memory=memory), total_steps=4)
    seen = []
    for _ in range(4):
        with influence.watch(torch.arange(7), y):
            logits = model(x)
            nn.functional.cross_entropy(logits, y).backward()
        seen.append(logits.detach())
        with torch.no_grad():
            model.weight += 0.3 * torch.randn_like(model.weight)
        influence.step()
    return influence.scores(), torch.stack(seen), y


def weighted_mean(values, logits, y):
    """Mean [7, …] of what the passes had, weighted by epoch and the variance of the labels' ratios."""
    epoch = 1 + torch.arange(len(logits)) / 2  # an epoch of eight examples has two steps
    predicted = logits.softmax(2)
    ratio = predicted[:, torch.arange(7), y] / predicted.amax(2)
    weight = epoch**1.5 * ratio.var(1, unbiased=False) ** 2
    return torch.einsum("s,s...->...", weight, values) / weight.sum()


def test_predictions_are_the_weighted_mean_of_all_visits_whatever_the_window():
    found, logits, y = watched(memory=True)
    torch.testing.assert_close(found.mean_predictions[:7], weighted_mean(logits.softmax(2), logits, y))
    assert torch.equal(found.mean_predictions[7], torch.full((3,), 1 / 3)) and found.log_odds[7] == 0
    assert torch.equal(watched(memory=True, window=1.0)[0].mean_predictions, found.mean_predictions)


def test_the_noise_matrix_is_part_of_the_result():
    found, _, _ = watched(memory=True)
    assert found.transition.shape == (3, 3) and found.numpy()["transition"].shape == (3, 3)
    torch.testing.assert_close(found.transition.sum(1), torch.ones(3))


def test_margins_are_the_weighted_mean_of_all_visits():
    found, logits, y = watched(memory=True)
    own = logits.gather(2, y.expand(4, 7).unsqueeze(2))[..., 0]
    other = logits.scatter(2, y.expand(4, 7).unsqueeze(2), -torch.inf).amax(2)
    torch.testing.assert_close(found.margin[:7], weighted_mean(other - own, logits, y))
    assert found.margin[7] == 0


def test_without_memory_nothing_is_kept_and_the_influence_ranks():
    found, _, _ = watched(memory=False)
    assert all(getattr(found, name) is None for name in ("mean_predictions", "log_odds", "transition", "margin"))
    assert found.visited[:-1].all() and torch.equal(found.suspicion[:-1], found.score[:-1])


def test_temperature_is_as_stated_up_to_ten_classes_and_falls_to_one():
    config = InfluenceConfig(temperature=4.0)
    assert [config.softening(c) for c in (2, 10)] == [4.0, 4.0]
    assert config.softening(100) == pytest.approx(1 + 3 * 0.1**0.5)
    assert 1 < config.softening(10_000) < config.softening(1000) < config.softening(100)
    assert InfluenceConfig(temperature=1.0).softening(100) == 1.0


def test_the_count_from_scores_alone_and_a_skewed_component_is_not_two():
    labels = torch.zeros(1000, dtype=torch.long)
    labels[500:] = 1
    negative = -torch.rand(1000).square() - 0.1
    assert estimate_label_errors(negative, labels)[0] == 0
    negative[:100] = 0.5
    assert estimate_label_errors(negative, labels)[0] == 100


def test_with_log_odds_the_count_is_the_expected_number_and_the_scores_say_which():
    scores, log_odds = torch.arange(10.0), torch.full((10,), -30.0)
    log_odds[:3] = 30.0
    count, mask = estimate_label_errors(scores, torch.zeros(10, dtype=torch.long), log_odds)
    assert count == 3 and mask.nonzero()[:, 0].tolist() == [7, 8, 9]
