"""Drawings of a Record with matplotlib, one function for each panel; each takes axes and a Record."""

from __future__ import annotations

from typing import Any

import numpy as np

from crbo_ros.view.colors import AVERAGE, BEST, BOUND, COVERAGE, GAMMA, OUTCOME_COLORS
from crbo_ros.view.record import Record
from crbo_ros.view.scale import readable_range

HYPERPARAMETERS = {
    "lengthscale": "lengthscale (unit box)",
    "r0": "r0 (unit box)",
    "signal_variance": "signal variance",
    "noise_variance": "noise variance",
    "lipschitz": "L (upper bound)",
    "lipschitz_paper": "L (paper's estimate)",
}


def draw_returns(axes: Any, record: Record) -> None:
    """Return of each episode by outcome, with the bound under each point, best so far and average."""
    counted, y = record.counted, record.returns
    bounded = [entry for entry in counted if np.isfinite(entry.bound)]
    if bounded:
        ids, bounds = [e.id for e in bounded], [e.bound for e in bounded]
        axes.vlines(ids, bounds, [e.value for e in bounded], color=BOUND, linewidth=0.6, alpha=0.5, zorder=1)
        axes.scatter(ids, bounds, marker="_", s=22, color=BOUND, linewidth=1.0, zorder=2, label="worst-case bound")
    for outcome in ("completed", "terminated"):
        shown = [entry for entry in counted if entry.outcome == outcome]
        if shown:
            style = {"color": OUTCOME_COLORS[outcome], "s": 20, "zorder": 4}
            axes.scatter([e.id for e in shown], [e.value for e in shown], label=f"{outcome} ({len(shown)})", **style)
    ids = [entry.id for entry in counted]
    if counted:
        axes.step(ids, np.maximum.accumulate(y), where="post", color=BEST, linewidth=1.4, label="best so far", zorder=3)
        average = np.cumsum(y) / np.arange(1, len(y) + 1)
        axes.plot(ids, average, color=AVERAGE, linewidth=1.2, linestyle="--", label="average return", zorder=3)
    limits = readable_range(record.returns, [entry.bound for entry in record.entries])
    _draw_without_return(axes, record, limits[0] if limits else -np.inf)
    if limits:
        axes.set_ylim(*limits)
    axes.set(xlabel="proposal", ylabel="return")
    _legend(axes)


def _legend(axes: Any) -> None:
    """Below the axes, where it hides nothing."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), fontsize=8, ncols=4, frameon=False)


def _draw_without_return(axes: Any, record: Record, bottom: float) -> None:
    """Vetoes at the bound that spoke against them, others without a return at the bottom edge; and the threshold."""
    for outcome, marker in (("vetoed", "x"), ("stopped", "s"), ("failed", "v"), ("expired", "d")):
        shown = [entry for entry in record.entries if entry.outcome == outcome]
        at_bound = [entry for entry in shown if outcome == "vetoed" and np.isfinite(entry.bound)]
        style: dict[str, Any] = {"color": OUTCOME_COLORS[outcome], "marker": marker, "s": 26, "zorder": 5}
        if at_bound:
            heights = [max(entry.bound, bottom) for entry in at_bound]
            axes.scatter([e.id for e in at_bound], heights, clip_on=False, label=f"vetoed ({len(shown)})", **style)
        elif shown:
            edge = axes.get_xaxis_transform()
            style |= {"transform": edge, "clip_on": False, "label": f"{outcome} ({len(shown)})"}
            axes.scatter([e.id for e in shown], [0.02] * len(shown), **style)
    judged = [(entry.id, entry.verdict["threshold"]) for entry in record.entries if entry.verdict]
    thresholds = [(id, value) for id, value in judged if value is not None]
    if thresholds:
        ids, values = zip(*thresholds, strict=True)
        color = OUTCOME_COLORS["vetoed"]
        axes.plot(ids, values, color=color, linewidth=1.0, linestyle=":", label="threshold", zorder=2)


def draw_coverage(axes: Any, record: Record) -> None:
    """Share of the bounds that held, and gamma in force, both in [0, 1]."""
    ids, coverage = record.coverage()
    if len(ids):
        axes.plot(ids, coverage, color=COVERAGE, linewidth=1.4, label=f"coverage of the bound ({coverage[-1]:.3f})")
    for key, style in (("gamma", ":"), ("gamma_effective", "-")):
        ids, values = record.figure(key)
        if len(ids):
            axes.step(ids, values, where="mid", color=GAMMA, linestyle=style, label=key.replace("_", " "))
    for entry in record.vetoes:
        axes.axvline(entry.id, color=OUTCOME_COLORS["vetoed"], linewidth=0.6, alpha=0.5)
    axes.set(xlabel="proposal", ylabel="coverage, gamma", ylim=(0.0, 1.05))
    _legend(axes)


def draw_hyperparameters(axes: Any, record: Record) -> None:
    """The surrogate's figures at each proposal, on a logarithmic scale."""
    drawn = False
    for key, label in HYPERPARAMETERS.items():
        ids, values = record.figure(key)
        positive = values > 0.0
        if np.any(positive):
            axes.plot(ids[positive], values[positive], linewidth=1.2, label=label)
            drawn = True
    axes.set(xlabel="proposal", ylabel="hyperparameters")
    if drawn:
        axes.set_yscale("log")
        _legend(axes)


def draw_policy(axes: Any, record: Record) -> None:
    """The recommended policy against theta_0, entry by entry in the unit box."""
    space = record.space
    if space is None or record.experiment is None:
        return
    start = space.to_unit(record.experiment["theta_0"])
    index = np.arange(space.dim)
    if record.best is not None:
        best = space.to_unit(record.best.theta)
        axes.vlines(index, start, best, color=BEST, linewidth=1.5, alpha=0.6)
        axes.scatter(index, best, color=BEST, s=14, zorder=3, label=f"best (proposal {record.best.id})")
    axes.scatter(index, start, color="0.3", s=10, zorder=2, label="theta_0")
    axes.set(xlabel="parameter", ylabel="value (unit box)", ylim=(-0.03, 1.03))
    _legend(axes)


PANELS = {
    "returns": ("Returns", draw_returns),
    "coverage": ("Bound and caution", draw_coverage),
    "hyperparameters": ("Hyperparameters", draw_hyperparameters),
    "policy": ("Best policy", draw_policy),
}


def panel(record: Record, name: str, size: tuple[float, float] = (10.0, 4.0)) -> Any:
    """One panel as a figure of its own."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    PANELS[name][1](axes, record)
    axes.grid(alpha=0.3)
    return figure


def overview(record: Record) -> Any:
    """All panels in one figure, for report.png."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14.0, 9.0), layout="constrained")
    for axes, (title, draw) in zip(figure.subplots(2, 2).flat, PANELS.values(), strict=True):
        draw(axes, record)
        axes.set_title(title, fontsize=11)
        axes.grid(alpha=0.3)
    figure.suptitle(f"{record.name}: {headline(record)}")
    return figure


def headline(record: Record) -> str:
    """The run in one line."""
    if record.experiment is None:
        return "nothing stored yet"
    row, y = record.experiment, record.returns
    text = f"{row['method']} on {row['task']}, {row['dim']} parameters, {len(y)} episodes"
    if len(y):
        text += f", return {y[0]:.4g} → {np.max(y):.4g}, average {np.mean(y):.4g}"
    return text
