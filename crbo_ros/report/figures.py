"""Drawings of a RunView with matplotlib, one function for each panel."""

from __future__ import annotations

from typing import Any

import numpy as np

from crbo_ros.view.colors import AVERAGE, BEST, BOUND, COVERAGE, GAMMA, OUTCOME_COLORS
from crbo_ros.view.numbers import number, percent
from crbo_ros.view.run_view import RunView, Series
from crbo_ros.view.scale import Limits, visible, y_range

MARKERS = {"vetoed": "x", "stopped": "s", "failed": "v", "returned": "<", "expired": "d"}
HYPERPARAMETERS = {
    "lengthscale": "lengthscale (unit box)",
    "r0": "r0 (unit box)",
    "signal_variance": "signal variance",
    "noise_variance": "noise variance",
    "lipschitz": "L (upper bound)",
    "lipschitz_paper": "L (paper's estimate)",
}


def draw_returns(axes: Any, run: RunView) -> None:
    """Return of each episode by outcome, with the bound under each point, best so far and average."""
    series = run.series()
    ids, bounds, y = series.bounds
    if len(ids):
        axes.vlines(ids, bounds, y, color=BOUND, linewidth=0.6, alpha=0.5, zorder=1)
        axes.scatter(ids, bounds, marker="_", s=22, color=BOUND, linewidth=1.0, zorder=2, label="worst-case bound")
    for outcome in ("completed", "terminated"):
        ids, y = series.points[outcome]
        if len(ids):
            axes.scatter(ids, y, color=OUTCOME_COLORS[outcome], s=20, zorder=4, label=f"{outcome} ({len(ids)})")
    if len(series.best[0]):
        axes.step(*series.best, where="post", color=BEST, linewidth=1.4, label="best so far", zorder=3)
        axes.plot(*series.average, color=AVERAGE, linewidth=1.2, linestyle="--", label="average return", zorder=3)
    limits = y_range(series)
    _draw_without_return(axes, series, limits)
    if limits:
        axes.set_ylim(*limits)
    axes.set(xlabel="proposal", ylabel="return")
    _legend(axes)


def _legend(axes: Any) -> None:
    """Below the axes, where it hides nothing."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), fontsize=8, ncols=4, frameon=False)


def _draw_without_return(axes: Any, series: Series, limits: Limits | None) -> None:
    """Vetoes at the bound that spoke against them, others without a return at the bottom edge; and the threshold."""
    for outcome, marker in MARKERS.items():
        ids, heights = series.points[outcome]
        style: dict[str, Any] = {"color": OUTCOME_COLORS[outcome], "marker": marker, "s": 26, "zorder": 5}
        style |= {"clip_on": False, "label": f"{outcome} ({len(ids)})"}
        if len(ids) and np.any(np.isfinite(heights)):
            axes.scatter(*visible((ids, heights), limits), **style)
        elif len(ids):
            axes.scatter(ids, [0.02] * len(ids), transform=axes.get_xaxis_transform(), **style)
    if len(series.threshold[0]):
        color = OUTCOME_COLORS["vetoed"]
        axes.plot(*series.threshold, color=color, linewidth=1.0, linestyle=":", label="threshold", zorder=2)


def draw_account(axes: Any, run: RunView) -> None:
    """What the account of violations holds, the violations, and how many new policies may have fallen by now."""
    if run.contract is None:
        return
    balance, violations, allowed = run.contract.balances()
    ids = np.array(run.contract.ids)
    order = np.argsort(ids, kind="stable")
    axes.step(ids[order], allowed[order], where="post", color=BOUND, linestyle="--", label="allowed so far")
    axes.step(ids[order], violations[order], where="post", color=OUTCOME_COLORS["vetoed"], label="violations")
    axes.plot(ids[order], balance[order], color=BEST, linewidth=1.4, label="the account")
    axes.axhline(0.0, color="#999999", linewidth=0.6)
    axes.set(xlabel="proposal", ylabel="violations")
    _legend(axes)


def draw_coverage(axes: Any, run: RunView) -> None:
    """Share of the bounds that held, and gamma, both in [0, 1]."""
    series = run.series()
    ids, coverage = series.coverage
    if len(ids):
        label = f"coverage of the bound ({percent(coverage[-1])})"
        axes.plot(ids, coverage, color=COVERAGE, linewidth=1.4, label=label)
    for key, style in (("gamma", ":"), ("gamma_effective", "-")):
        ids, values = run.metric(key)
        if len(ids):
            axes.step(ids, values, where="mid", color=GAMMA, linestyle=style, label=key.replace("_", " "))
    for id in series.points["vetoed"][0]:
        axes.axvline(id, color=OUTCOME_COLORS["vetoed"], linewidth=0.6, alpha=0.5)
    axes.set(xlabel="proposal", ylabel="coverage, gamma", ylim=(0.0, 1.05))
    _legend(axes)


def draw_hyperparameters(axes: Any, run: RunView) -> None:
    """The surrogate's metrics at each proposal, on a logarithmic scale."""
    drawn = False
    for key, label in HYPERPARAMETERS.items():
        ids, values = run.metric(key)
        positive = values > 0.0
        if np.any(positive):
            axes.plot(ids[positive], values[positive], linewidth=1.2, label=label)
            drawn = True
    axes.set(xlabel="proposal", ylabel="hyperparameters")
    if drawn:
        axes.set_yscale("log")
        _legend(axes)


def draw_policy(axes: Any, run: RunView) -> None:
    """The recommended policy against theta_0, entry by entry in the unit box."""
    space = run.space
    if space is None or run.experiment is None:
        return
    start = space.to_unit(run.experiment["theta_0"])
    index = np.arange(space.dim)
    if run.best is not None:
        best = space.to_unit(run.best.theta)
        axes.vlines(index, start, best, color=BEST, linewidth=1.5, alpha=0.6)
        axes.scatter(index, best, color=BEST, s=14, zorder=3, label=f"best (proposal {run.best.id})")
    axes.scatter(index, start, color="0.3", s=10, zorder=2, label="theta_0")
    axes.set(xlabel="parameter", ylabel="value (unit box)", ylim=(-0.03, 1.03))
    _legend(axes)


PANELS = {
    "returns": ("Returns", draw_returns),
    "coverage": ("Bound and caution", draw_coverage),
    "hyperparameters": ("Hyperparameters", draw_hyperparameters),
    "policy": ("Best policy", draw_policy),
}
CONTRACT = ("Contract", draw_account)  # a panel of the page alone


def panel(run: RunView, name: str, size: tuple[float, float] = (10.0, 4.0)) -> Any:
    """One panel as a figure of its own."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    (CONTRACT if name == "contract" else PANELS[name])[1](axes, run)
    axes.grid(alpha=0.3)
    return figure


def overview(run: RunView) -> Any:
    """All panels in one figure, for report.png."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14.0, 9.0), layout="constrained")
    for axes, (title, draw) in zip(figure.subplots(2, 2).flat, PANELS.values(), strict=True):
        draw(axes, run)
        axes.set_title(title, fontsize=11)
        axes.grid(alpha=0.3)
    figure.suptitle(f"{run.name}: {headline(run)}")
    return figure


def headline(run: RunView) -> str:
    """The run in one line."""
    if run.experiment is None:
        return "nothing stored yet"
    row, y = run.experiment, run.returns
    text = f"{row['method']} on {row['task']}, {row['dim']} parameters, {len(y)} episodes"
    if len(y):
        text += f", return {number(y[0])} → {number(y.max())}, average {number(y.mean())}"
    return text
