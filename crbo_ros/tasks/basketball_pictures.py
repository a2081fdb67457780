"""Pictures of the basketball task: a film of a throw (rendered on the CPU, no display needed) and a plot of flights."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crbo_ros.errors import InvalidInput, MissingDependency
from crbo_ros.plants.kuka import RIM_RADIUS
from crbo_ros.tasks.base import COMPLETED, Outcome, Trajectory

if TYPE_CHECKING:
    from crbo_ros.tasks.basketball import Basketball

Array = NDArray[np.float64]

LINGER = 0.35  # s of film after the result is certain


def film(
    task: Basketball, theta: Array, release: float, path: Path, *, width: int = 480, height: int = 360,
    fps: float = 24.0, slow: float = 2.0,
) -> Outcome:  # fmt: skip
    """Run one throw and write `path` (.gif, or a folder of .png frames). `slow`: 2 plays at half speed."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingDependency("films need Pillow: pip install pillow") from None
    if path.suffix not in (".gif", ""):
        raise InvalidInput(
            f"{path}: films are written as .gif, or as .png frames into a folder (a path without a suffix)"
        )
    every = max(1, round(task.plant.rate / (fps * slow)))
    frames: list[Image.Image] = []
    trace: list[tuple[float, float, float]] = []

    def shoot(time: float) -> None:
        trace.append(task.plant.ball_position())
        if round(time * task.plant.rate) % every == 0:
            frames.append(_with_trace(task, Image.fromarray(task.plant.image(width, height)), trace))

    outcome = task._episode(theta, release, linger=LINGER, on_step=shoot)
    if outcome.end != COMPLETED:
        return outcome
    if path.suffix == "":
        path.mkdir(parents=True, exist_ok=True)
        for i, frame in enumerate(frames):
            frame.save(path / f"frame_{i:03d}.png")
        return outcome
    # One palette for all frames: half the size of a palette each, and no flicker.
    palette = frames[len(frames) // 2].quantize(96, dither=Image.Dither.NONE)
    pictures = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    durations = [round(1000.0 / fps)] * (len(pictures) - 1) + [1500]
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=durations, loop=0, optimize=True)
    return outcome


def _with_trace(task: Basketball, picture: Any, trace: list[tuple[float, float, float]]) -> Any:
    """Dots where the ball has been, so that a still frame shows the throw."""
    from PIL import ImageDraw

    draw = ImageDraw.Draw(picture)
    for u, v in task.plant.project(np.array(trace[::6]), *picture.size):
        draw.ellipse((u - 1.5, v - 1.5, u + 1.5, v + 1.5), fill=(200, 90, 20))
    return picture


def plot(hoop: Array, trajectories: dict[str, Trajectory], path: Path) -> None:
    """Ball from the side (x, z) and from above (x, y), and its distance to the hoop's centre over time."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 3.8), layout="constrained")
    side, top, distance = figure.subplots(1, 3)
    for label, trajectory in trajectories.items():
        x, y, z = (trajectory.columns[f"ball_{axis}"] for axis in "xyz")
        side.plot(x, z, label=label)
        top.plot(x, y)
        distance.plot(trajectory.time, trajectory.columns["distance"])
    rim = np.linspace(0.0, 2.0 * np.pi, 60)
    side.plot([hoop[0] - RIM_RADIUS, hoop[0] + RIM_RADIUS], [hoop[2], hoop[2]], "r", lw=3, label="rim")
    top.plot(hoop[0] + RIM_RADIUS * np.cos(rim), hoop[1] + RIM_RADIUS * np.sin(rim), "r", lw=2)
    side.set(xlabel="x in m", ylabel="z in m", title="from the side")
    top.set(xlabel="x in m", ylabel="y in m", title="from above")
    distance.set(xlabel="time in s", ylabel="distance to the hoop in m", ylim=(0.0, None))
    for axes in (side, top):
        axes.set_aspect("equal", adjustable="datalim")
    side.legend(fontsize="small")
    figure.savefig(path, dpi=120)
