"""Ready-made tests for what you add: a task, a plant, a method, a policy. Ours are tested by the same functions.

    from crbo_ros.testing import check_task

    def test_my_task() -> None:
        check_task(lambda: MyTask("my_plant"))

Each takes a function that makes a fresh one, and raises AssertionError with a sentence that says which promise of
docs/NEW_TASK.md is broken. They run rollouts and steps: give them a simulation, or stay beside the hardware.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crbo_ros.core.method import Method
from crbo_ros.core.space import Space
from crbo_ros.core.trial import TrialStatus
from crbo_ros.errors import InvalidInput
from crbo_ros.plants.base import Plant
from crbo_ros.tasks.base import COMPLETED, FAILED, STOPPED, TERMINATED, Task

SPACE = Space([-1.0, -2.0, 0.0], [1.0, 2.0, 4.0])
THETA_0 = np.array([0.3, 0.5, 1.5])
OPTIMUM = np.array([0.1, 0.2, 2.0])


class Policy(Protocol):
    """What the tasks ask of a policy: a vector and back."""

    @property
    def n_weights(self) -> int: ...

    def get_weights(self) -> NDArray[np.float64]: ...

    def set_weights(self, theta: ArrayLike) -> None: ...


def bowl(theta: ArrayLike) -> float:
    """A smooth return, best at OPTIMUM with value 1, in the unit box's units."""
    return 1.0 - 4.0 * float(np.sum((SPACE.to_unit(theta) - SPACE.to_unit(OPTIMUM)) ** 2))


def drive(method: Method, episodes: int) -> NDArray[np.float64]:
    """Ask and tell on the bowl; all policies so far, shape (trials, 3)."""
    for _ in range(episodes):
        proposal = method.ask()
        method.tell(proposal.id, bowl(proposal.theta))
    return np.array([trial.proposal.theta for trial in method.trials])


def check_method(make: Callable[[Space, NDArray[np.float64], int], Method], episodes: int = 12) -> None:
    """`make(space, theta_0, seed)`: theta_0 first, all in the box, ids in order, the same run from the same seed and
    another from another, a restored one carries on alike, refusals end nothing, several proposals out at once."""
    np.random.seed(0)  # noqa: NPY002  (a method that draws from the global generator is found, whatever ran before)
    method = make(SPACE, THETA_0, 5)
    thetas = drive(method, episodes)
    assert method.trials[0].proposal.kind == "start", "the first proposal's kind must be 'start'"
    assert np.array_equal(thetas[0], THETA_0), "the first proposal must be theta_0 itself"
    assert [trial.proposal.id for trial in method.trials] == list(range(episodes)), "ids must count from 0"
    assert np.all((thetas >= SPACE.lower) & (thetas <= SPACE.upper)), "a proposal lies outside the bounds"
    assert len(np.unique(thetas, axis=0)) > episodes // 2, "most proposals are repetitions of others"
    best = method.best()
    assert best is not None, "best() must recommend something after returns came in"
    np.random.seed(1)  # noqa: NPY002
    assert np.array_equal(thetas, drive(make(SPACE, THETA_0, 5), episodes)), "the same seed gave another run"
    assert not np.array_equal(thetas, drive(make(SPACE, THETA_0, 6), episodes)), "another seed gave the same run"
    _check_restored(make)
    for end in ("veto", "fail", "expire"):
        _check_refusals(make, end)
    method = make(SPACE, THETA_0, 1)
    for proposal in reversed([method.ask() for _ in range(9)]):
        method.tell(proposal.id, bowl(proposal.theta))
    drive(method, 3)
    assert method.n == 12, "nine proposals were out at once; not all of their returns are in the data"
    assert all(trial.end is TrialStatus.COMPLETED for trial in method.trials), "a told proposal is not completed"


def _check_restored(make: Callable[[Space, NDArray[np.float64], int], Method]) -> None:
    method = make(SPACE, THETA_0, 2)
    drive(method, 6)
    method.veto(method.ask().id, "too bold")
    copy = make(SPACE, THETA_0, 2)
    copy.restore(json.loads(json.dumps(method.state())))
    assert np.array_equal(copy.ask().theta, method.ask().theta), "after restore(state()) the next proposal is another"


def _check_refusals(make: Callable[[Space, NDArray[np.float64], int], Method], end: str) -> None:
    method = make(SPACE, THETA_0, 4)
    getattr(method, end)(method.ask().id, "no")  # even theta_0
    again = method.ask()
    assert np.array_equal(again.theta, THETA_0), f"after {end} of theta_0 it must be proposed again"
    method.tell(again.id, bowl(again.theta))
    for _ in range(12):
        getattr(method, end)(method.ask().id, "no")
    drive(method, 4)
    assert method.n == len(method.data()[1]) == 5, f"what ended by {end} entered the data"
    assert method.best() is not None, f"no recommendation after {end}"


