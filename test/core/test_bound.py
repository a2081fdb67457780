"""The worst case: its formula, its monitor, and that it holds."""

import math

import numpy as np
import pytest

from crbo_ros.core.bound import Calibrated, Coverage, LipschitzBound, cones, observed_slope, worst_case
from crbo_ros.core.gaussian_process import GaussianProcess, Standardizer
from crbo_ros.core.hyperparameters import default_hyperparameters
from crbo_ros.core.kernels import kernel


def test_worst_case_is_the_best_of_all_cones() -> None:
    X, y = np.array([[0.0, 0.0], [0.5, 0.0]]), np.array([1.0, 2.0])
    value, index, distance = worst_case(np.array([0.2, 0.0]), X, y, 0.1, 2.0)
    assert value == pytest.approx(2.0 - 0.1 - 2.0 * 0.3)
    assert index == 1
    assert distance == pytest.approx(0.3)


def test_observed_slope_ignores_noise_and_duplicates() -> None:
    X, y = np.array([[0.0], [0.0], [0.5]]), np.array([0.0, 9.0, 1.0])
    assert observed_slope(X[[0, 2]], y[[0, 2]], 0.0) == pytest.approx(2.0)
    assert observed_slope(X[[0, 2]], y[[0, 2]], 0.6) == pytest.approx(0.8)
    assert observed_slope(X[:2], y[:2], 0.0) == 0.0


def test_a_steeper_observation_than_the_model_believes_counts() -> None:
    model = GaussianProcess(kernel("se"), 1, default_hyperparameters(1))
    model.h = np.log([5.0, 1e-2, 1e-4])  # a model that believes in a gentle slope
    X, y = np.array([[0.4], [0.5]]), np.array([0.0, 3.0])
    model.condition(X, y)
    worst = LipschitzBound(model, Standardizer(), X, y, kernel("se"), scale=1e-3)
    assert worst.at(np.array([0.45])).source == "observed slope"
    assert worst.at(np.array([0.45])).lipschitz == pytest.approx((3.0 - worst.noise) / 0.1)


def test_score_without_bounds_is_nan() -> None:
    score = Coverage()
    score.add(math.nan, 1.0)
    assert math.isnan(score.coverage)


def test_cones_at_many_points_are_the_worst_case_without_noise_at_each() -> None:
    rng = np.random.default_rng(0)
    X, y, points = rng.random((7, 3)), rng.standard_normal(7), rng.random((5, 3))
    values, rows, distances = cones(points, X, y, 2.0)
    for point, *found in zip(points, values, rows, distances, strict=True):
        assert found == pytest.approx(worst_case(point, X, y, 0.0, 2.0))


@pytest.mark.parametrize("rate", [0.02, 0.05, 0.1])
def test_a_calibrated_constant_is_missed_as_often_as_it_should_be(rate: float) -> None:
    """Slopes by any distribution: bounds that rest on L are missed with about that rate."""
    rng, calibrated, missed = np.random.default_rng(1), Calibrated(rate), 0
    calibrated.begin(1.0)
    for _ in range(2000):
        miss = float(np.exp(rng.standard_normal())) > calibrated.value
        calibrated.learn(miss)
        missed += miss
    assert missed / 2000 == pytest.approx(rate, rel=0.25)


def test_a_calibrated_constant_stays_within_its_range_and_above_the_users_own() -> None:
    calibrated = Calibrated(0.05, floor=0.5)
    assert math.isnan(calibrated.value)
    assert calibrated.or_first(3.0) == 3.0
    calibrated.begin(2.0)
    calibrated.begin(9.0)
    for _ in range(50):
        calibrated.learn(True)
    assert calibrated.value == pytest.approx(100.0)
    for _ in range(1000):
        calibrated.learn(False)
    assert calibrated.value == 0.5
