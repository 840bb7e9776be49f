"""The network and recipe that OpenOOD trains on CIFAR, which all post-hoc rows of configs/openood.yaml read.

Values from Jingkang50/OpenOOD, branch main, commit 3c35632: network openood/networks/resnet18_32x32.py; epochs, rate,
momentum and decay configs/pipelines/train/baseline.yml; batch size configs/datasets/cifar{10,100}/*.yml; Nesterov,
decay of every parameter and the schedule openood/trainers/{base_trainer,lr_scheduler}.py; crop, flip and normalisation
openood/preprocessors/{base_preprocessor,transform}.py. With OpenOOD's weights in its order the network of this project
gives the same logits (tried once). What differs is told in docs/lab-notebook/out-of-distribution.md.
"""

import math

import pytest
import torch

from sgoif.bench.config import load_config
from sgoif.bench.data import catalogue
from sgoif.training.models import build_network
from sgoif.training.recipe import Recipe
from sgoif.utils.paths import ROOT

NORMALISATION = {
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
}


@pytest.mark.parametrize("config", ["cifar", "openood"])
@pytest.mark.parametrize(
    ("dataset", "classes", "parameters"), [("cifar10", 10, 11_173_962), ("cifar100", 100, 11_220_132)]
)
def test_post_hoc_rows_read_openood_s_network_and_recipe(config, dataset, classes, parameters):
    spec = load_config(ROOT / f"configs/{config}.yaml", skip_missing=False)["ood"][dataset]
    recipe = Recipe.from_dict(spec["recipe"])
    assert (recipe.model, recipe.epochs, recipe.batch_size, recipe.lr) == ("resnet18", 100, 128, 0.1)
    assert (recipe.optimizer, recipe.momentum, recipe.nesterov, recipe.weight_decay) == ("sgd", 0.9, True, 5e-4)
    assert recipe.decay_norms
    assert (recipe.schedule, recipe.shift, recipe.flip) == ("cosine", 4, True)
    net = build_network(recipe.model, classes, 3, 32)
    assert sum(p.numel() for p in net.parameters()) == parameters
    assert net.features(torch.zeros(1, 3, 32, 32)).shape == (1, 512)
    facts = catalogue.get(dataset)
    assert (facts.mean, facts.std) == NORMALISATION[dataset]


def test_the_rate_falls_by_openood_s_cosine_to_a_millionth():
    recipe, total = Recipe(schedule="cosine", lr=0.1), 39_100
    for step in range(0, total, 391):
        lowest = 1e-6 / 0.1
        theirs = 0.1 * (lowest + (1 - lowest) * 0.5 * (1 + math.cos(math.pi * step / total)))
        assert recipe.lr_at(step, total) == pytest.approx(theirs, abs=1.01e-6)
    assert recipe.lr_at(total - 1, total) == pytest.approx(1e-6, rel=0.01)
