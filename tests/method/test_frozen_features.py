"""A head on frozen features: heads that have not seen an example judge its label."""

import copy
import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.metrics import average_precision_score
from torch import nn

from sgoif import InfluenceConfig, OnlineInfluence
from sgoif.label_noise.held_out_evidence import MIN_FITTED_A_CLASS
from sgoif.label_noise.projection import MAX_DIRECTIONS

N_CLASSES = 10


@pytest.fixture(scope="module")
def digits():
    """Random features of a thousand digits, labels of which 30% were moved to another class, and which ones were."""
    pixels, right = (part[:1000] for part in load_digits(return_X_y=True))
    rng = np.random.default_rng(0)
    lifted = np.maximum(pixels @ rng.normal(size=(64, 512)) / 64 + rng.normal(size=512), 0)
    wrong = rng.random(len(right)) < 0.3
    labels = np.where(wrong, (right + rng.integers(1, N_CLASSES, len(wrong))) % N_CLASSES, right)
    return torch.from_numpy(lifted).float(), torch.from_numpy(labels).long(), wrong


def network(frozen: bool) -> nn.Sequential:
    """A hidden layer that copies its inputs, and a head."""
    torch.manual_seed(0)
    backbone = nn.Linear(512, 512)
    nn.init.eye_(backbone.weight)
    nn.init.zeros_(backbone.bias)
    return nn.Sequential(backbone.requires_grad_(not frozen), nn.ReLU(), nn.Linear(512, N_CLASSES))


