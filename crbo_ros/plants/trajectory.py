"""What an arm may do, a check of whole trajectories against it, and trajectories that keep it. No ROS."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crbo_ros.core.space import as_vector
from crbo_ros.errors import InvalidInput
from crbo_ros.policies.dmp import JointTrajectory

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ArmLimits:
    """What the arm may do, per joint: rad, rad/s, rad/s^2, Nm (acceleration and effort may be None: not checked)."""

    joints: tuple[str, ...]
    lower: Array
    upper: Array
    velocity: Array
    acceleration: Array | None = None
    effort: Array | None = None  # measured, while it moves

    def __post_init__(self) -> None:
        n = len(self.joints)
        for name in ("lower", "upper", "velocity", "acceleration", "effort"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, as_vector(getattr(self, name), f"limits.{name}", n))
        if n == 0 or len(set(self.joints)) != n:
            raise InvalidInput(f"joints: {self.joints} must be different names, at least one")
        if np.any(self.lower >= self.upper):
            raise InvalidInput(f"limits.lower: {self.lower} must be below limits.upper ({self.upper})")

    def in_words(self) -> str:
        joints = zip(self.joints, self.lower, self.upper, self.velocity, strict=True)
        return "; ".join(f"{name} {low:.3g} to {high:.3g} rad, {speed:.3g} rad/s" for name, low, high, speed in joints)

    def violation(self, trajectory: JointTrajectory) -> str:
        """The first moment at which a trajectory leaves the limits, in words; "" if it never does."""
        middle, half = (self.upper + self.lower) / 2.0, (self.upper - self.lower) / 2.0
        checks = [("position", "rad", trajectory.position, middle, half)]
        checks.append(("velocity", "rad/s", trajectory.velocity, 0.0 * middle, self.velocity))
        if self.acceleration is not None:
            checks.append(("acceleration", "rad/s^2", trajectory.acceleration, 0.0 * middle, self.acceleration))
        for what, unit, values, centre, reach in checks:
            beyond = ~(np.abs(values - centre) <= reach * (1.0 + 1e-9) + 1e-9)  # not ">": NaN must be caught too
            if beyond.any():
                t = int(np.argmax(beyond.any(axis=1)))
                j = int(np.argmax(beyond[t]))
                limit = centre[j] + reach[j] if values[t, j] > centre[j] else centre[j] - reach[j]
                return (
                    f"{what} of joint {self.joints[j]} at {trajectory.time[t]:.3f} s would be {values[t, j]:.3f}, "
                    f"beyond its limit of {limit:.3f} {unit}"
                )
        return ""


def beyond(measured: Array, limit: Array, joints: tuple[str, ...], what: str, unit: str) -> str:
    """The joint whose measured value is not within +-limit, in words; "" if there is none. NaN is not within."""
    wrong = ~(np.abs(measured) <= limit)
    if not wrong.any():
        return ""
    j = int(np.argmax(wrong))
    return f"measured {what} of joint {joints[j]} is {measured[j]:.3f} {unit} (limit {limit[j]:.3f})"


def minimum_jerk(start: ArrayLike, goal: ArrayLike, seconds: float, rate: float = 100.0) -> JointTrajectory:
    """From rest at start to rest at goal, shapes (T, joints)."""
    start, goal = np.asarray(start, float), np.asarray(goal, float)
    n = max(2, round(seconds * rate))
    s = np.linspace(0.0, 1.0, n + 1)[:, None]
    d = goal - start
    position = start + d * (10 * s**3 - 15 * s**4 + 6 * s**5)
    velocity = d * (30 * s**2 - 60 * s**3 + 30 * s**4) / seconds
    acceleration = d * (60 * s - 180 * s**2 + 120 * s**3) / seconds**2
    return JointTrajectory(np.linspace(0.0, seconds, n + 1), position, velocity, acceleration)


def to_rest(trajectory: JointTrajectory, seconds: float = 0.2) -> JointTrajectory:
    """The trajectory with its last velocity braked to 0 at a constant rate: controllers refuse one that ends moving."""
    velocity = trajectory.velocity[-1]
    if np.max(np.abs(velocity)) < 1e-6:
        return trajectory
    step = trajectory.time[-1] - trajectory.time[-2]
    n = max(2, round(seconds / step))
    t = np.linspace(0.0, seconds, n + 1)[1:, None]
    brake = -velocity / seconds
    return JointTrajectory(
        np.concatenate([trajectory.time, trajectory.time[-1] + t[:, 0]]),
        np.concatenate([trajectory.position, trajectory.position[-1] + velocity * t + brake * t**2 / 2.0]),
        np.concatenate([trajectory.velocity, velocity + brake * t]),
        np.concatenate([trajectory.acceleration, np.broadcast_to(brake, (n, len(brake)))]),
    )


def slowed(trajectory: JointTrajectory, limits: ArmLimits, most: float) -> JointTrajectory:
    """The same path, as much slower (at most by this factor) as velocity and acceleration limits ask for."""
    factor = float(np.max(np.abs(trajectory.velocity) / limits.velocity))
    if limits.acceleration is not None:
        factor = max(factor, float(np.sqrt(np.max(np.abs(trajectory.acceleration) / limits.acceleration))))
    if not 1.0 < factor <= most:
        return trajectory
    return JointTrajectory(
        trajectory.time * factor,
        trajectory.position,
        trajectory.velocity / factor,
        trajectory.acceleration / factor**2,
    )
