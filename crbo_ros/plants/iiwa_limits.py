"""What a real KUKA LBR iiwa 7 R800 can do, from its data sheet, and a check of whole trajectories against it.

The limits are the arm's own; they are checked on every trajectory before anything moves, also in simulation, so that
what was learned there can run on the arm.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crbo_ros.policies.dmp import JointTrajectory

Array = NDArray[np.float64]

JOINTS = ("A1", "A2", "A3", "A4", "A5", "A6", "A7")  # KUKA's names
POSITION = np.deg2rad([170.0, 120.0, 170.0, 120.0, 170.0, 120.0, 175.0])  # rad, both directions
VELOCITY = np.deg2rad([98.0, 98.0, 100.0, 130.0, 140.0, 180.0, 180.0])  # rad/s
TORQUE = np.array([176.0, 176.0, 110.0, 110.0, 110.0, 40.0, 40.0])  # Nm


@dataclass(frozen=True)
class Violation:
    """The first moment at which a trajectory leaves the limits."""

    quantity: str  # "position", "velocity" or "torque"
    joint: str
    time: float  # s
    value: float  # rad, rad/s or Nm
    limit: float

    def __str__(self) -> str:
        scale, unit = {"position": (180.0 / np.pi, "deg"), "velocity": (180.0 / np.pi, "deg/s"), "torque": (1.0, "Nm")}[
            self.quantity
        ]
        return (
            f"{self.quantity} of joint {self.joint} at {self.time:.3f} s is {self.value * scale:.1f} {unit}, beyond "
            f"the iiwa 7's limit of {self.limit * scale:.0f} {unit}"
        )


def first_violation(time: Array, values: Array, limit: Array, quantity: str) -> Violation | None:
    """The earliest entry of values (T, 7) that is beyond +-limit (7,) or not a number; None if there is none."""
    beyond = ~(np.abs(values) <= limit)  # not "> limit": NaN must be caught too
    if not beyond.any():
        return None
    t = int(np.argmax(beyond.any(axis=1)))
    j = int(np.argmax(beyond[t]))
    return Violation(quantity, JOINTS[j], float(time[t]), float(values[t, j]), float(limit[j]))


def check(trajectory: JointTrajectory, torque: Array | None = None) -> Violation | None:
    """The first violation of position, then velocity, then torque (T, 7) in Nm where it is given."""
    found = first_violation(trajectory.time, trajectory.position, POSITION, "position")
    found = found or first_violation(trajectory.time, trajectory.velocity, VELOCITY, "velocity")
    if found is None and torque is not None:
        found = first_violation(trajectory.time, torque, TORQUE, "torque")
    return found


def usage(trajectory: JointTrajectory, torque: Array | None = None) -> dict[str, Array]:
    """Largest share of each limit that a trajectory uses, per joint (7,): 1 is the limit."""
    shares = {
        "position": np.abs(trajectory.position).max(axis=0) / POSITION,
        "velocity": np.abs(trajectory.velocity).max(axis=0) / VELOCITY,
    }
    if torque is not None:
        shares["torque"] = np.abs(torque).max(axis=0) / TORQUE
    return shares
