"""The ready-made tests pass what is ours, and find what is broken in somebody else's."""

from typing import Any

import numpy as np
import pytest

from crbo_ros.methods.random_search import RandomSearch
from crbo_ros.plants.base import Plant
from crbo_ros.plants.qube.simulation import QubeSim
from crbo_ros.registry import make_task
from crbo_ros.tasks.base import Outcome, Task
from crbo_ros.testing import check_method, check_plant, check_policy, check_task


@pytest.mark.parametrize("name", ["furuta", "cartpole", pytest.param("pendulum", marks=pytest.mark.slow), "basketball"])
def test_our_tasks_pass(name: str) -> None:
    check_task(lambda: make_task(name))


def test_our_plants_and_policies_pass() -> None:
    check_plant(QubeSim, [[0.5], [-0.5], [0.0]])
    check_policy(lambda: make_task("furuta").policy)
    check_policy(lambda: make_task("basketball").dmp)


class Deaf(Task):
    """A task that nobody can stop, and whose return is not repeatable."""

    fault = "deaf"

    def __init__(self) -> None:
        from crbo_ros.core.space import Space

        self.space, self.theta_0, self.gamma = Space([0.0], [1.0]), np.array([0.5]), 0.6

    def rollout(self, theta: Any, rng: Any, *, record: bool = False, watch: Any = None) -> Outcome:
        theta = self.space.check(theta)
        noise = np.random.default_rng().random() if self.fault == "random" else 0.0
        return Outcome(float(theta[0]) + noise, "completed")


class Random(Deaf):
    fault = "random"


@pytest.mark.parametrize(("task", "said"), [(Deaf, "nobody can stop"), (Random, "gave another return")])
def test_a_broken_task_is_told_what_it_breaks(task: type[Task], said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        check_task(task)


class Forgetful(RandomSearch):
    """Draws from the global generator."""

    def _propose(self, id: int) -> Any:
        proposal = super()._propose(id)
        if id:
            proposal.theta[:] = self.space.from_unit(np.random.random(self.space.dim))  # noqa: NPY002
        return proposal


def test_a_method_with_a_generator_of_its_own_is_found() -> None:
    with pytest.raises(AssertionError, match="the same seed gave another run"):
        check_method(lambda space, theta_0, seed: Forgetful(space, theta_0, seed=seed))


class Torn(Plant):
    """A plant whose observations get longer."""

    rate = 10.0

    def connect(self) -> None:
        self.n = 1

    def reset(self, rng: Any) -> Any:
        return np.zeros(self.n)

    def step(self, action: Any) -> Any:
        self.n += 1
        return np.zeros(self.n)

    def stop(self) -> None:
        pass


def test_a_plant_with_observations_of_different_lengths_is_found() -> None:
    with pytest.raises(AssertionError, match="different lengths"):
        check_plant(Torn, [[0.0]])


class Shared:
    """A policy that hands out its own array."""

    n_weights = 3

    def __init__(self) -> None:
        self.theta = np.zeros(3)

    def get_weights(self) -> Any:
        return self.theta

    def set_weights(self, theta: Any) -> None:
        self.theta = np.asarray(theta)


def test_a_policy_that_shares_its_weights_is_found() -> None:
    with pytest.raises(AssertionError, match=r"shared with the caller|not what was set"):
        check_policy(Shared)
