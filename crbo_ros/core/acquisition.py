"""Acquisition functions of the posterior mean and standard deviation at a point.

Each maps (mean, sigma), arrays of shape (m,), to (value, d value / d mean, d value / d sigma); the gradient by x
follows by the chain rule. The confidence region is independent of which one is used. All are maximised.

    ucb      mean + beta sigma                                  Cox and John 1992; the paper's, beta = 2
    ei       E max(J - best, 0)                                 Mockus 1975
    log_ei   its logarithm, computed without underflow           Ament et al. 2023
    pi       P(J > best + 0.01 sigma_f)                          Kushner 1964
    mes      max-value entropy search                            Wang and Jegelka 2017
    thompson the maximum of one joint posterior draw over the region's samples (no gradient, so no polish)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import erfcx, log_ndtr, ndtr

from crbo_ros.core.kernels import Array
from crbo_ros.errors import InvalidInput

Value = tuple[Array, Array, Array]
Acquisition = Callable[[Array, Array], Value]
NAMES = ("ucb", "ei", "log_ei", "pi", "mes", "thompson")
TINY = 1e-12


def density(z: Array) -> Array:
    """Standard normal density."""
    phi: Array = np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)
    return phi


def ucb(mean: Array, sigma: Array, beta: float) -> Value:
    return mean + beta * sigma, np.ones_like(mean), np.full_like(mean, beta)


def ei(mean: Array, sigma: Array, best: float) -> Value:
    sigma = np.maximum(sigma, TINY)
    z = (mean - best) / sigma
    return sigma * (z * ndtr(z) + density(z)), ndtr(z), density(z)


def log_ei(mean: Array, sigma: Array, best: float) -> Value:
    """log EI = log sigma + log h(z), h(z) = phi(z) + z Phi(z); for z << 0 through erfcx, which does not underflow."""
    sigma = np.maximum(sigma, TINY)
    z = (mean - best) / sigma
    far = z < -1.0
    zf, zn = np.where(far, z, -2.0), np.where(far, 0.0, z)
    mills = np.sqrt(0.5 * np.pi) * erfcx(-zf / np.sqrt(2.0))  # Phi(z) / phi(z)
    bracket = np.maximum(1.0 + zf * mills, 1e-300)
    near = density(zn) + zn * ndtr(zn)
    log_h = np.where(far, -0.5 * zf**2 - 0.5 * np.log(2.0 * np.pi) + np.log(bracket), np.log(near))
    slope = np.where(far, mills / bracket, ndtr(zn) / near)  # h'/h = Phi / h
    return np.log(sigma) + log_h, slope / sigma, (1.0 - z * slope) / sigma


def pi(mean: Array, sigma: Array, best: float) -> Value:
    """log P(J > best): same maximiser, better gradients."""
    sigma = np.maximum(sigma, TINY)
    z = (mean - best) / sigma
    slope = np.exp(-0.5 * z * z - 0.5 * np.log(2.0 * np.pi) - log_ndtr(z))
    return log_ndtr(z), slope / sigma, -z * slope / sigma


def mes(mean: Array, sigma: Array, maxima: Array) -> Value:
    """Mean over draws y* of the maximum: z phi(z) / (2 Phi(z)) - log Phi(z), z = (y* - mean) / sigma."""
    sigma = np.maximum(sigma, TINY)
    z = (maxima[:, None] - mean) / sigma
    log_cdf = log_ndtr(z)
    ratio = np.exp(-0.5 * z * z - 0.5 * np.log(2.0 * np.pi) - log_cdf)
    value = 0.5 * z * ratio - log_cdf
    slope = 0.5 * ratio * (1.0 - z * z - z * ratio) - ratio
    return value.mean(0), (-slope / sigma).mean(0), (-slope * z / sigma).mean(0)


def draw_maxima(mean: Array, sigma: Array, best: float, rng: np.random.Generator, draws: int = 16) -> Array:
    """Draws of the maximum over the samples by the Gumbel approximation to prod_i Phi((y - mean_i) / sigma_i)."""
    sigma = np.maximum(sigma, TINY)
    grid = np.linspace(float(np.max(mean)) - 0.5 * float(np.max(sigma)), float(np.max(mean + 6.0 * sigma)), 200)
    log_cdf = log_ndtr((grid[:, None] - mean) / sigma).sum(1)
    quartiles = np.interp(np.log([0.25, 0.5, 0.75]), log_cdf, grid)
    b = max((quartiles[2] - quartiles[0]) / (np.log(np.log(4.0)) - np.log(np.log(4.0 / 3.0))), TINY)
    a = quartiles[1] + b * np.log(np.log(2.0))
    maxima = a - b * np.log(-np.log(rng.uniform(1e-9, 1.0 - 1e-9, draws)))
    floored: Array = np.maximum(maxima, best + 1e-6 * float(np.max(sigma)))
    return floored


def from_user(function: Callable[[Array, Array], Array]) -> Acquisition:
    """Any function of (mean, sigma); its two derivatives by central differences."""

    def wrapped(mean: Array, sigma: Array) -> Value:
        step_mean, step_sigma = 1e-6 * (1.0 + np.abs(mean)), 1e-6 * (1e-6 + sigma)
        by_mean = (function(mean + step_mean, sigma) - function(mean - step_mean, sigma)) / (2.0 * step_mean)
        by_sigma = (function(mean, sigma + step_sigma) - function(mean, sigma - step_sigma)) / (2.0 * step_sigma)
        return np.asarray(function(mean, sigma), dtype=np.float64), by_mean, by_sigma

    return wrapped


def make(
    choice: str | Callable[[Array, Array], Array],
    *,
    beta: float,
    best: float,
    sf: float,
    mean: Array,
    sigma: Array,
    rng: np.random.Generator,
) -> Acquisition:
    """The acquisition by name or from a callable; mean, sigma (m,) at the region's samples serve those that need
    draws."""
    if callable(choice):
        return from_user(choice)
    if choice == "ucb" or choice == "thompson":  # thompson is decided on the samples; this orders its fallback
        return lambda m, s: ucb(m, s, beta)
    if choice == "ei":
        return lambda m, s: ei(m, s, best)
    if choice == "log_ei":
        return lambda m, s: log_ei(m, s, best)
    if choice == "pi":
        return lambda m, s: pi(m, s, best + 0.01 * sf)
    if choice == "mes":
        maxima = draw_maxima(mean, sigma, best, rng)
        return lambda m, s: mes(m, s, maxima)
    raise InvalidInput(f"acquisition: {choice!r} is none of {', '.join(NAMES)} and not callable")
