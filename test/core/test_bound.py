"""The worst case: its formula, its monitor, and that it holds."""

import math

import numpy as np
import pytest

from crbo_ros.core.bound import (
    Beliefs,
    Calibrated,
    Coverage,
    LipschitzBound,
    believe,
    cones,
    first_scale,
    least_scale,
    observed_slope,
    signal_bound,
    worst_case,
)
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


def conditioned(y: np.ndarray, outputs: Standardizer) -> tuple[GaussianProcess, np.ndarray]:
    """A process with lengthscales .5 and .8, signal variance 2, noise variance .04, and where y was seen."""
    model = GaussianProcess(kernel("se"), 2, default_hyperparameters(2), ard=True)
    model.h = np.log([0.5, 0.8, 2.0, 0.04])
    X = np.array([[0.2, 0.3], [0.7, 0.4], [0.5, 0.9]])[: len(y)]
    model.condition(X, outputs.to(y))
    return model, X


def slope_of_the_mean(model: GaussianProcess, x: np.ndarray) -> float:
    """By differences, in the targets' units."""
    step = 1e-6 * np.eye(2)
    return math.hypot(*(float(np.diff(model.posterior(np.array([x - e, x + e]))[0])[0]) / 2e-6 for e in step))


def test_the_bound_is_its_formula_in_the_returns_units() -> None:
    outputs, y, x = Standardizer(centre=10.0, scale=4.0), np.array([9.0, 12.0, 10.5]), np.array([0.4, 0.5])
    model, X = conditioned(y, outputs)
    bound = LipschitzBound(model, outputs, X, y, kernel("se"), scale=1e-3)
    noise = 2.0 * math.sqrt(2.0) * 4.0 * 0.2
    assert bound.noise == pytest.approx(noise)
    assert bound.steepest(X[:1]) == pytest.approx(4.0 * max(slope_of_the_mean(model, one) for one in X), rel=1e-4)
    steepest = 4.0 * max(slope_of_the_mean(model, one) for one in (*X, x))
    margin = 2.0 * math.sqrt(kernel("se").slope_variance) * 4.0 * math.sqrt(2.0) / math.sqrt(0.5 * 0.8)
    found = bound.at(x)
    assert found.lipschitz == pytest.approx(steepest + margin, rel=1e-4)
    assert found.source == "gradient bound"
    distances = np.linalg.norm(X - x, axis=1)
    assert found.value == pytest.approx(np.max(y - noise - found.lipschitz * distances))
    assert found.nearest == 1
    assert found.distance == pytest.approx(distances[1])


def test_before_returns_show_their_spread_the_users_scale_divided_by_their_number_is_believed() -> None:
    unit = Standardizer()
    for n, source in ((1, "prior"), (2, "gradient bound")):
        y = np.full(n, 3.0)
        model, X = conditioned(y, unit)
        bound = LipschitzBound(model, unit, X, y, kernel("se"), scale=500.0)
        margin = 2.0 * math.sqrt(kernel("se").slope_variance) * (500.0 / n) / math.sqrt(0.5 * 0.8)
        lipschitz, said = bound.lipschitz(X[0])
        assert lipschitz - bound.steepest(X[:1]) == pytest.approx(margin)
        assert said == source


def test_the_users_own_constant_replaces_what_the_model_believes() -> None:
    model, X = conditioned(np.array([0.0, 5.0]), Standardizer())
    bound = LipschitzBound(model, Standardizer(), X, np.array([0.0, 5.0]), kernel("se"), lipschitz=0.25)
    assert bound.lipschitz(X[0]) == (0.25, "user")


def test_beliefs_are_in_the_returns_units() -> None:
    outputs, y = Standardizer(centre=10.0, scale=4.0), np.array([9.0, 12.0, 10.5])
    model, X = conditioned(y, outputs)
    mean, variance = model.posterior(X)
    found = Beliefs.of(model, outputs, X)
    assert found.mean == pytest.approx(10.0 + 4.0 * mean)
    assert found.sigma == pytest.approx(4.0 * np.sqrt(variance))
    assert found.noise == pytest.approx(4.0 * 0.2)
    assert believe(model, X[:0], y[:0]).noise == 0.0
    fitted = believe(model, X, y)
    assert fitted.mean == pytest.approx(y, abs=3.0 * fitted.noise + 1.0)
    assert fitted.X is X


