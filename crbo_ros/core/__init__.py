"""The algorithm: mathematics alone, no ROS, no files, no clock."""

from crbo_ros.core.bound import Bound
from crbo_ros.core.crbo import CRBO
from crbo_ros.core.space import Space
from crbo_ros.core.trial import Best, Proposal, TrialStatus

__all__ = ["CRBO", "Best", "Bound", "Proposal", "Space", "TrialStatus"]
