"""theta_0 against the best policy, simulated again for the report; never on hardware."""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crbo_ros.numbers import number
from crbo_ros.view.colors import BEST, GAMMA
from crbo_ros.view.record import remake
from crbo_ros.view.run_view import RunView

SEEDS = (0,)


@dataclass(frozen=True)
class Replay:
    """A picture of both episodes, or the reason why there is none."""

    png: bytes = b""
    note: str = ""


def replay(run: RunView, options: dict[str, Any] | None = None) -> Replay:
    """Run both policies once in the task's simulation, from the same seed, and draw what happened."""
    if run.experiment is None or run.best is None:
        return Replay(note="no episode has been completed yet")
    try:
        return _replay(run, options or {})
    except Exception as error:  # whatever a task of somebody else's does, the rest of the report is still wanted
        return Replay(note=f"the episodes could not be simulated here: {error}")


def _replay(run: RunView, options: dict[str, Any]) -> Replay:
    assert run.experiment is not None
    assert run.best is not None
    from cycler import cycler
    from matplotlib import rc_context

    task = remake(run, **options)
    if getattr(getattr(task, "plant", None), "is_hardware", True):  # unknown: it may move something
        return Replay(note="the plant is hardware; a report moves nothing")
    if task.space.dim != len(run.best.theta):
        return Replay(note=f"the task has {task.space.dim} parameters here, the experiment {len(run.best.theta)}")
    with task, tempfile.TemporaryDirectory() as folder:
        trajectories, notes = {}, []
        for label, theta in (("theta_0", run.experiment["theta_0"]), ("best", run.best.theta)):
            outcome = task.rollout(theta, np.random.default_rng(SEEDS[0]), record=True)
            value = number(outcome.value) if math.isfinite(outcome.value) else outcome.end
            notes.append(f"{label} {value} ({outcome.end}{': ' + outcome.reason if outcome.reason else ''})")
            if outcome.trajectory is not None:
                trajectories[f"{label} ({value})"] = outcome.trajectory
        note = f"Simulated again on {task.plant_name} with seed {SEEDS[0]}: {'; '.join(notes)}."
        if not trajectories:
            return Replay(note=note)
        path = Path(folder) / "trajectories.png"
        with rc_context({"axes.prop_cycle": cycler(color=(GAMMA, BEST))}):
            try:
                task.plot(trajectories, path)
            except NotImplementedError:
                _plot(trajectories, path)
        return Replay(path.read_bytes(), note)


def _plot(trajectories: dict[str, Any], path: Path) -> None:
    """Every column over time, for tasks that have no picture of their own."""
    from matplotlib.figure import Figure

    names = list(next(iter(trajectories.values())).columns)[:8]
    figure = Figure(figsize=(10.0, 1.5 + 1.3 * len(names)), layout="constrained")
    rows = np.atleast_1d(figure.subplots(len(names), 1, sharex=True))
    for axes, name in zip(rows, names, strict=True):
        for label, trajectory in trajectories.items():
            axes.plot(trajectory.time, trajectory.columns[name], linewidth=1.0, label=label)
        axes.set_ylabel(name)
        axes.grid(alpha=0.3)
    rows[0].legend(loc="best", fontsize=8)
    rows[-1].set_xlabel("time, s")
    figure.savefig(path, dpi=110)
