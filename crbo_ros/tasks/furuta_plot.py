"""Pictures of Furuta episodes: arm against reference, pendulum and voltage over time."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from crbo_ros.tasks.base import Trajectory


def plot(trajectories: dict[str, Trajectory], path: Path) -> None:
    """Three panels over a common time axis, one line for each labelled trajectory."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 7.0), layout="constrained")
    arm, pendulum, voltage = figure.subplots(3, 1, sharex=True, height_ratios=(2, 1, 1))
    longest = max(trajectories.values(), key=lambda trajectory: len(trajectory.time))
    arm.plot(longest.time, np.degrees(longest.columns["reference"]), color="black", linewidth=1.2, label="reference")
    for label, trajectory in trajectories.items():
        (line,) = arm.plot(trajectory.time, np.degrees(trajectory.columns["arm"]), linewidth=1.2, label=label)
        style = {"color": line.get_color(), "linewidth": 0.7}
        pendulum.plot(trajectory.time, np.degrees(trajectory.columns["pendulum"]), **style)
        voltage.plot(trajectory.time, trajectory.columns["voltage"], **style)
    arm.axhline(90.0, color="0.7", linestyle=":", linewidth=0.8)
    arm.axhline(-90.0, color="0.7", linestyle=":", linewidth=0.8)
    arm.set(ylabel="arm, deg", ylim=(-100.0, 100.0))
    arm.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=4, frameon=False)
    pendulum.set(ylabel="pendulum, deg")
    voltage.set(ylabel="voltage, V", xlabel="time, s")
    for axes in (arm, pendulum, voltage):
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)
