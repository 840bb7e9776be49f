"""Training loops that are wired wrongly, or unusually: right scores, or an error that says what to do."""

import contextlib
import copy
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from sgoif import BatchError, CaptureError, InfluenceConfig, InfluenceError, OnlineInfluence, ScopeError
from sgoif.gradients.hooks import logits_of, unwrap
from tests.helpers.networks import blobs, mlp, quick, watch_once

N = 12
DEEP = InfluenceConfig(scope="all")


@pytest.fixture
def watched():
    model = mlp().double()
    return model, OnlineInfluence(model, N, n_classes=3), *blobs(N)


@pytest.mark.parametrize("given", [None, ["a", "b"], [0.5, 1.0], torch.ones(2, dtype=torch.complex64)])
@pytest.mark.parametrize(("what", "advice"), [("index", "positions in the training set"), ("labels", "largest share")])
def test_what_is_no_integer_is_refused_with_what_belongs_there(watched, given, what, advice):
    pair = {"index": [0, 1], "labels": [0, 1], what: given}
    with pytest.raises(BatchError, match=rf"{what} must be integers of shape \[n\].*{advice}"):
        watched[1].watch(**pair).__enter__()


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        (torch.tensor([True, False]), r"pass labels\.long\(\)"),
        (torch.tensor([0.0, 1.0]), r"pass labels\.long\(\)"),
        (torch.tensor([[0], [1]]), r"pass labels\.squeeze\(1\)\.long\(\)"),
        (torch.tensor([[0.0, 1.0], [0.5, 0.5]]), "largest share"),
        (torch.tensor([0.2, 0.8]), "largest share"),
    ],
)
def test_classes_of_another_type_or_shape_are_told_how_to_be_passed(watched, given, advice):
    with pytest.raises(BatchError, match=advice):
        watched[1].watch([0, 1], given).__enter__()


def test_a_training_without_a_check_is_told():
    model, (x, y) = mlp().double(), blobs(N)
    influence = OnlineInfluence(model, N, 3, config=InfluenceConfig(solve_every=100))
    watch_once(influence, model, x, y)
    influence.step()
    influence.end_epoch()
    with pytest.warns(UserWarning, match="no check was made in 1 steps, so all influences are 0; set solve_every"):
        influence.scores()


def test_a_loop_that_forgets_end_epoch_is_told_as_much():
    model, (x, y) = mlp().double(), blobs(N)
    influence = OnlineInfluence(model, N, 3, config=InfluenceConfig(solve_every=100))
    watch_once(influence, model, x, y)
    influence.step()
    with pytest.warns(UserWarning, match="no check was made in 1 steps"):
        influence.scores()


class Outputs(nn.Module):
    """A classifier, and a projection that is defined after it."""

    def __init__(self, returned):
        super().__init__()
        self.body, self.fc, self.proj, self.returned = nn.Linear(6, 8), nn.Linear(8, 3), nn.Linear(8, 5), returned

    def forward(self, x):
        h = self.body(x).relu()
        return self.returned(h, self.fc(h), self.proj(h))


@pytest.mark.parametrize(
    ("returned", "is_told"),
    [
        (lambda h, z, p: (z, p), True),
        (lambda h, z, p: (z.sum(), z, p), True),
        (lambda h, z, p: {"logits": z, "projection": p}, True),
        (lambda h, z, p: SimpleNamespace(logits=z, projection=p), True),
        (lambda h, z, p: (p, h), False),
        (lambda h, z, p: {"projection": p, "classes": z}, False),
    ],
)
def test_a_guessed_head_is_doubted_where_something_else_looks_like_the_logits(returned, is_told):
    (x, y), torch_model = blobs(N, dtype=torch.float32), Outputs(returned)
    influence = OnlineInfluence(torch_model, N)
    with influence.watch(torch.arange(N), y), contextlib.ExitStack() as stack:
        if is_told:
            stack.enter_context(
                pytest.raises(CaptureError, match=r"'proj', has 5 values.*the logits 3; pass n_classes")
            )
        torch_model(x)
        if is_told:
            torch_model.returned = lambda h, z, p: p
            torch_model(x)
    sure = OnlineInfluence(Outputs(returned), N, n_classes=3)
    with sure.watch(torch.arange(N), y):
        sure._engine.hooks.model(x)


