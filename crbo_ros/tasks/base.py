"""A task: plant + policy + reward + domain + theta_0, in one file. Node, bench, launch and test all ask it.

with make_task("furuta", plant="stand_in") as task:
    outcome = task.rollout(task.theta_0, np.random.default_rng(0))
    print(outcome.value, outcome.end, outcome.reason)
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crbo_ros.core.problem import Problem
from crbo_ros.core.safe import Safe, safe_of
from crbo_ros.core.space import Space
from crbo_ros.errors import InvalidInput, UnknownName
from crbo_ros.plants.base import Connection

Array = NDArray[np.float64]

NAN = float("nan")

COMPLETED = "completed"  # the episode ran to its end
TERMINATED = "terminated"  # it ended early by the task's own rule (the pendulum fell); the return counts
STOPPED = "stopped"  # somebody stopped it (monitor, operator, signal); no return
FAILED = "failed"  # the plant refused what the policy asked for, or a simulation failed; no return
ENSEMBLE = "ensemble"  # the guide of several plausible plants
BROKEN = "broken"  # a real plant failed, by no fault of the policy; no return, and no end of the proposal


@dataclass(frozen=True)
class Trajectory:
    """What happened, step by step: time (T,) in s and columns of shape (T,) by name, units in the name's comment."""

    time: Array
    columns: dict[str, Array]


@dataclass(frozen=True)
class Outcome:
    """The result of one episode."""

    value: float  # the return; NaN unless end is completed or terminated
    end: str  # one of the words above
    reason: str = ""  # why it ended, for people
    steps: int = 0
    duration: float = 0.0  # s of the plant's time
    statistics: dict[str, float] = field(default_factory=dict)
    trajectory: Trajectory | None = None
    signals: dict[str, float] = field(default_factory=dict)  # largest absolute value of each safety signal,
    limits: dict[str, float] = field(default_factory=dict)  # and its limit
    violation: str = ""  # the signal that went beyond, in words

    @property
    def counts(self) -> bool:
        """Whether the return enters the data set."""
        return self.end in (COMPLETED, TERMINATED)


# Called on every control step, before its action is applied, with (time in s, observation, action) where the plant is
# stepped one by one, and with a negative time during a start-up that moves it; a returned string stops the episode with
# that reason. The first call with time 0 may wait for the approval, unless `ready` (see Task.holds_start) was asked. A
# simulation that runs an episode in one compiled call, in far less than a control period of real time, calls it once
# before and once after.
Watch = Callable[[float, Array, Array], "str | None"]


def plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as JSON values, those that are set; what JSON cannot say (a driver made by a test) by its type's name."""
    given = {name: value for name, value in options.items() if value is not None}
    return dict(json.loads(json.dumps(given, default=_plain)))


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # an array of NumPy's or of rclpy's
        return value.tolist()
    return str(value) if isinstance(value, Path) else type(value).__name__


