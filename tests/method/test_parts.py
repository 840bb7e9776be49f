"""Anchors from every source, temperature, removal, several processes."""

import os

import pytest
import torch
import torch.nn.functional as F

from sgoif import OnlineInfluence
from sgoif.anchors.external import AnchorDataCycle
from sgoif.config import CHOICES
from sgoif.curvature import Curvature
from sgoif.label_noise.count import estimate_label_errors
from sgoif.scores.temperature import StreamingTemperature, nll_slope
from tests.helpers.networks import blobs, linear_net, mlp, per_example_gradients, quick, train, watch_once


@pytest.mark.parametrize("scope", ["head", "all"])
@pytest.mark.parametrize("source", ["heldout", "trusted"])
def test_given_anchors_are_mean_gradients_per_class(source, scope):
    torch.manual_seed(0)
    model, (x, y), (held_x, held_y) = mlp().double(), blobs(20), blobs(30, seed=5)
    config = quick(source=source, scope=scope, temperature=1.0)
    influence = OnlineInfluence(
        model, 20, config=config, anchor_data=[(held_x[:17], held_y[:17]), (held_x[17:], held_y[17:])]
    )
    for _ in range(2):
        watch_once(influence, model, x, y)
        influence.step()
    gradients = per_example_gradients(model, held_x, held_y, config)
    share = (
        torch.softmax(model(held_x), 1).detach()[torch.arange(30), held_y]
        if source == "heldout"
        else torch.ones(30).double()
    )
    expected = torch.stack(
        [(share[held_y == v, None] * gradients[held_y == v]).sum(0) / share[held_y == v].sum() for v in range(3)]
    )
    torch.testing.assert_close(influence._engine.parts.anchors.targets(), expected)


def positions(cycle: AnchorDataCycle) -> list[int]:
    return [position for *_, position in cycle.next_batches()]


def test_given_anchors_take_turns():
    """First all of them, then what fits into so many examples, a batch being one at least."""
    labels = [torch.zeros(n) for n in (4, 4, 3, 9)]
    cycle = AnchorDataCycle([(torch.empty(len(y)), y) for y in labels], min_examples=8)
    assert [positions(cycle) for _ in range(6)] == [[0, 4, 8, 11], [0, 4], [8], [11], [0, 4], [8]]
    assert (cycle.size, cycle.evaluated) == (20, 20 + 8 + 3 + 9 + 8 + 3)
    other = AnchorDataCycle(cycle.data, min_examples=8)
    other.load_state_dict(cycle.state_dict())
    assert [positions(other) for _ in range(3)] == [[11], [0, 4], [8]]
    other.epochs_per_check = 0.45  # nine of the twenty per check make a round of an epoch
    assert [positions(other) for _ in range(3)] == [[11], [0, 4], [8]]
    other.epochs_per_check = 0.6
    assert [positions(other) for _ in range(3)] == [[11], [0, 4, 8], [11]]
    other.epochs_per_check = 1.0
    assert positions(other) == [0, 4, 8, 11]
    few = AnchorDataCycle(cycle.data[:2], min_examples=8)
    assert [positions(few) for _ in range(3)] == [[0, 4]] * 3


@pytest.mark.parametrize("scope", ["head", "all"])
def test_anchors_in_turns_keep_what_the_others_left(scope):
    """Every class has a target though only two of them pass at a check, and a standing model the same as ever."""
    torch.manual_seed(0)
    model, (x, y), held = mlp().double(), blobs(20), blobs(3, seed=5)
    same = [(held[0][[v]].repeat(4, 1), torch.full((4,), v)) for v in range(3)]
    targets = []
    for at_once in (12, 8, 1):
        config = quick(source="trusted", scope=scope, anchor_examples=at_once)
        influence = OnlineInfluence(model, 180, config=config, anchor_data=same)  # an epoch is nine steps
        for _ in range(8):
            watch_once(influence, model, x, y)
            influence.step()
        assert influence.external_anchors == 12
        assert influence.external_anchor_passes == 12 + (influence.checks - 1) * {12: 12, 8: 8, 1: 4}[at_once]
        engine = influence._engine
        assert engine.anchor_cycle.epochs_per_check == engine.parts.directions.schedule.interval / engine.epoch_steps
        targets.append(influence._engine.parts.anchors.targets())
    assert (targets[0].norm(dim=1) > 0).all()
    torch.testing.assert_close(targets[1], targets[0])
    torch.testing.assert_close(targets[2], targets[0])


@pytest.mark.parametrize("half", [None, torch.bfloat16])
def test_given_anchors_pass_in_the_precision_of_training(half):
    model, (x, y), held = mlp().float(), blobs(20, dtype=torch.float32), blobs(30, seed=5, dtype=torch.float32)
    influence = OnlineInfluence(model, 20, config=quick(source="trusted"), anchor_data=[held])
    seen = []
    influence._engine.hooks.head.register_forward_hook(
        lambda _, inputs, output: seen.append((len(output), output.dtype))
    )
    for _ in range(2):
        with torch.autocast("cpu", half, enabled=half is not None):
            watch_once(influence, model, x, y)
            influence.step()
    assert seen == [(n, half or torch.float32) for n in (20, 30, 20, 30)]
    assert torch.isfinite(influence._engine.parts.anchors.targets()).all()