def test_positions_in_the_batch_are_doubted():
    model, (x, y) = mlp().double(), blobs(N)
    influence = OnlineInfluence(model, 20 * N, 3, config=quick())
    for _ in range(2):
        watch_once(influence, model, x, y)
        influence.step()
        influence.end_epoch()
    with pytest.warns(UserWarning, match="only 12 of 240 examples were watched in 2 epochs; is index the position"):
        influence.scores()


@pytest.mark.parametrize("kind", ["mapping", "object", "tuple", "with loss"])
def test_the_logits_of_any_output_are_found(kind):
    logits, aux = torch.randn(4, 3), torch.randn(4, 3)
    outputs = {
        "mapping": {"aux": aux, "logits": logits},
        "object": SimpleNamespace(aux=aux, logits=logits),
        "tuple": (logits, aux),
        "with loss": (torch.tensor(1.0), logits),
    }
    assert logits_of(outputs[kind], 3) is logits and logits_of(outputs[kind], 5) is None


def test_one_logit_is_told_to_be_two():
    with pytest.raises(ScopeError, match=r"no nn\.Linear with 2 outputs.*two classes need two logits, not one"):
        OnlineInfluence(nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 1)), N, 2)


@pytest.mark.parametrize(("what", "advice"), [("index", "n_examples is 12"), ("labels", "stay out of watch")])
def test_what_is_out_of_range_is_refused_with_the_range(watched, what, advice):
    pair = {"index": [0, 1], "labels": [0, 1], what: [0, -1]}
    with pytest.raises(BatchError, match=f"{what} -1 lies outside.*{advice}"):
        watched[1].watch(**pair).__enter__()


@pytest.mark.parametrize("empty", [[], torch.empty(0, dtype=torch.long)])
def test_an_empty_batch_is_refused_and_harms_nothing(watched, empty):
    model, influence, x, y = watched
    with pytest.raises(BatchError, match="the batch is empty; leave it out"), influence.watch(empty, empty):
        pass
    watch_once(influence, model, x, y)
    influence.step()
    assert influence.scores().visited.all()


@pytest.mark.parametrize("name", ["n_examples", "n_classes", "total_steps"])
@pytest.mark.parametrize("value", [3.0, "3", True, -1, 0])
def test_sizes_are_whole_numbers(name, value):
    with pytest.raises(InfluenceError, match=f"{name} = {value!r}: must be a whole number above 0"):
        OnlineInfluence(mlp(), **{"n_examples": N, "n_classes": 3, name: value})


def test_a_size_may_be_a_tensor():
    assert OnlineInfluence(mlp(), torch.tensor(N), 3).n_examples == N


def test_models_that_cannot_be_watched():
    with pytest.raises(InfluenceError, match=r"must be an nn\.Module, not a function"):
        OnlineInfluence(lambda x: x, N)
    with pytest.raises(ScopeError, match=r"config\.head = '0' has 6 outputs, but n_classes = 3"):
        OnlineInfluence(nn.Sequential(nn.Linear(5, 6), nn.Linear(6, 3)), N, 3, InfluenceConfig(head="0"))
    with pytest.raises(ScopeError, match="'0' has no weights yet: run a batch"):
        OnlineInfluence(nn.Sequential(nn.LazyLinear(3)), N)
    parallel = nn.DataParallel(mlp())
    assert unwrap(parallel) is parallel.module
    parallel.device_ids = [0, 1]
    with pytest.raises(ScopeError, match="splits every batch; use DistributedDataParallel"):
        OnlineInfluence(parallel, N)


def test_a_linear_layer_that_is_not_the_last_is_no_head():
    x, y = blobs(N)
    model = nn.Sequential(nn.Linear(6, 4), nn.Unflatten(1, (4, 1, 1)), nn.Conv2d(4, 3, 1), nn.Flatten()).double()
    with pytest.raises(CaptureError, match=r"returns 3 values for each example, but its last nn\.Linear, '0', 4"):
        watch_once(OnlineInfluence(model, N), model, x, y)


def test_a_model_that_ends_in_a_softmax_is_refused_and_one_with_log_softmax_is_not():
    x, y = blobs(N)
    model = nn.Sequential(mlp(), nn.Softmax(1)).double()
    influence = OnlineInfluence(model, N)
    for _ in range(2):
        with pytest.raises(CaptureError, match="returns probabilities; it must return logits"):
            watch_once(influence, model, x, y)
    logs = nn.Sequential(model[0], nn.LogSoftmax(1))
    influence, plain = OnlineInfluence(logs, N), OnlineInfluence(model[0], N)
    watch_once(influence, logs, x, y)
    watch_once(plain, model[0], x, y)
    for one in (influence, plain):
        one.step()
    torch.testing.assert_close(influence.scores().mean_predictions, plain.scores().mean_predictions)


