"""Today's rivals against something independent: a closed form, draws, or the formula computed point by point."""

from copy import copy
from typing import Any

import numpy as np
import pytest

from crbo_ros.core.gp_method import GPMethod
from crbo_ros.core.space import Space
from crbo_ros.methods.hci_gibo import HciGIBO
from crbo_ros.methods.les import LES, Draws, ascents
from crbo_ros.methods.los_gp_ucb import LosGpUcb
from crbo_ros.methods.min_ucb import LookAheadMinUCB, MinUCB

SPACE = Space([0.0, 0.0], [1.0, 1.0])
THETA_0 = np.array([0.3, 0.6])


def wave(x: np.ndarray) -> float:
    return float(np.sin(3.0 * x[0]) + np.cos(4.0 * x[1]))


def taught(kind: Any, count: int = 8, **settings: Any) -> Any:
    """The method with some returns, its model fitted."""
    method: GPMethod = kind(SPACE, THETA_0, seed=1, **settings)
    rng = np.random.default_rng(7)
    for _ in range(count):
        proposal = method.ask()
        method.tell(proposal.id, wave(SPACE.to_unit(proposal.theta)) + 0.05 * rng.standard_normal())
    method.fit()
    return method


def test_hci_gibo_steps_at_the_probability_that_the_slope_is_enough() -> None:
    method = taught(HciGIBO)
    slope, sigma = 0.8, 0.5
    draws = np.random.default_rng(0).normal(slope, sigma, 400_000)
    needed = 0.5 * method.smoothness * method.rate * slope
    assert method.probability(slope, sigma) == pytest.approx(np.mean(draws > needed), abs=4e-3)


def test_hci_gibos_samples_stay_within_its_reach() -> None:
    method = HciGIBO(SPACE, THETA_0, seed=3, delta=0.1)
    for _ in range(12):
        centre, proposal = method.current.copy(), method.ask()
        if proposal.kind == "sample":
            assert np.all(np.abs(SPACE.to_unit(proposal.theta) - centre) <= 0.1 + 1e-12)
        method.tell(proposal.id, wave(SPACE.to_unit(proposal.theta)))


def test_min_ucb_moves_to_where_no_neighbour_has_a_better_bound() -> None:
    method = taught(MinUCB)
    top = method.best_bound(method.x0)

    def bound(points: np.ndarray) -> np.ndarray:
        mean, variance = method.surrogate.posterior(points)
        return np.asarray(mean - method.kappa * np.sqrt(variance))

    around = np.clip(top + 0.01 * np.random.default_rng(0).standard_normal((500, 2)), 0.0, 1.0)
    assert bound(around).max() <= bound(top[None])[0] + 1e-6
    assert bound(top[None])[0] >= bound(method.x0[None])[0]


def test_the_look_ahead_is_the_expected_maximum_of_the_bound_after_one_more_return() -> None:
    method = taught(LookAheadMinUCB)
    rng = np.random.default_rng(2)
    z, local = rng.random((2, 2)), rng.random((15, 2))
    expected = method.expected_bound(z, local)
    for i in range(2):  # by conditioning the model on drawn returns
        mean, variance = method.surrogate.posterior(z[i : i + 1])
        spread = np.sqrt(variance[0] + method.surrogate.noise_variance)
        tops = []
        for y in mean[0] + spread * rng.standard_normal(3000):
            model = copy(method.surrogate)
            model.add(z[i], float(y))
            m, v = model.posterior(local)
            tops.append(float((m - method.kappa * np.sqrt(v)).max()))
        assert expected[i] == pytest.approx(np.mean(tops), abs=4.0 * np.std(tops) / np.sqrt(len(tops)) + 2e-3)


def test_the_draws_of_local_entropy_search_have_the_posteriors_mean_and_variance() -> None:
    method = taught(LES)
    points = np.random.default_rng(1).random((6, 2))
    values = np.hstack([Draws(method.surrogate, 500, np.random.default_rng(i))(points) for i in range(20)])
    mean, variance = method.surrogate.posterior(points)
    np.testing.assert_allclose(values.mean(1), mean, atol=0.05 * np.sqrt(method.surrogate.signal_variance))
    np.testing.assert_allclose(values.std(1), np.sqrt(variance), rtol=0.15, atol=0.02)


def test_the_draws_gradients_are_those_of_the_draws() -> None:
    method = taught(LES)
    draws = Draws(method.surrogate, 3, np.random.default_rng(0))
    P, step = np.random.default_rng(1).random((3, 2)), 1e-6
    for axis in range(2):
        e = step * np.eye(2)[axis]
        slope = np.diagonal(draws(P + e) - draws(P - e)) / (2.0 * step)
        np.testing.assert_allclose(draws.gradients(P)[:, axis], slope, rtol=1e-4, atol=1e-4)


