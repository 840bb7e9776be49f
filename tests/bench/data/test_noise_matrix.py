import numpy as np
import pytest
from cleanlab.benchmarking.noise_generation import generate_noise_matrix_from_trace
from hypothesis import given, settings
from hypothesis import strategies as st

from sgoif.bench.data.noise.matrix import noise_matrix


def oracle(k: int, trace: float, frac_zero: float, seed: int) -> np.ndarray:
    return generate_noise_matrix_from_trace(
        k, trace, valid_noise_matrix=False, frac_zero_noise_rates=frac_zero, seed=seed
    )


@pytest.mark.parametrize("trace", [8, 6, 3])
@pytest.mark.parametrize("frac_zero", [0.0, 0.2, 0.4, 0.6])
def test_the_twelve_published_settings_bit_for_bit(trace, frac_zero):
    ours = noise_matrix(10, trace, frac_zero, seed=0)
    assert np.array_equal(ours, oracle(10, trace, frac_zero, 0))
    assert (ours == 0).sum() == round(90 * frac_zero)


def test_published_diagonals():
    """The numbers printed with the published files: the oracle itself could change."""
    printed = {
        8: [0.53, 0.84, 0.62, 0.97, 0.93, 0.70, 0.92, 0.92, 0.90, 0.67],
        6: [0.40, 0.63, 0.46, 0.40, 0.71, 0.52, 0.29, 0.68, 0.93, 0.98],
        3: [0.20, 0.32, 0.23, 0.20, 0.14, 0.26, 0.14, 0.56, 0.83, 0.12],
    }
    for trace, diagonal in printed.items():
        assert noise_matrix(10, trace, 0.4, 0).diagonal().round(2).tolist() == diagonal


@settings(max_examples=150, deadline=None)
@given(k=st.integers(3, 15), share=st.floats(0.02, 0.99), sparse=st.floats(0, 1), seed=st.integers(0, 2**32 - 1))
def test_any_setting_bit_for_bit_and_stochastic(k, share, sparse, seed):
    trace, frac_zero = k * share, sparse * (k - 2) / (k - 1)
    ours = noise_matrix(k, trace, frac_zero, seed)
    assert np.array_equal(ours, oracle(k, trace, frac_zero, seed))
    assert np.allclose(ours.sum(0), 1) and np.isclose(np.trace(ours), trace)
    assert ours.min() > -1e-5 and ours.max() < 1 + 1e-5


@settings(max_examples=30, deadline=None)
@given(trace=st.floats(1.0, 2.0), frac_zero=st.sampled_from([0.0, 0.3, 0.5]), seed=st.integers(0, 99))
def test_two_classes(trace, frac_zero, seed):
    ours = noise_matrix(2, trace, frac_zero, seed)
    assert np.array_equal(ours, oracle(2, trace, frac_zero, seed)) and np.allclose(ours.sum(0), 1)


def test_a_hundred_classes():
    assert np.array_equal(noise_matrix(100, 80, 0.5, 7), oracle(100, 80, 0.5, 7))


def test_the_global_generator_is_left_alone():
    np.random.seed(5)
    before = np.random.get_state()[1].copy()
    noise_matrix(10, 8, 0.4, 0)
    assert np.array_equal(before, np.random.get_state()[1])
