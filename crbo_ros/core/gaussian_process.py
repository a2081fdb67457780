"""Gaussian process regression in closed form, for SE and Matern kernels, isotropic or with a lengthscale per dimension.

    mu_n(x) = k(x)^T K^-1 y,   sigma_n^2(x) = k(x, x) - k(x)^T K^-1 k(x),   K = sf2 C + sn2 I          (paper, Eq. 2)

Hyperparameters h = (log l_1 ... log l_m, log sf2, log sn2) maximise the log posterior

    log p(y | X, h) + log p(h) = -1/2 y^T K^-1 y - 1/2 log |K| - n/2 log 2 pi + sum of log priors

by L-BFGS-B with its analytic gradient, 1/2 tr[(a a^T - K^-1) dK/dh], a = K^-1 y, over distances that are computed once.
The targets y are centred and scaled by `Standardizer`. References: Rasmussen and Williams 2006, chapters 2 and 5.
"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.linalg import lapack
from scipy.optimize import minimize

from crbo_ros.core.hyperparameters import Hyperparameters
from crbo_ros.core.kernels import Array, Kernel, squared_distances
from crbo_ros.errors import InvalidInput

LOG_2PI = math.log(2.0 * math.pi)
CENTERINGS = ("max", "min", "mean", "none")
GRID = 2.0**-16  # of standardised returns: a twentieth of the least noise deviation of a fit
COARSE = 1e-2  # a fit's tolerance that is far below what the data can say; saves a quarter of the fit


@dataclass(frozen=True)
class Standardizer:
    """Returns <-> the surrogate's targets: (y - centre) / scale, rounded to the grid."""

    centre: float = 0.0
    scale: float = 1.0
    grid: float = 0.0  # targets are rounded to multiples of it; 0: they are not

    @classmethod
    def of(cls, y: Array, centering: str = "max", scaling: bool = True, floor: float = 0.0) -> Standardizer:
        """Centre on the best ("max": the paper's), worst, mean or no return; divide by their standard deviation.

        All from differences to the first return, so that a y + b (a > 0) gives the same targets: see `to`. With one
        return, or equal ones, there is no deviation: `floor` (in the return's units) or else 1 is used, and the
        deviation is never taken to be less than `floor`.
        """
        first = float(y[0])
        u = y - first
        centre = {"max": float(np.max(y)), "min": float(np.min(y)), "mean": first + float(np.mean(u)), "none": 0.0}
        if not scaling:
            return cls(centre[centering], 1.0)
        largest = float(np.max(np.abs(u)))
        if not largest > 1e-13 * float(np.max(np.abs(y))):
            return cls(centre[centering], floor or 1.0)
        scale = float(np.std(u / largest)) * largest  # two steps: no overflow for huge returns
        return cls(centre[centering], max(scale, floor), GRID)

    def to(self, y: Array) -> Array:
        """Targets of y, on a grid that is far below the least noise that a fit believes in.

        a y + b differs from y in its last bits, and one last bit grows to another proposal within forty.
        """
        targets: Array = (y - self.centre) / self.scale
        return np.round(targets / self.grid) * self.grid if self.grid else targets

    def back(self, target: float) -> float:
        return float(self.centre + self.scale * target)


class Surrogate(Protocol):
    """What the rest of core needs of a model; all in the unit box and in the targets' units."""

    X: Array
    y: Array

    @property
    def lengthscales(self) -> Array: ...
    @property
    def signal_variance(self) -> float: ...
    @property
    def noise_variance(self) -> float: ...
    def fit(self, X: Array, y: Array, around: float = 0.0) -> float: ...
    def restart(self, noise_variance: float) -> None: ...
    def condition(self, X: Array, y: Array) -> None: ...
    def add(self, x: Array, y: float) -> None: ...
    def posterior(self, P: Array) -> tuple[Array, Array]: ...
    def posterior_gradient(self, x: Array) -> tuple[float, float, Array, Array]: ...
    def mean_gradients(self, P: Array) -> Array: ...
    def covariance(self, P: Array) -> Array: ...
    def inverse(self, X: Array) -> Array: ...
    def get_parameters(self) -> Array: ...
    def set_parameters(self, parameters: Array) -> None: ...


