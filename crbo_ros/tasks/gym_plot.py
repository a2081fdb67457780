"""The picture of agents before and after: one panel a column, one line a trajectory."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from crbo_ros.tasks.base import Trajectory

MOST = 6  # panels of an environment that names none


class Panel(NamedTuple):
    """A column of the trajectory, times `factor` in the unit of `label`; `limit` shows -limit to limit only."""

    column: str
    label: str
    factor: float = 1.0
    limit: float | None = None


def plot(trajectories: dict[str, Trajectory], panels: tuple[Panel, ...], path: Path) -> None:
    """Draw the panels; without any, the first columns and the return."""
    from matplotlib.figure import Figure

    columns = list(next(iter(trajectories.values())).columns)
    panels = panels or tuple(Panel(name, name) for name in [*columns[: MOST - 1], "return"])
    figure = Figure(figsize=(7.0, 1.0 + 1.7 * len(panels)), layout="constrained")
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for axis, panel in zip(axes, panels, strict=True):
        for name, trajectory in trajectories.items():
            axis.plot(trajectory.time, panel.factor * trajectory.columns[panel.column], label=name, linewidth=1.2)
        axis.set_ylabel(panel.label)
        if panel.limit is not None:
            axis.set_ylim(-panel.limit, panel.limit)
        axis.grid(alpha=0.3)
    axes[0].legend(loc="best", fontsize="small")
    axes[-1].set_xlabel("time [s]")
    figure.savefig(path, dpi=120)
