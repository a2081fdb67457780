"""The simulator suggests, the robot decides: a path from theta_0 up a simulated return, and the walk along it.

*In simulation* (`gradient_path`): F_k is the return of simulated plant k, x_0 = theta_0, h = 0.3 prior lengthscales,

    u_j ~ sum_k g_k / |g_k|,  g_k = grad F_k(x_j);    x_{j+1} = x_j + h u_j

until the mean return stops to rise or a plant falls (h is halved four times before that is believed). Directions are
summed, not gradients: a plant with a large return does not outvote the others. Only the path's first part (USED) is
walked: the robot's crest or cliff is elsewhere.

*On the robot* (`Walk`): each step leads from where the robot is along the path, no further than the real model and the
contract permit, the first one a third as far. What decides is rho = real gain / simulated gain, the step's own: the
guide's units do not matter, nor whether its gains are right, as long as they stay as wrong as they were. A step without
a gain ends the walk, and so does a rho far below the usual one. Steps become shorter by as much as the robot's own
return levels off: a cliff often comes soon after a crest, and a long step would see the one and not the other.

A wrong guide costs one short step, in the place of one of the initial design's, which go in random directions: not even
a guide that leads down is worse than those, for the model learns the slope of it all the same.

Policies optimised in a simulator are bad guides: they lie many radii away, where the robot falls. Points are in the
unit box.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crbo_ros.core.kernels import Array
from crbo_ros.errors import InvalidInput

Simulated = Callable[[Array, int], tuple[float, bool]]  # (x (d,), number of a start state) -> (return, whether it fell)
Plants = Sequence[tuple[Simulated, int]]  # and how many start states a return is the mean of

STEP = 0.3  # of a path, in prior lengthscales
SHORTEST = 1.0 / 16.0  # of that step: as often it is halved where the return has a crest or a plant falls
DIFFERENCES = (0.01, 0.003, 0.001)  # of the central differences, in the unit box: the first one without a fall
AGREE = 0.9  # cosine of the gradients over two sets of start states that makes them enough
MOST_STARTS = 16
MOST_STEPS = 12
USED = 0.6  # of the way to where the simulated return stops to rise, or a plant falls
PROBE = 0.35  # length of the first step on the robot, as a share of the radius
LEAST_RATIO = 0.3  # a real gain below this share of the simulated one: the guide is wrong
LONG_WALK = 3  # steps
LEVEL = 0.25  # a slope below this share of the steepest: what is left to gain is not worth the risk
FALLING = 0.5  # a ratio below this share of the second-largest earlier one: a cliff may be near


@dataclass(frozen=True)
class GuidePath:
    """Points (m, d) in the unit box, the first one theta_0, and what the simulator expects at each, (m,)."""

    points: Array
    returns: Array

    def __post_init__(self) -> None:
        points, returns = np.array(self.points, dtype=np.float64), np.array(self.returns, dtype=np.float64)
        if points.ndim != 2 or not len(points) or returns.shape != (len(points),):
            raise InvalidInput(f"guide: points {points.shape} and returns {returns.shape} do not make a path")
        if not (np.isfinite(points).all() and np.isfinite(returns).all()):
            raise InvalidInput("guide: its points and returns must be finite")
        object.__setattr__(self, "points", points)
        object.__setattr__(self, "returns", returns)
        steps = np.linalg.norm(np.diff(points, axis=0), axis=1)
        object.__setattr__(self, "marks", np.concatenate([[0.0], np.cumsum(steps)]))

    marks: Array = field(init=False)  # (m,): length of the path up to each point

    @property
    def length(self) -> float:
        return float(self.marks[-1])

    def at(self, s: float) -> Array:
        """The point (d,) after the length s, straight between its points."""
        point: Array = np.array([np.interp(s, self.marks, column) for column in self.points.T])
        return point

    def expected(self, s: float) -> float:
        """The simulated return there."""
        return float(np.interp(s, self.marks, self.returns))

    @property
    def in_words(self) -> str:
        """For people."""
        if not self.length > 0.0:
            return "no path: the simulated return does not rise from theta_0"
        gain = f"from {self.returns[0]:.4g} to {self.returns[-1]:.4g} in the simulator"
        return f"a path of length {self.length:.3g} in the unit box, {gain}"

    def upto(self, length: float) -> GuidePath:
        """Its first part."""
        inside = self.marks < length
        points = np.vstack([self.points[inside], self.at(length)])
        return GuidePath(points, np.append(self.returns[inside], self.expected(length)))


class Walk:
    """Where the robot is on the path, and whether it goes on. Its state is plain numbers."""

    def __init__(self, path: GuidePath, value: float) -> None:
        self.path = path
        self.anchor = path.points[0]  # (d,): where the robot is,
        self.value = value  # with that return,
        self.s = 0.0  # and how far along the path that is
        self.ratios: list[float] = []  # rho of each step that was made,
        self.slopes: list[float] = []  # and its real gain per length
        self.waiting: tuple[int, float] | None = None  # (id of the proposal under way, how far along it leads)
        self.vetoes = 0  # of steps
        self.wrong = False  # whether its last step was
        self.end = "" if path.length > 0.0 else "the simulated return does not rise from theta_0"

    def target(self, s: float) -> Array:
        """The policy (d,) that a step to s leads to: anchor + C(s) - C(s_now)."""
        return np.clip(self.anchor + self.path.at(s) - self.path.at(self.s), 0.0, 1.0)

    def reach(self, radius: float) -> float:
        """How far along the path the next step may lead at most, where the cautious radius is that."""
        share = self.slopes[-1] / max(self.slopes) if self.slopes else PROBE
        return min(self.s + share * radius, self.path.length)

    def arrived(self, x: Array, value: float) -> None:
        """The robot was at x (d,) and earned that: on from there, or the end."""
        assert self.waiting is not None
        _, s = self.waiting
        self.waiting = None
        gain, simulated = value - self.value, self.path.expected(s) - self.path.expected(self.s)
        ratio = gain / simulated if simulated > 0.0 else 0.0
        if not (gain > 0.0 and ratio >= LEAST_RATIO):
            self.end, self.wrong = f"a gain of {gain:.3g} where the simulator has {simulated:.3g}", True
            return
        slope = gain / (s - self.s)
        if ratio < FALLING * self._usual:
            self.end = f"its gains fall behind: {ratio:.2g} of the simulated one, {self._usual:.2g} before"
        elif slope < LEVEL * max([*self.slopes, slope]):
            self.end = "the robot's return levels off"
        elif not self.path.length - s > 1e-9:
            self.end = "the end of the path"
        self.anchor, self.value, self.s = x, value, s
        self.ratios.append(ratio)
        self.slopes.append(slope)

    @property
    def _usual(self) -> float:
        """The second-largest ratio so far: one may be luck."""
        return sorted(self.ratios)[-2] if len(self.ratios) > 1 else 0.0

    @property
    def paid(self) -> bool:
        """Whether it has ended and was right: three steps or more, or the last one was a gain."""
        return bool(self.end) and (len(self.ratios) >= LONG_WALK or (bool(self.ratios) and not self.wrong))

    def left(self, why: str) -> None:
        """The step under way gave no return."""
        self.waiting = None
        self.end, self.wrong = why, True

    def refused(self) -> None:
        """The step under way was vetoed: a shorter one is tried once."""
        self.waiting, self.vetoes = None, self.vetoes + 1
        if self.vetoes > 1:
            self.end, self.wrong = "two of its steps were vetoed", True

    def state(self) -> dict[str, Any]:
        """As JSON values; the path only while it is needed."""
        path = {} if self.end else {"points": self.path.points.tolist(), "returns": self.path.returns.tolist()}
        own = {name: getattr(self, name) for name in ("value", "s", "vetoes", "end", "wrong")}
        waiting = None if self.waiting is None else list(self.waiting)
        lists = {"ratios": list(self.ratios), "slopes": list(self.slopes)}
        return {**path, **own, "anchor": self.anchor.tolist(), "waiting": waiting, **lists}

    @classmethod
    def restored(cls, state: dict[str, Any]) -> Walk:
        anchor = np.array(state["anchor"], dtype=np.float64)
        walk = cls(GuidePath(state.get("points", anchor[None]), state.get("returns", [0.0])), float(state["value"]))
        walk.anchor, walk.s, walk.vetoes = anchor, float(state["s"]), state["vetoes"]
        walk.end, walk.wrong = state["end"], state["wrong"]
        walk.ratios, walk.slopes = list(map(float, state["ratios"])), list(map(float, state["slopes"]))
        walk.waiting = None if state["waiting"] is None else (int(state["waiting"][0]), float(state["waiting"][1]))
        return walk


class _Fell(Exception):
    """A simulated plant fell."""


def gradient_path(
    simulators: Sequence[Simulated], x0: ArrayLike, lengthscale: float, *, most: int = MOST_STEPS
) -> GuidePath:
    """The path up the mean simulated return from x0 (d,); of length 0 where no simulated plant stays up around x0."""
    x = np.array(x0, dtype=np.float64)
    plants = [(one, count) for one in simulators if (count := _starts(one, x))]
    if not plants:
        return GuidePath(x[None], np.zeros(1))
    points, returns, step = [x], [_mean(plants, x)], STEP * lengthscale
    while len(points) <= most and step > 0.0:
        direction = _unit(sum((_direction(one, x, range(count)) for one, count in plants), np.zeros_like(x)))
        step = _rise(plants, x, direction, step, returns[-1], least=SHORTEST * STEP * lengthscale)
        if step > 0.0:
            x = _along(x, direction, step)
            points.append(x)
            returns.append(_mean(plants, x))
    path = GuidePath(np.array(points), np.array(returns))
    return path.upto(USED * path.length) if path.length > 0.0 else path


def _along(x: Array, direction: Array, step: float) -> Array:
    point: Array = np.clip(x + step * direction, 0.0, 1.0)
    return point


def _rise(plants: Plants, x: Array, direction: Array, step: float, value: float, least: float) -> float:
    """The length of the step, halved until the mean return rises and no plant falls; 0 where that takes too many."""
    while step >= least:
        try:
            if _mean(plants, _along(x, direction, step)) > value:
                return step
        except _Fell:
            pass
        step *= 0.5
    return 0.0


def _unit(vector: Array) -> Array:
    length = float(np.linalg.norm(vector))
    return vector / length if length > 0.0 else vector


def _value(simulator: Simulated, x: Array, starts: range) -> float:
    """The mean return over start states, or _Fell."""
    total = 0.0
    for start in starts:
        value, fell = simulator(x, start)
        if fell or not math.isfinite(value):
            raise _Fell
        total += value
    return total / len(starts)


def _mean(plants: Plants, x: Array) -> float:
    return float(np.mean([_value(one, x, range(count)) for one, count in plants]))


def _direction(simulator: Simulated, x: Array, starts: range) -> Array:
    """The unit vector (d,) of the gradient by central differences, the same start states on both sides.

    Zero where the plant falls however near: it does not know the way, only that it is no further.
    """
    for difference in DIFFERENCES:
        try:
            return _unit(np.array([_slope(simulator, x, i, difference, starts) for i in range(len(x))]))
        except _Fell:
            continue
    return np.zeros(len(x))


def _slope(simulator: Simulated, x: Array, i: int, difference: float, starts: range) -> float:
    """The derivative by coordinate i."""
    low, high = x.copy(), x.copy()
    low[i], high[i] = max(0.0, x[i] - difference), min(1.0, x[i] + difference)
    return (_value(simulator, high, starts) - _value(simulator, low, starts)) / float(high[i] - low[i])


def _starts(simulator: Simulated, x: Array) -> int:
    """How many start states a gradient takes: as many as two sets of them need to agree; 0 for a plant that falls."""
    count = 1
    while count < MOST_STARTS:
        first = _direction(simulator, x, range(count))
        if not first.any():
            return 0
        if float(first @ _direction(simulator, x, range(count, 2 * count))) >= AGREE:
            return count
        count *= 2
    return count
