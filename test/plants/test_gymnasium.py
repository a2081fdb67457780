"""Gymnasium environments as plants, and their compiled episodes against the unmodified environments."""

from typing import Any

import numpy as np
import pytest

from crbo_ros.errors import InvalidInput, PlantError
from crbo_ros.plants.classic_control import KERNELS, SINGLE, episode, start_state
from crbo_ros.plants.gymnasium import GymnasiumPlant, episode_seed
from crbo_ros.policies.agent import Agent

gymnasium = pytest.importorskip("gymnasium")

BOUNDS = {"Pendulum-v1": 2.0, "MountainCarContinuous-v0": 1.0}


def random_agent(env_id: str, rng: np.random.Generator, *, strength: float = 0.3) -> Agent:
    """An untrained network that moves the environment about; MountainCar's inputs are normalised, and clipped."""
    k, n_out = KERNELS[env_id].n_observation, 2 if env_id == "CartPole-v1" else 1
    layers = [(rng.normal(size=(k, 64)), rng.normal(size=64)), (rng.normal(size=(64, 64)) / 8, rng.normal(size=64))]
    layers.append((strength * rng.normal(size=(64, n_out)), rng.normal(size=n_out)))
    if env_id == "CartPole-v1":
        return Agent(layers, output="greedy")
    bound = [BOUNDS[env_id]]
    norm: dict[str, Any] = (
        {"input_offset": [-0.5, 0.0], "input_scale": [4.0, 60.0], "input_clip": 1.5} if k == 2 else {}
    )
    return Agent(layers, output="clip", low=np.negative(bound), high=bound, **norm)


def pushing_agent(env_id: str) -> Agent:
    """A policy that gets far: MountainCar pushes along its velocity, CartPole against the pole, Pendulum pumps."""
    k = KERNELS[env_id].n_observation
    w1, w2 = np.zeros((k, 64)), np.zeros((64, 64))
    w1[:, 0] = {"Pendulum-v1": [0, 0, 3.0], "CartPole-v1": [0.1, 0.5, 3.0, 1.0]}.get(env_id, [0, 80.0])
    w2[0, 0] = 2.0
    w3 = np.zeros((64, 2 if env_id == "CartPole-v1" else 1))
    w3[0, -1] = 0.9
    output = {"output": "greedy"} if env_id == "CartPole-v1" else {"output": "clip", "low": [-9.0], "high": [9.0]}
    return Agent([(w1, np.zeros(64)), (w2, np.zeros(64)), (w3, np.zeros(w3.shape[1]))], **output)


def step_by_step(env_id: str, seed: int, agent: Any) -> tuple[Any, ...]:
    """The unmodified environment, stepped: (observations, actions, terminated, original return)."""
    env = gymnasium.make(env_id)
    observation, _ = env.reset(seed=seed)
    observations, actions, total, done = [observation], [], 0.0, False
    while not done:
        action = agent(observation)
        given = int(action[0]) if agent.output == "greedy" else action.astype(np.float32)
        observation, reward, terminated, truncated, _ = env.step(given)
        observations.append(observation)
        actions.append(action)
        total += reward
        done = terminated or truncated
    env.close()
    return np.array(observations), np.array(actions), terminated, total


@pytest.mark.parametrize("env_id", KERNELS)
def test_a_compiled_episode_equals_the_unmodified_environment_stepped_from_the_same_seed(env_id: Any) -> None:
    rng = np.random.default_rng(0)
    agents = [random_agent(env_id, rng) for _ in range(4)] + [pushing_agent(env_id)]
    for seed, agent in enumerate(agents):
        fast = episode(env_id, seed, agent)
        observations, actions, terminated, _ = step_by_step(env_id, seed, agent)
        assert fast.observations.shape == observations.shape
        assert fast.observations.dtype == observations.dtype == np.float32
        np.testing.assert_allclose(fast.observations, observations, rtol=0, atol=1e-9)
        np.testing.assert_allclose(fast.actions, actions, rtol=0, atol=1e-9)
        assert fast.terminated == terminated


def test_the_comparison_covers_episodes_that_end_early_and_ones_that_do_not() -> None:
    assert episode("MountainCarContinuous-v0", 4, pushing_agent("MountainCarContinuous-v0")).terminated
    assert not episode(
        "MountainCarContinuous-v0", 0, random_agent("MountainCarContinuous-v0", np.random.default_rng(0))
    ).terminated
    assert len(episode("CartPole-v1", 4, pushing_agent("CartPole-v1")).actions) > 100
    assert episode("CartPole-v1", 0, random_agent("CartPole-v1", np.random.default_rng(0))).terminated


@pytest.mark.parametrize("env_id", KERNELS)
def test_start_states_are_those_of_the_environment(env_id: Any) -> None:
    env = gymnasium.make(env_id)
    for seed in (0, 1, 123456789):
        env.reset(seed=seed)
        np.testing.assert_array_equal(start_state(env_id, seed), env.unwrapped.state)


@pytest.mark.parametrize("env_id", KERNELS)
def test_time_limits_are_those_of_the_environments_registration(env_id: Any) -> None:
    assert KERNELS[env_id].steps == gymnasium.spec(env_id).max_episode_steps


def test_mountaincars_rounding_follows_the_installed_numpy() -> None:
    assert ((np.float32(3.0) * 0.1).dtype == np.float32) == SINGLE


def test_the_compiled_episode_refuses_a_network_of_another_shape() -> None:
    agent = Agent([(np.zeros((3, 1)), [0.0])], output="clip", low=[-2.0], high=[2.0])
    with pytest.raises(InvalidInput, match="two tanh layers"):
        episode("Pendulum-v1", 0, agent)


def test_a_plant_resets_from_one_draw_of_the_generator() -> None:
    with GymnasiumPlant("Pendulum-v1") as plant:
        first = plant.reset(np.random.default_rng(3))
        again = plant.reset(np.random.default_rng(3))
        state = plant.env.unwrapped.state.copy()
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(state, start_state("Pendulum-v1", episode_seed(np.random.default_rng(3))))


def test_a_plant_says_what_the_environment_said() -> None:
    with GymnasiumPlant("CartPole-v1") as plant:
        plant.reset(np.random.default_rng(0))
        for _ in range(20):
            observation = plant.step(np.array([1.0]))
            if plant.terminated:
                break
        assert plant.terminated
        assert plant.reward == 1.0
        assert observation.shape == (4,)
        assert plant.steps == 500
        assert plant.rate == 50.0


def test_discrete_observations_become_one_hot() -> None:
    with GymnasiumPlant("FrozenLake-v1") as plant:
        observation = plant.reset(np.random.default_rng(0))
        np.testing.assert_array_equal(observation, np.eye(16)[0])
        assert plant.n_action == 4


def test_an_unknown_environment_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="NoSuchEnv-v0"):
        GymnasiumPlant("NoSuchEnv-v0").connect()


def test_observations_that_are_no_vector_are_refused() -> None:
    with pytest.raises(InvalidInput, match="Tuple"):
        GymnasiumPlant("Blackjack-v1").connect()


def test_an_environment_that_raises_is_a_plant_error() -> None:
    with GymnasiumPlant("CartPole-v1") as plant:
        plant.reset(np.random.default_rng(0))
        with pytest.raises(PlantError, match="failed in step"):
            plant.step(np.array([7.0]))


def test_stepping_before_connecting_is_a_plant_error_and_closing_twice_is_not() -> None:
    plant = GymnasiumPlant("CartPole-v1")
    with pytest.raises(PlantError, match="not connected"):
        plant.step(np.array([1.0]))
    plant.close()
    plant.close()
