"""Wrong use says what was wrong."""

from dataclasses import dataclass
from typing import Literal, Optional

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset

from sgoif import BatchError, CaptureError, InfluenceConfig, InfluenceError, OnlineInfluence, ScopeError
from sgoif.errors import wrong_type
from sgoif.label_noise.count import estimate_label_errors
from tests.helpers.networks import blobs, linear_net, mlp, quick, watch_once


@pytest.fixture
def watched():
    model = mlp().double()
    return model, OnlineInfluence(model, 30, n_classes=3), *blobs(10)


def test_index_out_of_range(watched):
    model, influence, x, y = watched
    with pytest.raises(BatchError, match=r"index 30 lies outside 0\.\.29"):
        watch_once(influence, model, x, y, torch.arange(21, 31))


def test_label_out_of_range(watched):
    model, influence, x, y = watched
    with pytest.raises(BatchError, match=r"labels 3 lies outside 0\.\.2"):
        watch_once(influence, model, x, y + 1)


@pytest.mark.parametrize("labels", [torch.zeros(10, 3), torch.zeros(10), torch.zeros(10, 1, dtype=torch.long)])
def test_label_shape_or_type(watched, labels):
    _, influence, *_ = watched
    with pytest.raises(BatchError, match="labels must be integers of shape"), influence.watch(torch.arange(10), labels):
        pass


def test_counts_that_differ(watched):
    model, influence, x, y = watched
    with pytest.raises(BatchError, match="9 indices but 10 labels"), influence.watch(torch.arange(9), y):
        pass
    with (
        pytest.raises(BatchError, match="given 9 labels, but the model saw a batch of 10"),
        influence.watch(torch.arange(9), y[:9]),
    ):
        model(x)


def test_no_forward_and_no_step(watched):
    _, influence, _, y = watched
    with pytest.raises(CaptureError, match="no forward pass reached the head"), influence.watch(torch.arange(10), y):
        pass
    with pytest.raises(CaptureError, match="without a watched pass"):
        influence.step()


def test_no_backward_outside_head_scope():
    model, (x, y) = mlp().double(), blobs(10)
    influence = OnlineInfluence(model, 10, config=InfluenceConfig(scope="all"))
    with pytest.raises(CaptureError, match=r"call loss.backward\(\)"), influence.watch(torch.arange(10), y):
        model(x)


def test_no_supported_layer():
    with pytest.raises(ScopeError, match=r"no nn\.Linear with 7 outputs"):
        OnlineInfluence(mlp(), 10, n_classes=7)
    with pytest.raises(InfluenceError, match="one output"):
        OnlineInfluence(nn.Linear(5, 1), 10)
    with pytest.raises(ScopeError, match=r"no nn\.Linear"):
        OnlineInfluence(nn.Sequential(nn.Conv2d(1, 2, 3)), 10)
    with pytest.raises(ScopeError, match="holds no trainable"):
        OnlineInfluence(mlp(), 10, config=InfluenceConfig(scope="blocks:nowhere"))
    with pytest.raises(ScopeError, match=r"config\.head = 'body'"):
        OnlineInfluence(mlp(), 10, config=InfluenceConfig(head="body"))


def test_error_inside_watch_leaves_it_usable(watched):
    model, influence, x, y = watched
    with pytest.raises(ZeroDivisionError), influence.watch(torch.arange(10), y):
        model(x)
        raise ZeroDivisionError
    watch_once(influence, model, x, y)
    influence.step()
    assert influence.scores().visits.sum() == 10


def test_anchor_data_and_source_go_together():
    with pytest.raises(InfluenceError, match="anchor_data"):
        OnlineInfluence(mlp(), 10, config=InfluenceConfig(source="trusted"))
    with pytest.raises(InfluenceError, match="anchor_data"):
        OnlineInfluence(mlp(), 10, anchor_data=[])


def test_anchor_data_that_is_used_up_is_told():
    model, (x, y) = mlp().double(), blobs(10)
    influence = OnlineInfluence(model, 10, config=quick(source="trusted"), anchor_data=iter([blobs(6, seed=1)]))
    watch_once(influence, model, x, y)
    influence.step()
    with pytest.raises(BatchError, match="anchor_data holds nothing"):
        influence.scores()
    with pytest.raises(InfluenceError, match="multiple of the 3 classes"):
        OnlineInfluence(mlp(), 10, config=InfluenceConfig(anchors=4))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (lambda x, y: TensorDataset(x, y), "put a DataLoader around the examples"),
        (lambda x, y: [(x[0], int(y[0]))], "got a int; put a DataLoader around the examples"),
        (lambda x, y: [({"pixels": x}, y)], "inputs must be a tensor, got a dict"),
        (lambda x, y: [((x, x), y)], "inputs must be a tensor, got a tuple"),
        (lambda x, y: [(x, y.tolist()), (x, ["a"] * len(y))], "labels must be integers"),
    ],
)
def test_anchor_data_of_another_form_is_told(given, told):
    model, (x, y) = mlp().double(), blobs(10)
    influence = OnlineInfluence(model, 10, config=quick(source="trusted"), anchor_data=given(x, y))
    watch_once(influence, model, x, y)
    with pytest.raises(BatchError, match=told):
        influence.step()