@pytest.mark.parametrize("anchors", [2, 3, 6])
def test_buckets_are_balanced_over_classes(anchors):
    model, (x, y) = linear_net().double(), blobs(60)
    influence = OnlineInfluence(model, 60, config=quick(anchors=anchors))
    train(model, x, y, influence, epochs=2)
    buckets = influence._engine.parts.anchors.buckets(y, torch.arange(60))
    assert set(buckets.tolist()) == set(range(anchors))
    if anchors >= 3:
        assert all(len(set(y[buckets == b].tolist())) == 1 for b in range(anchors))
    assert (influence._engine.parts.anchors.weight > 0).all() and influence.scores().confidence.max() > 0


def test_no_example_votes_on_itself():
    """A batch is scored by directions made before it: what it holds now cannot change its own scores of this visit."""
    x, y = blobs(40)
    scores = []
    for last in (y[20:], (y[20:] + 1) % 3):
        torch.manual_seed(0)
        model = linear_net().double()
        influence = OnlineInfluence(model, 40, config=quick())
        for _ in range(4):
            watch_once(influence, model, x[:20], y[:20])
            influence.step()
        watch_once(influence, model, x[20:], last, torch.arange(20, 40))
        scores.append(influence._engine.parts.directions.scoring_direction.clone())
        influence.step()
    torch.testing.assert_close(scores[0], scores[1], rtol=0, atol=0)


def test_window_is_the_second_half():
    x, y = blobs(20)
    torch.manual_seed(0)
    model = linear_net().double()
    known = OnlineInfluence(model, 20, config=quick(), total_steps=8)
    epochs = OnlineInfluence(model, 20, config=quick())
    for step in range(8):
        with known.watch(torch.arange(20), y), epochs.watch(torch.arange(20), y):
            F.cross_entropy(model(x), y).backward()
        known.step()
        epochs.step()
        if step % 2:
            known.end_epoch()
            epochs.end_epoch()
    assert known.scores().visits.tolist() == epochs.scores().visits.tolist() == [4] * 20
    torch.testing.assert_close(known.scores().score, epochs.scores().score)
    assert known.scores().epoch_scores.shape == (4, 20)


def test_streaming_temperature_minimises_the_nll():
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(4000, 5, generator=generator)
    labels = torch.multinomial(torch.softmax(logits / 2.5, 1), 1, generator=generator)[:, 0]
    around = [float(nll_slope(logits, labels, t)[0]) for t in (2.35, 2.65)]
    assert around[0] < 0 < around[1]  # the minimum lies where the labels were drawn
    stream = StreamingTemperature(torch.float32)
    for part in torch.randperm(4000, generator=generator).repeat(10).split(100):
        stream.update(logits[part], labels[part])
    assert abs(stream.value - 2.5) < 0.4
    stream.update(torch.full((3, 5), torch.nan), torch.zeros(3, dtype=torch.long))
    assert torch.isfinite(stream.value)


def test_streaming_temperature_in_a_run():
    x, y = blobs(60)
    model = linear_net().double()
    influence = OnlineInfluence(model, 60, config=quick(temperature=0.0))
    train(model, x, y, influence)
    assert influence.counters()["temperature"] != 1.0 and influence.scores().score.abs().max() > 0


@pytest.mark.parametrize("share", [0.0, 0.02, 0.2, 0.5, 0.7])
def test_the_count_finds_two_components(share):
    generator = torch.Generator().manual_seed(1)
    wrong = torch.rand(5000, generator=generator) < share
    given = torch.randint(10, (5000,), generator=generator)
    scores = torch.where(wrong, 0.5, -1.0) + 0.3 * torch.randn(5000, generator=generator)
    count, mask = estimate_label_errors(scores * (1 + given), given)
    assert abs(count / 5000 - wrong.float().mean()) < 0.02 and mask.sum() == count


def _process(rank, port, folder, world):
    import torch.distributed as dist

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.save(_distributed_scores(rank, world), f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def _distributed_scores(rank, world):
    """A standing model; each process sees its share of every batch."""
    torch.manual_seed(0)
    model, (x, y) = mlp().double(), blobs(40)
    influence = OnlineInfluence(model, 40, config=quick(weighting="uniform"))
    mine = torch.arange(40)[rank::world]
    for _ in range(8):
        watch_once(influence, model, x[mine], y[mine], mine)
        influence.step()
    return influence.scores().score


def test_two_processes_are_one(tmp_path):
    port = 29500 + os.getpid() % 1000
    context = torch.multiprocessing.get_context("spawn")
    processes = [context.Process(target=_process, args=(rank, port, str(tmp_path), 2)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    one, two = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    torch.testing.assert_close(one, two, rtol=0, atol=0)
    torch.testing.assert_close(one, _distributed_scores(0, 1), rtol=1e-5, atol=1e-7)


def test_every_curvature_backend_can_be_chosen():
    assert set(Curvature.registry) == set(CHOICES["curvature"])
