"""Tune the parameters of any running ROS 2 node(s), as a YAML file says. No code needed.

    ./crbo run tuning --config examples/pid.yaml --episodes 40

theta is the listed parameters, in their own units; theta_0 their start values. The file's form: docs/INTEGRATION.md.
Making the task reads the file only; the nodes are looked for when it connects.
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crbo_ros.core.problem import Problem, digest
from crbo_ros.errors import InvalidInput, PlantError, PolicyFailed
from crbo_ros.plants.ros.config import TuningConfig, read_config
from crbo_ros.plants.ros.episode import FAREWELL
from crbo_ros.plants.ros.parameters import ANSWER, STOPPING, RosParameters
from crbo_ros.policies.exported import Values
from crbo_ros.ros.link import Stopped
from crbo_ros.tasks.base import BROKEN, COMPLETED, FAILED, NAN, STOPPED, Outcome, Task, Watch, plain
from crbo_ros.tasks.signals import beyond, signals_of

Array = NDArray[np.float64]
NOTHING = np.empty(0)


def _required(config: str | Path | None) -> str | Path:
    if config is None:
        raise InvalidInput(
            "task tuning needs a YAML file: --config FILE (ros2 launch: config:=FILE); see examples/pid.yaml"
        )
    return config


class Tuning(Task):
    """`config`: the YAML file."""

    name = "tuning"
    plants = ("ros_parameters",)
    j_min_drop = 0.5
    episodes = 40

    def __init__(self, plant: str | None = None, *, config: str | Path | None = None) -> None:
        self.config = read_config(_required(config))
        super().__init__(plant, self._facts(plant, self.config))
        self.plant = RosParameters(self.config, log=lambda text: print(f"tuning: {text}", flush=True))
        self.plant.serial = self.config.robot
        self.signals, self.columns = signals_of(self.config.safety)
        self._best = -math.inf

    @classmethod
    def problem(cls, plant: str | None = None, *, config: str | Path | None = None) -> Problem:
        """The facts, from the file alone."""
        return cls._facts(plant, read_config(_required(config)))

    @classmethod
    def _facts(cls, plant: str | None, config: TuningConfig) -> Problem:
        episode, returns, space = config.episode, config.returns, config.space
        nodes = len({parameter.node for parameter in config.parameters})
        setting = nodes * 3.0 * (ANSWER + 2 * STOPPING)  # found, set and read back; and the values to rest on, twice
        return Problem(
            cls.name,
            cls.plant_of(plant),
            space,
            space.check([parameter.start for parameter in config.parameters], "theta_0"),
            gamma=config.gamma,
            episodes=cls.episodes,
            episode_seconds=setting + episode.longest + returns.longest(episode.timeout) + FAREWELL,
            hardware=True,  # for all we know
            j_min_drop=cls.j_min_drop,
            options={
                "parameters": [parameter.label for parameter in config.parameters],
                **({"fixed": [(p.label, p.start) for p in config.fixed]} if config.fixed else {}),
                **({"robot": config.robot} if config.robot else {}),
            },
            returns=digest(plain({"episode": asdict(episode), "return": asdict(returns)})),
        )

    def exported(self, theta: ArrayLike) -> Values:
        """The parameters as their nodes hold them, those that are fixed as well."""
        tuned = zip(self.config.parameters, self.space.check(theta), strict=True)
        values = [*tuned, *((p, p.start) for p in self.config.fixed)]
        return Values([(p.node, p.name, p.typed(value)) for p, value in values])

    def rollout(
        self, theta: ArrayLike, rng: np.random.Generator, *, record: bool = False, watch: Watch | None = None
    ) -> Outcome:
        """Set theta, run an episode, set the values to rest on. `rng` is not used: the randomness is the robot's."""
        theta = self.space.check(theta)
        began = time.monotonic()

        def poll() -> None:
            seen = self.plant.safety.largest()
            if watch is not None and (reason := watch(time.monotonic() - began, seen, NOTHING)):
                raise Stopped(reason)

        def without(end: str, why: Exception) -> Outcome:
            heard = self.plant.safety.heard(complete=False)
            return Outcome(NAN, end, str(why), 0, time.monotonic() - began, signals=heard)

        self.plant.safety.reset()
        try:
            self.plant.connect()
            poll()
            self.plant.apply(theta, poll)
            value, seconds = self.plant.episode(poll)
            heard = self.plant.safety.heard()
            if not beyond(self.signals, heard):
                self._remember(theta, value)
        except Stopped as reason:
            return without(STOPPED, reason)
        except PolicyFailed as error:
            return without(FAILED, error)
        except PlantError as error:
            return without(BROKEN, error)
        finally:
            self.plant.stop()
        return Outcome(value, COMPLETED, "", 1, seconds, signals=heard)

    def _remember(self, theta: Array, value: float) -> None:
        """The best values so far are those to rest on, if the file says so."""
        if self.config.rest == "best" and value > self._best:
            self._best = value
            self.plant.settle_on(theta)

    def apply_best(self, theta: ArrayLike) -> None:
        """The node keeps the recommended values."""
        self.plant.settle_on(self.space.check(theta))
        self.plant.stop()