def test_a_head_that_was_replaced_is_not_reached(watched):
    model, influence, x, y = watched
    model.head = nn.Linear(5, 3).double()
    with pytest.raises(CaptureError, match=r"no forward pass.*name it in config\.head; if layers were replaced"):
        watch_once(influence, model, x, y)


def test_watch_inside_watch_and_after_close(watched):
    model, influence, x, y = watched
    index = torch.arange(N)
    with pytest.raises(CaptureError, match=r"watch\(\) inside watch\(\)"), influence.watch(index, y):
        model(x)
        with influence.watch(index, y):
            pass
    watch_once(influence, model, x, y)
    influence.step()
    assert influence.scores().visits.tolist() == [1] * N
    influence.close()
    with pytest.raises(CaptureError, match=r"after close\(\)"):
        watch_once(influence, model, x, y)


@pytest.mark.parametrize("rows", [N, 4])
def test_a_second_pass_or_backward_in_one_watch_is_refused_in_deep_scopes(rows):
    """Their scores add up what the backward pass brings, so that a second one would enter them."""
    model, (x, y) = mlp().double(), blobs(N)
    influence = OnlineInfluence(model, N, config=DEEP)
    with pytest.raises(CaptureError, match="two gradients reached the head"), influence.watch(torch.arange(N), y):
        (F.cross_entropy(model(x), y) + model(x[:rows]).square().mean()).backward()
    with pytest.raises(CaptureError, match="add up the losses"), influence.watch(torch.arange(N), y):
        logits = model(x)
        F.cross_entropy(logits, y).backward(retain_graph=True)
        logits.square().mean().backward()
    watch_once(influence, model, x, y)
    influence.step()
    assert influence.scores().visits.tolist() == [1] * N


def test_of_several_passes_the_last_one_is_scored_in_head_scope(watched):
    model, influence, x, y = watched
    with influence.watch(torch.arange(N), y):
        model(torch.zeros_like(x))
        model(x)
    influence.step()
    torch.testing.assert_close(influence.scores().mean_predictions, model(x).softmax(1).float())


def test_a_copy_of_the_model_inside_watch_is_not_what_is_watched(watched):
    model, influence, x, y = watched
    with influence.watch(torch.arange(N), y):
        model(x)
        copy.deepcopy(model)(torch.zeros_like(x))
    influence.step()
    torch.testing.assert_close(influence.scores().mean_predictions, model(x).softmax(1).float())


@pytest.mark.parametrize(
    ("features", "logits", "message"),
    [
        (torch.zeros(N, 4), torch.zeros(N, 3), r"features must be a tensor of shape \(12, 5\), got .* \(12, 4\)"),
        (torch.zeros(4, 5), torch.zeros(N, 3), "features must be"),
        (torch.zeros(N, 5).numpy(), torch.zeros(N, 3), "features must be .* got a ndarray"),
        (torch.zeros(N, 5), torch.zeros(N, 4), r"logits must be a tensor of shape \(12, 3\)"),
    ],
)
def test_outputs_that_do_not_fit_the_head_are_refused(watched, features, logits, message):
    _, influence, _, y = watched
    with pytest.raises(BatchError, match=message):
        influence.record_outputs(torch.arange(N), y, features, logits)


GOOD = blobs(6, seed=1)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (GOOD, r"iterable over batches \(x, y\); one was torch.float64 of shape"),
        ([(GOOD[1], *GOOD)], "one was 3 things"),
        ([(GOOD[0], GOOD[1].float())], r"labels must be integers of shape \[n\], got torch.float32"),
        ([(GOOD[0], GOOD[1][:4])], "a batch of 6 examples has 4 labels"),
    ],
)
def test_anchors_that_are_no_labelled_batches_are_refused(data, message):
    model, (x, y) = mlp().double(), blobs(N)
    influence = OnlineInfluence(model, N, config=quick(source="trusted"), anchor_data=data)
    watch_once(influence, model, x, y)
    with pytest.raises(BatchError, match=message):
        influence.step()
        influence.scores()