class GaussianProcess:
    """The NumPy Gaussian process."""

    def __init__(
        self, kernel: Kernel, dim: int, hyper: Hyperparameters, *, ard: bool = False, tolerance: float = 1e-4
    ) -> None:
        self.kernel, self.dim, self.hyper, self.ard = kernel, dim, hyper, ard
        self.tolerance = tolerance  # of the fit: largest derivative of the log posterior by a log hyperparameter
        lengthscale, sf2, sn2 = hyper.start
        self.h = np.log(np.concatenate([np.full(dim if ard else 1, lengthscale), [sf2, sn2]]))
        self.X, self.y = np.zeros((0, dim)), np.zeros(0)
        self.fit_message = ""

    # -- hyperparameters --------------------------------------------------------------------------

    @property
    def lengthscales(self) -> Array:
        """Shape (d,), or (1,) when isotropic."""
        lengthscales: Array = np.exp(self.h[:-2])
        return lengthscales

    @property
    def signal_variance(self) -> float:
        return math.exp(self.h[-2])

    @property
    def noise_variance(self) -> float:
        return math.exp(self.h[-1])

    def get_parameters(self) -> Array:
        return np.array(self.h)

    def set_parameters(self, parameters: Array) -> None:
        if np.shape(parameters) != self.h.shape:
            raise InvalidInput(f"parameters: expected shape {self.h.shape}, got {np.shape(parameters)}")
        self.h = np.array(parameters, dtype=np.float64)

    def _bounds(self) -> list[tuple[float, float]]:
        b = self.hyper
        bounds = [b.lengthscale_bounds] * (len(self.h) - 2) + [b.signal_bounds, b.noise_bounds]
        return [(math.log(low), math.log(high)) for low, high in bounds]

    def _log_prior(self, h: Array) -> tuple[float, Array]:
        m = len(h) - 2
        parts = [self.hyper.lengthscale] * m + [self.hyper.signal, self.hyper.noise]
        terms = [prior.log_density(math.exp(v)) for prior, v in zip(parts, h, strict=True)]
        return sum(t[0] for t in terms), np.array([t[1] for t in terms])

    def log_posterior(self, h: Array, S: Array, X: Array, y: Array) -> tuple[float, Array]:
        """(log p(y | X, h) + log p(h), gradient by h). S: squared distances of X (n, n); used when isotropic."""
        n, sf2, sn2 = len(y), math.exp(h[-2]), math.exp(h[-1])
        if self.ard:
            Z = X / np.exp(h[:-2])
            s = squared_distances(Z, Z)
        else:
            s = S * math.exp(-2.0 * h[0])
        C, dC = self.kernel.both(s)
        K = sf2 * C
        K.flat[:: n + 1] = sf2 + sn2
        L, info = lapack.dpotrf(K, lower=1, overwrite_a=0)
        if info:
            return -1e25, np.zeros_like(h)
        a = lapack.dpotrs(L, y, lower=1)[0]
        W = lapack.dpotri(L, lower=1)[0]  # K^-1: lower triangle, zeros above
        log_det = 2.0 * float(np.log(np.diagonal(L)).sum())
        value = -0.5 * float(y @ a) - 0.5 * log_det - 0.5 * n * LOG_2PI
        gradient = np.empty_like(h)
        trace, aa = float(np.trace(W)), float(a @ a)
        gradient[-1] = 0.5 * sn2 * (aa - trace)
        # sf2 C = K - sn2 I, so that a^T sf2 C a = y^T a - sn2 a^T a and tr(K^-1 sf2 C) = n - sn2 tr K^-1
        gradient[-2] = 0.5 * (float(y @ a) - sn2 * aa - n + sn2 * trace)
        if self.ard:  # sum_ij M_ij (z_ik - z_jk)^2 = 2 sum_i (M 1)_i z_ik^2 - 2 z_k^T M z_k
            M = (np.outer(a, a) - W - np.tril(W, -1).T) * dC
            gradient[:-2] = -2.0 * sf2 * (M.sum(1) @ (Z * Z) - np.einsum("ik,ik->k", Z, M @ Z))
        else:
            dC *= s  # zero on the diagonal: half of W is all of it
            gradient[0] = -sf2 * (float(a @ (dC @ a)) - 2.0 * float(np.vdot(W, dC)))
        prior, prior_gradient = self._log_prior(h)
        return value + prior, gradient + prior_gradient

    def restart(self, noise_variance: float) -> None:
        """Hyperparameters back to their start values, with this noise variance: for a fit from elsewhere."""
        lengthscale, sf2, _ = self.hyper.start
        self.h = np.log(np.concatenate([np.full(len(self.h) - 2, lengthscale), [sf2, noise_variance]]))

    def fit(self, X: Array, y: Array, around: float = 0.0, max_iterations: int = 50) -> float:
        """MAP hyperparameters of y - around, started where they stand; then the posterior given (X, y).

        Returns the log posterior of the hyperparameters, -inf if the fit failed (they stay as they were).
        """
        S = squared_distances(X, X) if not self.ard else np.zeros((0, 0))
        z = y - around

        def negative(h: Array) -> tuple[float, Array]:
            value, gradient = self.log_posterior(h, S, X, z)
            return -value, -gradient

        bounds = self._bounds()
        low, high = np.array(bounds).T
        result = minimize(
            negative,
            np.clip(self.h, low, high),
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": max_iterations, "ftol": 1e-9, "gtol": self.tolerance},
        )
        self.fit_message = "" if result.success or result.nit >= max_iterations else f"fit: {result.message}"
        fitted = bool(np.all(np.isfinite(result.x)) and result.fun < 1e24)
        if fitted:
            self.h = np.clip(result.x, low, high)
        self.condition(X, y)
        return -float(result.fun) if fitted else -math.inf

    # -- posterior --------------------------------------------------------------------------------

    def condition(self, X: Array, y: Array) -> None:
        """The posterior given (X, y), hyperparameters as they stand."""
        n, sf2, sn2 = len(y), self.signal_variance, self.noise_variance
        self.X, self.y = np.array(X), np.array(y)
        self.scale = self.lengthscales
        self.Z = self.X / self.scale
        C = self.kernel.correlation(squared_distances(self.Z, self.Z))
        jitter = 0.0
        for _ in range(12):  # duplicates without noise make K singular: add the smallest jitter that helps
            K = sf2 * C
            K.flat[:: n + 1] = sf2 + sn2 + jitter
            L, info = lapack.dpotrf(K, lower=1)
            if info == 0:
                break
            jitter = max(10.0 * jitter, 1e-12 * sf2)
        self.jitter = jitter
        self.W = np.ascontiguousarray(lapack.dtrtri(L, lower=1)[0])  # L^-1: |W k|^2 = k^T K^-1 k
        self.alpha = self.W.T @ (self.W @ self.y)
        self._centre()

    def _centre(self) -> None:
        """Scaled data around their first point and their squared norms: distances by one product, well conditioned."""
        self.V = self.Z - self.Z[0]
        self.V2 = np.einsum("ij,ij->i", self.V, self.V)

    def add(self, x: Array, y: float) -> None:
        """Rank-one update: one more observation, hyperparameters kept, O(n^2)."""
        n, sf2 = len(self.y), self.signal_variance
        k = self._k(squared_distances((x / self.scale)[None], self.Z))[0] if n else np.zeros(0)
        w = self.W @ k
        last = math.sqrt(max(sf2 + self.noise_variance + self.jitter - float(w @ w), 1e-12 * sf2))
        W = np.zeros((n + 1, n + 1))
        W[:n, :n] = self.W
        W[n, :n] = -(w @ self.W) / last
        W[n, n] = 1.0 / last
        self.W = W
        self.X = np.vstack([self.X, x])
        self.Z = np.vstack([self.Z, x / self.scale])
        self.y = np.append(self.y, y)
        self.alpha = W.T @ (W @ self.y)
        self._centre()

    def _k(self, s: Array) -> Array:
        return self.signal_variance * self.kernel.correlation(s)

    def variance_from(self, s: Array) -> Array:
        """sigma_n^2 (m,) from squared scaled distances s (m, n) to the data."""
        A = self._k(s) @ self.W.T
        return np.maximum(self.signal_variance - np.einsum("ij,ij->i", A, A), 0.0)

    def posterior(self, P: Array) -> tuple[Array, Array]:
        """Latent mean (m,) and variance (m,) at P (m, d)."""
        k = self._k(squared_distances(P / self.scale, self.Z))
        A = k @ self.W.T
        variance = np.maximum(self.signal_variance - np.einsum("ij,ij->i", A, A), 0.0)
        return k @ self.alpha, variance

    def posterior_gradient(self, x: Array) -> tuple[float, float, Array, Array]:
        """(mean, variance, d mean / dx (d,), d variance / dx (d,)) at one point."""
        sf2, z = self.signal_variance, x / self.scale - self.Z[0]
        c, dc = self.kernel.both(np.maximum(self.V2 + float(z @ z) - 2.0 * (self.V @ z), 0.0))
        k = sf2 * c
        v = self.W @ k
        factor = np.empty((2, len(k)))
        np.multiply(dc, self.alpha, out=factor[0])
        np.multiply(dc, -2.0 * (v @ self.W), out=factor[1])  # v W = K^-1 k
        factor *= 2.0 * sf2  # dk_i/dz = 2 sf2 c' (z - z_i)
        both = (factor.sum(1)[:, None] * z - factor @ self.V) / self.scale
        return float(k @ self.alpha), max(sf2 - float(v @ v), 0.0), both[0], both[1]

    def mean_gradients(self, P: Array) -> Array:
        """Gradients of the mean, shape (m, d), at P (m, d)."""
        Q = P / self.scale
        _, dc = self.kernel.both(squared_distances(Q, self.Z))
        F = dc * (2.0 * self.signal_variance * self.alpha)
        gradients: Array = (F.sum(1)[:, None] * Q - F @ self.Z) / self.scale
        return gradients

    def covariance(self, P: Array) -> Array:
        """Joint latent covariance (m, m) at P (m, d)."""
        Q = P / self.scale
        A = self._k(squared_distances(Q, self.Z)) @ self.W.T
        cov: Array = self._k(squared_distances(Q, Q)) - A @ A.T
        return cov

    def inverse(self, X: Array) -> Array:
        """(sf2 C + sn2 I)^-1, shape (n, n), at X (n, d); the posterior stays as it is."""
        own = copy(self)
        own.condition(X, np.zeros(len(X)))
        inverse: Array = own.W.T @ own.W
        return inverse


PERIOD = 5  # every so many returns the fit has a second start,
NOISY = 0.3  # with this noise variance, as a share of the returns' variance


def fit_returns(
    surrogate: Surrogate, X: Array, targets: Array, *, around_mean: bool = True, second_start: bool = True
) -> None:
    """Fit the hyperparameters to targets (centred on the best return) and condition on them.

    around_mean: to targets minus their mean. Max-centred targets all lie below zero, and a zero-mean process explains
    such an offset by a long lengthscale and a large signal. second_start: noisy returns can be explained by noise or
    by a short lengthscale: two modes, and a fit that starts where it stood stays in one of them for ever.
    """
    if len(targets) < 2:
        surrogate.condition(X, targets)
        return
    around = float(np.mean(targets)) if around_mean else 0.0
    value = surrogate.fit(X, targets, around)
    if second_start and len(targets) >= 2 * PERIOD and len(targets) % PERIOD == 0:
        first = surrogate.get_parameters()
        surrogate.restart(NOISY)
        if not surrogate.fit(X, targets, around) > value:
            surrogate.set_parameters(first)
            surrogate.condition(X, targets)
