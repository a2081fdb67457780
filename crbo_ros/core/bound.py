"""Cautiousness: a Lipschitz constant, the worst case of a rollout, and whether such bounds held.

The paper (Eqs. 4, 5): J(x) >= J(x_k) - r0 L with x_k the nearest evaluated policy and L the largest gradient norm of
the GP mean over the region. That L is a point estimate and mostly too small. Ours, everywhere in the unit box:

    J(x) >= max_i [ y_i - 2 sqrt(2) sigma_eps - L |x - x_i| ]
    L = max( max |grad mu_n| + z s,  largest observed slope )        s^2 = slope_variance * sf2 / l^2

The maximum is taken over the evaluated policies and x itself. s is the prior standard deviation of the slope in any
one direction, which bounds the posterior's; z = 2. The observed slope |y_i - y_j| - 2 sqrt(2) sigma_eps over
|x_i - x_j| is a lower bound on any valid L. With few returns the model's scale is itself a guess: sigma_f is then not
taken below `scale`, the user's typical spread of returns (default: |y_0|), times 1/n. A user's own L replaces it all.

`LipschitzBound` is that computation. It is sound and loose, for information where there is no threshold to keep. Where
there is one (core.contract), optimizer and monitor use cones max_i [mu_i - L |x - x_i|] whose L is `Calibrated` by what
comes, each with the `Beliefs` of its own model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from crbo_ros.core.gaussian_process import Standardizer, Surrogate, fit_returns
from crbo_ros.core.kernels import Array, Kernel, squared_distances

Z = 2.0
NOISE = 2.0 * math.sqrt(2.0)  # two standard deviations of the difference of two noisy returns


@dataclass(frozen=True)
class Bound:
    """A lower bound on the return of a policy, in the return's units, and where it comes from."""

    value: float
    nearest: int  # index of the evaluated policy that gives the bound
    distance: float  # to it, in the unit box
    lipschitz: float  # L per unit of the unit box
    source: str  # "user", "gradient bound", "observed slope" or "prior"


def worst_case(x: Array, X: Array, y: Array, noise: float, lipschitz: float) -> tuple[float, int, float]:
    """max_i [y_i - noise - L |x - x_i|]: (value, index, distance)."""
    distance = np.sqrt(squared_distances(x[None], X)[0])
    values = y - noise - lipschitz * distance
    i = int(np.argmax(values))
    return float(values[i]), i, float(distance[i])


def observed_slope(X: Array, y: Array, noise: float) -> float:
    """The largest slope between two evaluated policies that noise does not explain."""
    S = squared_distances(X, X)
    rise = np.abs(y[:, None] - y[None, :]) - noise
    far = S > 1e-16
    return float(np.max(rise[far] / np.sqrt(S[far]), initial=0.0))


def first_scale(y: Array, scale: float | None) -> float:
    """What is assumed about the spread of returns before they show it: the user's `scale`, else |y_0|, else 1."""
    if scale:
        return float(scale)
    return abs(float(y[0])) if len(y) and y[0] != 0.0 else 1.0


def least_scale(y: Array, scale: float | None) -> float:
    """The smallest spread of returns that is believed: a user's, or where equal ones say nothing, what |y_0| suggests.

    Returns that differ speak for themselves: a floor by |y_0| would make proposals depend on an offset of all returns.
    """
    return 1e-3 * first_scale(y, scale) if scale or not len(y) or np.ptp(y) <= 1e-13 * np.max(np.abs(y)) else 0.0


class LipschitzBound:
    """The worst case by data (X, y) and a surrogate that was conditioned on them, standardised by `outputs`."""

    def __init__(
        self,
        surrogate: Surrogate,
        outputs: Standardizer,
        X: Array,
        y: Array,
        shape: Kernel,
        *,
        lipschitz: float | None = None,
        scale: float | None = None,
    ) -> None:
        self.surrogate, self.outputs, self.X, self.y, self.user = surrogate, outputs, X, y, lipschitz
        self.noise = NOISE * outputs.scale * math.sqrt(surrogate.noise_variance)
        self._steepest = self._gradient_norm(X)
        self._slope = observed_slope(X, y, self.noise)
        sf = max(outputs.scale * math.sqrt(surrogate.signal_variance), first_scale(y, scale) / len(y))
        lengthscale = float(np.exp(np.mean(np.log(surrogate.lengthscales))))
        self._margin = Z * math.sqrt(shape.slope_variance) * sf / lengthscale  # z s

    def _gradient_norm(self, points: Array) -> float:
        gradients = self.surrogate.mean_gradients(points)
        return self.outputs.scale * math.sqrt(float(np.max(np.einsum("ij,ij->i", gradients, gradients))))

    def steepest(self, points: Array) -> float:
        """The paper's estimate of L (below Eq. 5): max |grad mu_n| over the data and points (m, d)."""
        return max(self._steepest, self._gradient_norm(points))

    def lipschitz(self, x: Array) -> tuple[float, str]:
        """(L, its source) for a step to x (d,)."""
        if self.user is not None:
            return float(self.user), "user"
        bound = self.steepest(x[None]) + self._margin
        if self._slope > bound:
            return self._slope, "observed slope"
        return bound, "prior" if len(self.y) == 1 else "gradient bound"

    def at(self, x: Array) -> Bound:
        """The worst case of a rollout at x (d,) in the unit box."""
        lipschitz, source = self.lipschitz(x)
        value, nearest, distance = worst_case(x, self.X, self.y, self.noise, lipschitz)
        return Bound(value, nearest, distance, lipschitz, source)