class Task(Connection, ABC):
    """One experiment's problem. A context manager: entering connects the plant, leaving makes it safe.

    The simplest task sets space and theta_0 in its __init__. One that is slow to make, or that has a plant, says its
    facts in `problem` and hands them to Task.__init__; then nothing is made where only the facts are asked for.
    """

    name: str
    plants: tuple[str, ...]  # names accepted for `plant`; the first is the default
    space: Space  # the policy's domain (units: the policy's own)
    theta_0: Array  # the policy to start from
    gamma: float = 0.5  # the paper's confidence parameter for this task
    gammas: tuple[float, ...] = ()  # the exploration-parameter study's values
    exploration: dict[str, tuple[float, ...]] = {}  # the same for other methods, e.g. {"cma_es": (0.01, 0.05)}
    episodes: int = 100  # the paper's budget
    episode_seconds: float = 0.0  # longest episode with its reset and time-outs, s
    hardware: bool = True  # whether it can hurt somebody: False for a simulation
    j_min_drop: float = NAN  # the contract's threshold is J0 - j_min_drop |J0|; NaN: the task knows of none
    signals: tuple[Any, ...] = ()  # safety signals (tasks.signals.Signal): columns of the trajectories, with limits
    columns: tuple[str, ...] = ()  # names of observation and action, where a signal has a hard limit
    incidental: tuple[str, ...] = ("realtime",)  # options that do not change the return
    of_the_plant: tuple[str, ...] = ("realtime", "stepped", "plant_options", "physics", "signals")  # options that
    # another plant of the task does not share
    plant: Any = None  # what moves, if anything does
    # True: the rollout brings the plant into its start set (watch with negative time), holds it there, and lets the
    # policy act only when the first watch with time 0 agrees; so the approval is asked for when the plant is ready.
    holds_start: bool = False

    def __init__(self, plant: str | None = None, facts: Problem | None = None) -> None:
        self.plant_name = self.plant_of(plant)
        if facts is not None:
            self.space, self.theta_0, self.gamma = facts.space, facts.theta_0, facts.gamma
            self.episodes, self.episode_seconds, self.hardware = facts.episodes, facts.episode_seconds, facts.hardware

    @classmethod
    def plant_of(cls, plant: str | None) -> str:
        """The plant's name (the first one by default), or UnknownName that lists them."""
        from crbo_ros import registry

        if not plant or plant in cls.plants:
            return plant or cls.plants[0]
        others = [name.split(".", 1)[1] for name in registry.names("plants") if name.startswith(f"{cls.name}.")]
        if plant not in others:
            known = ", ".join([*cls.plants, *others])
            raise UnknownName(f"task {cls.name!r} has no plant {plant!r}; choose one of {known}")
        return plant

    @classmethod
    def problem(cls, plant: str | None = None, *_: Any, **options: Any) -> Problem:
        """The task's facts; the options are those of __init__. Tasks with a plant override this and make none."""
        task = cls(plant, **options)
        return Problem(
            task.name,
            task.plant_name,
            task.space,
            task.theta_0,
            gamma=task.gamma,
            episodes=task.episodes,
            episode_seconds=task.episode_seconds,
            hardware=task.hardware and getattr(task.plant, "is_hardware", True),
            j_min_drop=task.j_min_drop,
            options={name: value for name, value in plain(options).items() if name not in cls.incidental},
        )

    @classmethod
    def own_files(cls) -> dict[str, Path]:
        """Files of the package by the option that they stand for while nobody gives another: part of the record."""
        return {}

    @classmethod
    def simulators(cls, plant: str, **options: Any) -> list[Task]:
        """The task on the simulated plant of that name, for a guide (tasks/guide.py): the same policy, and whatever
        belongs to the robot's own plant left out. Tasks that know how a real plant may differ also have an "ensemble".
        """
        if plant == ENSEMBLE:
            raise InvalidInput(f"guide: task {cls.name!r} has no {ENSEMBLE}; name one of its simulated plants")
        return [cls(plant, **{name: value for name, value in options.items() if name not in cls.of_the_plant})]

    @property
    def dim(self) -> int:
        return self.space.dim

    @abstractmethod
    def rollout(
        self, theta: ArrayLike, rng: np.random.Generator, *, record: bool = False, watch: Watch | None = None
    ) -> Outcome:
        """Run one episode. InvalidInput for a bad theta (nothing moves); a plant's failure is an Outcome, no error."""

    def plot(self, trajectories: dict[str, Trajectory], path: Path) -> None:
        """Draw labelled trajectories into a picture."""
        raise NotImplementedError(f"task {self.name!r} has no plot")

    def exported(self, theta: ArrayLike) -> Any:
        """The policy for other programs: an Agent, or one of policies.exported; InvalidInput if there is none."""
        raise InvalidInput(f"task {self.name!r} does not say what its policy is to other programs (Task.exported)")

    def check(self) -> None:
        """MissingDependency if a package that the plant needs is not installed. Connects and moves nothing."""
        if isinstance(self.plant, Connection):
            self.plant.check()

    def connect(self) -> None:
        """Connect the plant."""
        if self.plant is not None:
            self.plant.connect()

    def limits_in_words(self) -> str:
        """The plant's limits, and those of the safety signals."""
        words = [self.plant.limits_in_words()] if isinstance(self.plant, Connection) else []
        for signal in self.signals:
            ends = f" (from {signal.hard:g} on the episode ends)" if math.isfinite(signal.hard) else ""
            words.append(f"|{signal.column}| up to {signal.limit:g}{ends}")
        return "; ".join(filter(None, words))

    def stop(self) -> Safe | None:
        """Plant into its safe state, now, and what was measured."""
        if self.plant is None:
            return Safe(True, "nothing moves")
        real = getattr(self.plant, "is_hardware", True)
        return safe_of(self.plant.stop(), not real, type(self.plant).__name__)

    def cut(self) -> None:
        """Begin to stop the plant, from any thread, without waiting for it."""
        cut = getattr(self.plant, "cut", None)
        if cut is not None:
            cut()

    def close(self) -> None:
        """Safe state and disconnect."""
        if self.plant is not None:
            self.plant.close()

    def apply_best(self, theta: ArrayLike) -> None:
        """Leave the plant with this policy at the end of a run, where that means something (tuned parameters)."""