def test_a_bound_that_is_met_exactly_held_and_one_that_is_not_there_does_not_count() -> None:
    score = Coverage()
    score.add(math.nan, 1.0)
    assert math.isnan(score.coverage)
    score.add(1.0, 1.0)
    score.add(1.0, 0.9)
    assert (score.held, score.count, score.coverage) == (1, 2, 0.5)


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


def test_a_signals_worst_case_is_the_nearest_value_and_grows_with_the_distance() -> None:
    X, values = np.array([[0.0], [0.0], [1.0]]), np.array([1.0, 1.2, 1.5])
    assert signal_bound(X[0], X, values, limit=2.0) == pytest.approx(1.0), "where it was measured, what was measured"
    near, far = (signal_bound(np.array([x]), X, values, limit=2.0) for x in (1.2, 2.0))
    assert 1.5 < near < far
    first = np.array([1.0])
    assert signal_bound(np.array([0.5]), X[:1], first, limit=2.0) == pytest.approx(2.0), (
        "at first it may reach the limit"
    )
    low = signal_bound(np.array([0.5]), X[:1], np.array([5.0]), limit=2.0)
    assert low == pytest.approx(5.002), "a signal beyond its limit still has a slope"
    surprised = signal_bound(np.array([2.0]), X, np.array([1.0, 1.2, 9.0]), limit=2.0)
    calm = signal_bound(np.array([2.0]), X, np.array([1.0, 1.2, 1.0]), limit=2.0)
    assert surprised > calm + 1.0, "a worst case that was exceeded makes the next ones wider"


def test_a_signals_constant_learns_from_each_value_what_the_bound_before_it_was_worth() -> None:
    """By hand: L begins at (limit - s_0) / distance of the first other policy and moves with each miss and hit."""
    X, values, limit, x = np.array([[0.0], [0.5], [0.7], [0.8]]), np.array([1.0, 2.5, 4.0, 1.6]), 2.0, np.array([1.0])
    log, L = 0.0, (limit - 1.0) / 0.5
    for i in (1, 2, 3):
        bound = min(values[j] + L * math.exp(log) * abs(X[i, 0] - X[j, 0]) for j in range(i))
        log += 0.6 * ((values[i] > bound) - 0.05)
    expected = min(values[j] + L * math.exp(log) * abs(1.0 - X[j, 0]) for j in range(4))
    assert signal_bound(x, X, values, limit) == pytest.approx(expected)
    assert log == pytest.approx(0.6 * (2.0 - 0.15)), "two misses in three"
    met = np.array([1.0, 2.0])  # exactly where the first bound said it may come to lie
    assert signal_bound(np.array([1.0]), X[:2], met, limit) == pytest.approx(
        min(1.0 + 2.0 * math.exp(-0.03), 2.0 + math.exp(-0.03))
    )


def test_what_is_assumed_before_returns_show_their_spread() -> None:
    assert first_scale(np.array([]), None) == 1.0
    assert first_scale(np.array([0.0, 5.0]), None) == 1.0
    assert first_scale(np.array([-3.0, 5.0]), None) == 3.0
    assert first_scale(np.array([-3.0]), 7.0) == 7.0
    assert least_scale(np.array([-3.0, -3.0]), None) == pytest.approx(0.003)
    assert least_scale(np.array([]), None) == pytest.approx(0.001)
    assert least_scale(np.array([-3.0, 5.0]), None) == 0.0
    assert least_scale(np.array([3.0, 3.0 + 1e-9]), None) == 0.0, "returns that differ speak for themselves"
    assert least_scale(np.array([3.0, 3.0 + 1e-15]), None) == pytest.approx(0.003)
    assert least_scale(np.array([-3.0, 5.0]), 7.0) == pytest.approx(0.007)
    assert observed_slope(np.array([[0.3]]), np.array([1.0]), 0.0) == 0.0
    assert observed_slope(np.array([[0.0], [0.5]]), np.array([1.0, 3.0]), 1.0) == pytest.approx(2.0)
