"""Within-model test functions (paper, "Low-dimensional Synthetic Functions"): draws from a Gaussian process.

Matern-5/2 with sigma_f = 1 and l = 0.3 on [-1, 1]^d, conditioned on J(0) = 3; theta_0 at distance 0.3 from the global
optimum; observation noise 1e-3. A draw is m random Fourier features (Rahimi and Recht 2007; for Matern-5/2 the
frequencies follow a multivariate t with 5 degrees of freedom) plus the exact correction that moves a draw of the
prior to one of the posterior (Matheron's rule): an honest function with a value and a gradient anywhere, whose
covariance over features is the kernel's, with an error of order 1/sqrt(m) for one draw of the frequencies.

The optimum: many random points, the best of them and the centre polished together by gradient ascent, the winner by
L-BFGS-B.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from crbo_ros.core.kernels import KERNELS
from crbo_ros.core.space import Space

Array = NDArray[np.float64]
LENGTHSCALE, NOISE, PEAK, START_DISTANCE = 0.3, 1e-3, 3.0, 0.3
UNIT_HYPERPARAMETERS = (LENGTHSCALE / 2.0, 1.0, NOISE**2)  # l in the unit box, sigma_f^2, sigma_eps^2


@dataclass
class WithinModel:
    """One function on [-1, 1]^d with its optimum and a start."""

    frequencies: Array  # (m, d)
    phases: Array  # (m,)
    weights: Array  # (m,)
    correction: float  # factor of k(theta, 0)
    optimum: Array
    maximum: float
    theta_0: Array

    @property
    def space(self) -> Space:
        d = self.frequencies.shape[1]
        return Space(-np.ones(d), np.ones(d))

    def __call__(self, thetas: Array) -> Array:
        """J at thetas (k, d): shape (k,)."""
        c = KERNELS["matern52"].correlation(np.sum(thetas**2, axis=1) / LENGTHSCALE**2)
        values: Array = np.cos(thetas @ self.frequencies.T + self.phases) @ self.weights + self.correction * c
        return values

    def screen(self, thetas: Array) -> Array:
        """J in single precision, several times faster: to choose among candidates."""
        c = KERNELS["matern52"].correlation(np.sum(thetas**2, axis=1) / LENGTHSCALE**2)
        frequencies, phases, weights = (v.astype(np.float32) for v in (self.frequencies, self.phases, self.weights))
        values: Array = np.cos(thetas.astype(np.float32) @ frequencies.T + phases) @ weights + self.correction * c
        return values

    def gradient(self, thetas: Array) -> Array:
        """dJ/dtheta, shape (k, d)."""
        _, dc = KERNELS["matern52"].both(np.sum(thetas**2, axis=1) / LENGTHSCALE**2)
        waves = -np.sin(thetas @ self.frequencies.T + self.phases) * self.weights
        slopes: Array = waves @ self.frequencies + (2.0 * self.correction / LENGTHSCALE**2 * dc)[:, None] * thetas
        return slopes

    def observe(self, theta: Array, rng: np.random.Generator) -> float:
        """A noisy return."""
        return float(self(theta[None])[0] + NOISE * rng.standard_normal())

    def regret(self, theta: Array) -> float:
        """J* - J(theta), without noise."""
        return max(0.0, self.maximum - float(self(theta[None])[0]))


def within_model(dim: int, seed: int, features: int = 2048, points: int = 40_000) -> WithinModel:
    """Function number `seed`."""
    rng = np.random.default_rng([dim, seed])
    normal = rng.standard_normal((features, dim))
    frequencies = normal * np.sqrt(5.0 / rng.chisquare(5.0, (features, 1))) / LENGTHSCALE
    phases = rng.uniform(0.0, 2.0 * math.pi, features)
    weights = rng.standard_normal(features) * math.sqrt(2.0 / features)
    function = WithinModel(frequencies, phases, weights, 0.0, np.zeros(dim), 0.0, np.zeros(dim))
    function.correction = PEAK - float(function(np.zeros((1, dim)))[0])
    function.optimum, function.maximum = global_optimum(function, dim, points, rng)
    while True:  # a start inside the domain
        direction = rng.standard_normal(dim)
        theta_0 = function.optimum + START_DISTANCE * direction / np.linalg.norm(direction)
        if np.all(np.abs(theta_0) <= 1.0):
            function.theta_0 = theta_0
            return function


def global_optimum(function: WithinModel, dim: int, points: int, rng: np.random.Generator) -> tuple[Array, float]:
    """Random search, batched gradient ascent from the 64 best and the centre, L-BFGS-B from the 5 best of those."""
    best = np.zeros((1, dim))
    for _ in range(max(1, points // 4000)):
        candidates = np.vstack([best, rng.uniform(-1.0, 1.0, (4000, dim))])
        best = candidates[np.argsort(-function.screen(candidates))[:64]]
    best = np.vstack([best, np.zeros((1, dim))])
    values, step = function(best), np.full(len(best), 0.05)
    for _ in range(40):
        slopes = function.gradient(best)
        slopes /= np.maximum(np.linalg.norm(slopes, axis=1, keepdims=True), 1e-12)
        moved = np.clip(best + step[:, None] * slopes, -1.0, 1.0)
        new = function(moved)
        better = new > values
        best, values = np.where(better[:, None], moved, best), np.where(better, new, values)
        step = np.where(better, 1.2 * step, 0.4 * step)
    winners = []
    for i in np.argsort(-values)[:5]:
        result = minimize(
            lambda t: -float(function(t[None])[0]),
            best[i],
            jac=lambda t: -function.gradient(t[None])[0],
            bounds=[(-1.0, 1.0)] * dim,
            method="L-BFGS-B",
            options={"ftol": 1e-15, "gtol": 1e-9},
        )
        winners.append((-float(result.fun), result.x))
    value, x = max(winners, key=lambda pair: pair[0])
    return x, value