class Coverage:
    """How often lower bounds held."""

    def __init__(self, held: int = 0, count: int = 0) -> None:
        self.held, self.count = held, count

    def add(self, bound: float, value: float) -> None:
        if math.isfinite(bound):
            self.count += 1
            self.held += int(value >= bound)

    @property
    def coverage(self) -> float:
        return self.held / self.count if self.count else math.nan


@dataclass(frozen=True)
class Beliefs:
    """What somebody's model says of the policies that have returns: mu and sigma (n,) at X (n, d), and the noise."""

    X: Array
    mean: Array
    sigma: Array
    noise: float  # sigma_eps

    @staticmethod
    def of(surrogate: Surrogate, outputs: Standardizer, X: Array) -> Beliefs:
        """By a surrogate that was conditioned on the returns of X, standardised by `outputs`."""
        mean, variance = surrogate.posterior(X)
        noise = outputs.scale * math.sqrt(surrogate.noise_variance)
        return Beliefs(X, outputs.centre + outputs.scale * mean, outputs.scale * np.sqrt(variance), noise)


def believe(surrogate: Surrogate, X: Array, y: Array) -> Beliefs:
    """Fit a process of one's own to returns y (n,) of X (n, d), as the optimizer's default preset fits its own."""
    if not len(y):
        return Beliefs(X, y, y, 0.0)
    outputs = Standardizer.of(y, "max", floor=least_scale(y, None))
    fit_returns(surrogate, X, outputs.to(y))
    return Beliefs.of(surrogate, outputs, X)


STEP = 0.6  # of the logarithm of a calibrated L
SIGNAL_RATE = 0.05  # share of a safety signal's worst cases that may be exceeded
RANGE = 50.0  # a calibrated L stays within this factor of where it began


def cones(points: Array, X: Array, mean: Array, lipschitz: float) -> tuple[Array, Array, Array]:
    """max_i [mu_i - L |x - x_i|] at points (m, d): values, the rows i that give them, and the distances, (m,) each."""
    distances = np.sqrt(squared_distances(points, X))
    values = mean[None, :] - lipschitz * distances
    rows, all = np.argmax(values, axis=1), np.arange(len(points))
    return values[all, rows], rows, distances[all, rows]


def signal_bound(x: Array, X: Array, values: Array, limit: float) -> float:
    """The worst case of a safety signal at x (d,): min_i [s_i + L |x - x_i|], L calibrated by values (n,) of X."""
    calibrated = Calibrated(SIGNAL_RATE)
    for i in range(1, len(values)):
        distances = np.sqrt(squared_distances(X[i][None], X[:i])[0])
        if distances.min() > 0.0:
            calibrated.begin(max(limit - values[0], 1e-3 * limit) / distances[0])
            calibrated.learn(bool(values[i] > np.min(values[:i] + calibrated.value * distances)))
    distances = np.sqrt(squared_distances(x[None], X)[0])
    first = max(limit - values[0], 1e-3 * limit) / max(distances[0], 1e-12)
    return float(np.min(values + calibrated.or_first(first) * distances))


class Calibrated:
    """A Lipschitz constant that what comes calibrates (adaptive conformal inference on its logarithm).

    L <- L exp(step (1[miss] - rate)), within a factor of 50 of where it began: in the long run a share `rate` of the
    bounds that rest on it is missed. After n of them that share is off by at most (log of how wrong the beginning was)
    / (step n): a large step forgets a bad beginning soon, and is loose for longer after each miss. The user's own L, if
    there is one, is its floor.
    """

    def __init__(self, rate: float, floor: float | None = None, step: float = STEP) -> None:
        self.rate, self.floor, self.step = rate, floor, step
        self._first, self._log = math.nan, 0.0

    def begin(self, first: float) -> None:
        """Where it begins, unless it has begun."""
        if math.isnan(self._first):
            self._first = first

    def learn(self, missed: bool) -> None:
        limit = math.log(RANGE)
        self._log = min(limit, max(-limit, self._log + self.step * (missed - self.rate)))

    def or_first(self, first: float) -> float:
        """L, or what `first` makes of it before it has begun."""
        return max((first if math.isnan(self._first) else self._first) * math.exp(self._log), self.floor or 0.0)

    @property
    def value(self) -> float:
        return self.or_first(math.nan)
