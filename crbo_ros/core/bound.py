"""Cautiousness: a Lipschitz constant, the worst case of a rollout, and whether such bounds held.

The paper (Eqs. 4, 5): J(x) >= J(x_k) - r0 L with x_k the nearest evaluated policy and L the largest gradient norm of
the GP mean over the region. That L is a point estimate and mostly too small. Ours, everywhere in the unit box:

    J(x) >= max_i [ y_i - 2 sqrt(2) sigma_eps - L |x - x_i| ]
    L = max( max_x |grad mu(x)| + z s,  largest observed slope )        s^2 = slope_variance * sf2 / l^2

s is the prior standard deviation of the slope in any one direction, which bounds the posterior's; z = 2. The observed
slope |y_i - y_j| - 2 sqrt(2) sigma_eps over |x_i - x_j| is a lower bound on any valid L. With few returns the model's
scale is itself a guess: sigma_f is then not taken below `scale`, the user's typical spread of returns (default:
|y_0|), times 1/n. A user's own L replaces it all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from crbo_ros.core.gaussian_process import GaussianProcess, Standardizer, Surrogate
from crbo_ros.core.kernels import Array, kernel, squared_distances

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


def prior_slope(slope_variance: float, sf: float, lengthscale: float) -> float:
    """Standard deviation of the derivative in one direction of a function drawn from the prior."""
    return math.sqrt(slope_variance) * sf / lengthscale


@dataclass(frozen=True)
class Estimate:
    """L in the return's units, the paper's estimate of it, its source, and the noise allowance."""

    lipschitz: float
    paper: float
    source: str
    noise: float


def first_scale(y: Array, scale: float | None) -> float:
    """What is assumed about the spread of returns before they show it: the user's word, else |y_0|, else 1."""
    if scale:
        return float(scale)
    return abs(float(y[0])) if len(y) and y[0] != 0.0 else 1.0


def estimate(
    surrogate: Surrogate,
    outputs: Standardizer,
    X: Array,
    y: Array,
    points: Array,
    *,
    slope_variance: float,
    user: float | None = None,
    scale: float | None = None,
) -> Estimate:
    """L over `points` (m, d) of the region (and the data), from a surrogate fitted to (X, y)."""
    gradients = surrogate.mean_gradients(np.vstack([points, X]))
    steepest = outputs.scale * math.sqrt(float(np.max(np.einsum("ij,ij->i", gradients, gradients))))
    noise = NOISE * outputs.scale * math.sqrt(surrogate.noise_variance)
    if user is not None:
        return Estimate(float(user), steepest, "user", noise)
    sf = max(outputs.scale * math.sqrt(surrogate.signal_variance), first_scale(y, scale) / len(y))
    lengthscale = float(np.exp(np.mean(np.log(surrogate.lengthscales))))
    bound = steepest + Z * prior_slope(slope_variance, sf, lengthscale)
    slope = observed_slope(X, y, noise)
    if slope > bound:
        return Estimate(slope, steepest, "observed slope", noise)
    return Estimate(bound, steepest, "prior" if len(y) == 1 else "gradient bound", noise)


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
    `kernel`. Usable from the first return on; before that there is no bound (-inf).
    """

    def __init__(
        self, dim: int, *, lipschitz: float | None = None, scale: float | None = None, kernel_name: str = "matern52"
    ) -> None:
        from crbo_ros.core.settings import default_hyperparameters

        self.kernel = kernel(kernel_name)
        self.lipschitz, self.scale, self.dim = lipschitz, scale, dim
        self.X, self.y = np.zeros((0, dim)), np.zeros(0)
        self.surrogate = GaussianProcess(self.kernel, dim, default_hyperparameters(dim))
        self._estimate: Estimate | None = None

    def add(self, x: ArrayLike, y: float) -> None:
        """A policy x (d,) in the unit box and its return."""
        self.X = np.vstack([self.X, np.asarray(x, dtype=np.float64)])
        self.y = np.append(self.y, float(y))
        self._estimate = None

    def bound(self, x: ArrayLike) -> Bound:
        """The worst case at x (d,) in the unit box; refits when data came since the last call."""
        if not len(self.y):
            return Bound(-math.inf, -1, math.inf, math.nan, "no data")
        x = np.asarray(x, dtype=np.float64)
        if self._estimate is None:
            outputs = Standardizer.of(self.y, "max", floor=first_scale(self.y, self.scale) / len(self.y) ** 2)
            self.surrogate.fit(self.X, outputs.to(self.y))
            self._outputs = outputs
            self._estimate = estimate(
                self.surrogate,
                outputs,
                self.X,
                self.y,
                self.X,
                slope_variance=self.kernel.slope_variance,
                user=self.lipschitz,
                scale=self.scale,
            )
        e = self._estimate
        gradient = self._outputs.scale * float(np.linalg.norm(self.surrogate.mean_gradients(x[None])[0]))
        lipschitz = e.lipschitz + max(0.0, gradient - e.paper) if e.source != "user" else e.lipschitz
        value, nearest, distance = worst_case(x, self.X, self.y, e.noise, lipschitz)
        return Bound(value, nearest, distance, lipschitz, e.source)
