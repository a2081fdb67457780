"""A cart on a rail that a spring-damper policy brings to the middle."""

from typing import Any

import numpy as np

from crbo_ros.core.space import Space
from crbo_ros.tasks.base import COMPLETED, STOPPED, Outcome, Task


class Tiny(Task):
    """theta: stiffness (1/s^2) and damping (1/s). Return: minus the mean distance over 4 s."""

    name = "tiny"
    plants = ("simulation",)
    gamma = 0.5
    episode_seconds = 4.0
    hardware = False

    def __init__(self, plant: Any = None, *, distance: float = 1.0) -> None:
        super().__init__(plant)
        self.distance = float(distance)
        self.space = Space([0.1, 0.1], [50.0, 20.0], log=[True, True], names=["stiffness", "damping"])
        self.theta_0 = np.array([1.0, 0.3])

    def rollout(self, theta: Any, rng: np.random.Generator, *, record: bool = False, watch: Any = None) -> Outcome:
        stiffness, damping = self.space.check(theta)
        x, v, total, dt = self.distance * (1.0 + 0.01 * rng.normal()), 0.0, 0.0, 0.01
        for step in range(400):
            if watch is not None and (reason := watch(step * dt, np.array([x, v]), np.zeros(1))):
                return Outcome(float("nan"), STOPPED, reason, step, step * dt)
            v += dt * (-stiffness * x - damping * v)
            x += dt * v
            total += abs(x)
        return Outcome(-total / 400, COMPLETED, steps=400, duration=4.0)