def test_ascents_climb() -> None:
    method = taught(LES)
    draws = Draws(method.surrogate, 8, np.random.default_rng(0))
    paths = ascents(draws, method.x0, 8, 4)
    first, last = np.diagonal(draws(paths[:, 0])), np.diagonal(draws(paths[:, -1]))
    assert np.mean(last > first) > 0.8


def test_the_information_of_local_entropy_search_is_what_conditioning_on_the_paths_leaves() -> None:
    method = taught(LES, draws=2, points=3)
    candidates = np.random.default_rng(5).random((6, 2))
    joint, noise = method.surrogate.covariance(candidates), method.surrogate.noise_variance
    expected = 0.5 * np.log(np.diagonal(joint) + noise)
    for path in (slice(0, 3), slice(3, 6)):  # by the Schur complement
        known = np.linalg.inv(joint[path, path] + 1e-6 * method.surrogate.signal_variance * np.eye(3))
        left = np.diagonal(joint - joint[:, path] @ known @ joint[path])
        expected = expected - 0.25 * np.log(np.maximum(left, 0.0) + noise)
    np.testing.assert_allclose(method.information(candidates), expected, rtol=1e-8)


def test_los_gp_ucb_proposes_only_where_its_bound_holds() -> None:
    method = LosGpUcb(SPACE, THETA_0, seed=0, lipschitz=5.0, noise=0.01, j_min=0.5)
    for _ in range(6):
        proposal = method.ask()
        x = SPACE.to_unit(proposal.theta)
        if method.n:
            X, y = method.data()
            worst = max(value - 0.01 - 5.0 * np.linalg.norm(x - point) for point, value in zip(X, y, strict=True))
            assert worst >= 0.5 - 1e-9 or proposal.kind == "fallback"
        method.tell(proposal.id, 1.0 - float(np.sum((x - 0.5) ** 2)))


@pytest.mark.slow
def test_the_spherical_linear_kernel_is_its_formula() -> None:
    import torch

    from crbo_ros.methods.linear_bo import make_kernel

    kernel = make_kernel(3).double()
    lengths = np.array([0.5, 1.0, 3.0])
    kernel.lengthscale = torch.as_tensor(lengths)
    kernel.share.data += 0.7
    b_1 = 1.0 / (1.0 + np.exp(-0.7))
    points = np.random.default_rng(0).random((4, 3))

    def project(x: np.ndarray) -> np.ndarray:
        p = (x - 0.5) / lengths / np.linalg.norm(0.5 / lengths)
        return np.append(2.0 * p, p @ p - 1.0) / (1.0 + p @ p)

    Z = np.array([project(x) for x in points])
    np.testing.assert_allclose(np.linalg.norm(Z, axis=1), 1.0)
    found = kernel(torch.as_tensor(points)).to_dense().detach().numpy()
    np.testing.assert_allclose(found, (1.0 - b_1) + b_1 * Z @ Z.T, rtol=1e-6)


@pytest.mark.slow
def test_safe_cma_es_finds_a_bowls_optimum_and_keeps_its_threshold() -> None:
    pytest.importorskip("cmaes")
    from crbo_ros.methods.safe_cma import SafeCmaEs

    method = SafeCmaEs(SPACE, THETA_0, seed=0, j_min=-1.0, sigma_0=0.1)
    for _ in range(130):
        proposal = method.ask()
        x = SPACE.to_unit(proposal.theta)
        method.tell(proposal.id, -float(np.sum((x - 0.5) ** 2)))
    assert method.best().observed > -5e-3  # type: ignore[union-attr]
    assert min(trial.value for trial in method.trials) > -1.0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["linear_bo", "safe_cma"])
def test_the_dear_ones_start_at_theta_0_survive_refusals_and_carry_on_alike(name: str) -> None:
    pytest.importorskip("cmaes")
    from crbo_ros.registry import make_method

    method = make_method(name, SPACE, THETA_0, seed=2)
    for step in range(7):
        proposal = method.ask()
        if step == 0:
            np.testing.assert_array_equal(proposal.theta, THETA_0)
        if step == 5:
            method.veto(proposal.id, "too bold")
        else:
            method.tell(proposal.id, wave(SPACE.to_unit(proposal.theta)))
    copy_of_it = make_method(name, SPACE, THETA_0, seed=2)
    copy_of_it.restore(method.state())
    np.testing.assert_array_equal(copy_of_it.ask().theta, method.ask().theta)
