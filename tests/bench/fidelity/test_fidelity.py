"""Retraining in batches, exact leave-one-out, the measures, and the files of a fidelity measurement."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from sgoif.bench.config.resolve import load_config
from sgoif.bench.config.schema import read_schema
from sgoif.bench.fidelity import cells, measure, truth
from sgoif.bench.fidelity import problem as problem_module
from sgoif.bench.fidelity.certificate import measure_certificate
from sgoif.bench.fidelity.methods import METHODS, Attribution, attribute
from sgoif.bench.fidelity.problem import AttributionProblem
from sgoif.bench.fidelity.retrain import NetworkRecipe, batch_order, forward, initial_layers, train_many
from sgoif.bench.fidelity.run import AnalysedRun, gradient_factors, gradient_products
from sgoif.bench.fidelity.table import build_fidelity_tables, write_fidelity_table
from sgoif.bench.figures.method import coverage
from sgoif.errors import UserError
from sgoif.utils.paths import ROOT
from tests.helpers.networks import blobs

RECIPE = NetworkRecipe(hidden=(6,), epochs=4, batch_size=20, lr=0.1, weight_decay=0.01)


@pytest.fixture(scope="module")
def problem() -> AttributionProblem:
    x, y = blobs(90, inputs=5, classes=3, dtype=torch.float32)
    labels = torch.where(torch.arange(60) % 8 == 0, (y[:60] + 1) % 3, y[:60])
    return AttributionProblem(x[:60], labels, y[:60], x[60:], y[60:], n_classes=3, recipe=RECIPE, seed=1)


def test_batched_training_is_sgd_of_torch(problem):
    """One of many networks, trained on everything, is the network that torch's optimiser trains."""
    run = AnalysedRun(problem)
    model = run.train()
    masks = torch.ones(3, problem.n)
    masks[0, :30] = 0
    layers = train_many(problem.x, problem.labels, 3, masks, RECIPE, problem.seed_of("run"), same_start=True)
    logits, _ = forward(layers, problem.target_x)
    torch.testing.assert_close(logits[1], model(problem.target_x).detach(), rtol=1e-4, atol=1e-5)
    assert (logits[0] - logits[1]).abs().max() > 0.01


def test_examples_outside_a_subset_do_not_count(problem):
    masks = torch.ones(1, problem.n)
    masks[0, 10:20] = 0
    changed = problem.labels.clone()
    changed[10:20] = (changed[10:20] + 1) % 3
    one, other = (train_many(problem.x, y, 3, masks, RECIPE, seed=3) for y in (problem.labels, changed))
    for (w, b), (v, c) in zip(one, other, strict=True):
        assert torch.equal(w, v) and torch.equal(b, c)


def test_networks_have_their_own_start_and_a_linear_model_starts_at_zero():
    generator = torch.Generator().manual_seed(0)
    weight, _ = initial_layers((5, 4, 3), 2, generator)[0]
    assert not torch.equal(weight[0], weight[1])
    assert not initial_layers((5, 3), 2, generator)[0][0].any()
    assert [len(b) for b in batch_order(50, RECIPE, generator)] == [20, 20, 10] * 4


def test_leave_one_out_of_logistic_regression_is_exact(problem):
    """Against refitting by L-BFGS without the example."""
    convex = problem.convex()
    found = truth.exact_leave_one_out(convex)
    everything = torch.arange(convex.n)
    before = _refitted_losses(convex, everything)
    for i in (0, 7, 31):
        change = _refitted_losses(convex, everything[everything != i]) - before
        torch.testing.assert_close(found[i], change, rtol=1e-3, atol=1e-7)


