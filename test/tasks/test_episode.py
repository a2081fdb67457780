"""The generic stepping loop, with a plant whose every move is known."""

import math
from typing import Any

import numpy as np
import pytest

from crbo_ros.errors import PlantError
from crbo_ros.plants.base import Plant
from crbo_ros.tasks.episode import run_episode


class Counter(Plant):
    """Observation (1,): the sum of the actions so far; can fail or go blind at a step."""

    rate = 10.0

    def __init__(self, fail_at: Any = None, blind_at: Any = None, fail_in_reset: bool = False) -> None:
        self.fail_at, self.blind_at, self.fail_in_reset = fail_at, blind_at, fail_in_reset
        self.total, self.steps, self.stops = 0.0, 0, 0

    def connect(self) -> None:
        pass

    def reset(self, rng: np.random.Generator) -> Any:
        if self.fail_in_reset:
            raise PlantError("stuck at the end stop")
        return np.array([self.total])

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == self.fail_at:
            raise PlantError("a cable came off")
        self.total += float(action[0])
        return np.array([math.nan if self.steps == self.blind_at else self.total])

    def stop(self) -> None:
        self.stops += 1

    def statistics(self) -> dict[str, Any]:
        return {"steps": float(self.steps)}


def run(
    plant: Any,
    act: Any = lambda t, o: np.array([1.0]),
    judge: Any = lambda t, o, a: (float(o[0]), None),
    **options: Any,
) -> Any:
    options = {"steps": 5, "rng": np.random.default_rng(0), **options}
    return run_episode(plant, act, judge, **options)


def test_a_completed_episode_sums_the_rewards_and_records_every_step() -> None:
    plant = Counter()
    outcome = run(plant, record=True, columns=("sum", "action"))
    assert (outcome.value, outcome.end, outcome.steps, outcome.duration) == (15.0, "completed", 5, 0.5)
    np.testing.assert_array_equal(outcome.trajectory.columns["sum"], [1, 2, 3, 4, 5])
    np.testing.assert_allclose(outcome.trajectory.time, [0.1, 0.2, 0.3, 0.4, 0.5])
    assert outcome.statistics == {"steps": 5.0}
    assert plant.stops >= 1


def test_the_judges_reason_terminates_and_the_return_counts() -> None:
    outcome = run(Counter(), judge=lambda t, o, a: (1.0, "over the edge" if o[0] >= 3 else None))
    assert (outcome.value, outcome.end, outcome.reason, outcome.steps) == (3.0, "terminated", "over the edge", 3)
    assert outcome.counts


def test_the_watchs_reason_stops_before_the_action_is_applied() -> None:
    plant = Counter()
    outcome = run(plant, watch=lambda t, o, a: "monitor: no heartbeat" if t >= 0.2 else None)
    assert (outcome.end, outcome.reason, outcome.steps, plant.total) == ("stopped", "monitor: no heartbeat", 2, 2.0)
    assert math.isnan(outcome.value)


@pytest.mark.parametrize(
    ("plant", "reason", "steps"),
    [
        (Counter(fail_at=3), "a cable came off", 2),
        (Counter(fail_in_reset=True), "stuck at the end stop", 0),
        (Counter(blind_at=2), "observation at step 1 is not finite", 2),
    ],
)
def test_a_plants_failure_is_an_outcome_with_its_reason_and_the_plant_is_stopped(
    plant: Counter, reason: str, steps: int
) -> None:
    outcome = run(plant)
    assert (outcome.end, outcome.steps) == ("failed", steps)
    assert reason in outcome.reason
    assert not outcome.counts
    assert plant.stops >= 1


def test_an_action_that_is_not_finite_is_not_applied() -> None:
    plant = Counter()
    outcome = run(plant, act=lambda t, o: np.array([math.nan if t == 2 else 1.0]))
    assert (outcome.end, outcome.steps, plant.total) == ("failed", 2, 2.0)
    assert "action at step 2" in outcome.reason


def test_any_other_error_is_raised_with_the_plant_stopped() -> None:
    plant = Counter()
    with pytest.raises(KeyboardInterrupt):
        run(plant, act=lambda t, o: (_ for _ in ()).throw(KeyboardInterrupt()))
    assert plant.stops == 1