class InADictionary(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.net, self.name = mlp(), name

    def forward(self, x):
        return {self.name: self.net(x)}


def test_with_anchors_the_logits_must_be_in_the_output():
    for name in ("logits", "scores"):
        model, (x, y) = InADictionary(name).double(), blobs(N)
        influence = OnlineInfluence(model, N, config=quick(source="trusted"), anchor_data=[GOOD])
        with influence.watch(torch.arange(N), y):
            F.cross_entropy(model(x)[name], y).backward()
        if name == "logits":
            influence.step()
            assert influence.scores().score.isfinite().all()
    with pytest.raises(CaptureError, match="must return its logits, not a dict without them"):
        influence.step()
        influence.scores()


def test_labels_of_anchors_may_be_short_integers():
    model, (x, y) = mlp().double(), blobs(N)
    found = []
    for labels in (GOOD[1], GOOD[1].int()):
        influence = OnlineInfluence(model, N, config=quick(source="trusted"), anchor_data=[(GOOD[0], labels)])
        watch_once(influence, model, x, y)
        influence.step()
        found.append(influence.scores().suspicion)
    assert torch.equal(*found)


@pytest.mark.parametrize("given", [torch.optim.lr_scheduler.StepLR, "model", 0.1])
def test_a_step_takes_an_optimizer(watched, given):
    model, influence, x, y = watched
    if isinstance(given, type):
        given = given(torch.optim.SGD(model.parameters(), 0.1), 1)
    watch_once(influence, model, x, y)
    with pytest.raises(InfluenceError, match="is no optimizer; pass yours, or nothing"):
        influence.step(model if given == "model" else given)


@pytest.mark.parametrize("state", [None, {}, {"config": 1}, {"weight": torch.zeros(2)}])
def test_what_is_no_state_is_told(watched, state):
    with pytest.raises(InfluenceError, match=r"no state_dict\(\) of an OnlineInfluence"):
        watched[1].load_state_dict(state)


def test_a_state_that_lacks_a_part_is_told_and_changes_nothing(watched):
    model, influence, x, y = watched
    watch_once(influence, model, x, y)
    influence.step()
    whole = influence.state_dict()
    for name in whole:
        with pytest.raises(InfluenceError, match=r"no state_dict\(\) of an OnlineInfluence"):
            influence.load_state_dict({key: value for key, value in whole.items() if key != name})
    assert influence.steps == 1


@pytest.mark.parametrize("call", ["end_epoch", "scores"])
def test_a_training_without_a_step_is_told(watched, call):
    model, influence, x, y = watched
    watch_once(influence, model, x, y)
    with pytest.raises(InfluenceError, match=rf"{call}\(\): .*no step was told; call influence\.step\(optimizer\)"):
        getattr(influence, call)()
    influence.step()
    influence.end_epoch()
    assert influence.epochs == 1


@pytest.mark.parametrize("kind", ["uint8", "uint16", "uint32", "uint64", "int32"])
def test_positions_and_labels_of_any_kind_of_integer_give_the_same(watched, kind):
    model, influence, x, y = watched
    other = OnlineInfluence(model, N, n_classes=3)
    for one, index, labels in (
        (influence, torch.arange(N), y),
        (other, np.arange(N).astype(kind), torch.from_numpy(y.numpy().astype(kind))),
    ):
        with one.watch(index, labels):
            F.cross_entropy(model(x), y).backward()
        one.step()
    assert torch.equal(influence.scores().suspicion, other.scores().suspicion)


def test_the_state_of_a_wider_model_is_told(watched):
    other = OnlineInfluence(mlp(hidden=9).double(), N, 3)
    with pytest.raises(InfluenceError, match="layers of other sizes"):
        other.load_state_dict(watched[1].state_dict())


def test_a_result_can_be_pickled(watched):
    model, influence, x, y = watched
    watch_once(influence, model, x, y)
    influence.step()
    found = influence.scores()
    again = pickle.loads(pickle.dumps(found))
    assert torch.equal(again.suspicion, found.suspicion) and again.config == found.config


@pytest.mark.parametrize("scope", ["head", "all"])
def test_scores_before_anything_was_watched(scope):
    found = OnlineInfluence(mlp(), N, config=quick(scope=scope)).scores()
    issues = found.find_label_issues([0] * N)
    assert not found.visited.any() and issues.count == 0 and not issues.mask.any() and len(issues.order) == N
