"""Where experiments are kept, and which of them a name means: one home for launch files, nodes and every command."""

from __future__ import annotations

import os
from pathlib import Path

from crbo_ros import checks

HOME, ROS_HOME = "CRBO_HOME", "ROS_HOME"  # environment
FOLDER = "crbo_ros"  # below ROS_HOME


def home(given: str | Path = "") -> Path:
    """The folder with a folder for each experiment: the given one, CRBO_HOME, or crbo_ros in ROS_HOME (~/.ros)."""
    if given or (given := os.environ.get(HOME, "")):
        return checks.path(given, "the folder of all experiments").absolute()
    return checks.path(os.environ.get(ROS_HOME) or "~/.ros", ROS_HOME).absolute() / FOLDER


def namespace_of(experiment: str) -> str:
    """The ROS namespace of an experiment whose user chose none: never the root, where a robot's own names live."""
    text = "".join(c if c.isascii() and c.isalnum() else "_" for c in experiment)
    return text if text[:1].isalpha() else f"crbo_{text}"
