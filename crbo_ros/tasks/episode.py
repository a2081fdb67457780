"""One episode on a plant that is stepped one control period at a time: plant + policy + reward + limits + watch.

Every task whose plant is not simulated in one compiled call uses this loop, so that the ways to end mean the
same everywhere (tasks/base.py). The plant is stopped (its safe state) on every way out, errors included.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from crbo_ros.errors import PlantError, PolicyFailed
from crbo_ros.plants.base import Plant, ResetStopped
from crbo_ros.tasks.base import BROKEN, COMPLETED, FAILED, NAN, STOPPED, TERMINATED, Outcome, Trajectory, Watch

Array = NDArray[np.float64]

# (step, observation) -> action; must be within the plant's limits, so that what is recorded is what was applied
Act = Callable[[int, Array], Array]
# (step, observation after it, action) -> (reward, None), or (reward, reason) to end the episode here
Judge = Callable[[int, Array, Array], "tuple[float, str | None]"]


class Recorder:
    """Keeps what every step gave, when asked to; `columns` names the observation's entries, then the action's."""

    def __init__(self, columns: tuple[str, ...], rate: float, wanted: bool) -> None:
        self.columns, self.rate, self.wanted = columns, rate, wanted
        self._rows: list[Array] = []

    def add(self, observation: Array, action: Array) -> None:
        if self.wanted:
            self._rows.append(np.concatenate([observation, action]))

    def trajectory(self) -> Trajectory | None:
        if not self.wanted:
            return None
        rows = np.array(self._rows).reshape(len(self._rows), -1)
        if not self._rows:
            rows = np.zeros((0, len(self.columns)))
        time = np.arange(1, len(rows) + 1) / self.rate
        return Trajectory(time, {name: rows[:, i].copy() for i, name in enumerate(self.columns)})


def run_episode(
    plant: Plant,
    act: Act,
    judge: Judge,
    *,
    steps: int,
    rng: np.random.Generator,
    columns: tuple[str, ...] = (),
    record: bool = False,
    watch: Watch | None = None,
) -> Outcome:
    """Reset, then at most `steps` periods; the return is the sum of the judge's rewards.

    completed: all steps ran. terminated: the judge gave a reason; the return so far counts. stopped: the watch gave a
    reason, before an action was applied or (asked with time -1) during a reset that moves the plant. failed: the plant
    refused, or the policy's action is not finite (and not applied). broken: a real plant failed.
    """
    recorder = Recorder(columns, plant.rate, record)
    total, done = 0.0, 0

    def finish(end: str, reason: str = "") -> Outcome:
        plant.stop()
        value = total if end in (COMPLETED, TERMINATED) else NAN
        return Outcome(value, end, reason, done, done / plant.rate, plant.statistics(), recorder.trajectory())

    plant.reset_watch = None if watch is None else lambda observation, action: watch(-1.0, observation, action)
    plant.reset_ready = getattr(watch, "ready", None)
    try:
        observation = plant.reset(rng)
        for step in range(steps):
            action = act(step, observation)
            if not np.all(np.isfinite(action)):
                return finish(FAILED, f"the policy's action at step {step} is not finite: {action}")
            if watch is not None and (reason := watch(step / plant.rate, observation, action)):
                return finish(STOPPED, reason)
            observation = plant.step(action)
            done += 1
            recorder.add(observation, action)
            if not np.all(np.isfinite(observation)):
                end = BROKEN if plant.is_hardware else FAILED
                return finish(end, f"the plant's observation at step {step} is not finite: {observation}")
            reward, reason = judge(step, observation, action)
            total += reward
            if reason is not None:
                return finish(TERMINATED, reason)
        return finish(COMPLETED)
    except ResetStopped as error:
        return finish(STOPPED, str(error))
    except PolicyFailed as error:
        return finish(FAILED, str(error))
    except PlantError as error:  # a simulation's failure is a function of what the policy did; a real plant's is not
        return finish(BROKEN if plant.is_hardware else FAILED, str(error))
    except BaseException:
        plant.stop()
        raise
