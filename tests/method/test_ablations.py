"""The paper's ablations: one changed field each, and none of them touches the network that is being watched."""

from dataclasses import fields

import pytest
import torch
import torch.nn.functional as F

from sgoif import InfluenceConfig, OnlineInfluence
from tests.helpers.networks import blobs, mlp

STEPS, N = 24, 60


@pytest.mark.parametrize("name", list(InfluenceConfig.ablations()))
def test_a_variant_changes_one_field(name):
    full, variant = InfluenceConfig(), InfluenceConfig().variant(name)
    changed = [f.name for f in fields(full) if getattr(full, f.name) != getattr(variant, f.name)]
    assert changed == list(InfluenceConfig.ablations()[name]) and len(changed) == (name != "Full")


def trained(config: InfluenceConfig | None) -> dict[str, torch.Tensor]:
    """Weights after a short training, watched or (None) not."""
    torch.manual_seed(0)
    x, y = blobs(N)
    net = mlp().double()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9)
    influence = OnlineInfluence(net, N, 3, config, total_steps=STEPS) if config else None
    for step in range(STEPS):
        index = torch.arange(step * 20, step * 20 + 20) % N
        optimizer.zero_grad()
        if influence is None:
            F.cross_entropy(net(x[index]), y[index]).backward()
        else:
            with influence.watch(index, y[index]):
                F.cross_entropy(net(x[index]), y[index]).backward()
        optimizer.step()
        if influence is not None:
            influence.step(optimizer)
    return net.state_dict()


@pytest.mark.parametrize("name", list(InfluenceConfig.ablations()))
def test_a_variant_leaves_the_network_as_plain_training_does(name):
    plain = trained(None)
    watched = trained(InfluenceConfig(solve_every=4).variant(name))
    assert all(torch.equal(plain[key], watched[key]) for key in plain)