def check_task(make: Callable[[], Task], radius: float = 0.02) -> None:
    """Facts that fit together, theta_0 inside, an episode repeats from its seed, `watch` stops it, a bad theta is
    refused by name. `radius`: how far from theta_0, in the unit box, a further policy is tried."""
    task = make()
    assert task.dim == len(task.theta_0) == len(task.space.lower), "space and theta_0 are of different lengths"
    task.space.check(task.theta_0, "theta_0")
    assert 0.0 < task.gamma < 1.0, "gamma must lie between 0 and 1"
    with task:
        first, again = (task.rollout(task.theta_0, np.random.default_rng(3)) for _ in range(2))
        assert first.end in (COMPLETED, TERMINATED), f"theta_0 does not get through: {first.end}, {first.reason}"
        assert np.isfinite(first.value), "a completed episode's return must be finite"
        if not getattr(getattr(task, "plant", None), "is_hardware", False):
            assert first.value == again.value, "the same theta and rng gave another return"
        direction = np.random.default_rng(0).standard_normal(task.dim)
        point = task.space.to_unit(task.theta_0) + radius * direction / np.linalg.norm(direction)
        near = task.rollout(task.space.from_unit(np.clip(point, 0.0, 1.0)), np.random.default_rng(3))
        assert near.end in (COMPLETED, TERMINATED, FAILED), f"a policy nearby ended as {near.end!r}: {near.reason}"
        asked: list[float] = []

        def stop(time: float, *_: Any) -> str:
            asked.append(time)
            return "enough"

        stopped = task.rollout(task.theta_0, np.random.default_rng(3), watch=stop)
        assert asked, "watch was never asked: nobody can stop this task"
        assert (stopped.end, stopped.reason) == (STOPPED, "enough"), f"watch said stop; the outcome is {stopped.end!r}"
        assert not stopped.counts, "a stopped episode's return must not count"
        for wrong in (task.theta_0[:-1], np.full(task.dim, np.nan), task.space.upper + 1.0):
            try:
                task.rollout(wrong, np.random.default_rng(0))
            except InvalidInput:
                continue
            raise AssertionError("a theta of wrong length, not finite or out of bounds must raise InvalidInput")
        task.stop()
        task.stop()  # at any moment, more than once


def check_plant(make: Callable[[], Plant], actions: Sequence[ArrayLike], steps: int = 20) -> None:
    """Observations of one length, finite, the same from the same generator; `stop` at any moment, more than once;
    a plant that was left can be entered again. `actions` are taken in turns."""
    runs = []
    for _ in range(2):
        plant = make()
        assert plant.rate > 0.0, "rate must be positive (Hz)"
        with plant:
            seen = [np.asarray(plant.reset(np.random.default_rng(1)), float)]
            for number in range(steps):
                seen.append(np.asarray(plant.step(np.asarray(actions[number % len(actions)], float)), float))
            plant.stop()
            plant.stop()
            seen.append(np.asarray(plant.reset(np.random.default_rng(1)), float))
        assert {one.shape for one in seen} == {seen[0].shape}, "observations are of different lengths"
        assert len(seen[0]) >= len(plant.joint_names), "there are more joint names than entries of an observation"
        assert np.all(np.isfinite(seen)), "an observation is not finite"
        runs.append(np.array(seen))
    if not plant.is_hardware:
        assert np.array_equal(runs[0], runs[1]), "the same generator and actions gave other observations"
        assert np.array_equal(runs[0][0], runs[0][-1]), "a second reset from the same generator begins elsewhere"


def check_policy(make: Callable[[], Policy]) -> None:
    """A vector and back: the length that it says, a copy and no view, and a wrong one is refused without a change."""
    policy = make()
    theta = policy.get_weights()
    assert theta.shape == (policy.n_weights,), "get_weights() is not of the length n_weights"
    other = theta + 0.01
    policy.set_weights(other)
    assert np.allclose(policy.get_weights(), other, rtol=0.0, atol=1e-12), "get_weights() is not what was set"
    other += 1.0
    policy.get_weights()[:] = 0.0
    assert np.allclose(policy.get_weights(), theta + 0.01, atol=1e-12), "weights are shared with the caller: copy them"
    for wrong in (theta[:-1], np.full(len(theta), np.nan), theta[None]):
        try:
            policy.set_weights(wrong)
        except InvalidInput:
            continue
        raise AssertionError("a theta of wrong length or shape, or not finite, must raise InvalidInput")
    assert np.allclose(policy.get_weights(), theta + 0.01, atol=1e-12), "a refused theta changed the weights"
