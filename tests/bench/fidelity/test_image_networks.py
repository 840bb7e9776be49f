"""Convolutional networks in a fidelity measurement: retraining in one memory, shared halves, gradients, the table."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from sgoif.bench.fidelity import cells, truth
from sgoif.bench.fidelity.image_networks import ImageTraining, SubsetTrainer, retrain_images
from sgoif.bench.fidelity.methods import METHODS, attribute
from sgoif.bench.fidelity.problem import AttributionProblem
from sgoif.bench.fidelity.retrain import NetworkRecipe
from sgoif.bench.fidelity.run import AnalysedRun, gradient_factors, gradient_products
from sgoif.bench.fidelity.table import write_fidelity_table
from sgoif.errors import UserError
from sgoif.training.images import ImageSet
from sgoif.training.models import tiny_cnn
from sgoif.training.recipe import Recipe

SPEC = {
    "title": "Squares", "dataset": "digits", "classes": [], "examples": 48, "targets": 12, "noise": 0.0, "hidden": [],
    "epochs": 3, "batch_size": 12, "lr": 0.1, "weight_decay": 5e-4, "subsets": 20, "repeats": 1, "leave_one_out": False,
    "removed": 5, "removal_targets": 0, "seeds": [0], "methods": ["tracin", "random"],
    "pool": "all", "model": "tiny_cnn", "width": 8, "shift": 1, "flip": True, "precision": "float32", "settings": {},
    "certificates": {},
}  # fmt: skip


@pytest.fixture(scope="module")
def problem() -> AttributionProblem:
    """Bright squares at two places: two classes."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(60) % 2
    pixels = torch.randint(0, 120, (60, 8, 8, 1), generator=generator, dtype=torch.uint8)
    pixels[y == 1, 4:] += 100
    images = ImageSet(pixels, [0.3], [0.2])
    recipe = Recipe(model="tiny_cnn", epochs=3, batch_size=12, lr=0.1, shift=1, flip=True)
    training = ImageTraining(images.subset(torch.arange(48)), y[:48], 2, recipe, width=8)
    x = images.batch(torch.arange(60))
    shape = NetworkRecipe((), recipe.epochs, recipe.batch_size, recipe.lr, recipe.weight_decay)
    return AttributionProblem(x[:48], y[:48], y[:48], x[48:], y[48:], 2, shape, seed=0, images=training)


def test_a_second_training_does_not_remember_the_first(problem):
    first, second = torch.arange(24), torch.arange(24, 48)
    used, fresh = (SubsetTrainer(problem.images, 24) for _ in range(2))
    used.train(first, seed=1)
    before = used.logits(problem.target_x)
    used.train(second, seed=2)
    fresh.train(second, seed=2)
    assert torch.equal(used.logits(problem.target_x), fresh.logits(problem.target_x))
    assert not torch.equal(before, used.logits(problem.target_x))


def test_the_analysed_run_is_the_training_that_retraining_repeats(problem):
    model = AnalysedRun(problem).train()
    trainer = SubsetTrainer(problem.images, problem.n)
    trainer.train(torch.arange(problem.n), problem.seed_of("run"))
    for name, value in trainer.learner.net.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], value, rtol=1e-3, atol=1e-5)


def test_halves_are_shared_between_processes(problem, tmp_path):
    for worker in range(2):
        truth.train_halves(problem, SPEC, tmp_path / "two", worker, workers=2)
    assert len(truth.missing_files(SPEC, tmp_path / "two")) == 0
    truth.train_halves(problem, SPEC, tmp_path / "late", go_on=lambda: False)
    assert len(truth.missing_files(SPEC, tmp_path / "late")) == 3
    found = truth.compute_truth(problem, SPEC, tmp_path / "two")
    masks = torch.tensor(found["masks"])
    seed = problem.seed_of("halves") + 10**9
    alone, _ = retrain_images(problem.images, masks[9:10], [seed + 9], problem.target_x, problem.target_y)
    np.testing.assert_allclose(found["margins"][0, 9], alone[0].numpy(), rtol=1e-5)
    assert found["margins"].shape == (1, 20, 12) and "convex" not in found


def test_gradient_products_of_convolutions_are_those_of_autograd():
    torch.manual_seed(0)
    model = tiny_cnn(3, 1, 8)
    model(torch.randn(20, 1, 8, 8))  # statistics of the norms
    model.eval()
    x, y = torch.randn(5, 1, 8, 8), torch.tensor([0, 1, 2, 0, 1])
    found = gradient_products(gradient_factors(model, x[:2], y[:2]), gradient_factors(model, x[2:], y[2:]))
    layers = [p for name, p in model.named_parameters() if p.dim() > 1 or name == "head.bias"]

    def gradient(i):
        loss = F.cross_entropy(model(x[i : i + 1]), y[i : i + 1])
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, layers)])

    rows = torch.stack([gradient(i) for i in range(5)])
    torch.testing.assert_close(found, rows[:2] @ rows[2:].T)


@pytest.mark.parametrize(
    "name",
    [
        "sgoif_all",
        "tracin",
        "inrun_shapley",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("trak", "ekfac")),
    ],
)
def test_an_example_supports_its_own_class(name, problem):
    for package in {"trak": ["trak"], "ekfac": ["kronfluence"]}.get(name, []):
        pytest.importorskip(package)
    effects = attribute(name, problem, {"regulariser": 1.0} if name == "trak" else {}).effects
    same = problem.labels[None] == problem.target_y[:, None]
    assert effects[same].mean() > effects[~same].mean()


def test_table_has_the_residuals_of_each_scope(problem, tmp_path, monkeypatch):
    monkeypatch.setattr(cells, "build_problem", lambda root, spec, seed, device: replace(problem, seed=seed))
    lines = []
    for _ in range(2):
        cells.measure_cells(tmp_path, "", "squares", SPEC, 0, "cpu", lines.append)
    assert lines.count("residuals") == 1 and lines.count("tracin") == 1
    text = write_fidelity_table(tmp_path, {"fidelity": {"squares": SPEC}})[0].read_text()
    assert "scope all" in text and "tiny_cnn, 3 epochs" in text and "leave one out" not in text


def test_settings_that_a_method_does_not_have_are_refused(problem):
    with pytest.raises(UserError, match="settings of tracin"):
        attribute("tracin", problem, {"dimension": 3})
    with pytest.raises(UserError, match="linear layers"):
        METHODS["sgoif_blocks"].attribute(problem)
