"""Scores against retraining: leave-one-out on a convex model, linear datamodeling score on a small convnet, beside
EK-FAC and TRAK."""

import functools

import pytest
import torch
import torch.nn.functional as F

from sgoif import InfluenceConfig, OnlineInfluence
from sgoif.solvers.operator import Operator
from tests.helpers.networks import blobs, caught, linear_net, watch_once
from tests.method.test_certificate import spearman
from tests.method.test_quality import digits


def fit(model, x, y, weights, decay):
    """Minimise the weighted mean cross-entropy plus an l2 term to convergence."""
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=200, tolerance_grad=1e-10, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = (weights * F.cross_entropy(model(x), y, reduction="none")).sum() / len(y)
        loss = loss + decay / 2 * sum(p.square().sum() for p in model.parameters())
        loss.backward()
        return loss

    optimizer.step(closure)


def test_leave_one_out_retraining_on_a_convex_model():
    """-<phi, g_i> / n predicts how the anchors' loss changes when example i is left out."""
    x, y = blobs(60, inputs=4, classes=3)
    held_x, held_y = blobs(30, inputs=4, classes=3, seed=0)
    noisy = torch.where(torch.rand(60, generator=torch.Generator().manual_seed(1)) < 0.15, (y + 1) % 3, y)
    decay = 0.05
    model = linear_net(4, 3).double()
    fit(model, x, noisy, torch.ones(60), decay)
    config = InfluenceConfig(
        temperature=1.0, source="trusted", curvature="diagonal", damping=1e-9, solver="pcg", refine_steps=30,
        anchors=1, rank=0, weighting="uniform", solve_every=1, hvp_budget=100.0, trigger=False,
    )  # fmt: skip
    influence = OnlineInfluence(model, 60, config=config, anchor_data=[(held_x, held_y)])

    def damped(rows, damp=influence._engine.parts.curvature.damp):
        return damp(rows) + decay * rows  # the l2 term is part of the curvature

    influence._engine.parts.curvature.damp = damped
    for _ in range(6):
        watch_once(influence, model, x, noisy)
        influence.step()
    influence.end_epoch()
    watch_once(influence, model, x, noisy)
    influence.step()
    predicted = influence.scores().epoch_scores[-1].double() / 60

    before = F.cross_entropy(model(held_x), held_y).item()
    actual = []
    for i in range(60):
        weights = torch.ones(60, dtype=torch.float64)
        weights[i] = 0
        other = linear_net(4, 3).double()
        other.load_state_dict(model.state_dict())
        fit(other, x, noisy, weights, decay)
        actual.append(before - F.cross_entropy(other(held_x), held_y).item())  # harm = what leaving out takes away
    actual = torch.tensor(actual, dtype=torch.float64)
    assert spearman(predicted, actual) > 0.95
    assert torch.corrcoef(torch.stack([predicted, actual]))[0, 1] > 0.97


def small_net():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(4),
        torch.nn.Flatten(),
        torch.nn.Linear(32, 10),
    )


def train_net(x, y, keep, influence_for=None, epochs=40):
    """Full-batch Adam on the kept examples."""
    model = small_net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=1e-3)
    influence = influence_for(model) if influence_for else None
    rows = keep.nonzero().flatten()
    for _ in range(epochs):
        optimizer.zero_grad()
        if influence:
            watch_once(influence, model, x[rows], y[rows], rows)
        else:
            F.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()
        if influence:
            influence.step(optimizer)
    return model, influence


@functools.cache
def datamodel():
    """200 digits with noisy labels, 60 random halves retrained: subsets `[60, 200]`, losses on the targets `[60]`."""
    images, truth = digits()
    x, y = images[:200], truth[:200].clone()
    generator = torch.Generator().manual_seed(0)
    flip = torch.rand(200, generator=generator) < 0.2
    y[flip] = (y[flip] + 3) % 10
    targets = images[200:400], truth[200:400]
    subsets = torch.rand(60, 200, generator=generator) < 0.5
    losses = [F.cross_entropy(train_net(x, y, keep)[0](targets[0]), targets[1]).item() for keep in subsets]
    return x, y, targets, subsets, torch.tensor(losses)


def lds(scores):
    """Rank correlation between summed scores of a subset and the loss of the model trained on it."""
    *_, subsets, losses = datamodel()
    return spearman(subsets.double() @ scores.double(), losses.double()).item()


