"""The worst case: its formula, its monitor, and that it holds."""

import math
from typing import Any

import numpy as np
import pytest

from crbo_ros.core import CRBO, Space, WorstCase
from crbo_ros.core.bound import Coverage, LipschitzBound, observed_slope, worst_case
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


def test_no_data_no_bound() -> None:
    assert WorstCase(2).bound([0.5, 0.5]).value == -math.inf


def test_one_return_gives_a_bound_from_the_prior_that_says_so() -> None:
    monitor = WorstCase(3)
    monitor.add([0.5, 0.5, 0.5], 2.0)
    at, away = monitor.bound([0.5, 0.5, 0.5]), monitor.bound([0.6, 0.5, 0.5])
    assert away.source == "prior"
    assert away.value < at.value <= 2.0
    assert away.distance == pytest.approx(0.1)


def test_the_users_scale_tightens_the_first_bound() -> None:
    wide, narrow = WorstCase(3), WorstCase(3, scale=0.1)
    for monitor in (wide, narrow):
        monitor.add([0.5, 0.5, 0.5], 2.0)
    assert narrow.bound([0.6, 0.5, 0.5]).value > wide.bound([0.6, 0.5, 0.5]).value


def test_the_users_constant_is_used_as_it_is() -> None:
    monitor = WorstCase(1, lipschitz=3.0)
    monitor.add([0.5], 1.0)
    bound = monitor.bound([0.7])
    assert (bound.lipschitz, bound.source) == (3.0, "user")


def test_a_steeper_observation_than_the_model_believes_counts() -> None:
    model = GaussianProcess(kernel("se"), 1, default_hyperparameters(1))
    model.h = np.log([5.0, 1e-2, 1e-4])  # a model that believes in a gentle slope
    X, y = np.array([[0.4], [0.5]]), np.array([0.0, 3.0])
    model.condition(X, y)
    worst = LipschitzBound(model, Standardizer(), X, y, kernel("se"), scale=1e-3)
    assert worst.at(np.array([0.45])).source == "observed slope"
    assert worst.at(np.array([0.45])).lipschitz == pytest.approx((3.0 - worst.noise) / 0.1)


@pytest.mark.parametrize("settings", [{}, {"lipschitz": 4.0}, {"scale": 0.3}])
def test_optimizer_and_monitor_have_the_same_bound_for_the_same_data(settings: dict[str, Any]) -> None:
    """From the first return on, whatever else the optimizer's model knows of pending and failed policies."""
    rng, d = np.random.default_rng(2), 6
    optimizer = CRBO(Space(np.full(d, -1.0), np.full(d, 1.0)), np.full(d, 0.4), seed=3, **settings)
    monitor = WorstCase(d, **settings)
    late: Any = None  # a proposal, its point and its return
    for n in range(26):
        proposal = optimizer.ask()
        x = optimizer.space.to_unit(proposal.theta)
        if n:
            bound = monitor.bound(x)
            assert bound.value == pytest.approx(proposal.worst_case, rel=1e-9), f"proposal {n}"
            assert bound.lipschitz == pytest.approx(optimizer.report()["lipschitz"], rel=1e-9)
            assert bound.source == optimizer.report()["lipschitz_source"]
        if n == 8:
            optimizer.fail(proposal.id, "refused")
            continue
        value = -float(np.sum((proposal.theta - 0.1) ** 2)) + 0.01 * rng.standard_normal()
        if n == 12:
            late = (proposal, x, value)  # comes back later
            continue
        told = [(proposal, x, value)] if n != 15 else [(proposal, x, value), late]
        for asked, point, result in told:
            optimizer.tell(asked.id, result)
            monitor.add(point, result)


def test_bounds_of_the_monitor_hold_on_a_random_walk() -> None:
    rng = np.random.default_rng(4)
    direction = rng.standard_normal(8)
    monitor, score, x = WorstCase(8), Coverage(), np.full(8, 0.5)
    for _ in range(40):
        y = float(np.tanh(2.0 * direction @ (x - 0.4)) + 0.01 * rng.standard_normal())
        score.add(monitor.bound(x).value, y)
        monitor.add(x, y)
        x = np.clip(x + 0.05 * rng.standard_normal(8), 0.0, 1.0)
    assert score.count == 39  # the first had no bound
    assert score.coverage >= 0.95


def test_score_without_bounds_is_nan() -> None:
    score = Coverage()
    score.add(math.nan, 1.0)
    assert math.isnan(score.coverage)
