"""What a watched pass records: its own copies, of one head, and nothing of a step that is still accumulated."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sgoif import InfluenceConfig, OnlineInfluence
from tests.helpers.networks import blobs, linear_net, mlp, quick

N = 24


class TwoHeads(nn.Module):
    """Two heads of three classes; `kind` says how their outputs are returned."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.body, self.left, self.right, self.kind = nn.Linear(6, 5), nn.Linear(5, 3), nn.Linear(5, 3), kind

    def forward(self, x: Tensor):
        h = self.body(x).tanh()
        left, right = self.left(h), self.right(h)
        return {
            "left first": (left, right),
            "right first": (right, left),
            "mapping": {"logits": left, "right": right},
            "views": (left, right.view_as(right)),
            "right alone": right,
        }[self.kind]


@pytest.mark.parametrize("kind", ["left first", "right first", "mapping", "views"])
def test_of_several_outputs_that_of_the_named_head_is_scored(kind):
    x, y = blobs(N)
    torch.manual_seed(0)
    model = TwoHeads("right alone").double()
    scores = []
    for other in ("right alone", kind):
        model.kind = other
        influence = OnlineInfluence(model, N, 3, config=InfluenceConfig(head="right", solve_every=1))
        for _ in range(3):
            with influence.watch(torch.arange(N), y):
                output = model(x)
            influence.step()
            influence.end_epoch()
        scores.append(influence.scores())
        influence.close()
        del output
    assert scores[0].score.any()
    torch.testing.assert_close(scores[1].score, scores[0].score)
    torch.testing.assert_close(scores[1].log_odds, scores[0].log_odds)


def test_a_scaled_output_named_logits_counts_beside_one_of_another_head():
    model, (x, y) = TwoHeads("mapping").double(), blobs(N)
    forward = model.forward
    model.forward = lambda x: {"aux": forward(x)["logits"], "logits": forward(x)["right"] / 2}
    influence = OnlineInfluence(model, N, 3, config=InfluenceConfig(head="right"))
    with influence.watch(torch.arange(N), y):
        expected = model(x)["logits"]
    torch.testing.assert_close(influence._engine.queue.passes[0].logits, expected.detach())


@pytest.mark.parametrize("reused", ["index", "labels", "inputs"])
def test_buffers_may_be_used_again_before_a_pass_is_scored(reused):
    """`nn.Linear` alone: the features are the very inputs."""
    x, y = blobs(N)
    found = []
    for reuse in (False, True):
        torch.manual_seed(0)
        model = linear_net().double()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        influence = OnlineInfluence(model, N, 3, config=quick(solve_every=4))
        for _ in range(4):
            for batch in torch.arange(N).split(6):
                given = {"index": batch.clone(), "labels": y[batch], "inputs": x[batch]}
                with influence.watch(given["index"], given["labels"]):
                    F.cross_entropy(model(given["inputs"]), given["labels"]).backward()
                optimizer.step()
                if reuse:
                    given[reused].zero_()
                influence.step(optimizer)
                optimizer.zero_grad()
            influence.end_epoch()
        found.append(influence.scores())
    assert found[0].score.any()
    torch.testing.assert_close(found[1].score, found[0].score, rtol=0, atol=0)
    torch.testing.assert_close(found[1].suspicion, found[0].suspicion, rtol=0, atol=0)


@pytest.mark.parametrize("inside", ["scores", "end_epoch"])
def test_a_step_that_is_still_accumulated_is_scored_as_a_whole(inside):
    x, y = blobs(N)
    found = []
    for read in (False, True):
        torch.manual_seed(0)
        model = mlp().double()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        influence = OnlineInfluence(model, N, 3, config=quick(solve_every=2), total_steps=8)
        for _ in range(4):
            for half in torch.arange(N).split(12):
                for batch in half.split(4):
                    with influence.watch(batch, y[batch]):
                        F.cross_entropy(model(x[batch]), y[batch]).backward()
                    if read and inside == "scores" and influence.steps:
                        influence.scores()
                    if read and inside == "end_epoch" and influence.steps:
                        influence.end_epoch()
                optimizer.step()
                influence.step(optimizer)
                optimizer.zero_grad()
            if not (read and inside == "end_epoch"):
                influence.end_epoch()
        found.append(influence.scores())
    assert found[0].score.any()
    for name in ("score", "mean_predictions", "margin", "visits"):
        torch.testing.assert_close(getattr(found[1], name), getattr(found[0], name))
