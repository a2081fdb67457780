"""What a policy is to others, besides a network (agent.Agent): a planned movement, or values of parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from crbo_ros.policies.dmp import JointTrajectory


@dataclass(frozen=True)
class Movement:
    """A planned movement of named joints."""

    joints: tuple[str, ...]
    trajectory: JointTrajectory


@dataclass(frozen=True)
class Values:
    """Named values: (node, name, value) for parameters of ROS nodes."""

    parameters: list[tuple[str, str, Any]]
