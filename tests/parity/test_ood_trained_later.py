"""RotPred and T2FNorm: losses and scores by hand, in the words of the reference implementations."""

from dataclasses import replace

import torch
import torch.nn.functional as F

from baselines.ood.rotpred import RotPred, turns
from baselines.ood.t2fnorm import T2FNorm
from sgoif.bench.methods.ood.rotations import rotations
from sgoif.training.cost.compute_counter import COMPUTE
from sgoif.training.learner import Learner
from tests.helpers.digit_tasks import RECIPE, ood_task

SHORT = replace(RECIPE, epochs=2)


def fitted(kind):
    task, images, _ = ood_task(plain=False, recipe=SHORT)
    method = kind()
    method.fit(task)
    return method, images


def kl(p, q):
    """KL(p || q) row by row, 0 log 0 = 0."""
    return torch.where(p > 0, p * (p / q).log(), torch.zeros_like(p)).sum(1)


def test_rotpred():
    g = torch.Generator().manual_seed(3)
    logits, rotation = torch.randn(5, 7, generator=g), torch.randn(20, 4, generator=g)
    uniform = torch.full_like(logits, 1 / 7)
    one_hot = F.one_hot(torch.tensor([0] * 5 + [1] * 5 + [2] * 5 + [3] * 5), 4).float()
    of_rotation = torch.stack(kl(one_hot, rotation.softmax(1)).chunk(4)).mean(0)
    confidence = kl(uniform, logits.softmax(1)) - of_rotation
    torch.testing.assert_close(RotPred.from_logits(logits, rotation), -confidence, rtol=1e-4, atol=1e-5)
    y = torch.tensor([0, 6, 2, 2, 1])
    both = F.cross_entropy(logits, y) + kl(one_hot, rotation.softmax(1)).mean()
    torch.testing.assert_close(RotPred.loss(logits, rotation, y), both)


def test_rotpred_shows_every_image_in_four_rotations():
    x = torch.arange(2 * 9.0).view(2, 1, 3, 3)
    seen = rotations(x)
    assert torch.equal(seen[:2], x) and torch.equal(seen[2:4], torch.rot90(x, 1, (2, 3)))
    assert torch.equal(turns(2, x.device), torch.tensor([0, 0, 1, 1, 2, 2, 3, 3]))
    method, images = fitted(RotPred)
    COMPUTE.reset()
    scores = method.score(images)
    assert COMPUTE.forward_passes == 4 * len(images)
    with torch.no_grad():
        z = method.net.features(rotations(images.batch(torch.arange(len(images)))))
        rotation = method.net.rotation(z)
    wrong = F.cross_entropy(rotation, turns(len(images), z.device), reduction="none").view(4, -1).mean(0)
    p = method.logits(images).softmax(1)
    torch.testing.assert_close(scores, wrong - kl(torch.full_like(p, 1 / 6), p), rtol=1e-3, atol=1e-3)
    assert wrong.mean() < 1.3  # below log 4: rotations are learnt


def test_t2fnorm(monkeypatch):
    """Features of length 1 / tau in training and for the accuracy, of their own length / tau for the score."""
    lengths = []
    ordinary = Learner.features

    def watched(self, x):
        z = ordinary(self, x)
        return z.register_hook(lambda gradient: lengths.append((gradient * z.detach()).sum(1).abs().max())) and z

    monkeypatch.setattr(Learner, "features", watched)
    method, images = fitted(T2FNorm)
    assert lengths and max(lengths) < 1e-5  # the loss does not depend on the length of the features
    w, b = method.net.head.weight, method.net.head.bias
    _, z = method.task.predict(method.net, images, features=True)
    unit = z / z.norm(dim=1, keepdim=True)
    torch.testing.assert_close(method.logits(images), (unit / 0.1) @ w.T.detach() + b.detach(), rtol=1e-4, atol=1e-4)
    p = ((z / 0.1) @ w.T + b).detach().double().softmax(1).amax(1)
    told, scores = p < 1 - 1e-9, method.score(images)
    assert told.sum() > 20 and scores.unique().numel() == len(images)  # also where p is rounded to 1
    torch.testing.assert_close(scores[told], (1 - p[told]).log(), rtol=1e-3, atol=1e-3)


def test_the_head_of_t2fnorm_has_no_scale():
    task, _, _ = ood_task(plain=False, recipe=replace(SHORT, model="resnet9", epochs=1))
    task.train = task.train.subset(range(130))
    task.labels = task.labels[:130]
    method = T2FNorm()
    method.fit(task)
    assert method.net.scale == 1.0
