"""Hit-and-run samples the uniform law of ball, box and two balls: Kolmogorov-Smirnov tests against exact laws.

Two promises: from exact draws of the law the law stays (d = 2, 10, 100; any wrong step shows at once), and from one
single point it is reached (d = 2, 10). Every chain contributes its last state only, so that the samples are
independent and a p-value is a p-value. Seeds are fixed; a threshold of 1e-3 leaves some 2 % for an unlucky seed.
"""

from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest, kstest

from crbo_ros.core.hit_and_run import Membership, box_interval, hit_and_run

P_VALUE = 1e-3
DIMS = [2, 10, 100]


def last_states(region: Any, starts: Any, steps: int, seed: int) -> Any:
    return hit_and_run(region, starts, steps, np.random.default_rng(seed))[-len(starts) :]


def in_ball(count: int, centre: Any, radius: float, rng: np.random.Generator) -> Any:
    """Exact draws."""
    u = rng.standard_normal((count, len(centre)))
    u *= (rng.random(count) ** (1.0 / len(centre)) / np.linalg.norm(u, axis=1))[:, None]
    return centre + radius * u


def check_ball(samples: Any, centre: Any, radius: float) -> None:
    dim, distance = len(centre), np.linalg.norm(samples - centre, axis=1)
    assert distance.max() <= radius
    assert kstest((distance / radius) ** dim, "uniform").pvalue > P_VALUE  # |x|^d is uniform in a ball
    u = (samples - centre) / distance[:, None]  # a squared coordinate of x / |x| is Beta(1/2, (d - 1) / 2)
    assert kstest(u[:, 0] ** 2, "beta", args=(0.5, 0.5 * (dim - 1))).pvalue > P_VALUE
    assert binomtest(int(np.sum(u[:, 0] > 0.0)), len(samples)).pvalue > P_VALUE


def ball(dim: int) -> tuple[Any, ...]:
    centre = np.full(dim, 0.5)
    return Membership(lambda P: np.sum((P - centre) ** 2, axis=1) <= 0.09), centre, 0.3


@pytest.mark.parametrize("dim", DIMS)
def test_uniform_law_on_a_ball_stays(dim: Any) -> None:
    region, centre, radius = ball(dim)
    starts = in_ball(1500, centre, radius, np.random.default_rng(dim))
    check_ball(last_states(region, starts, 10, dim + 7), centre, radius)


@pytest.mark.parametrize(("dim", "steps"), [(2, 15), (10, 60)])
def test_uniform_law_on_a_ball_is_reached(dim: int, steps: int) -> None:
    region, centre, radius = ball(dim)
    check_ball(last_states(region, np.tile(centre, (1500, 1)), steps, dim), centre, radius)


@pytest.mark.parametrize("dim", DIMS)
def test_uniform_law_on_the_box_stays(dim: Any) -> None:
    region = Membership(lambda P: np.ones(len(P), dtype=bool))
    samples = last_states(region, np.random.default_rng(dim).random((1500, dim)), 10, dim + 7)
    for j in range(0, dim, max(1, dim // 4)):
        assert kstest(samples[:, j], "uniform").pvalue > P_VALUE


@pytest.mark.parametrize(("dim", "steps"), [(2, 15), (10, 150)])
def test_uniform_law_on_the_box_is_reached(dim: int, steps: int) -> None:
    region = Membership(lambda P: np.ones(len(P), dtype=bool))
    samples = last_states(region, np.full((1000, dim), 0.5), steps, dim)
    for j in range(0, dim, max(1, dim // 4)):
        assert kstest(samples[:, j], "uniform").pvalue > P_VALUE


def two_balls(dim: int) -> tuple[Any, ...]:
    """Disjoint, side by side along the first axis: a line that crosses both meets the region in two pieces."""
    radius, a, b = 0.2, np.full(dim, 0.5), np.full(dim, 0.5)
    a[0], b[0] = 0.25, 0.75

    def inside(P: Any) -> Any:
        return (np.sum((P - a) ** 2, axis=1) <= radius**2) | (np.sum((P - b) ** 2, axis=1) <= radius**2)

    return Membership(inside), a, b, radius


@pytest.mark.parametrize("dim", DIMS)
def test_uniform_law_on_two_balls_stays(dim: Any) -> None:
    region, a, b, radius = two_balls(dim)
    rng = np.random.default_rng(dim)
    starts = np.vstack([in_ball(1000, a, radius, rng), in_ball(1000, b, radius, rng)])
    samples = last_states(region, starts, 10, dim + 7)
    in_b = samples[:, 0] > 0.5
    assert binomtest(int(in_b.sum()), len(samples)).pvalue > P_VALUE
    check_ball(samples[~in_b], a, radius)
    check_ball(samples[in_b], b, radius)


def test_uniform_law_on_two_balls_is_reached_through_the_gap() -> None:
    region, a, b, radius = two_balls(2)
    samples = last_states(region, np.tile(a, (2000, 1)), 60, 3)
    in_b = samples[:, 0] > 0.5
    assert binomtest(int(in_b.sum()), len(samples)).pvalue > P_VALUE
    check_ball(samples[~in_b], a, radius)
    check_ball(samples[in_b], b, radius)


def test_ball_cut_by_the_box_stays_uniform() -> None:
    """A half ball at a face: the box is part of the line set, nothing is clipped onto it."""
    centre = np.array([0.0, 0.5, 0.5])
    region = Membership(lambda P: np.sum((P - centre) ** 2, axis=1) <= 0.09)
    samples = last_states(region, np.tile([0.1, 0.5, 0.5], (2000, 1)), 25, 5)
    assert np.all(samples >= 0.0)
    assert np.mean(samples[:, 0] == 0.0) == 0.0
    assert kstest(np.linalg.norm(samples - centre, axis=1) ** 3 / 0.027, "uniform").pvalue > P_VALUE


def test_box_interval_reaches_the_faces() -> None:
    x, u = np.array([[0.25, 0.5]]), np.array([[0.5, 0.0]])
    low, high = box_interval(x, u)
    np.testing.assert_allclose([low[0], high[0]], [-0.5, 1.5])
