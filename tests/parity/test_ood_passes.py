"""How many images a method sends through a network to score one, as its results say; a backward pass counts two."""

from dataclasses import replace

import pytest
import torch

from baselines.ood.she import SHE
from sgoif.bench.methods.registry import load
from sgoif.training.cost.compute_counter import COMPUTE
from tests.helpers.digit_tasks import ood_task


@pytest.mark.parametrize(
    ("name", "passes"), [("odin", 4), ("godin", 4), ("rotpred", 4), ("mds_ensemble", None), ("msp", 1)]
)
def test_passes_are_counted(name, passes):
    kind = load("ood", name)
    task, images, _ = ood_task(plain=kind.reads_plain)
    if not kind.reads_plain:  # trained as shortly as can be
        task.recipe = replace(task.recipe, epochs=1)
        task.train, task.labels = task.train.subset(torch.arange(128)), task.labels[:128]
    method = kind()
    method.fit(task)
    COMPUTE.reset()
    scores = method.score(images.subset(torch.arange(10)))
    if passes is None:  # one forward pass, and for every layer a step: back, and forward again
        passes = 1 + 3 * len(method.layers)
    assert COMPUTE.forward_passes == 10 * passes and scores.shape == (10,)


def test_she_patterns_are_means_of_what_is_rightly_predicted_or_of_all():
    """Class 0 has two examples that are predicted right, class 1 one, class 2 none."""
    features = torch.tensor([[1.0, 0.0], [3.0, 2.0], [5.0, 5.0], [7.0, 1.0], [2.0, 4.0], [4.0, 4.0]])
    labels, right = torch.tensor([0, 0, 1, 1, 2, 2]), torch.tensor([True, True, True, False, False, False])
    assert SHE.patterns(features, labels, right, 3).tolist() == [[2, 1], [5, 5], [3, 4]]
