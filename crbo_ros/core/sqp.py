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
Pair = tuple[Array, Array, float, float]  # step, gradient change, their product, and that over the change squared


@dataclass(frozen=True)
class Result:
    x: Array
    value: float
    evaluations: int


def _inverse_times(v: Array, pairs: list[Pair], scale: float) -> Array:
    """H v by the two-loop recursion; scale * v without any pair."""
    if not pairs:
        return scale * v
    q, factors = v, []
    for s, y, curvature, _ in reversed(pairs):
        a = s.dot(q) / curvature
        q = q - a * y
        factors.append(a)
    q = q * pairs[-1][3]
    for (s, y, curvature, _), a in zip(pairs, reversed(factors), strict=True):
        q = q + (a - y.dot(q) / curvature) * s
    return q


def _restrict(pairs: list[Pair], free: Array) -> list[Pair]:
    """The pairs in the free variables (0/1 mask), without those whose curvature is lost."""
    kept = []
    for s, y, _, _ in pairs:
        pair = _pair(s * free, y * free)
        if pair is not None:
            kept.append(pair)
    return kept


def _pair(s: Array, y: Array) -> Pair | None:
    """(s, y, s.y, s.y / y.y), or None without enough positive curvature."""
    curvature, yy = float(s.dot(y)), float(y.dot(y))
    if curvature <= 1e-10 * float(s.dot(s)) ** 0.5 * yy**0.5 or yy == 0.0:
        return None
    return s, y, curvature, curvature / yy


def _direction(x: Array, now: Evaluation, pairs: list[Pair], radius: float, margin: float) -> tuple[Array, float]:
    """The quadratic program's step p (d,) and multiplier lambda >= 0."""
    _, g, c, h = now
    multiplier = 0.0
    for _ in range(6):  # variables at a bound that the step pushes outwards drop out
        size = float(g.dot(g)) ** 0.5
        scale = radius / size if size > 0.0 else 0.0
        p, multiplier = _inverse_times(g, pairs, scale), 0.0
        room = c - margin
        if float(h.dot(p)) + room < 0.0:
            Hh = _inverse_times(h, pairs, scale)
            bend = float(h.dot(Hh))
            if bend > 0.0:
                multiplier = -(room + float(h.dot(p))) / bend
                p = p + multiplier * Hh
        blocked = ((x <= 0.0) & (p < 0.0)) | ((x >= 1.0) & (p > 0.0))
        if not blocked.any():
            break
        free = np.where(blocked, 0.0, 1.0)
        g, h, pairs = g * free, h * free, _restrict(pairs, free)
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
    pairs: list[Pair] = []
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
        pair = _pair(s, change)
        if pair is not None:
            pairs = [*pairs[-(memory - 1) :], pair]
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
