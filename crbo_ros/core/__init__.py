"""The algorithm: no ROS, no messages, no files but the store."""

from crbo_ros.core.lipschitz import Bound, WorstCase
from crbo_ros.core.optimizer import Optimizer
from crbo_ros.core.space import Space
from crbo_ros.core.types import Best, End, Proposal

__all__ = ["Best", "Bound", "End", "Optimizer", "Proposal", "Space", "WorstCase"]
