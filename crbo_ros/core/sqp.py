"""Maximise f(x) in the unit box subject to one smooth inequality c(x) >= 0, from a feasible start; all iterates
feasible.

Sequential quadratic programming with a limited-memory inverse Hessian H of the Lagrangian (Nocedal and Wright 2006,
chapters 7 and 18) inside a trust radius. With one constraint the quadratic program is solved by hand: p = H g if that
keeps c + h^T p >= 0, else p = H (g + lambda h) with the lambda that makes it an equality. Bounds that hold a variable
back take it out of the step. A step that leaves c >= 0 by curvature is brought back along h (second-order
correction).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from crbo_ros.core.kernels import Array

Evaluation = tuple[float, Array, float, Array]  # f, gradient of f, c, gradient of c
Problem = Callable[[Array], Evaluation]


@dataclass(frozen=True)
class Result:
    x: Array
    value: float
    evaluations: int


def _inverse_times(v: Array, pairs: list[tuple[Array, Array]], free: Array, scale: float) -> Array:
    """H v by the two-loop recursion, restricted to the free variables (0/1 mask)."""
    q, kept = v * free, []
    for s, y in reversed(pairs):
        sm, ym = s * free, y * free
        curvature = float(sm @ ym)
        if curvature > 1e-10 * float(sm @ sm) ** 0.5 * float(ym @ ym) ** 0.5 and curvature > 0.0:
            a = float(sm @ q) / curvature
            q = q - a * ym
            kept.append((sm, ym, curvature, a))
    if kept:
        sm, ym, curvature, _ = kept[0]
        q = q * (curvature / float(ym @ ym))
    else:
        q = q * scale
    for sm, ym, curvature, a in reversed(kept):
        q = q + (a - float(ym @ q) / curvature) * sm
    return q * free


def _direction(
    x: Array, now: Evaluation, pairs: list[tuple[Array, Array]], radius: float, margin: float
) -> tuple[Array, float]:
    """The quadratic program's step p (d,) and multiplier lambda >= 0."""
    _, g, c, h = now
    p, multiplier = np.zeros_like(x), 0.0
    free = np.ones_like(x)
    for _ in range(6):  # variables at a bound that the step pushes outwards drop out
        size = float(np.linalg.norm(g * free))
        scale = radius / size if size > 0.0 else 0.0
        p, multiplier = _inverse_times(g, pairs, free, scale), 0.0
        room = c - margin
        if float(h @ p) + room < 0.0:
            Hh = _inverse_times(h, pairs, free, scale)
            bend = float(h @ Hh)
            if bend > 0.0:
                multiplier = -(room + float(h @ p)) / bend
                p = p + multiplier * Hh
        blocked = ((x <= 0.0) & (p < 0.0)) | ((x >= 1.0) & (p > 0.0))
        if not np.any(blocked & (free > 0.0)):
            break
        free = np.where(blocked, 0.0, free)
    length = float(np.linalg.norm(p))
    if length > radius:
        p = p * (radius / length)
    return p, max(multiplier, 0.0)


def _step(problem: Problem, x: Array, p: Array, margin: float) -> tuple[Array, Evaluation, int]:
    """x + p in the box, corrected back into c >= 0 at most three times."""
    z = np.clip(x + p, 0.0, 1.0)
    new, used = problem(z), 1
    while new[2] < 0.0 and used < 4:
        h = new[3]
        h = np.where(((z <= 0.0) & (h < 0.0)) | ((z >= 1.0) & (h > 0.0)), 0.0, h)
        steep = float(h @ h)
        if steep <= 0.0:
            break
        z = np.clip(z + (margin - new[2]) / steep * h, 0.0, 1.0)
        new, used = problem(z), used + 1
    return z, new, used


def maximise(
    problem: Problem,
    x: Array,
    *,
    radius: float,
    margin: float = 0.0,
    max_evaluations: int = 60,
    tolerance: float = 1e-7,
    memory: int = 8,
) -> Result:
    """From a feasible x (d,); `radius`: first trust radius; `margin`: the value of c aimed at on an active constraint.

    Stops when a step gains less than tolerance * (|f| + 1e-3), or the radius or the budget is used up. Never returns
    a point with c < 0 or outside the box, nor one worse than the start.
    """
    now, used = problem(x), 1
    pairs: list[tuple[Array, Array]] = []
    small, smallest = 0, 1e-7 * radius
    while used < max_evaluations and radius > smallest:
        p, multiplier = _direction(x, now, pairs, radius, margin)
        length = float(np.linalg.norm(p))
        if not length > smallest:
            break
        z, new, evaluations = _step(problem, x, p, margin)
        used += evaluations
        gain = new[0] - now[0]
        change = -(new[1] - now[1]) - multiplier * (new[3] - now[3])  # of the (negated) Lagrangian's gradient
        s = z - x
        if float(s @ change) > 1e-12 * float(s @ s) ** 0.5 * float(change @ change) ** 0.5:
            pairs = [*pairs[-(memory - 1) :], (s, change)]
        if new[2] < 0.0 or not gain > 0.0:
            radius = 0.3 * min(length, radius)
            continue
        predicted = float(now[1] @ s)
        x, now = z, new
        radius = 2.0 * radius if gain > 0.3 * predicted or length < 0.9 * radius else radius
        small = small + 1 if gain < tolerance * (abs(now[0]) + 1e-3) else 0
        if small >= 2:
            break
    return Result(x, now[0], used)