def test_anchor_data_that_cannot_be_iterated_is_told():
    with pytest.raises(BatchError, match="anchor_data must be iterable over batches"):
        OnlineInfluence(mlp(), 10, config=InfluenceConfig(source="trusted"), anchor_data=5)


def test_anchor_data_may_be_arrays_and_lists():
    (x, y), found = blobs(10), []
    for data in ([(x, y)], [(x.numpy(), y.numpy())], [(x.tolist(), y.tolist())]):
        torch.manual_seed(0)
        model = mlp().double()
        torch.set_default_dtype(torch.float64)  # of numbers in lists
        try:
            influence = OnlineInfluence(model, 10, config=quick(source="trusted"), anchor_data=data)
            watch_once(influence, model, x, y)
            influence.step()
            found.append(influence.scores())
        finally:
            torch.set_default_dtype(torch.float32)
    assert all(torch.equal(other.log_odds, found[0].log_odds) for other in found[1:])


def test_state_of_another_run(watched):
    _, influence, *_ = watched
    other = OnlineInfluence(mlp().double(), 30, config=quick())
    with pytest.raises(InfluenceError, match="solve_every"):
        other.load_state_dict(influence.state_dict())


def test_state_between_watch_and_step(watched):
    model, influence, x, y = watched
    watch_once(influence, model, x, y)
    with pytest.raises(InfluenceError, match="save after step"):
        influence.state_dict()


@pytest.mark.parametrize(
    "field, value",
    [
        ("curvature", "dense"),
        ("scope", "body"),
        ("scope", "blocks:("),
        ("damping", 0.0),
        ("window", 1.5),
        ("rank", -1),
        ("depth", 0),
    ],
)
def test_configuration_names_the_field(field, value):
    with pytest.raises(InfluenceError, match=rf"InfluenceConfig\.{field}"):
        InfluenceConfig(**{field: value})


def test_configuration_goes_through_a_dictionary():
    config = quick(gate="moving_average")
    assert InfluenceConfig.from_dict(config.to_dict()) == config
    with pytest.raises(InfluenceError, match="no field colour"):
        InfluenceConfig.from_dict({"colour": 1})
    assert set(InfluenceConfig.help()) == set(config.to_dict())


def test_every_ablation_changes_one_field_and_runs():
    x, y = blobs(30)
    for name, change in InfluenceConfig.ablations().items():
        assert len(change) == (name != "Full")
        torch.manual_seed(0)
        model = linear_net().double()
        influence = OnlineInfluence(model, 30, config=quick().variant(name))
        for _ in range(4):
            with influence.watch(torch.arange(30), y):
                F.cross_entropy(model(x), y).backward()
            influence.step()
        assert torch.isfinite(influence.scores().score).all(), name
    with pytest.raises(InfluenceError, match="no ablation"):
        quick().variant("w/o Everything")


def test_the_count_checks_its_input():
    with pytest.raises(InfluenceError, match=r"must both be \[N\]"):
        estimate_label_errors(torch.zeros(3), torch.zeros(4, dtype=torch.long))
    with pytest.raises(InfluenceError, match="finite"):
        estimate_label_errors(torch.tensor([0.0, torch.nan]), torch.zeros(2, dtype=torch.long))


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("damping", "big", "must be a number"),
        ("damping", True, "must be a number"),
        ("anchors", 2.5, "must be an integer"),
        ("memory", "no", "must be true or false"),
        ("scope", 5, "must be a text"),
    ],
)
def test_a_setting_of_another_type(field, value, told):
    with pytest.raises(InfluenceError, match=rf"InfluenceConfig\.{field} = {value!r}: {told}"):
        InfluenceConfig(**{field: value})


def test_numbers_of_numpy_are_numbers():
    config = InfluenceConfig(damping=np.float32(0.5), rank=np.int64(3), kappa=2)
    assert (config.damping, config.rank, config.kappa) == (0.5, 3, 2)


def test_types_of_fields_that_are_known_are_checked_and_others_not():
    @dataclass
    class Fields:
        share: Optional[float]  # noqa: UP045
        sizes: tuple[int, ...]
        form: Literal["a", "b"]

    assert wrong_type(Fields, {"share": None, "sizes": [1, 2], "form": 3}) is None
    assert wrong_type(Fields, {"share": "x"}) == ("share", "must be a number or nothing")
    assert wrong_type(Fields, {"sizes": [1, 2.5]}) == ("sizes", "must be a list, each an integer")


def test_settings_as_a_dictionary():
    with pytest.raises(InfluenceError, match=r"config: must be an InfluenceConfig, not a dict; .*from_dict"):
        OnlineInfluence(mlp(), 30, 3, {"damping": 1.0})
