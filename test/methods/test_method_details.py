"""What is particular to each method, held against its paper."""

from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

from crbo_ros.core.space import Space
from crbo_ros.errors import InvalidInput
from crbo_ros.methods.gibo import GIBO
from crbo_ros.methods.local_bo import divergence, update
from crbo_ros.methods.turbo import SHORTEST, Turbo
from crbo_ros.registry import make_method


def unit(d: int) -> Space:
    return Space(np.zeros(d), np.ones(d))


def test_cma_es_learns_an_ill_conditioned_bowl() -> None:
    method = make_method("cma_es", unit(2), [0.8, 0.8], seed=0, sigma_0=0.1)
    scale = np.array([1.0, 10.0])
    for _ in range(250):
        proposal = method.ask()
        method.tell(proposal.id, -float(np.sum(scale * (proposal.theta - 0.3) ** 2)))
    assert method.best().observed > -1e-6


def test_cma_es_asks_for_theta_0_and_then_tells_whole_generations() -> None:
    method = make_method("cma_es", unit(10), np.full(10, 0.5), seed=0, sigma_0=0.02)
    size = method.report()["popsize"]
    for i in range(1 + size):
        assert method.strategy.countiter == 0
        method.tell(method.ask().id, float(i))
    assert method.strategy.countiter == 1
    first = np.array([trial.proposal.theta for trial in method.trials[1:]])
    assert np.std(first - 0.5) == pytest.approx(0.02, rel=0.3)


def test_turbo_sides_follow_the_lengthscales_and_keep_their_volume() -> None:
    method = Turbo(unit(4), np.full(4, 0.5), seed=0, length=0.4)
    method.surrogate.h = np.log([0.2, 0.4, 0.8, 0.4, 1.0, 1e-3])
    candidates = method._candidates(np.full(4, 0.5), np.random.default_rng(0))
    sides = candidates.max(0) - candidates.min(0)
    np.testing.assert_allclose(sides, 0.4 * np.array([0.5, 1.0, 2.0, 1.0]), rtol=0.02)


def test_turbo_candidates_differ_from_the_centre_in_about_twenty_coordinates() -> None:
    method = Turbo(unit(100), np.full(100, 0.5), seed=0)
    candidates = method._candidates(np.full(100, 0.5), np.random.default_rng(0))
    assert candidates.shape == (5000, 100)
    moved = np.sum(candidates != 0.5, axis=1)
    assert moved.mean() == pytest.approx(20.0, rel=0.05)
    assert moved.min() >= 1


def test_turbo_doubles_after_three_successes_halves_after_d_failures_and_starts_anew_below_the_smallest_side() -> None:
    method = Turbo(unit(5), np.full(5, 0.5), seed=0, length=0.2)
    for _ in range(method.n_init):
        method.tell(method.ask().id, 0.0)
    for value in (1.0, 2.0, 3.0):
        assert method.length == 0.2
        method.tell(method.ask().id, value)
    assert method.length == 0.4
    for _ in range(5):
        method.tell(method.ask().id, 0.0)
    assert method.length == 0.2
    method.length, method.failures = SHORTEST * 1.01, 4
    method.tell(method.ask().id, 0.0)
    assert (method.restarts, method.length) == (1, 0.2)
    assert method.ask().kind == "initial"


def test_turbo_pathwise_and_joint_draws_have_the_posterior_s_mean_and_spread() -> None:
    method = Turbo(unit(3), np.full(3, 0.5), seed=0)
    X = np.random.default_rng(0).random((8, 3))
    method.surrogate.h = np.log([0.4, 0.4, 0.4, 1.0, 1e-2])
    method.surrogate.condition(X, np.sin(5.0 * X[:, 0]))
    P = np.random.default_rng(1).random((6, 3))
    mean, variance = method.surrogate.posterior(P)
    for draw in (method._joint, method._pathwise):
        rng = np.random.default_rng(2)
        draws = np.array([draw(P, rng) for _ in range(1500)])
        np.testing.assert_allclose(draws.mean(0), mean, atol=0.08)
        np.testing.assert_allclose(draws.std(0), np.sqrt(variance), rtol=0.12)


