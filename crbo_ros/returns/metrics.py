"""The metrics, as functions of sampled signals. Times t (n,) in s, ascending; values (n,), positions (n, 2) in m.

Integrals are trapezoidal sums over the samples' own times, so that a rate that changes does not matter.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crbo_ros.errors import InvalidInput

Array = NDArray[np.float64]
BAND = 0.02  # of the step: settled within this
RISE = (0.1, 0.9)  # of the step: rise time is from the one to the other


def integral(t: Array, y: Array) -> float:
    return float(np.sum(0.5 * (y[1:] + y[:-1]) * np.diff(t)))


# -- a setpoint r and a measurement y -------------------------------------------------------------------


def iae(t: Array, r: Array, y: Array) -> float:
    """Integral of the absolute error."""
    return integral(t, np.abs(r - y))


def ise(t: Array, r: Array, y: Array) -> float:
    """Integral of the squared error."""
    return integral(t, (r - y) ** 2)


def itae(t: Array, r: Array, y: Array) -> float:
    """Integral of time times absolute error, time from the first sample on: late errors weigh more."""
    return integral(t, (t - t[0]) * np.abs(r - y))


def rms_error(t: Array, r: Array, y: Array) -> float:
    return float(np.sqrt(ise(t, r, y) / (t[-1] - t[0])))


def max_error(t: Array, r: Array, y: Array) -> float:
    return float(np.max(np.abs(r - y)))


def _step(r: Array, y: Array) -> tuple[float, float]:
    """(start, height) of the step from the first measurement to the last setpoint."""
    height = float(r[-1] - y[0])
    if height == 0.0:
        raise InvalidInput("there is no step: the first measurement is the last setpoint")
    return float(y[0]), height


def overshoot(t: Array, r: Array, y: Array) -> float:
    """How far the measurement went beyond the last setpoint, as a share of the step."""
    start, height = _step(r, y)
    return max(0.0, float(np.max((y - start) / height)) - 1.0)


def rise_time(t: Array, r: Array, y: Array) -> float:
    """s from 10 % to 90 % of the step; the whole record where it never gets there."""
    start, height = _step(r, y)
    share = (y - start) / height
    times = []
    for level in RISE:
        above = np.flatnonzero(share >= level)
        if not len(above):
            return float(t[-1] - t[0])
        k = int(above[0])
        if k == 0:
            times.append(float(t[0]))
        else:
            part = (level - share[k - 1]) / (share[k] - share[k - 1])
            times.append(float(t[k - 1] + part * (t[k] - t[k - 1])))
    return times[1] - times[0]


def settling_time(t: Array, r: Array, y: Array) -> float:
    """s until the measurement stays within 2 % of the step around the last setpoint; the whole record if never."""
    _, height = _step(r, y)
    outside = np.flatnonzero(np.abs(y - r[-1]) > BAND * abs(height))
    if not len(outside):
        return 0.0
    return float(t[min(int(outside[-1]) + 1, len(t) - 1)] - t[0])


# -- one signal u ---------------------------------------------------------------------------------------


def effort(t: Array, u: Array) -> float:
    """Integral of the square."""
    return integral(t, u**2)


def total_variation(t: Array, u: Array) -> float:
    """Sum of the absolute changes: chatter."""
    return float(np.sum(np.abs(np.diff(u))))


def saturation(t: Array, u: Array, limit: float) -> float:
    """Share of the time at the limit (of the intervals, those that begin there)."""
    at = (np.abs(u) >= limit * (1.0 - 1e-9)).astype(float)
    return float(np.sum(at[:-1] * np.diff(t)) / (t[-1] - t[0]))


def mean(t: Array, u: Array) -> float:
    return integral(t, u) / float(t[-1] - t[0])


def smallest(t: Array, u: Array) -> float:
    return float(np.min(u))


def largest(t: Array, u: Array) -> float:
    return float(np.max(u))


def last(t: Array, u: Array) -> float:
    return float(u[-1])


def duration(t: Array, u: Array) -> float:
    """s from the first to the last sample."""
    return float(t[-1] - t[0])


def acceleration(t: Array, u: Array) -> float:
    """Integral of the squared rate of change: of a turn rate, how jerky the path is steered."""
    dt = np.diff(t)
    return float(np.sum(np.diff(u)[dt > 0] ** 2 / dt[dt > 0]))


# -- positions p (n, 2) and a path q (m, 2) -------------------------------------------------------------


def path_length(p: Array) -> float:
    return float(np.sum(np.linalg.norm(np.diff(p, axis=0), axis=1)))


def path_ratio(p: Array, q: Array) -> float:
    """Length driven, by the plan's length."""
    planned = path_length(q)
    if planned <= 0.0:
        raise InvalidInput("the plan has no length")
    return path_length(p) / planned


def distances(p: Array, q: Array) -> Array:
    """Of each position from the path, (n,): the nearest point of the nearest segment."""
    if len(q) < 2:
        raise InvalidInput("a path needs two points")
    a, d = q[:-1], np.diff(q, axis=0)
    square = np.maximum(np.sum(d * d, axis=1), 1e-300)
    along = np.clip(np.einsum("nmi,mi->nm", p[:, None, :] - a, d) / square, 0.0, 1.0)
    nearest = a + along[..., None] * d
    return np.asarray(np.min(np.linalg.norm(p[:, None, :] - nearest, axis=2), axis=1))


def cross_track(p: Array, q: Array) -> float:
    """Root mean square distance from the path."""
    return float(np.sqrt(np.mean(distances(p, q) ** 2)))


def cross_track_max(p: Array, q: Array) -> float:
    return float(np.max(distances(p, q)))


def goal_error(p: Array, q: Array) -> float:
    """Distance of the last position from the path's end."""
    return float(np.linalg.norm(p[-1] - q[-1]))
