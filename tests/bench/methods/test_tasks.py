"""What the two tasks share, and in what they differ: the arithmetic of their predictions."""

from dataclasses import replace

import torch

from sgoif.bench.methods import tasks
from tests.helpers.digit_tasks import noisy_task, ood_task


def test_each_task_predicts_in_its_own_precision_and_by_default_the_training_images(monkeypatch):
    asked = []
    monkeypatch.setattr(tasks, "predict", lambda net, images, indices, **options: asked.append((images, options)))
    noisy, ood = noisy_task(n_train=200, plain=False)[0], ood_task(plain=False)[0]
    for task in (noisy, ood):
        task.recipe = replace(task.recipe, precision="bfloat16")
        task.predict(torch.nn.Identity())
        task.predict(torch.nn.Identity(), images=task.train.subset([0]), features=True)
    images, options = zip(*asked, strict=True)
    assert [o["precision"] for o in options] == ["bfloat16"] * 2 + ["float32"] * 2, "OOD scores are not rounded"
    assert [o["features"] for o in options] == [False, True] * 2
    assert images[0] is noisy.train and images[2] is ood.train and len(images[1]) == len(images[3]) == 1
