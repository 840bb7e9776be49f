"""The stability controller by its formulas, on two or three anchors."""

import math

import pytest
import torch

from sgoif import InfluenceConfig
from sgoif.solvers.stability import MEDIAN_CHECKS, StabilityController


def controller(n_anchors: int = 3, **changes) -> StabilityController:
    return StabilityController(InfluenceConfig(**changes), n_anchors, n_examples=100, dtype=torch.float64)


def numbers(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def tolerance(kept: StabilityController, rate: float, norm: float, condition: float, decay: float = 0.0) -> float:
    kept.update_tolerance(rate, decay, torch.tensor(norm).double(), torch.tensor(condition).double())
    return kept.tolerance.item()


def test_a_fresh_controller_trusts_nothing():
    kept = controller()
    assert kept.step_size.tolist() == kept.residual.tolist() == kept.average.tolist() == [1, 1, 1]
    assert kept.confidence.tolist() == [0, 0, 0] and kept.tolerance == kept.largest_eigenvalue == 1
    assert kept.history.shape == (MEDIAN_CHECKS, 2) and kept.history.isnan().all()


def test_literal_tolerance_is_the_product():
    """beta = gamma1 lr G / n + gamma2 wd / n,   tau = kappa beta Gamma."""
    kept = controller(tolerance="literal", gamma1=3.0, gamma2=5.0, kappa=7.0)
    assert tolerance(kept, 0.2, 4.0, 6.0, decay=0.1) == pytest.approx(7 * (3 * 0.2 * 4 / 100 + 5 * 0.1 / 100) * 6)
    assert kept.history[-1].tolist() == pytest.approx([0.029, 6]) and kept.history[:-1].isnan().all()


def test_relative_tolerance_is_kappa_times_both_ratios_to_the_median():
    kept = controller(kappa=2.0)
    assert tolerance(kept, 1.0, 1.0, 1.0) == 2
    assert tolerance(kept, 1.0, 1.0, 1.0) == 2
    assert tolerance(kept, 1.5, 1.0, 1.25) == pytest.approx(2 * 1.5 * 1.25)
    assert tolerance(kept, 9.0, 1.0, 9.0) == pytest.approx(2 * 2 * 2), "either ratio is at most 2"
    calm = controller(kappa=2.0)
    for _ in range(3):
        tolerance(calm, 1.0, 1.0, 1.0)
    assert tolerance(calm, 0.01, 1.0, 1.0) == 1.0, "and at least a half"


def test_a_proxy_that_is_not_finite_is_the_last_one():
    kept = controller()
    tolerance(kept, 1.0, 2.0, 3.0)
    assert tolerance(kept, 1.0, math.nan, math.inf) == 2
    assert kept.history[-1].tolist() == kept.history[-2].tolist() == [0.02, 3.0]


def test_the_median_is_of_the_last_checks():
    kept = controller()
    for i in range(MEDIAN_CHECKS + 5):
        tolerance(kept, 1.0 + i, 1.0, 1.0)
    assert len(kept.history) == MEDIAN_CHECKS and kept.history[0, 0] == pytest.approx(0.06)


def test_step_sizes_halve_where_the_residual_grew_and_grow_where_it_is_calm():
    kept = controller()
    kept.residual, kept.step_size = numbers(0.5, 0.5, 0.5), numbers(0.4, 0.4, 0.9)
    kept.update_step_size(numbers(0.61, 0.6, 0.1), torch.tensor(1.9).double())  # more than 1.2 times, or not
    assert kept.step_size.tolist() == pytest.approx([0.2, 0.6, 1.0])
    assert kept.largest_eigenvalue.item() == pytest.approx(1.9)
    kept.update_step_size(numbers(0.1, math.nan, 0.1), torch.tensor(0.95).double())  # a factor of two: no calm
    assert kept.step_size.tolist() == pytest.approx([0.2, 0.3, 1.0])
    for _ in range(9):
        kept.update_step_size(numbers(9, 9, 9), torch.tensor(1.0).double())
    assert kept.step_size.tolist() == [2**-6] * 3


def test_confidence_is_what_the_tolerance_leaves():
    """c = clip(1 - R / tau, 0, 1), and 0 without a target."""
    kept = controller(5)
    kept.tolerance = torch.tensor(2.0).double()
    kept.update_confidence(numbers(0.5, 3.0, -1.0, math.nan, 0.5), torch.tensor([True, True, True, True, False]))
    assert kept.confidence.tolist() == [0.75, 0, 1, 0, 0]
    assert kept.residual.tolist() == [0.5, 3, -1, math.inf, 1]
    assert kept.average.tolist() == pytest.approx([0.95, 1.2, 0.8, 0.9 + 0.1 * 1000, 1.0])


def test_the_gates_of_the_ablations():
    usable = torch.tensor([True, False])
    moving = controller(2, gate="moving_average")
    moving.update_confidence(numbers(0.5, 0.5), usable)
    assert moving.confidence.tolist() == pytest.approx([1 - 0.5 / (2 * 0.95), 0])
    free = controller(2, gate="none")
    free.update_confidence(numbers(50.0, 0.5), usable)
    assert not free.gated and free.confidence.tolist() == [1, 0]
    assert moving.gated and controller(2).gated


def test_trust_weights_and_error():
    """t = min(1, c / 0.5); weights t^2 / sum t; error R sqrt(lambda_1) with lambda_1 at least 1."""
    kept = controller()
    kept.confidence, kept.residual = numbers(0.8, 0.25, 0.0), numbers(0.1, 0.2, 0.3)
    assert kept.trust().tolist() == [1, 0.5, 0]
    assert kept.anchor_weights().tolist() == pytest.approx([1 / 1.5, 0.25 / 1.5, 0])
    kept.largest_eigenvalue = torch.tensor(4.0).double()
    assert kept.relative_error().tolist() == pytest.approx([0.2, 0.4, 0.6])
    kept.largest_eigenvalue = torch.tensor(0.25).double()
    assert kept.relative_error().tolist() == pytest.approx([0.1, 0.2, 0.3])
    uniform = controller(weighting="uniform")
    assert uniform.anchor_weights().tolist() == pytest.approx([1 / 3] * 3)
    assert controller().anchor_weights().tolist() == [0, 0, 0]  # nothing is trusted: no direction, no division by 0
