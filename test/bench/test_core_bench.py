"""The within-model functions are what they say, and the core's benchmark judges by its own arithmetic."""

from typing import Any

import numpy as np
import pytest

from crbo_ros.bench.core import excess, inside_run, synthetic_run
from crbo_ros.bench.synthetic_functions import LENGTHSCALE, PEAK, START_DISTANCE, within_model
from crbo_ros.core import CRBO
from crbo_ros.core.kernels import KERNELS


@pytest.fixture(scope="module")
def function() -> Any:
    return within_model(2, seed=0)


def test_function_has_its_peak_value_and_start(function: Any) -> None:
    assert function(np.zeros((1, 2)))[0] == pytest.approx(PEAK)
    assert np.linalg.norm(function.theta_0 - function.optimum) == pytest.approx(START_DISTANCE)
    assert function.maximum >= PEAK - 1e-9


def test_gradient_is_the_derivative(function: Any) -> None:
    thetas, h = np.random.default_rng(0).uniform(-1.0, 1.0, (5, 2)), 1e-6
    numeric = np.stack([(function(thetas + h * e) - function(thetas - h * e)) / (2 * h) for e in np.eye(2)], axis=1)
    np.testing.assert_allclose(function.gradient(thetas), numeric, rtol=1e-5, atol=1e-6)


def test_no_point_of_a_fine_grid_beats_the_optimum(function: Any) -> None:
    grid = np.stack(np.meshgrid(*[np.linspace(-1.0, 1.0, 150)] * 2), axis=-1).reshape(-1, 2)
    assert function(grid).max() <= function.maximum + 1e-9


def test_features_have_the_kernels_covariance(function: Any) -> None:
    """The feature map's inner products against Matern-5/2: error of order 1/sqrt(m)."""
    x = np.linspace(0.0, 0.6, 7)[:, None] * np.array([[1.0, 0.0]])
    waves = np.cos(x @ function.frequencies.T + function.phases) * np.sqrt(2.0 / len(function.weights))
    wanted = KERNELS["matern52"].correlation(x[:, 0] ** 2 / LENGTHSCALE**2)
    np.testing.assert_allclose(waves @ waves[0], wanted, atol=0.1)


def test_excess_finds_a_point_outside_and_one_inside(function: Any) -> None:
    optimizer = CRBO(function.space, function.theta_0)
    for _ in range(4):
        proposal = optimizer.ask()
        optimizer.tell(proposal.id, float(function(proposal.theta[None])[0]))
    proposal = optimizer.ask()
    assert excess(optimizer, proposal.theta, proposal.gamma) <= 1e-6
    assert excess(optimizer, np.array([1.0, 1.0]) * -np.sign(function.theta_0), proposal.gamma) > 0.1


def test_runs_of_the_parts_give_their_metrics() -> None:
    checked = inside_run((2, 0.5, 0, 4))
    assert (checked["checked"], checked["outside"]) == (4, 0)
    result = synthetic_run(("x", "crbo", {}, 2, 6, 0))
    assert 0.0 <= result["regret"] <= result["half"]
    assert len(result["held"]) == 4  # all but theta_0, twice, carry a bound