def test_local_bo_s_update_meets_both_constraints_and_one_of_them_exactly() -> None:
    rng = np.random.default_rng(0)
    d = 6
    m, S = np.zeros(d), 0.04 * np.eye(d)
    root = rng.standard_normal((d, d))
    q_mean, q_cov = rng.standard_normal(d), 0.01 * root @ root.T + 0.001 * np.eye(d)
    mean, cov = update(m, S, q_mean, q_cov, 1.0, 1.0)
    kl = divergence(mean, cov, m, S)
    lost = 0.5 * (np.linalg.slogdet(S)[1] - np.linalg.slogdet(cov)[1])
    assert kl <= 1.0 + 1e-6
    assert lost <= 1.0 + 1e-6
    assert max(kl, lost) == pytest.approx(1.0, abs=1e-3)
    assert divergence(mean, cov, q_mean, q_cov) < divergence(m, S, q_mean, q_cov)


def test_local_bo_s_divergence_is_that_of_two_normals() -> None:
    assert divergence(np.array([1.0]), np.array([[4.0]]), np.array([0.0]), np.array([[1.0]])) == pytest.approx(
        0.5 * (4.0 + 1.0 - 1.0 - np.log(4.0))
    )


def test_gibo_s_gradient_belief_is_the_derivative_of_the_posterior() -> None:
    method = GIBO(unit(4), np.full(4, 0.5), seed=0)
    X = np.random.default_rng(0).random((7, 4))
    method.surrogate.condition(X, np.cos(3.0 * X).sum(1))
    x = np.full(4, 0.4)
    g, A = method.gradient_belief(x)
    np.testing.assert_allclose(g, method.surrogate.mean_gradients(x[None])[0], rtol=1e-9, atol=1e-12)
    h = 1e-3  # the variance of [J(x + h e) - J(x - h e)] / 2h tends to that of the derivative
    for i in range(4):
        e = np.eye(4)[i] * h
        joint = method.surrogate.covariance(np.array([x + e, x - e]))
        variance = (joint[0, 0] + joint[1, 1] - 2.0 * joint[0, 1]) / (4.0 * h * h)
        assert method.prior_slope - np.sum(A[i] ** 2) == pytest.approx(variance, rel=1e-3)


def test_gibo_steps_only_when_the_direction_is_likely_to_improve() -> None:
    method = GIBO(unit(6), np.full(6, 0.5), seed=0, alpha=0.95)
    for _ in range(25):
        before = method.steps
        proposal = method.ask()
        if method.steps > before:
            g, A = method.gradient_belief(method.previous)
            v = g / np.linalg.norm(g)
            spread = np.sqrt(method.prior_slope - np.sum((v @ A) ** 2))
            assert ndtr(np.linalg.norm(g) / spread) >= 0.95
        method.tell(proposal.id, -float(np.sum((proposal.theta - 0.2) ** 2)))
    assert method.steps >= 3


def test_safe_opt_stays_above_j_min_where_box_bo_does_not() -> None:
    rng = np.random.default_rng(0)

    def cliff(theta: Any) -> float:  # falls off to the left; best at 0.75
        return float(np.tanh(8.0 * (theta[0] - 0.2)) - 4.0 * (theta[0] - 0.75) ** 2 + 1e-3 * rng.standard_normal())

    returns = {}
    for name, settings in (("safe_opt", {"j_min": 0.0}), ("bo", {})):
        method = make_method(name, unit(1), [0.5], seed=0, **settings)
        for _ in range(20):
            proposal = method.ask()
            method.tell(proposal.id, cliff(proposal.theta))
        returns[name] = np.array([trial.value for trial in method.trials])
    assert returns["safe_opt"].min() > 0.0 > returns["bo"].min()
    assert returns["safe_opt"].max() > 0.95


def test_safe_opt_refuses_many_dimensions() -> None:
    with pytest.raises(InvalidInput, match="112 dimensions"):
        make_method("safe_opt", unit(112), np.full(112, 0.5))
