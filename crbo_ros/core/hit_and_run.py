"""Hit-and-run: uniform samples of a region of the unit box (paper, Alg. 1; Smith 1984; Belisle 1993), many chains at
once.

Each step draws a uniformly random direction and moves to a random point of (line) n (region) n (box), however many
pieces that set has: `tries` points drawn uniformly on the line's part in the box, the first one inside is taken. That
is the uniform law on the line set whenever one is found. If none is, the bracket shrinks towards the current point as
in slice sampling (Neal 2003, Fig. 5) until a point is inside. Both leave the uniform law of the region invariant
exactly: seen from the new point, the same rejected points have the same density. No root finding, no piece
overlooked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from crbo_ros.core.kernels import Array

Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]
LineTest = Callable[[Rows, Array], Mask]
ATTEMPTS = 16


class Lines(Protocol):
    """A region that can be tested along lines."""

    def on_line(self, x: Array, u: Array) -> LineTest: ...


class Membership:
    """Any region given by a membership function P (m, d) -> (m,)."""

    def __init__(self, inside: Callable[[Array], Mask]) -> None:
        self.inside = inside

    def on_line(self, x: Array, u: Array) -> LineTest:
        return lambda rows, t: self.inside(x[rows] + t[:, None] * u[rows])


def box_interval(x: Array, u: Array) -> tuple[Array, Array]:
    """The t with x + t u in the unit box, per row: (low <= 0, high >= 0)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        a, b = -x / u, (1.0 - x) / u
    moving = u != 0.0
    low = np.where(moving, np.minimum(a, b), -np.inf).max(axis=1)
    high = np.where(moving, np.maximum(a, b), np.inf).min(axis=1)
    return np.minimum(low, 0.0), np.maximum(high, 0.0)


def step(region: Lines, x: Array, rng: np.random.Generator, tries: int = 4) -> Array:
    """One step of every chain; x (m, d) inside region and box, the result too."""
    m, d = x.shape
    u = rng.standard_normal((m, d))
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    inside = region.on_line(x, u)
    low, high = box_interval(x, u)
    moved = np.zeros(m)
    left, right = low.copy(), high.copy()
    rows = np.arange(m)
    for attempt in range(ATTEMPTS):
        whole = attempt < tries
        a, b = (low[rows], high[rows]) if whole else (left[rows], right[rows])
        t = a + (b - a) * rng.random(len(rows))
        accepted = inside(rows, t)
        moved[rows[accepted]] = t[accepted]
        rows, t = rows[~accepted], t[~accepted]
        if not len(rows):
            break
        left[rows] = np.where(t < 0.0, np.maximum(left[rows], t), left[rows])
        right[rows] = np.where(t >= 0.0, np.minimum(right[rows], t), right[rows])
    # a chain that was rejected ATTEMPTS times stays: its reverse would have been, too, so the law is still invariant
    return np.clip(x + moved[:, None] * u, 0.0, 1.0)


def hit_and_run(region: Lines, starts: Array, steps: int, rng: np.random.Generator, tries: int = 4) -> Array:
    """`steps` states of each chain: shape (steps * m, d), from starts (m, d) inside region and box."""
    x, states = starts, []
    for _ in range(steps):
        x = step(region, x, rng, tries)
        states.append(x)
    return np.concatenate(states)
