"""Which part of a plot of returns to show: early bounds can lie orders of magnitude below the returns."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

ROOM = 1.5  # spans of the returns that the bounds may take below them
SHARE = 0.3  # or this share of the largest return's size, when the returns hardly differ yet


def readable_range(returns: ArrayLike, bounds: ArrayLike) -> tuple[float, float] | None:
    """(bottom, top): all returns, and as much of the bounds as leaves them readable; None without a return."""
    y, below = np.asarray(returns, float), np.asarray(bounds, float)
    if not y.size:
        return None
    low, high = float(np.min(y)), float(np.max(y))
    span = max(high - low, 1e-3 * max(1e-6, abs(high)))
    below = below[np.isfinite(below)]
    bottom = low
    if below.size:
        bottom = min(low, max(float(np.min(below)), low - max(ROOM * span, SHARE * max(abs(low), abs(high)))))
    margin = 0.05 * (high - bottom) + 0.05 * span
    return bottom - margin, high + margin
