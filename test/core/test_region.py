"""sigma_n <= gamma sigma_f: radius, membership, emptiness."""

from typing import Any

import numpy as np
import pytest

from crbo_ros.core.gaussian_process import GaussianProcess
from crbo_ros.core.hyperparameters import default_hyperparameters
from crbo_ros.core.kernels import KERNELS, kernel
from crbo_ros.core.region import ConfidenceRegion, r0


def one_point(name: str = "matern52", noise: float = 1e-9, d: int = 3) -> GaussianProcess:
    model = GaussianProcess(kernel(name), d, default_hyperparameters(d))
    model.h = np.log([0.2, 1.0, noise])
    model.condition(np.full((1, d), 0.5), np.zeros(1))
    return model


# radius in lengthscales: (Matern-5/2, SE)
TABLE = {0.3: (0.242, 0.307), 0.4: (0.333, 0.418), 0.6: (0.549, 0.668), 0.9: (1.161, 1.289)}


@pytest.mark.parametrize("gamma", TABLE)
def test_r0_is_the_known_one(gamma: Any) -> None:
    np.testing.assert_allclose(r0(kernel("matern52"), 1.0, gamma), TABLE[gamma][0], atol=6e-4)
    np.testing.assert_allclose(r0(kernel("se"), 1.0, gamma), TABLE[gamma][1], atol=6e-4)


def test_r0_shrinks_with_noise_down_to_nothing() -> None:
    matern = kernel("matern52")
    np.testing.assert_allclose(r0(matern, 1.0, 0.6, 0.1), 0.482, atol=6e-4)
    assert r0(matern, 1.0, 0.3, 0.1) == 0.0
    assert r0(matern, 1.0, 1.0) == np.inf


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("noise", [1e-9, 0.3])
def test_region_around_one_point_is_the_ball_of_r0(name: Any, noise: float) -> None:
    region = ConfidenceRegion(one_point(name, noise), 0.5)
    radius = r0(kernel(name), 0.2, 0.5, noise)
    u = np.random.default_rng(0).standard_normal((50, 3))
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    assert region.contains(0.5 + 0.999 * radius * u).all()
    assert not region.contains(0.5 + 1.001 * radius * u).any()


def test_repeated_returns_of_one_policy_open_the_region_that_noise_had_closed() -> None:
    model = one_point(noise=0.5)
    inside = []
    for count in (1, 3, 10, 100):
        model.condition(np.full((count, 3), 0.5), np.zeros(count))
        region = ConfidenceRegion(model, 0.4)
        inside.append(region.state == "ok")
        assert region.data_inside.all()
    assert inside == [False, True, True, True]
    assert region.threshold == 0.4


def test_empty_region_is_widened_to_the_best_point_and_says_so() -> None:
    region = ConfidenceRegion(one_point(noise=0.3), 0.3)
    assert "empty" in region.state
    assert region.contains(np.full((1, 3), 0.5)).all()
    assert ConfidenceRegion(one_point(noise=0.05), 0.3).state == "ok"


def test_gamma_one_is_the_whole_box_and_nothing_outside_it() -> None:
    region = ConfidenceRegion(one_point(), 1.0)
    P = np.random.default_rng(0).random((100, 3))
    assert region.contains(P).all()
    assert not region.contains(P + 1.0).any()


def test_line_test_equals_membership() -> None:
    rng = np.random.default_rng(3)
    model = one_point()
    model.condition(rng.random((12, 3)), rng.standard_normal(12))
    region = ConfidenceRegion(model, 0.7)
    x, u = model.X, rng.standard_normal((12, 3))
    rows, t = rng.integers(0, 12, 200), rng.uniform(-0.3, 0.3, 200)
    points = x[rows] + t[:, None] * u[rows]
    np.testing.assert_array_equal(region.on_line(x, u)(rows, t), region.slack(points) >= 0.0)
