"""The picture of agents before and after: one panel a column, one line a trajectory."""

from __future__ import annotations

from pathlib import Path

from crbo_ros.tasks.base import Trajectory

MOST = 6  # panels of an environment that names none


def plot(trajectories: dict[str, Trajectory], panels: tuple[tuple[str, str, float], ...], path: Path) -> None:
    """`panels`: (column, axis label, factor to the label's unit); without any, the first columns and the return."""
    from matplotlib.figure import Figure

    columns = list(next(iter(trajectories.values())).columns)
    panels = panels or tuple((name, name, 1.0) for name in [*columns[: MOST - 1], "return"])
    figure = Figure(figsize=(7.0, 1.0 + 1.7 * len(panels)), layout="constrained")
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for axis, (column, label, factor) in zip(axes, panels, strict=True):
        for name, trajectory in trajectories.items():
            axis.plot(trajectory.time, factor * trajectory.columns[column], label=name, linewidth=1.2)
        axis.set_ylabel(label)
        axis.grid(alpha=0.3)
    axes[0].legend(loc="best", fontsize="small")
    axes[-1].set_xlabel("time [s]")
    figure.savefig(path, dpi=120)
