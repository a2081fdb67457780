"""The paper's three gymnasium tasks with their new rewards, and any other environment."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crbo_ros.errors import InvalidInput, UnknownName
from crbo_ros.policies.agent import Agent
from crbo_ros.registry import make_task
from crbo_ros.tasks.base import COMPLETED, STOPPED, TERMINATED

pytest.importorskip("gymnasium")

NAMES = ("pendulum", "cartpole", "mountaincar")
PAPER = {"pendulum": (65, 0.5, 0.3), "cartpole": (130, 10.0, 0.6), "mountaincar": (65, 1.0, 0.5)}  # d, domain, gamma
START = {
    "pendulum": (0.34, 0.40),
    "cartpole": (0.15, 0.25),
    "mountaincar": (55.0, 68.0),
}  # where the paper's agents are


def start_return(task: Any, episodes: int = 100) -> Any:
    rng = np.random.default_rng(12)
    return np.mean([task.rollout(task.theta_0, rng).value for _ in range(episodes)])


@pytest.mark.parametrize("name", NAMES)
def test_dimension_domain_and_gamma_are_the_papers(name: Any) -> None:
    task = make_task(name)
    dim, width, gamma = PAPER[name]
    assert (task.dim, task.gamma) == (dim, gamma)
    np.testing.assert_allclose(task.space.upper - task.theta_0, width)
    np.testing.assert_allclose(task.theta_0 - task.space.lower, width)


@pytest.mark.parametrize("name", NAMES)
def test_the_agent_starts_where_the_papers_agent_did(name: Any) -> None:
    low, high = START[name]
    assert low <= start_return(make_task(name)) <= high


@pytest.mark.parametrize("name", NAMES)
def test_both_plants_give_the_same_return_end_and_trajectory(name: Any) -> None:
    compiled, stepped = make_task(name), make_task(name, "gymnasium")
    rng = np.random.default_rng(1)
    for seed in range(3):
        x = np.clip(0.5 + 0.03 * rng.normal(size=compiled.dim), 0.0, 1.0)
        theta = compiled.space.from_unit(x)
        a = compiled.rollout(theta, np.random.default_rng(seed), record=True)
        b = stepped.rollout(theta, np.random.default_rng(seed), record=True)
        assert a.value == pytest.approx(b.value, rel=1e-9, abs=1e-9)
        assert (a.end, a.reason, a.steps, a.duration) == (b.end, b.reason, b.steps, b.duration)
        assert list(a.trajectory.columns) == list(b.trajectory.columns)
        for column, values in a.trajectory.columns.items():
            np.testing.assert_allclose(values, b.trajectory.columns[column], rtol=0, atol=1e-9)
        assert a.trajectory.columns["return"][-1] == pytest.approx(a.value)


@pytest.mark.parametrize("name", NAMES)
def test_a_rollout_is_a_function_of_theta_and_seed(name: Any) -> None:
    task = make_task(name)
    one, other = (task.rollout(task.theta_0, np.random.default_rng(s)).value for s in (5, 6))
    task.rollout(task.space.lower, np.random.default_rng(0))
    assert task.rollout(task.theta_0, np.random.default_rng(5)).value == one != other


def test_pendulums_reward_is_one_at_the_top_and_never_negative() -> None:
    task = make_task("pendulum")
    angles = np.radians([0.0, 1.0, 2.0, 180.0])
    observations = np.column_stack([np.cos(angles), np.sin(angles), np.zeros(4)])
    rewards = task.rewards(observations, np.zeros((4, 1)), np.zeros(4, bool))
    np.testing.assert_allclose(rewards * 200, [1.0, 0.5, 0.0, 0.0], atol=1e-12)


def test_cartpoles_reward_falls_with_the_distance_from_the_centre_and_is_never_negative() -> None:
    task = make_task("cartpole")
    observations = np.zeros((3, 4))
    observations[:, 0] = [0.0, -0.25, 2.0]
    rewards = task.rewards(observations, np.zeros((3, 1)), np.zeros(3, bool))
    np.testing.assert_allclose(rewards * 500, [1.0, 0.75, 0.0])


def test_mountaincars_reward_charges_half_the_squared_force_and_pays_100_at_the_goal() -> None:
    task = make_task("mountaincar")
    rewards = task.rewards(np.zeros((3, 2)), np.array([[1.0], [-0.5], [0.0]]), np.array([False, False, True]))
    np.testing.assert_allclose(rewards, [-0.5, -0.125, 100.0])


def test_the_end_says_what_happened() -> None:
    task = make_task("mountaincar")
    outcome = task.rollout(task.theta_0, np.random.default_rng(0))
    assert (outcome.end, outcome.reason) == (TERMINATED, "the car reached the goal")
    assert outcome.value < 100.0
    task = make_task("pendulum")
    outcome = task.rollout(task.theta_0, np.random.default_rng(0))
    assert (outcome.end, outcome.steps, outcome.duration) == (COMPLETED, 200, 10.0)


@pytest.mark.parametrize("plant", ["compiled", "gymnasium"])
def test_a_watch_that_objects_stops_the_episode_without_a_return(plant: str) -> None:
    task = make_task("cartpole", plant)
    outcome = task.rollout(task.theta_0, np.random.default_rng(0), watch=lambda t, o, a: "enough")
    assert (outcome.end, outcome.reason) == (STOPPED, "enough")
    assert np.isnan(outcome.value)
    calls = []
    late = task.rollout(task.theta_0, np.random.default_rng(0), watch=lambda t, o, a: calls.append(t))
    assert late.counts
    assert len(calls) == (2 if plant == "compiled" else late.steps)


def test_a_theta_outside_the_domain_is_refused() -> None:
    task = make_task("pendulum")
    with pytest.raises(InvalidInput, match=r"theta\[3\]"):
        task.rollout(task.theta_0 + 0.6 * np.eye(65)[3], np.random.default_rng(0))


@pytest.mark.parametrize("name", NAMES)
def test_a_plot_of_two_agents_is_written(name: Any, tmp_path: Path) -> None:
    task = make_task(name)
    thetas = {"before": task.theta_0, "after": task.space.from_unit(np.full(task.dim, 0.51))}
    runs = {k: task.rollout(v, np.random.default_rng(0), record=True).trajectory for k, v in thetas.items()}
    task.plot(runs, tmp_path / "agents.png")
    assert (tmp_path / "agents.png").stat().st_size > 10_000


def own_agent(tmp_path: Path, n_in: int, n_out: int, **how: Any) -> Path:
    rng = np.random.default_rng(0)
    layers = [(rng.normal(size=(n_in, 8)), rng.normal(size=8)), (0.1 * rng.normal(size=(8, n_out)), np.zeros(n_out))]
    Agent(layers, **how).save(tmp_path / "own.npz")
    return tmp_path / "own.npz"


def test_any_environment_runs_under_its_own_reward(tmp_path: Path) -> None:
    path = own_agent(tmp_path, 6, 3, output="greedy", activation="relu")
    with make_task("gym", env="Acrobot-v1", weights=path, width=2.0) as task:
        outcome = task.rollout(task.theta_0, np.random.default_rng(0), record=True)
        assert outcome.counts
        assert outcome.value == -(outcome.steps - (outcome.end == TERMINATED))
        assert task.dim == 27
        assert task.episode_seconds == 500 / task.plant.rate
        task.plot({"own": outcome.trajectory}, tmp_path / "own.png")


def test_an_agent_for_another_environment_is_refused(tmp_path: Path) -> None:
    path = own_agent(tmp_path, 6, 3, output="greedy")
    with pytest.raises(InvalidInput, match="6 inputs"):
        make_task("gym", env="CartPole-v1", weights=path)


def test_a_gym_task_without_environment_or_weights_says_what_it_needs(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="import-sb3"):
        make_task("gym")
    with pytest.raises(InvalidInput, match="no such file"):
        make_task("gym", env="CartPole-v1", weights=tmp_path / "none.npz")
    (tmp_path / "bad.npz").write_bytes(b"PK\x03\x04 not an archive")
    with pytest.raises(InvalidInput, match="holds no array"):
        make_task("gym", env="CartPole-v1", weights=tmp_path / "bad.npz")
    with pytest.raises(UnknownName, match="compiled"):
        make_task("pendulum", "hardware")
