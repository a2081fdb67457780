"""Drawings of a RunView with matplotlib, one function for each panel."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from crbo_ros.numbers import percent
from crbo_ros.protocol.records import VETOED
from crbo_ros.view.answers import describe
from crbo_ros.view.colors import AVERAGE, BEST, BOUND, COVERAGE, CURVES, GAMMA, OUTCOME_COLORS, START
from crbo_ros.view.headline import headline
from crbo_ros.view.run_view import RunView, Series
from crbo_ros.view.scale import Limits, visible, y_range

MARKERS = {"vetoed": "x", "stopped": "s", "failed": "v", "returned": "<", "expired": "d"}
SIZES = {"large": (8.0, 4.0), "small": (3.8, 3.4)}  # in: on a telephone the letters keep their size, the axes shrink
HYPERPARAMETERS = {
    "lengthscale": "lengthscale (unit box)",
    "r0": "r0 (unit box)",
    "signal_variance": "signal variance",
    "noise_variance": "noise variance",
    "lipschitz": "L (upper bound)",
    "lipschitz_paper": "L (paper's estimate)",
}


@dataclass(frozen=True)
class Spot:
    """A place on a drawing that says something when a pointer rests on it."""

    x: float
    y: float
    words: str


@dataclass(frozen=True)
class Drawing:
    """A panel as SVG (base64), for one kind of screen; lengths in points."""

    title: str
    kind: str  # one of SIZES
    width: float
    height: float
    source: str
    spots: list[Spot]


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
    from matplotlib.transforms import ScaledTranslation

    if axes.get_legend_handles_labels()[0]:
        figure = axes.figure
        below = axes.transAxes + ScaledTranslation(0.0, -0.42, figure.dpi_scale_trans)  # in: ticks and axis label
        columns = 4 if figure.get_figwidth() > SIZES["small"][0] else 2
        style = {"fontsize": 8, "ncols": columns, "frameon": False}
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), bbox_transform=below, **style)


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
    for color, (key, label) in zip(CURVES, HYPERPARAMETERS.items(), strict=False):
        ids, values = run.metric(key)
        positive = values > 0.0
        if np.any(positive):
            axes.plot(ids[positive], values[positive], color=color, linewidth=1.2, label=label)
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
    axes.scatter(index, start, color=START, s=10, zorder=2, label="theta_0")
    axes.set(xlabel="parameter", ylabel="value (unit box)", ylim=(-0.03, 1.03))
    _legend(axes)


PANELS = {
    "returns": ("Returns", draw_returns),
    "coverage": ("Bound and caution", draw_coverage),
    "hyperparameters": ("Hyperparameters", draw_hyperparameters),
    "policy": ("Best policy", draw_policy),
}
CONTRACT = ("Contract", draw_account)  # a panel of the page alone


def drawings(run: RunView) -> dict[str, list[Drawing]]:
    """Every panel of the page, by name, for each kind of screen. The contract's only where there is one to draw."""
    active = run.contract is not None and run.contract.contract.active and run.contract.ids
    panels = PANELS | ({"contract": CONTRACT} if active else {})
    return {name: [_drawing(run, name, *panel, kind) for kind in SIZES] for name, panel in panels.items()}


def _drawing(run: RunView, name: str, title: str, draw: Any, kind: str) -> Drawing:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    svg = io.BytesIO()
    figure = Figure(figsize=SIZES[kind], layout="constrained")
    axes = figure.subplots()
    draw(axes, run)
    axes.grid(alpha=0.3)
    with rc_context({"svg.hashsalt": "crbo_ros"}):  # the same run, the same bytes
        figure.savefig(svg, format="svg", metadata={"Date": None})
    width, height = (72.0 * inches for inches in SIZES[kind])
    spots = (
        [Spot(width * x, height * (1.0 - y), words) for x, y, words in _spots(axes, run)] if name == "returns" else []
    )
    return Drawing(title, kind, width, height, base64.b64encode(svg.getvalue()).decode(), spots)


def _spots(axes: Any, run: RunView) -> Iterator[tuple[float, float, str]]:
    """(x, y, words) of each episode where draw_returns has put it, in shares of the figure."""
    low, high = axes.get_ylim()
    for row in run.rows:
        height = row.bound if row.outcome == VETOED else row.value
        height = float(np.clip(height, low, high)) if np.isfinite(height) else low + 0.02 * (high - low)
        x, y = axes.figure.transFigure.inverted().transform(axes.transData.transform((row.id, height)))
        yield x, y, describe(row)


def overview(run: RunView) -> Any:
    """All panels in one figure, for report.png."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14.0, 9.0), layout="constrained")
    for axes, (title, draw) in zip(figure.subplots(2, 2).flat, PANELS.values(), strict=True):
        draw(axes, run)
        axes.set_title(title, fontsize=11)
        axes.grid(alpha=0.3)
    figure.suptitle(headline(run) or f"{run.name}: nothing stored yet")
    return figure
