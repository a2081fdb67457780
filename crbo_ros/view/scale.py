"""Which part of a run's plots to show: early bounds can lie orders of magnitude below the returns."""

from __future__ import annotations

import math

import numpy as np

from crbo_ros.view.run_view import Array, Curve, Series

ROOM = 1.5  # spans of the returns that the bounds may take below them
FEWEST = 5.0  # proposals for which there is room from the beginning
SHARE = 0.3  # or this share of the largest return's size, when the returns hardly differ yet

Limits = tuple[float, float]


def y_range(series: Series) -> Limits | None:
    """(bottom, top): all returns, and as much of the bounds as leaves them readable; None without a return."""
    y = np.concatenate([series.points["completed"][1], series.points["terminated"][1]])
    y = y[np.isfinite(y)]
    if not y.size:
        return None
    low, high = float(np.min(y)), float(np.max(y))
    span = max(high - low, 1e-3 * max(1e-6, abs(high)))
    below = np.concatenate([series.bounds[1], series.points["vetoed"][1]])
    below = below[np.isfinite(below)]
    bottom = low
    if below.size:
        bottom = min(low, max(float(np.min(below)), low - max(ROOM * span, SHARE * max(abs(low), abs(high)))))
    margin = 0.05 * (high - bottom) + 0.05 * span
    return bottom - margin, high + margin


def x_range(series: Series) -> Limits:
    """From the first proposal to the newest, and beyond: axes that do not change need not be drawn again."""
    newest = max((float(x[-1]) for x in (series.best[0], series.gamma[0]) if len(x)), default=0.0)
    newest = max(newest, FEWEST)
    step = 10.0 ** math.floor(math.log10(max(newest / 50.0, 1.0)))
    end = step * math.ceil(newest / step)
    room = 0.02 * end + 0.5
    return -room, end + room


def visible(points: Curve, limits: Limits | None) -> Curve:
    """Points that lie below the picture, or whose height is not known, are drawn on its lower edge."""
    bottom = limits[0] + 0.02 * (limits[1] - limits[0]) if limits else 0.0
    heights: Array = np.nan_to_num(points[1], nan=bottom, neginf=bottom)
    return points[0], np.maximum(heights, bottom if limits else -np.inf)
