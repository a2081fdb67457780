"""A plant for a task of crbo_ros: the simulated Qube with a counter, in place of one with another driver."""

from typing import Any

import numpy as np

from crbo_ros.plants.base import Plant
from crbo_ros.plants.qube.simulation import QubeSim


class TinyQube(Plant):
    def __init__(self) -> None:
        self.inner, self.steps = QubeSim("nominal"), 0
        self.rate = self.inner.rate

    def connect(self) -> None:
        self.inner.connect()

    def reset(self, rng: np.random.Generator) -> Any:
        return self.inner.reset(rng)

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self.inner.step(action)

    def stop(self) -> None:
        self.inner.stop()
