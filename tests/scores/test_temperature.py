"""The temperature of the passing batches: its derivatives against autograd, its steps by hand."""

import math

import pytest
import torch
import torch.nn.functional as F

from sgoif.scores.temperature import StreamingTemperature, nll_slope


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(40, 4, generator=generator, dtype=torch.float64)
    return logits, torch.randint(4, (40,), generator=generator)


def at(temperature: float) -> StreamingTemperature:
    found = StreamingTemperature(torch.float64)
    found.log_t = torch.tensor(math.log(temperature), dtype=torch.float64)
    return found


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_slope_is_the_derivative_in_log_t(batch, temperature):
    logits, labels = batch
    log_t = torch.tensor(math.log(temperature), dtype=torch.float64, requires_grad=True)
    (expected,) = torch.autograd.grad(F.cross_entropy(logits / log_t.exp(), labels), log_t)
    slope, curvature = nll_slope(logits, labels, temperature)
    torch.testing.assert_close(slope, expected)
    scaled = logits / temperature
    p = scaled.softmax(1)
    variance = (p * (scaled - (p * scaled).sum(1, keepdim=True)).square()).sum(1)  # Gauss-Newton: f' (diag p - pp') f
    torch.testing.assert_close(curvature, variance.mean())


def test_rows_that_are_not_finite_are_left_out(batch):
    logits, labels = batch
    spoiled = logits.clone()
    spoiled[3, 1], spoiled[5, 0] = torch.nan, torch.inf
    kept = torch.ones(40, dtype=torch.bool)
    kept[[3, 5]] = False
    for found, expected in zip(
        nll_slope(spoiled, labels, 1.0), nll_slope(logits[kept], labels[kept], 1.0), strict=True
    ):
        torch.testing.assert_close(found, expected)
    assert [float(v) for v in nll_slope(spoiled[[3, 5]], labels[:2], 1.0)] == [0, 0]


def test_a_step_is_a_share_of_newtons(batch):
    logits, labels = batch
    streaming = at(1.7)
    slope, curvature = nll_slope(logits, labels, 1.7)
    assert abs(slope / curvature) > 0.01 and abs(curvature - 1) > 0.1  # neither may stand for the other
    streaming.update(logits, labels, rate=0.02)
    expected = math.log(1.7) - 0.02 * (slope / curvature).item()
    assert streaming.log_t.item() == pytest.approx(expected, rel=1e-9)
    assert streaming.value.item() == pytest.approx(math.exp(expected))


def test_steps_and_temperatures_are_bounded(batch):
    _, labels = batch
    right, wrong = 50 * F.one_hot(labels, 4).double(), -50 * F.one_hot(labels, 4).double()
    for start, given, expected in (
        (1.0, right / 50, math.exp(-0.1)),  # sharper is better: down, by the largest step
        (1.0, wrong / 50, math.exp(0.1)),
        (0.051, right / 1000, 0.05),
        (19.9, wrong, 20.0),
    ):
        streaming = at(start)
        streaming.update(given, labels, rate=10.0)
        assert streaming.value.item() == pytest.approx(expected, rel=1e-6)
    calm = at(3.0)
    calm.update(torch.zeros(5, 4), torch.zeros(5, dtype=torch.long))  # no slope, no curvature
    assert calm.value.item() == pytest.approx(3.0)
    assert StreamingTemperature(torch.float64).value == 1
