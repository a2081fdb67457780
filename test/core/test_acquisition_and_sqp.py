"""Acquisitions have the gradients they claim; the polish stays feasible and reaches the optimum."""

from typing import Any

import numpy as np
import pytest

from crbo_ros.core import acquisition as acq
from crbo_ros.core.sqp import maximise

MEAN, SIGMA = np.array([-3.0, -0.4, 0.0, 0.7]), np.array([0.1, 0.5, 1.0, 0.3])
FUNCTIONS = {
    "ucb": lambda m, s: acq.ucb(m, s, 2.0),
    "ei": lambda m, s: acq.ei(m, s, 0.1),
    "log_ei": lambda m, s: acq.log_ei(m, s, 0.1),
    "pi": lambda m, s: acq.pi(m, s, 0.1),
    "mes": lambda m, s: acq.mes(m, s, np.array([0.9, 1.4])),
    "user": acq.from_user(lambda m, s: m * s + s**2),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_match_differences(name: Any) -> None:
    function, h = FUNCTIONS[name], 1e-6
    _, by_mean, by_sigma = function(MEAN, SIGMA)
    numeric_mean = (function(MEAN + h, SIGMA)[0] - function(MEAN - h, SIGMA)[0]) / (2 * h)
    numeric_sigma = (function(MEAN, SIGMA + h)[0] - function(MEAN, SIGMA - h)[0]) / (2 * h)
    np.testing.assert_allclose(by_mean, numeric_mean, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(by_sigma, numeric_sigma, rtol=1e-5, atol=1e-8)


def test_log_ei_is_the_log_of_ei_and_does_not_underflow() -> None:
    np.testing.assert_allclose(acq.log_ei(MEAN[1:], SIGMA[1:], 0.1)[0], np.log(acq.ei(MEAN[1:], SIGMA[1:], 0.1)[0]))
    value, slope, _ = acq.log_ei(np.array([-1e3]), np.array([1.0]), 0.0)
    assert np.isfinite(value).all()
    assert slope[0] > 0.0


@pytest.mark.parametrize("dim", [2, 20, 112])
def test_linear_objective_on_a_ball_reaches_its_boundary(dim: int) -> None:
    rng = np.random.default_rng(dim)
    g, centre, radius = rng.standard_normal(dim), np.full(dim, 0.5), 0.3

    def problem(x: Any) -> tuple[Any, ...]:
        z = x - centre
        return float(g @ z), g, radius**2 - float(z @ z), -2.0 * z

    result = maximise(problem, centre.copy(), radius=0.1)
    assert problem(result.x)[2] >= 0.0
    assert result.value == pytest.approx(radius * np.linalg.norm(g), rel=1e-4)


def test_quadratic_in_the_box_ends_at_the_clipped_optimum() -> None:
    target, weights = np.array([1.4, 0.3, -0.2, 0.8]), np.array([1.0, 5.0, 2.0, 0.3])

    def problem(x: Any) -> tuple[Any, ...]:
        return float(-weights @ (x - target) ** 2), -2.0 * weights * (x - target), 1.0, np.zeros(4)

    result = maximise(problem, np.full(4, 0.5), radius=0.2)
    np.testing.assert_allclose(result.x, np.clip(target, 0.0, 1.0), atol=2e-3)


def test_curved_constraint_and_bound_together() -> None:
    """Maximise x + y inside a disc that a face of the box cuts: the corner of disc and face."""
    centre, radius = np.array([0.9, 0.5]), 0.3

    def problem(x: Any) -> tuple[Any, ...]:
        z = x - centre
        return float(2.0 * x[0] + x[1]), np.array([2.0, 1.0]), radius**2 - float(z @ z), -2.0 * z

    result = maximise(problem, centre.copy(), radius=0.1)
    assert result.x[0] == pytest.approx(1.0, abs=1e-4)
    assert result.x[1] == pytest.approx(0.5 + np.sqrt(0.09 - 0.01), abs=1e-3)


def test_result_is_never_worse_than_the_start_nor_infeasible_for_rough_functions() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        a, b = rng.standard_normal(6) * 5, rng.standard_normal(6) * 3

        def problem(x: Any, a: Any = a, b: Any = b) -> tuple[Any, ...]:
            return (
                float(np.sin(a @ x * 4)),
                4 * a * np.cos(a @ x * 4),
                float(0.5 + np.cos(b @ x)),
                -b * np.sin(b @ x),
            )

        start = rng.random(6)
        if problem(start)[2] < 0.0:
            continue
        result = maximise(problem, start, radius=0.2)
        assert result.value >= problem(start)[0]
        assert problem(result.x)[2] >= 0.0
        assert np.all((result.x >= 0.0) & (result.x <= 1.0))
