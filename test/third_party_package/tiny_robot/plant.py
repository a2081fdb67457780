"""A plant for a task of crbo_ros: the simulated Qube with a counter, in place of one with another driver."""

from crbo_ros.plants.base import Plant
from crbo_ros.plants.qube.simulation import QubeSim


class TinyQube(Plant):
    def __init__(self):
        self.inner, self.steps = QubeSim("nominal"), 0
        self.rate = self.inner.rate

    def connect(self):
        self.inner.connect()

    def reset(self, rng):
        return self.inner.reset(rng)

    def step(self, action):
        self.steps += 1
        return self.inner.step(action)

    def stop(self):
        self.inner.stop()
