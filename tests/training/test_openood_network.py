"""The network and recipe that OpenOOD trains on CIFAR, which all post-hoc rows of configs/cifar.yaml read.

OpenOOD v1.5 (configs/pipelines/train/baseline.yml, openood/networks/resnet18_32x32.py): ResNet-18 with a first
convolution of 3 x 3, SGD with Nesterov momentum 0.9, rate 0.1, weight decay 5e-4, batches of 128, 100 epochs, cosine.
"""

import pytest
import torch

from sgoif.bench.config import load_config
from sgoif.training.models import build_network
from sgoif.training.recipe import Recipe
from sgoif.utils.paths import ROOT


@pytest.mark.parametrize(
    ("dataset", "classes", "parameters"), [("cifar10", 10, 11_173_962), ("cifar100", 100, 11_220_132)]
)
def test_post_hoc_rows_read_openood_s_network_and_recipe(dataset, classes, parameters):
    recipe = Recipe.from_dict(load_config(ROOT / "configs/cifar.yaml", skip_missing=False)["ood"][dataset]["recipe"])
    assert (recipe.model, recipe.epochs, recipe.batch_size, recipe.lr) == ("resnet18", 100, 128, 0.1)
    assert (recipe.optimizer, recipe.momentum, recipe.nesterov, recipe.weight_decay) == ("sgd", 0.9, True, 5e-4)
    assert (recipe.schedule, recipe.shift, recipe.flip) == ("cosine", 4, True)
    net = build_network(recipe.model, classes, 3, 32)
    assert sum(p.numel() for p in net.parameters()) == parameters
    assert net.features(torch.zeros(1, 3, 32, 32)).shape == (1, 512)