def _refitted_losses(problem, rows):
    x = F.pad(problem.x.double(), (0, 1), value=1.0)
    weights = torch.zeros(x.shape[1], 3, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=500, tolerance_grad=1e-11, tolerance_change=1e-15,
                                  line_search_fn="strong_wolfe")  # fmt: skip

    def closure():
        optimizer.zero_grad()
        decay = problem.recipe.weight_decay / 2 * weights.square().sum()
        loss = F.cross_entropy(x[rows] @ weights, problem.labels[rows]) + decay
        loss.backward()
        return loss

    optimizer.step(closure)
    targets = F.pad(problem.target_x.double(), (0, 1), value=1.0)
    return F.cross_entropy(targets @ weights.detach(), problem.target_y, reduction="none")


def test_lds_of_a_linear_truth_is_one_and_of_noise_is_about_zero():
    generator = torch.Generator().manual_seed(0)
    masks = (torch.rand(128, 40, generator=generator) < 0.5).double()
    effects = torch.randn(20, 40, generator=generator, dtype=torch.float64)
    outcome = masks @ effects.T
    perfect = measure.lds(effects, masks, outcome)
    assert perfect.value == pytest.approx(1) and perfect.error == pytest.approx(0, abs=1e-6)
    noise = measure.lds(torch.randn(20, 40, generator=generator), masks, outcome)
    assert abs(noise.value) < 4 * noise.error and 0.01 < noise.error < 0.2
    assert measure.lds(-effects, masks, outcome).value == pytest.approx(-1)


def test_standard_error_of_lds_is_that_of_repeated_draws():
    values, errors = [], []
    for seed in range(12):
        generator = torch.Generator().manual_seed(seed)
        masks = (torch.rand(128, 30, generator=generator) < 0.5).double()
        effects = torch.randn(1, 30, generator=generator, dtype=torch.float64)
        noisy = masks @ effects.T + 3 * torch.randn(128, 1, generator=generator, dtype=torch.float64)
        found = measure.lds(effects, masks, noisy)
        values.append(found.value)
        errors.append(found.error)
    assert 0.5 < torch.tensor(errors).mean() / torch.tensor(values).std() < 2


def test_ceiling_is_the_correlation_of_a_mean_of_repeats_with_the_signal():
    generator = torch.Generator().manual_seed(0)
    signal = torch.randn(4000, 4, generator=generator)
    margins = signal + torch.randn(2, 4000, 4, generator=generator)
    expected = torch.corrcoef(torch.stack([margins.mean(0)[:, 0], signal[:, 0]]))[0, 1]
    assert measure.ceiling(margins) == pytest.approx(float(expected), abs=0.03)
    assert measure.ceiling(margins[:1]) is None


def test_removal_counts_changed_predictions(problem):
    """Leaving out all examples of a target's class changes its prediction; leaving out none of them hardly ever."""
    own_class = (problem.true_labels[None] == problem.target_y[:, None]).double()
    tie_break = 1e-3 * torch.rand(own_class.shape, generator=torch.Generator().manual_seed(0))
    spec = {"removal_targets": 12, "removed": 22}
    most = measure.removal(own_class + tie_break, problem, spec)
    least = measure.removal(tie_break - own_class, problem, spec)
    assert most.value > least.value + 0.5


def test_gradient_products_are_those_of_autograd(problem):
    model = AnalysedRun(problem).model
    found = gradient_products(
        gradient_factors(model, problem.target_x[:2], problem.target_y[:2]),
        gradient_factors(model, problem.x[:3], problem.labels[:3]),
    )

    def gradient(x, y):
        loss = F.cross_entropy(model(x[None]), y[None])
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])

    by_hand = torch.stack(
        [
            torch.stack([gradient(problem.target_x[v], problem.target_y[v]) @ gradient(problem.x[i], problem.labels[i])
                         for i in range(3)])
            for v in range(2)
        ]
    )  # fmt: skip
    torch.testing.assert_close(found, by_hand)


@pytest.mark.parametrize("name", [name for name in METHODS if name not in ("trak", "ekfac")])
def test_methods_return_finite_effects_of_their_shape(name, problem):
    found = attribute(name, problem)
    assert found.effects.shape == (len(problem.target_y) if found.per_target else 1, problem.n)
    assert torch.isfinite(found.effects).all() and found.effects.std() > 0


