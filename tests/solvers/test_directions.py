"""One solver step, the need of a refinement and the combined direction, on systems of three unknowns."""

from types import SimpleNamespace

import pytest
import torch

from sgoif import InfluenceConfig
from sgoif.solvers.directions import Directions, Images, Measured, Systems
from sgoif.solvers.sketch import Sketch
from sgoif.solvers.stability import StabilityController

DIAGONAL = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)
TARGETS = torch.tensor([[1.0, 2.0, 3.0], [3.0, -1.0, 2.0]], dtype=torch.float64)


def directions(n_anchors: int = 2, **changes) -> Directions:
    config = InfluenceConfig(**{"rank": 1, "hvp_budget": 1000.0, **changes})
    return Directions(config, n_anchors, 3, torch.float64, n_classes=2)


def controller(kept: Directions, step_size: float = 1.0) -> StabilityController:
    made = StabilityController(kept.config, len(kept.phi), 100, torch.float64)
    made.step_size = torch.full_like(made.step_size, step_size)
    return made


def systems(precondition=lambda v: v / 8) -> Systems:
    return Systems(TARGETS, lambda v: v * DIAGONAL, precondition)


def images(eigenvalues: list[float], sketch: Sketch | None = None) -> Images:
    nothing = torch.zeros(2, 3, dtype=torch.float64)
    return Images(nothing, nothing, nothing, sketch, torch.tensor(eigenvalues, dtype=torch.float64))


def step(kept: Directions, seen: Images, step_size: float = 1.0) -> torch.Tensor:
    residual = TARGETS - kept.phi * DIAGONAL
    return kept._solver_step(systems(), seen, residual, controller(kept, step_size))


def test_nothing_is_refined_before_a_check_has_asked_for_it():
    kept = directions()
    assert not kept._refinement_was_needed() and kept.hvps == 0
    assert kept.certificate.tolist() == [0, 1] and kept.events.tolist() == [0, 0]
    assert (kept.phi == 0).all() and (kept.delta == 0).all() and (kept.scoring_direction == 0).all()
    torch.testing.assert_close(kept.subspace @ kept.subspace.T, torch.ones(1, 1, dtype=torch.float64))


@pytest.mark.parametrize(("largest", "safe"), [(4.0, 0.25), (1.5, 1 / 1.5), (0.2, 1.0)])
def test_without_a_sketch_a_step_is_safe_for_the_largest_eigenvalue(largest, safe):
    kept = directions()
    kept.phi = torch.ones(2, 3, dtype=torch.float64)
    residual = TARGETS - DIAGONAL
    torch.testing.assert_close(step(kept, images([largest]), 0.5), 1 + 0.5 * safe * residual / 8)


@pytest.mark.parametrize(("smallest", "safe"), [(4.0, 0.25), (1.5, 1 / 1.5), (0.2, 1.0)])
def test_with_a_sketch_its_space_is_solved_and_the_rest_is_stepped_by_the_last_eigenvalue(smallest, safe):
    """The sketch knows the third unknown exactly; of the others one Richardson step is made."""
    kept = directions()
    row = torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64)
    found = step(kept, images([9.0, smallest], Sketch(row, 4 * row)))
    torch.testing.assert_close(found[:, 2], TARGETS[:, 2] / 4)
    torch.testing.assert_close(found[:, :2], safe * TARGETS[:, :2] / 8)


def test_steps_of_the_other_solvers():
    ungated = directions(gate="none")
    torch.testing.assert_close(step(ungated, images([4.0])), 0.5 * TARGETS / 8)
    direct = directions(solver="direct")
    direct.phi, direct.delta = TARGETS.clone(), torch.ones(2, 3, dtype=torch.float64)
    torch.testing.assert_close(step(direct, images([4.0])), TARGETS - 1)
    exact = directions(solver="pcg", refine_steps=3)
    torch.testing.assert_close(step(exact, images([4.0])), TARGETS / DIAGONAL)
    series = directions(solver="neumann", depth=1)
    first = 0.25 * TARGETS / 8
    torch.testing.assert_close(step(series, images([4.0])), first + first - 0.25 * first * DIAGONAL / 8)


def test_an_anchor_needs_refinement_by_its_reach_and_its_doubt():
    """Reaches 2, 4 and 8 over their median 4; confidences 0, 0.25 and 0.5, which is enough."""
    kept = directions(3)
    kept.phi = torch.eye(3, dtype=torch.float64)
    judge = controller(kept)
    judge.confidence = torch.tensor([0.0, 0.25, 0.5], dtype=torch.float64)
    probe = torch.tensor([[1.0, -4.0, 2.0], [-2.0, 3.0, 8.0]], dtype=torch.float64)
    operator = SimpleNamespace(probe_dot=lambda rows: probe @ rows.T)
    assert kept._refinement_need(operator, judge).tolist() == [0.5, 0.75, 0]


def test_only_what_needs_it_is_refined():
    kept = directions(refine_steps=3)
    kept.schedule.refine_slots = 2
    phi = torch.zeros(2, 3, dtype=torch.float64)
    need = torch.tensor([0.4, 0.5], dtype=torch.float64)  # from FULL_CONFIDENCE on
    found = kept._refine(systems(), None, phi, need)
    assert (found[0] == 0).all() and kept.events.tolist() == [0, 1]
    torch.testing.assert_close(found[1], TARGETS[1] / DIAGONAL)
    kept.schedule.refine_slots = 1
    torch.testing.assert_close(kept._refine(systems(), None, phi, need + 1)[0], phi[0])  # one place: the greatest need


def test_the_certificate_is_the_mean_by_confidence():
    """Confidences 0.75 and 0.25 of residuals 0.5 and 1.5 at tolerance 2."""
    kept = directions()
    kept.delta = torch.ones(2, 3, dtype=torch.float64)
    judge = controller(kept)
    judge.tolerance = torch.tensor(2.0).double()
    residual = torch.tensor([0.5, 1.5], dtype=torch.float64)
    kept._certify(Measured(TARGETS, TARGETS, residual, torch.tensor([True, True])), torch.ones(2), judge)
    torch.testing.assert_close(kept.phi, TARGETS + 1)
    weights = torch.tensor([1 / 1.5, 0.25 / 1.5], dtype=torch.float64)
    torch.testing.assert_close(kept.scoring_direction, weights[None] @ kept.phi)
    assert kept.certificate.tolist() == pytest.approx([0.75**2 + 0.25**2, 0.75 * 0.5 + 0.25 * 1.5])
    kept._certify(
        Measured(TARGETS, TARGETS, residual + 5, torch.tensor([True, True])), torch.ones(2), judge
    )  # nothing is trusted
    assert kept.certificate.tolist() == [0, 6.5] and (kept.scoring_direction == 0).all()
    kept._certify(Measured(TARGETS, TARGETS, residual * 1e9, torch.tensor([True, True])), torch.ones(2), judge)
    assert kept.certificate.tolist() == [0, 1e6]


def test_the_subspace_follows_what_is_finite():
    kept = directions()
    rows = torch.tensor([[0.0, 3.0, 4.0]], dtype=torch.float64)
    assert kept._move_subspace(rows).tolist() == pytest.approx([5.0])
    torch.testing.assert_close(kept.subspace.abs(), rows / 5)
    before = kept.subspace.clone()
    assert kept._move_subspace(rows * torch.nan).tolist() == [1.0] and torch.equal(kept.subspace, before)
