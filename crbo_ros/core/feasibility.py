"""Where not to go: what the policies that failed, without a return, say about their neighbours.

A failure (a fall, a refusal of the plant) has no return, and a made-up one would bend the model of the return and its
hyperparameters. It has a label: completed policies are +1, failed ones -1, and a Gaussian process with the return's
own lengthscale and the prior mean +1 interpolates them,

    m(x) = 1 + k(x)^T (K + nu I)^-1 (labels - 1).

A policy is allowed where m(x) >= 0.8. (At 0, halfway, a run below a cliff fell 15 times in 40; at 0.5 10 times; at 0.8
5 times, with a made-up return 6 times and a worse policy in the end.) Completed policies around a failure that was
nobody's fault win their neighbourhood back.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from crbo_ros.core.kernels import Array, Kernel, squared_distances

NU = 0.01  # variance of a label
LEAST = 0.8  # m of an allowed policy: nine tenths of the way from failed to completed
Allowed = Callable[[Array], NDArray[np.bool_]]


def everything(P: Array) -> NDArray[np.bool_]:
    """No failure: all of P (m, d) is allowed."""
    return np.ones(len(P), dtype=bool)


def allowed_by(completed: Array, failed: Array, shape: Kernel, lengthscales: Array) -> Allowed:
    """The test of points P (m, d), by completed (n, d) and failed (k, d) policies of the unit box."""
    if not len(failed):
        return everything
    Z = np.vstack([completed, failed]) / lengthscales
    K = shape.correlation(squared_distances(Z, Z))
    K.flat[:: len(Z) + 1] += NU
    weights = np.linalg.solve(K, np.append(np.zeros(len(completed)), np.full(len(failed), -2.0)))

    def allowed(P: Array) -> NDArray[np.bool_]:
        m = 1.0 + shape.correlation(squared_distances(P / lengthscales, Z)) @ weights
        mask: NDArray[np.bool_] = m >= LEAST
        return mask

    return allowed