def test_packages_rank_own_class_first(problem):
    """TRAK and EK-FAC: an example with the target's label supports it more than others do (sign and orientation)."""
    pytest.importorskip("trak")
    pytest.importorskip("kronfluence")
    same = problem.labels[None] == problem.target_y[:, None]
    for name in ("trak", "ekfac", "sgoif_all", "tracin", "inrun_shapley"):
        effects = attribute(name, problem).effects
        assert effects[same].mean() > effects[~same].mean(), name


SPEC = {
    "title": "Blobs", "dataset": "digits", "classes": [], "examples": 60, "targets": 30, "noise": 0.1, "hidden": [6],
    "epochs": 4, "batch_size": 20, "lr": 0.1, "weight_decay": 0.01, "subsets": 48, "repeats": 2, "leave_one_out": True,
    "removed": 5, "removal_targets": 5, "seeds": [0, 1], "methods": ["tracin", "sgoif_scores", "random"],
    "pool": "all", "model": "", "width": 8, "shift": 1, "flip": False, "precision": "float32", "settings": {},
    "certificates": {"6 epochs": {"epochs": 6}},
}  # fmt: skip


@pytest.fixture(scope="module")
def measured(problem, tmp_path_factory):
    """A measurement of two seeds with a method that fails, and the lines it logged."""
    run_dir, lines = tmp_path_factory.mktemp("run"), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cells, "build_problem", lambda root, spec, seed, device: replace(problem, seed=seed))
        spec = {**SPEC, "methods": [*SPEC["methods"], "trak"]}

        def without_trak(name, problem, settings):
            if name == "trak":
                raise UserError("traker is not installed")
            return attribute(name, problem, settings)

        patch.setattr(cells, "attribute", without_trak)
        for seed in spec["seeds"]:
            cells.measure_cells(run_dir, "", "blobs", spec, seed, "cpu", lines.append)
        first = list(lines)
        cells.measure_cells(run_dir, "", "blobs", spec, 0, "cpu", lines.append)
        again = lines[len(first) :]
        longer = {**spec, "removed": 6}
        cells.measure_cells(run_dir, "", "other", longer, 0, "cpu", lines.append)
    return run_dir, spec, first, again


def test_cells_are_kept_and_failures_are_tried_again(measured):
    _, _, first, again = measured
    assert first[0] == "retraining 2 x 48 networks" and "tracin" in first
    assert "certificate of 2 problems" in first
    assert again == ["trak", "trak failed: traker is not installed"]


def test_changed_settings_are_measured_again(measured):
    run_dir = measured[0]
    one, other = (json.loads((cells.folder(run_dir, n, 0) / "tracin.json").read_text()) for n in ("blobs", "other"))
    assert one["key"] != other["key"]


def test_table_shows_errors_ceiling_and_the_reason_of_a_failure(measured):
    run_dir, spec, _, _ = measured
    config = {"fidelity": {"blobs": spec}}
    [table] = build_fidelity_tables(run_dir, config)
    block, intervals, measures = table.blocks
    assert [row.title for row in intervals.rows] == ["as above", "6 epochs", "all of them"]
    coverage = [entry.mean for entry in intervals.rows[-1].entries[:5]]
    assert coverage == sorted(coverage) and coverage[3] > 0.8
    assert measures.rows[0].title == "confidence"
    assert measures.rows[0].entries[1].mean is None  # too few runs to correlate them
    rows = {row.title: row.entries for row in block.rows}
    columns = [column.metric for column in block.columns]
    lds = columns.index("lds")
    assert rows["TracIn"][lds].std > 0 and rows["TracIn"][lds].n_seeds == 2
    assert rows["TRAK, one checkpoint"][lds].status == "failed" and table.notes == ["traker is not installed"]
    assert rows["SG-OIF scores for wrong labels"][lds].mean is None
    assert 0 <= rows["ceiling"][lds].mean <= 1
    assert "loo_network" in columns
    text = write_fidelity_table(run_dir, config)[0].read_text()
    assert "failed [1]" in text and "Fidelity to retraining" in text


