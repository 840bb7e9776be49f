"""TracIn against captum's TracInCP and TracInCPFast, and against autograd on the head's own parameters."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from captum.influence import TracInCP, TracInCPFast
from torch.utils.data import TensorDataset

from baselines.noisy.tracin import TracIn, all_gradients, errors, head_gradient, head_influence, head_self_influence
from sgoif.bench.evaluation.metrics import detection
from sgoif.errors import UserError
from sgoif.training.images import ImageSet
from sgoif.training.models import build_network
from tests.helpers.digit_tasks import MEAN, STD, digits, noisy_task

RATES = [0.1, 0.03]
N, V = 8, 4  # training and trusted images


class Plain:
    """Two checkpoints of a small network, with a logit scale as resnet9 has one."""

    checkpoint_epochs = (0, 1)

    def network(self, epoch):
        torch.manual_seed(epoch)
        net = build_network("small_cnn", 10, 1, 8)
        net.scale = 0.5
        with torch.no_grad():  # batch norms that have seen data
            for _ in range(3):
                net(IMAGES.batch(torch.arange(100)))
        return net.eval()

    def learning_rate(self, epoch):
        return RATES[epoch]


IMAGES = ImageSet(digits()[0][:100], MEAN, STD)


@pytest.fixture(scope="module")
def task():
    x, y = digits()
    task, _ = noisy_task(n_train=N, plain=False)
    task.labels = torch.from_numpy((y[:N] + np.arange(N) % 3) % 10)
    task.plain, task.recipe = Plain(), replace(task.recipe, epochs=2)
    task.trusted = (ImageSet(x[N : N + V], MEAN, STD), torch.from_numpy(y[N : N + V]))
    return task


def captum(kind, task, layers):
    """captum's TracIn on the task's checkpoints; its learning rate is what the loading function returns."""

    def load(model, checkpoint):
        model.load_state_dict(task.plain.network(int(checkpoint)).state_dict())
        return RATES[int(checkpoint)]

    model = task.plain.network(0)
    data = TensorDataset(task.train.batch(torch.arange(N)), task.labels)
    if kind is TracInCPFast:  # wants the sum: a mean would scale its gradients by the batch size
        loss = torch.nn.CrossEntropyLoss(reduction="sum")
        return TracInCPFast(model, model.head, data, ["0", "1"], load, loss_fn=loss, batch_size=5)
    loss = torch.nn.CrossEntropyLoss(reduction="none")
    return TracInCP(model, data, ["0", "1"], load, layers=layers, loss_fn=loss, batch_size=5)


def bias_part(task):
    """What the head's bias adds to self-influence and to the mean influence on the trusted images."""
    own = anchor = 0.0
    for epoch, rate in enumerate(RATES):
        net = task.plain.network(epoch)
        e, e_v = (
            errors(task.predict(net)[0], task.labels),
            errors(task.predict(net, task.trusted[0])[0], task.trusted[1]),
        )
        own = own + rate * net.scale**2 * e.square().sum(1).numpy()
        anchor = anchor + rate * net.scale**2 * (e @ e_v.mean(0)).numpy()
    return own, anchor


@pytest.mark.parametrize("kind,layers", [(TracInCPFast, "head"), (TracInCP, "head"), (TracInCP, "all")])
def test_equals_captum(task, kind, layers):
    theirs = captum(kind, task, ["head"] if layers == "head" else None)
    ours = TracIn(layers=layers, chunk=5, score="rates").detect(task)
    fast = kind is TracInCPFast  # it leaves out the head's bias and whatever stands between head and logits
    bias_own, bias_anchor = bias_part(task) if fast else (0.0, 0.0)
    factor = task.plain.network(0).scale ** 2 if fast else 1.0
    own = theirs.self_influence().detach().numpy()
    np.testing.assert_allclose(ours.scores, factor * own + bias_own, rtol=1e-4)
    images, labels = task.trusted
    influence = theirs.influence((images.batch(torch.arange(V)), labels))
    assert influence.shape == (V, N)
    np.testing.assert_allclose(
        ours.variants["anchor"], -factor * influence.mean(0).detach().numpy() - bias_anchor, rtol=1e-3, atol=1e-6
    )