@pytest.mark.parametrize("scope", ["head", "all"])
def test_linear_datamodeling_score_of_a_small_convnet(scope):
    """Subsets whose examples score as harmful lead to a higher loss on the targets, as retraining shows."""
    x, y, targets, *_ = datamodel()
    config = InfluenceConfig(
        scope=scope,
        source="trusted",
        temperature=1.0,
        solve_every=4,
        anchors=1,
        window=0.8,
        update_every=1,
        hvp_budget=100.0,
    )
    influence = train_net(
        x, y, torch.ones(200), lambda m: OnlineInfluence(m, 200, 10, config, 40, anchor_data=[targets])
    )[1]
    ours = lds(influence.scores().score)
    print("SG-OIF", scope, round(ours, 3))
    assert ours > 0.3


def test_linear_datamodeling_score_of_the_references():
    """EK-FAC (kronfluence) and TRAK (traker) on the same subsets and checkpoint: printed beside ours, and far from
    chance."""
    pytest.importorskip("kronfluence")
    pytest.importorskip("trak")
    x, y, targets, *_ = datamodel()
    model = train_net(x, y, torch.ones(200))[0]
    found = {"EK-FAC": lds(-ekfac_scores(model, x, y, targets)), "TRAK": lds(-trak_scores(model, x, y, targets))}
    print(found)
    assert min(found.values()) > 0.1


def trak_scores(model, x, y, targets):
    """Sum over targets of TRAK's scores `[200]` from one checkpoint; higher = the example helps the targets."""
    import tempfile

    from trak import TRAKer
    from trak.projectors import BasicProjector, ProjectionType

    device = torch.device("cpu")
    dim = sum(p.numel() for p in model.parameters())
    projector = BasicProjector(dim, 128, 0, ProjectionType.rademacher, device)
    with tempfile.TemporaryDirectory() as folder:
        traker = TRAKer(
            model, "image_classification", 200, save_dir=folder, device="cpu", projector=projector,
            use_half_precision=False, logging_level=40,
        )  # fmt: skip
        traker.load_checkpoint(model.state_dict(), model_id=0)
        traker.featurize([x, y], num_samples=200)
        traker.finalize_features()
        traker.start_scoring_checkpoint("t", model.state_dict(), model_id=0, num_targets=200)
        traker.score(list(targets), num_samples=200)
        scores = traker.finalize_scores("t")
    return torch.as_tensor(scores).sum(1)


def ekfac_scores(model, x, y, targets):
    """Sum over targets of kronfluence's pairwise scores `[200]`; higher = the example helps the targets."""
    import logging
    import tempfile

    from kronfluence.analyzer import Analyzer, prepare_model
    from kronfluence.task import Task

    class Classification(Task):
        def compute_train_loss(self, batch, model, sample=False):
            logits = model(batch[0])
            labels = torch.distributions.Categorical(logits=logits.detach()).sample() if sample else batch[1]
            return F.cross_entropy(logits, labels, reduction="sum")

        def compute_measurement(self, batch, model):
            return self.compute_train_loss(batch, model)

    logging.disable(logging.WARNING)
    task, data = Classification(), torch.utils.data.TensorDataset(x, y)
    with tempfile.TemporaryDirectory() as folder:
        analyzer = Analyzer("lds", prepare_model(model, task), task, output_dir=folder, disable_tqdm=True, cpu=True)
        analyzer.fit_all_factors("f", data, per_device_batch_size=100)
        analyzer.compute_pairwise_scores(
            "s",
            "f",
            torch.utils.data.TensorDataset(*targets),
            data,
            per_device_query_batch_size=100,
            per_device_train_batch_size=100,
        )
        scores = analyzer.load_pairwise_scores("s")
    logging.disable(logging.NOTSET)
    return scores["all_modules"].sum(0)


def test_operator_is_symmetric_and_positive():
    """What the lemmas assume of H: symmetric, at least its damping."""
    torch.manual_seed(0)
    model, (x, y) = linear_net().double(), blobs(30)
    influence = OnlineInfluence(model, 30)
    batch = caught(model, x, y, influence.config)
    curvature = influence._engine.parts.curvature
    curvature.update(batch, 0.5)
    curvature.refresh()
    eye = torch.eye(batch.space.dim, dtype=torch.float64)
    matrix = Operator(batch, curvature)(eye)
    torch.testing.assert_close(matrix, matrix.T)
    assert torch.linalg.eigvalsh(matrix - curvature.damp(eye))[0] > -1e-9