def test_table_of_a_missing_measurement_is_refused(tmp_path):
    with pytest.raises(UserError, match="missing"):
        build_fidelity_tables(tmp_path, {"fidelity": {"blobs": SPEC}})
    assert build_fidelity_tables(tmp_path, {}) == []


def test_schema_names_the_methods():
    items = read_schema()["$defs"]["fidelity"]["properties"]["methods"]["items"]
    assert items["enum"] == list(METHODS)


def test_configurations_have_measurements_and_a_selection_has_none():
    assert load_config(ROOT / "configs/fidelity.yaml")["fidelity"]["digits"]["repeats"] == 2
    whole = load_config(ROOT / "configs/embedded.yaml")
    assert whole["fidelity"]["digits"]["methods"][0] == "sgoif_all"
    assert "fidelity" not in load_config(ROOT / "configs/embedded.yaml", select={"methods": ["loss"]})


def test_unsuitable_measurements_leave_out_what_they_cannot_answer(problem, tmp_path):
    """Scores of all targets together have neither an LDS of one prediction nor a removal."""
    found = truth.compute_truth(problem, {**SPEC, "leave_one_out": False, "repeats": 1}, tmp_path)
    together = Attribution(torch.randn(1, problem.n), 0.0, 0.0, per_target=False)
    assert set(measure.measure(together, None, problem, found, SPEC)) == {"lds_mean", "passes", "seconds"}


def test_certificate_knows_the_exact_influence(problem):
    """Scores follow the exact answer; the interval is narrower than the paper's and still holds it."""
    found = measure_certificate(replace(problem, recipe=replace(RECIPE, epochs=20)))
    assert found["correlation"] > 0.9
    assert found["width"] < found["paper_width"] / 3
    assert found["coverage"][3] > 0.8 and found["paper_coverage"] > 0.99
    assert abs(found["bias"]) <= 1 and set(found["ranks"]) == set(found["right"])


def test_spearman_knows_ties():
    from scipy.stats import spearmanr

    a, b = [1.0, 2.0, 2.0, 3.0, 0.0], [2.0, 1.0, 1.0, 5.0, 4.0]
    assert measure.spearman(a, b) == pytest.approx(spearmanr(a, b).statistic)
    assert measure.spearman(a, [1.0] * 5) == 0
    columns = measure.rank_correlation(torch.tensor([a, a]).T, torch.tensor([b, [1.0] * 5]).T)
    assert columns.tolist() == [pytest.approx(spearmanr(a, b).statistic), 0]


def test_scores_that_are_all_alike_have_no_lds():
    masks, outcome = torch.eye(40).repeat(2, 1), torch.arange(80.0)[:, None].repeat(1, 3)
    assert measure.lds(torch.zeros(3, 40), masks, outcome).value == 0


def test_the_pools_have_no_image_in_common():
    rows = np.arange(21)
    first, second = (problem_module._pool(rows, name) for name in ("first", "second"))
    assert sorted([*first, *second]) == rows.tolist() and problem_module._pool(rows, "all") is rows


def test_figure_of_the_intervals(measured):
    run_dir, spec, _, _ = measured
    data = SimpleNamespace(run_dir=run_dir, config={"fidelity": {"blobs": spec}})
    assert coverage.subjects(data.config) == ["blobs"]
    figure = coverage.draw("blobs", data)
    left, right = figure.axes
    assert [line.get_ydata()[0] <= line.get_ydata()[-1] for line in left.lines] == [True] * 4
    assert [label.get_text() for label in right.get_yticklabels()] == ["6 epochs", "as above"]
    assert coverage.draw("blobs", SimpleNamespace(run_dir=run_dir / "none", config=data.config)) is None