def train(
    model,
    x,
    y,
    epochs=8,
    thaw_after=None,
    save_after=None,
    parameters=None,
    second=None,
    frozen_late=False,
    before_training=lambda: None,
    **settings,
):
    """Train all that is not frozen, perhaps thawed or resumed after an epoch, and return the scores.

    The optimiser that is told has some parameters or all of them; another may have those of a second module.
    """
    config = InfluenceConfig(**settings)
    influence = OnlineInfluence(model, len(y), N_CLASSES, config, total_steps=epochs * -(-len(y) // 64))
    before_training()
    optimizer = torch.optim.SGD(parameters or model.parameters(), 0.05, momentum=0.9)
    other = None if second is None else torch.optim.SGD(second.parameters(), 0.05)
    generator = torch.Generator().manual_seed(0)
    with influence:
        for epoch in range(epochs):
            for index in torch.randperm(len(y), generator=generator).split(64):
                optimizer.zero_grad()
                with influence.watch(index, y[index]):
                    F.cross_entropy(model(x[index]), y[index]).backward()
                optimizer.step()
                influence.step(optimizer)
                if other is not None:
                    other.step()
                    other.zero_grad()
            influence.end_epoch()
            if epoch == thaw_after:
                model.requires_grad_(True)
            if epoch == save_after:
                state, frozen = influence.state_dict(), [p for p in model.parameters() if not p.requires_grad]
                for p in frozen:
                    p.requires_grad_(frozen_late)
                influence = OnlineInfluence(model, len(y), N_CLASSES, config, epochs * -(-len(y) // 64))
                influence.load_state_dict(state)
                for p in frozen:
                    p.requires_grad_(False)
    return influence.scores()


class Probe:
    """A head that is trained alone, though the other layers are not frozen: the optimiser has only the head."""

    def __init__(self, y):
        self.y, self.model = y, network(frozen=False)
        self.influence = OnlineInfluence(self.model, len(y), N_CLASSES, total_steps=2 * -(-len(y) // 64))
        self.optimizer = torch.optim.SGD(self.model[2].parameters(), 0.05, momentum=0.9)

    def epoch(self, x, seed, after_step=lambda layer: None):
        for index in torch.randperm(len(self.y), generator=torch.Generator().manual_seed(seed)).split(64):
            with self.influence.watch(index, self.y[index]):
                F.cross_entropy(self.model(x[index]), self.y[index]).backward()
            self.optimizer.step()
            self.influence.step(self.optimizer)
            after_step(self.model[0])
            self.model.zero_grad()
        self.influence.end_epoch()

    def log_odds(self):
        return self.influence.scores().log_odds


def precision(result, wrong):
    return average_precision_score(wrong, result.suspicion)


def test_they_find_more_than_the_head_that_has_learnt_the_labels(digits):
    x, y, wrong = digits
    with_features = train(network(frozen=True), x, y)
    without = train(network(frozen=True), x, y, keep_features=False)
    assert 1 - precision(with_features, wrong) < (1 - precision(without, wrong)) / 2
    assert abs(with_features.find_label_issues(y).count - wrong.sum()) < 0.1 * wrong.sum()
    assert torch.equal(with_features.score, without.score)  # the influence is that of the trained head


def test_nothing_is_kept_where_other_layers_are_trained(digits):
    x, y, _ = digits
    kept, not_kept = (train(network(frozen=False), x, y, epochs=2, keep_features=keep) for keep in (True, False))
    assert torch.equal(kept.suspicion, not_kept.suspicion)
    thawed = train(network(frozen=True), x, y, epochs=2, thaw_after=0)
    alone = train(network(frozen=True), x, y, epochs=2, thaw_after=0, keep_features=False)
    assert torch.equal(thawed.suspicion, alone.suspicion)


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("sgoif._engine.MAX_NUMBERS", 512 * 1000),
        ("sgoif._engine.MAX_FEATURES", 512),
        ("sgoif.label_noise.held_out_evidence.MAX_LOGITS", MIN_FITTED_A_CLASS * 10 * 10 * MAX_DIRECTIONS),
    ],
)
def test_a_set_that_is_too_large_is_judged_by_the_trained_head(digits, name, most, monkeypatch):
    x, y, _ = digits
    alone = train(network(frozen=True), x, y, epochs=2, keep_features=False)
    for limit in (most, most - 1):
        monkeypatch.setattr(name, limit)
        found = train(network(frozen=True), x, y, epochs=2)
        assert torch.equal(found.log_odds, alone.log_odds) == (limit < most)


class WithoutGradients(nn.Module):
    """Runs a network without gradients, as many a linear probe does."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    @torch.no_grad()
    def forward(self, x):
        return self.inner(x)


def test_a_linear_probe_needs_no_frozen_parameters(digits):
    """The optimiser has only the head; or what is below it runs without gradients; or it is frozen later."""
    x, y, _ = digits
    expected = train(network(frozen=True), x, y, epochs=2)
    whole, blind, later = network(frozen=False), network(frozen=False), network(frozen=False)
    blind = nn.Sequential(WithoutGradients(blind[0]), *blind[1:])
    found = {
        "optimiser": train(whole, x, y, epochs=2, parameters=whole[2].parameters()),
        "no gradients": train(blind, x, y, epochs=2),
        "frozen later": train(later, x, y, epochs=2, before_training=lambda: later[0].requires_grad_(False)),
    }
    for name, result in found.items():
        assert torch.equal(result.log_odds, expected.log_odds), name


def test_a_probe_whose_other_layers_have_an_optimiser_of_their_own_is_none(digits):
    x, y, _ = digits
    alone, both = network(frozen=False), network(frozen=False)
    without = train(alone, x, y, epochs=2, parameters=alone[2].parameters(), second=alone[0], keep_features=False)
    found = train(both, x, y, epochs=2, parameters=both[2].parameters(), second=both[0])
    assert torch.equal(found.log_odds, without.log_odds)


@pytest.mark.parametrize("frozen_late", [False, True])
def test_a_resumed_training_knows_the_features(digits, frozen_late):
    x, y, _ = digits
    whole = train(network(frozen=True), x, y, epochs=2)
    resumed = train(network(frozen=True), x, y, epochs=2, save_after=0, frozen_late=frozen_late)
    assert torch.equal(whole.suspicion, resumed.suspicion)


PARTS = ("model", "optimizer", "influence")


@pytest.fixture(scope="module")
def half_a_probe(digits):
    """Log-odds of a probe of two epochs, its state after the first, and a backbone that is not the initial one."""
    x, y, _ = digits
    probe = Probe(y)
    with torch.no_grad():
        probe.model[0].weight.mul_(1.5)
    probe.epoch(x, seed=0)
    state = copy.deepcopy({part: getattr(probe, part).state_dict() for part in PARTS})
    probe.epoch(x, seed=1)
    return probe.log_odds(), state


@pytest.mark.parametrize("order", itertools.permutations(PARTS), ids=" ".join)
def test_a_probe_is_resumed_in_a_new_process_in_any_order(digits, half_a_probe, order):
    x, y, _ = digits
    whole, state = half_a_probe
    probe = Probe(y)
    for part in order:
        getattr(probe, part).load_state_dict(state[part])
    probe.epoch(x, seed=1)
    assert torch.equal(probe.log_odds(), whole)


def test_weights_may_be_loaded_after_the_watching_was_set_up(digits, half_a_probe):
    x, y, _ = digits
    weights = {name: 2 * value for name, value in network(frozen=False).state_dict().items()}
    late, early = Probe(y), Probe(y)
    late.model.load_state_dict(weights)
    early.model.load_state_dict(weights)
    early.influence = OnlineInfluence(early.model, len(y), N_CLASSES, total_steps=2 * -(-len(y) // 64))
    for probe in (late, early):
        probe.epoch(x, seed=0)
    assert torch.equal(late.log_odds(), early.log_odds())


def by_a_fused_optimizer(layer):
    torch.optim.SGD(layer.parameters(), 1e-3, fused=True).step()


def by_its_data(layer):
    layer.weight.data.add_(1e-4)


@pytest.mark.parametrize("trained", [by_a_fused_optimizer, by_its_data])
def test_features_are_dropped_however_other_layers_are_trained(digits, trained):
    """Neither a fused optimiser nor a change of `.data` raises the version of a parameter."""
    x, y, _ = digits
    found = {}
    for keep in (True, False):
        probe = Probe(y)
        probe.influence = OnlineInfluence(probe.model, len(y), N_CLASSES, InfluenceConfig(keep_features=keep))
        probe.epoch(x, seed=0, after_step=trained)
        found[keep] = probe.log_odds()
    assert torch.equal(found[True], found[False])


def test_examples_that_were_never_visited_come_last(digits):
    x, y, _ = digits
    model = network(frozen=True)
    seen = torch.arange(800)
    influence = OnlineInfluence(model, len(y), N_CLASSES)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    with influence:
        for index in seen.split(100) + seen.split(100):
            with influence.watch(index, y[index]):
                F.cross_entropy(model(x[index]), y[index]).backward()
            optimizer.step()
            influence.step(optimizer)
    result = influence.scores()
    assert torch.equal(result.visited.nonzero()[:, 0], seen)
    assert set(result.find_label_issues(y).order[-200:].tolist()) == set(range(800, 1000))
    assert (result.log_odds[800:] == 0).all() and (result.log_odds[:800] != 0).all()


def test_few_examples_and_equal_features_are_left_to_the_trained_head():
    model = nn.Linear(4, 3)
    for x in (torch.randn(20, 4), torch.ones(60, 4)):
        y = torch.arange(len(x)) % 3
        influence = OnlineInfluence(model, len(x), 3)
        with influence, influence.watch(torch.arange(len(x)), y):
            F.cross_entropy(model(x), y).backward()
        influence.step()
        assert influence.scores().suspicion.isfinite().all()
