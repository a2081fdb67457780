"""Each problem of the comparison is what its description says, by a fact that does not come from its own code."""

from __future__ import annotations

import math

import numpy as np
import pytest

from crbo_ros.bench import hard_problems, outside_problems
from crbo_ros.bench.problems import open_problem, task_facts


@pytest.mark.parametrize("name", hard_problems.MAKERS)
def test_a_hard_problem_starts_at_minus_one_and_no_policy_beats_its_optimum(name: str) -> None:
    rng = np.random.default_rng(0)
    for seed in (1, 2):
        problem = hard_problems.make_hard(name, seed)
        scale = 1e3 if name == "hard-units" else 1.0
        edge = 0.01 if name == "hard-failures" else 0.0
        assert problem.regret is not None
        assert problem.regret(problem.theta_0) == pytest.approx(scale * (1.0 - edge))
        assert problem.space.lower.max() <= -1.0
        assert np.abs(problem.theta_0).max() <= 1.0
        for theta in rng.uniform(-1.0, 1.0, (50, problem.space.dim)):
            value = problem.rollout(theta, np.random.default_rng(1)).value
            assert math.isnan(value) or value <= (1e6 if name == "hard-units" else 0.0) + 3.0 * 20.0 * scale / 1e3 + 1.0


def test_the_seed_moves_the_optimum_and_the_same_seed_does_not() -> None:
    theta = np.full(10, 0.1)
    a, b, c = (hard_problems.make_hard("hard-bowl-10", seed).regret for seed in (1, 1, 2))
    assert a is not None
    assert b is not None
    assert c is not None
    assert a(theta) == b(theta) != c(theta)


def test_failures_have_no_return_and_no_finite_regret() -> None:
    hard = hard_problems.MAKERS["hard-failures"](np.random.default_rng(3))
    optimum = next(x for x in (hard_problems.sphere(6, np.random.default_rng(3), 0.6),) if hard.value(x) > -1e-12)
    problem = hard_problems.make_hard("hard-failures", 1)
    assert hard.fails(optimum)
    assert not hard.fails(0.89 * optimum)
    assert hard.value(0.9 * optimum) == pytest.approx(hard.top)
    assert problem.regret is not None


def test_the_rovers_straight_line_ends_where_it_should_and_costs_its_length() -> None:
    """Without obstacles: 5 - 0.05 * 0.9 sqrt 2, by the formula alone."""
    rover = outside_problems.Rover()
    rover.centres = np.zeros((0, 2))
    assert rover(rover.straight) == pytest.approx(5.0 - 0.05 * 0.9 * math.sqrt(2.0), abs=1e-6)
    moved = rover.straight.copy()
    moved[:2] += 0.1  # both coordinates of the path's start
    assert rover(moved) == pytest.approx(5.0 - 10.0 * 0.2 - 0.05 * 0.9 * math.sqrt(2.0), abs=0.02)


def test_cartpole_falls_to_one_side_without_a_policy_and_stays_up_with_a_known_one() -> None:
    pytest.importorskip("gymnasium")
    with open_problem("outside-cartpole", 1) as problem:
        assert problem.rollout(np.zeros(4), np.random.default_rng(0)).value < 15.0
        assert problem.rollout(np.array([0.1, 0.4, 0.9, 1.0]), np.random.default_rng(0)).value == 500.0


def test_swimmer_by_the_gait_that_everybody_finds() -> None:
    """GIBO's authors report -2 to 30 for theta_0 = 0 and 16 weights."""
    pytest.importorskip("mujoco")
    with open_problem("outside-swimmer", 1) as problem:
        assert problem.space.dim == 16
        values = [problem.rollout(np.zeros(16), np.random.default_rng(i)).value for i in range(5)]
        assert -40.0 < min(values) <= max(values) < 60.0
        assert len(set(values)) == 5  # random starts


def test_facts_of_a_problem_change_with_its_code_and_hold_its_dimension() -> None:
    assert task_facts("hard-bowl-50")["dim"] == 50
    assert task_facts("synthetic-5d")["dim"] == 5
    assert len(task_facts("hard-bowl-50")["fingerprint"]) == 12