def test_head_equals_autograd_with_a_logit_scale(task):
    net = task.plain.network(1)
    logits, features = task.predict(net, features=True)
    images, labels = task.trusted
    v_logits, v_features = task.predict(net, images, features=True)
    direction = head_gradient(v_logits, v_features, labels, net.scale)
    mean_loss = F.cross_entropy(net(images.batch(torch.arange(V))), labels)
    weight, bias = torch.autograd.grad(mean_loss, (net.head.weight, net.head.bias))
    torch.testing.assert_close(direction, torch.cat([weight, bias[:, None]], 1), rtol=1e-4, atol=1e-6)
    own = head_self_influence(logits, features, task.labels, net.scale)
    product = head_influence(logits, features, task.labels, direction, net.scale)
    for i in range(N):
        loss = F.cross_entropy(net(task.train.batch(torch.tensor([i]))), task.labels[i : i + 1])
        g_w, g_b = torch.autograd.grad(loss, (net.head.weight, net.head.bias))
        torch.testing.assert_close(own[i], g_w.square().sum() + g_b.square().sum(), rtol=1e-4, atol=1e-7)
        torch.testing.assert_close(product[i], (g_w * weight).sum() + (g_b * bias).sum(), rtol=1e-3, atol=1e-6)


def test_per_example_gradients_do_not_mix_examples(task):
    net, x = task.plain.network(0), task.train.batch(torch.arange(4))
    together = all_gradients(net, x, task.labels[:4])
    alone = all_gradients(net, x[2:3], task.labels[2:3])
    assert set(together) == {name for name, _ in net.named_parameters()}
    for name in together:
        torch.testing.assert_close(together[name][2], alone[name][0], rtol=1e-3, atol=1e-6)


def test_learning_rates_count(task):
    """In the published score alone."""
    before = TracIn(score="rates").detect(task)
    RATES.reverse()
    try:
        now = TracIn(score="rates").detect(task)
        assert not np.allclose(before.scores, now.scores, rtol=1e-3)
        assert all(np.array_equal(now.variants[k], before.variants[k]) for k in ("equal", "late", "late_soft"))
    finally:
        RATES.reverse()


def test_late_checkpoints_equal_weights_softness_and_the_error_alone(task):
    """Both checkpoints, the second alone, its loss at temperature 4 by autograd, and ||p - onehot||^2."""
    found = TracIn(score="late").detect(task)
    own = [TracIn.head_products(task, task.plain.network(epoch)) for epoch in (0, 1)]
    np.testing.assert_allclose(found.variants["equal"], own[0]["own"].double() + own[1]["own"].double())
    np.testing.assert_allclose(found.scores, own[1]["own"].double())
    net = task.plain.network(1)
    p = task.predict(net)[0].softmax(1)
    np.testing.assert_allclose(
        found.variants["late_error"], (p - F.one_hot(task.labels, 10)).square().sum(1).numpy(), rtol=1e-5
    )
    for i in range(N):
        loss = F.cross_entropy(net(task.train.batch(torch.tensor([i]))) / 4, task.labels[i : i + 1])
        gradients = torch.autograd.grad(loss, (net.head.weight, net.head.bias))
        expected = sum(g.square().sum() for g in gradients).item()
        assert found.variants["late_soft"][i] == pytest.approx(expected, rel=1e-3)


def test_detects_wrong_digits_and_needs_no_trusted_labels():
    task, wrong = noisy_task(n_train=600)
    found = TracIn().detect(task)
    assert detection(found.scores, wrong)["auroc"] > 0.85
    assert wrong[found.remove].mean() > 1.5 * wrong.mean() and found.remove[wrong].mean() > 0.3
    task.trusted = None
    without = TracIn().detect(task)
    np.testing.assert_array_equal(without.scores, found.scores)
    assert "anchor" in found.variants and "anchor" not in without.variants


def test_bad_layers_are_refused():
    with pytest.raises(UserError, match=r"params\.tracin\.layers"):
        TracIn(layers="last")
