"""The confidence region C_n = {x in the unit box : sigma_n(x) <= g sigma_f} (paper, Eq. 3) and its one-point radius r0.

Noise closes the region: the variance at a point that was observed once is sf2 sn2 / (sf2 + sn2), not zero, and once
that exceeds gamma^2 sf2 the region is empty around a single observation. Where no data point is inside, g is raised to
just admit the best one (by posterior mean), which `state` tells; else g = gamma. CRBO's
own gamma there is `noise_proof` of the user's.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from crbo_ros.core.gaussian_process import GaussianProcess, Surrogate
from crbo_ros.core.kernels import Array, Kernel

Mask = NDArray[np.bool_]


def r0(kernel: Kernel, lengthscale: float, gamma: float, noise_ratio: float = 0.0) -> float:
    """Radius of the region around a single observation: sigma_1(r0) = gamma sigma_f. noise_ratio = sn2 / sf2.

    c(r)^2 / (1 + noise_ratio) = 1 - gamma^2; zero when the noise leaves no region; the box's diagonal is for the caller
    to care about (gamma = 1 gives infinity).
    """
    if gamma >= 1.0:
        return math.inf
    wanted = math.sqrt((1.0 - gamma * gamma) * (1.0 + noise_ratio))
    return lengthscale * kernel.distance(wanted) if wanted < 1.0 else 0.0


def noise_proof(gamma: float, noise_ratio: float) -> float:
    """The threshold with which one noisy return has the radius that gamma gives a return without noise.

    1 - g^2 = (1 - gamma^2) / (1 + noise_ratio), see r0. The region sigma_n <= gamma sigma_f shrinks with the noise
    until nothing is left, and the search crawls where it should look further: noise says how often to look, not how far
    a policy resembles its neighbour.
    """
    return math.sqrt(1.0 - (1.0 - gamma * gamma) / (1.0 + noise_ratio)) if gamma < 1.0 and noise_ratio else gamma


class ConfidenceRegion:
    """Membership, gradient, and the region along lines."""

    def __init__(self, surrogate: Surrogate, gamma: float) -> None:
        self.surrogate, self.gamma = surrogate, gamma
        self.sf2 = surrogate.signal_variance
        mean, variance = surrogate.posterior(surrogate.X)
        best = int(np.argmax(mean))
        self.threshold = gamma
        self.state = "ok"
        self.dim = surrogate.X.shape[1]
        self._limit = self.threshold**2 * self.sf2
        self.data_mean = mean
        self.data_inside: Mask = variance <= self._limit * (1.0 + 1e-12)  # rounding or not
        if not self.data_inside.any():
            self.threshold = min(1.0, math.sqrt(float(variance[best]) / self.sf2) * 1.05 + 1e-9)
            self._limit = self.threshold**2 * self.sf2
            self.data_inside = variance <= self._limit
            self.data_inside[best] = True
            self.state = f"empty at gamma {gamma:.3g} (noise): threshold raised to {self.threshold:.3g}"

    def best_inside(self) -> Array:
        """The evaluated policy (d,) inside the region with the best posterior mean."""
        inside = np.flatnonzero(self.data_inside)
        best: Array = self.surrogate.X[inside[int(np.argmax(self.data_mean[inside]))]]
        return best

    def slack(self, P: Array) -> Array:
        """g^2 sf2 - sigma_n^2 at P (m, d): non-negative inside (the box apart)."""
        return self._limit - self.surrogate.posterior(P)[1]

    def contains(self, P: Array, tolerance: float = 0.0) -> Mask:
        """sigma_n <= g sigma_f (1 + tolerance) and inside the box (to the tolerance), for P (m, d)."""
        inside = self.surrogate.posterior(P)[1] <= self._limit * (1.0 + tolerance) ** 2
        mask: Mask = inside & np.all((tolerance + P >= 0.0) & (tolerance + 1.0 >= P), axis=1)
        return mask

    def on_line(self, x: Array, u: Array) -> Callable[[NDArray[np.intp], Array], Mask]:
        """A test inside(rows, t (m,)) of the points x[rows] + t u[rows]; x, u (m, d).

        In closed form the squared distance to every data point is a quadratic in t, so that d drops out.
        """
        surrogate = self.surrogate
        if not isinstance(surrogate, GaussianProcess):

            def slow(rows: NDArray[np.intp], t: Array) -> Mask:
                mask: Mask = self.slack(x[rows] + t[:, None] * u[rows]) >= 0.0
                return mask

            return slow
        v, origin = u / surrogate.scale, surrogate.Z[0]
        z, Z = x / surrogate.scale - origin, surrogate.Z - origin
        s0 = np.einsum("ij,ij->i", z, z)[:, None] + np.einsum("ij,ij->i", Z, Z)[None] - 2.0 * (z @ Z.T)
        s1 = 2.0 * (np.einsum("ij,ij->i", v, z)[:, None] - v @ Z.T)
        s2 = np.einsum("ij,ij->i", v, v)

        def fast(rows: NDArray[np.intp], t: Array) -> Mask:
            s = s1[rows]
            s *= t[:, None]
            s += s0[rows]
            s += (s2[rows] * t * t)[:, None]
            mask: Mask = surrogate.variance_from(np.maximum(s, 0.0, out=s)) <= self._limit
            return mask

        return fast
