"""Tune the parameters of any running ROS 2 node(s), as a YAML file says. No code needed.

    ./crbo run tuning --config examples/pid.yaml --episodes 40

theta is the listed parameters, in their own units; theta_0 their start values. The file's form: docs/INTEGRATION.md.
Making the task reads the file only; the nodes are looked for when it connects.
"""

from __future__ import annotations

import math
import time
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crbo_ros.errors import InvalidInput, PlantError
from crbo_ros.plants.ros.config import read_config
from crbo_ros.plants.ros.parameters import RosParameters
from crbo_ros.ros.link import Stopped
from crbo_ros.tasks.base import COMPLETED, FAILED, NAN, STOPPED, Outcome, Task, Watch

Array = NDArray[np.float64]
NOTHING = np.empty(0)


class Tuning(Task):
    """`config`: the YAML file."""

    name = "tuning"
    plants = ("ros_parameters",)
    episodes = 40

    def __init__(self, plant: str | None = None, *, config: str | Path | None = None) -> None:
        super().__init__(plant)
        if config is None:
            raise InvalidInput("task tuning needs a YAML file: --config FILE (see examples/pid.yaml)")
        self.config = read_config(config)
        self.space = self.config.space
        self.plant = RosParameters(self.config, log=lambda text: print(f"tuning: {text}", flush=True))
        self.theta_0 = self.space.check(self.plant.start, "theta_0")
        self.gamma = self.config.gamma
        episode = self.config.episode
        self.episode_seconds = episode.delay + (episode.seconds or 0.0) + (episode.timeout if episode.start else 0.0)
        self._best = -math.inf

    def rollout(
        self, theta: ArrayLike, rng: np.random.Generator, *, record: bool = False, watch: Watch | None = None
    ) -> Outcome:
        """Set theta, run an episode, set the values to rest on. `rng` is not used: the randomness is the robot's."""
        theta = self.space.check(theta)
        began = time.monotonic()

        def poll() -> None:
            if watch is not None and (reason := watch(time.monotonic() - began, NOTHING, NOTHING)):
                raise Stopped(reason)

        try:
            self.plant.connect()
            poll()
            self.plant.apply(theta, poll)
            value, seconds = self.plant.episode(poll)
            self._remember(theta, value)
        except Stopped as reason:
            return Outcome(NAN, STOPPED, str(reason), 0, time.monotonic() - began)
        except PlantError as error:
            return Outcome(NAN, FAILED, str(error), 0, time.monotonic() - began)
        finally:
            self.plant.stop()
        return Outcome(value, COMPLETED, "", 1, seconds)

    def _remember(self, theta: Array, value: float) -> None:
        """The best values so far are those to rest on, if the file says so."""
        if self.config.rest == "best" and value > self._best:
            self._best = value
            self.plant.settle_on(theta)

    def apply_best(self, theta: ArrayLike) -> None:
        """The node keeps the recommended values."""
        self.plant.settle_on(self.space.check(theta))
        self.plant.stop()
