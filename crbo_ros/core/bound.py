"""Cautiousness: a Lipschitz constant, the worst case of a rollout, and whether such bounds held.

The paper (Eqs. 4, 5): J(x) >= J(x_k) - r0 L with x_k the nearest evaluated policy and L the largest gradient norm of
the GP mean over the region. That L is a point estimate and mostly too small. Ours, everywhere in the unit box:

    J(x) >= max_i [ y_i - 2 sqrt(2) sigma_eps - L |x - x_i| ]
    L = max( max |grad mu_n| + z s,  largest observed slope )        s^2 = slope_variance * sf2 / l^2

The maximum is taken over the evaluated policies and x itself. s is the prior standard deviation of the slope in any
one direction, which bounds the posterior's; z = 2. The observed slope |y_i - y_j| - 2 sqrt(2) sigma_eps over
|x_i - x_j| is a lower bound on any valid L. With few returns the model's scale is itself a guess: sigma_f is then not
taken below `scale`, the user's typical spread of returns (default: |y_0|), times 1/n. A user's own L replaces it all.

`LipschitzBound` is that computation. The optimizer hands it its own data and process, the safety monitor (`WorstCase`)
others: equal data and an equal process give the same bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from crbo_ros.core.gaussian_process import COARSE, GaussianProcess, Standardizer, Surrogate, fit_returns
from crbo_ros.core.hyperparameters import default_hyperparameters
from crbo_ros.core.kernels import Array, Kernel, kernel, squared_distances

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
    if len(y) < 2:
        return 0.0
    S = squared_distances(X, X)
    rise = np.abs(y[:, None] - y[None, :]) - noise
    far = S > 1e-16
    return float(np.max(np.where(far, rise, 0.0) / np.sqrt(np.where(far, S, 1.0)), initial=0.0))


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


class WorstCase:
    """The bound on its own, for a safety monitor with its own data: add what was seen, ask about what is proposed.

    Settings: `lipschitz` (the user's L, in return per unit of the unit box), `scale` (typical spread of returns),
    `kernel`. Its process is fitted as the optimizer's default preset fits its own. Usable from the first return on;
    before that there is no bound (-inf).
    """

    def __init__(
        self, dim: int, *, lipschitz: float | None = None, scale: float | None = None, kernel_name: str = "matern52"
    ) -> None:
        self.kernel, self.lipschitz, self.scale = kernel(kernel_name), lipschitz, scale
        self.X, self.y = np.zeros((0, dim)), np.zeros(0)
        self.surrogate = GaussianProcess(self.kernel, dim, default_hyperparameters(dim), tolerance=COARSE)
        self._fitted: LipschitzBound | None = None

    def add(self, x: ArrayLike, y: float) -> None:
        """A policy x (d,) in the unit box and its return."""
        self.X = np.vstack([self.X, np.asarray(x, dtype=np.float64)])
        self.y = np.append(self.y, float(y))
        self._fitted = None

    def bound(self, x: ArrayLike) -> Bound:
        """The worst case at x (d,) in the unit box; refits when data came since the last call."""
        if not len(self.y):
            return Bound(-math.inf, -1, math.inf, math.nan, "no data")
        if self._fitted is None:
            outputs = Standardizer.of(self.y, "max", floor=least_scale(self.y, self.scale))
            fit_returns(self.surrogate, self.X, outputs.to(self.y))
            self._fitted = LipschitzBound(
                self.surrogate, outputs, self.X, self.y, self.kernel, lipschitz=self.lipschitz, scale=self.scale
            )
        return self._fitted.at(np.asarray(x, dtype=np.float64))
