"""Stationary kernels as functions of one number: the squared distance in lengthscales.

Notation (all of core/): X (n, d) data in the unit box, y (n,) returns, l lengthscale(s), sf2 = sigma_f^2 signal
variance, sn2 = sigma_eps^2 noise variance, s = |x - x'|^2 with every coordinate divided by its lengthscale. k(x, x')
= sf2 * c(s), with

    SE          c = exp(-s/2)                          c' = -c/2
    Matern-3/2  c = (1 + a) exp(-a),         a^2 = 3s  c' = -3/2 exp(-a)
    Matern-5/2  c = (1 + a + a^2/3) exp(-a), a^2 = 5s  c' = -5/6 (1 + a) exp(-a)

where c' = dc/ds. With s as the variable no kernel has a singular derivative at zero distance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from crbo_ros.errors import InvalidInput

Array = NDArray[np.float64]


def _se(s: Array) -> Array:
    return np.exp(-0.5 * s)


def _se_both(s: Array) -> tuple[Array, Array]:
    c = np.exp(-0.5 * s)
    return c, -0.5 * c


def _matern32(s: Array) -> Array:
    a = np.sqrt(3.0 * s)
    return (1.0 + a) * np.exp(-a)


def _matern32_both(s: Array) -> tuple[Array, Array]:
    a = np.sqrt(3.0 * s)
    e = np.exp(-a)
    return (1.0 + a) * e, -1.5 * e


def _matern52(s: Array) -> Array:
    a = np.sqrt(5.0 * s)
    c = np.exp(-a)
    a *= 1.0 + a / 3.0
    a += 1.0
    return c * a


def _matern52_both(s: Array) -> tuple[Array, Array]:
    a = np.sqrt(5.0 * s)
    e = np.exp(-a)
    lin = (1.0 + a) * e
    return lin + (a * a / 3.0) * e, (-5.0 / 6.0) * lin


@dataclass(frozen=True)
class Kernel:
    """A correlation function c(s), its derivative, and -c''(r) at r = 0 (variance of a unit-signal slope, per
    1/l^2)."""

    name: str
    correlation: Callable[[Array], Array]  # s -> c
    both: Callable[[Array], tuple[Array, Array]]  # s -> (c, dc/ds)
    slope_variance: float

    def distance(self, correlation: float) -> float:
        """The distance, in lengthscales, at which the correlation has fallen to this value (0 < value <= 1)."""
        if correlation >= 1.0:
            return 0.0
        if self.name == "se":
            return float(np.sqrt(-2.0 * np.log(correlation)))  # closed form
        high = 1.0
        while float(self.correlation(np.array(high * high))) > correlation:
            high *= 2.0
        return float(brentq(lambda r: float(self.correlation(np.array(r * r))) - correlation, 0.0, high, xtol=1e-14))


KERNELS = {
    "se": Kernel("se", _se, _se_both, 1.0),
    "matern32": Kernel("matern32", _matern32, _matern32_both, 3.0),
    "matern52": Kernel("matern52", _matern52, _matern52_both, 5.0 / 3.0),
}


def kernel(name: str) -> Kernel:
    """The kernel of that name."""
    if name not in KERNELS:
        raise InvalidInput(f"kernel: {name!r} is none of {', '.join(KERNELS)}")
    return KERNELS[name]


def squared_distances(A: Array, B: Array) -> Array:
    """|a_i - b_j|^2, shape (len(A), len(B)); never negative. Exact zeros on coincident rows of A and B."""
    # (a - b)^2 = a^2 + b^2 - 2ab around a common origin: cancellation then costs at most eps * (extent of the data)^2
    origin = B[0] if len(B) else 0.0
    A, B = A - origin, B - origin
    D: Array = np.einsum("ij,ij->i", A, A)[:, None] + np.einsum("ij,ij->i", B, B)[None, :] - 2.0 * (A @ B.T)
    np.maximum(D, 0.0, out=D)
    return D
