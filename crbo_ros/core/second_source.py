"""Returns of another plant, or of an older robot: a second source that may inform the mean, and nothing else.

With f the robot's return and f_s the source's, both in their own standard deviations,

    f = rho f_s + e,   f_s ~ GP(0, k_f),   e ~ GP(0, k_e)                      (Kennedy and O'Hagan 2000)

mu_s is the posterior mean of f_s by the source's returns alone; k_e is the robot's own kernel, with the hyperparameters
that its own returns have. So rho is a regression of the robot's returns t on mu_s at the same policies, both centred,

    rho ~ N(0, 1):   rho | t  has mean  v mu_s^T K^-1 t  and variance  v = 1 / (mu_s^T K^-1 mu_s + 1)

and what is used of it is its mean less one deviation, never below 0: a source has to be shown to be right. A mirrored
one gets rho = 0, and the model is what it would be without. sigma_n, the region, the recommendation and the worst cases
know nothing of the source: it says where to look within what the robot's own returns permit.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from crbo_ros.core.gaussian_process import COARSE, GaussianProcess, Standardizer, fit_returns
from crbo_ros.core.hyperparameters import Hyperparameters
from crbo_ros.core.kernels import Array, Kernel
from crbo_ros.errors import InvalidInput

MOST = 200  # of the source's returns that are used: its best and, of the rest, every so manieth


class SecondSource:
    """mu_s: the posterior mean of the source's returns y (m,) at X (m, d) of the unit box."""

    def __init__(self, X: ArrayLike, y: ArrayLike, kernel: Kernel, hyper: Hyperparameters) -> None:
        points, returns = np.array(X, dtype=np.float64), np.array(y, dtype=np.float64)
        if points.ndim != 2 or returns.shape != (len(points),) or len(points) < 3:
            raise InvalidInput(
                f"second source: {len(returns)} returns of {len(points)} policies; at least 3 are needed"
            )
        if len(returns) > MOST:
            rest = np.linspace(0, len(returns) - 1, MOST - 1).astype(int)
            rows = np.union1d(rest, [int(np.argmax(returns))])
            points, returns = points[rows], returns[rows]
        targets = Standardizer.of(returns, "mean").to(returns)
        self.model = GaussianProcess(kernel, points.shape[1], hyper, tolerance=COARSE)
        fit_returns(self.model, points, targets)

    def mean(self, P: Array) -> Array:
        """mu_s (m,) at P (m, d)."""
        return self.model.posterior(P)[0]

    def weight(self, surrogate: GaussianProcess) -> float:
        """rho, less a deviation, by the robot's own returns."""
        m, t = self.mean(surrogate.X), surrogate.y
        a, b = surrogate.W @ (m - m.mean()), surrogate.W @ (t - t.mean())  # |W k|^2 = k^T K^-1 k
        variance = 1.0 / (float(a @ a) + 1.0)
        return max(0.0, variance * float(a @ b) - math.sqrt(variance))


class Informed(GaussianProcess):
    """The robot's own process with the prior mean rho (mu_s(x) - mu_s at its best policy). sigma is its own."""

    def __init__(self, own: GaussianProcess, source: SecondSource, weight: float) -> None:
        self.__dict__.update(own.__dict__)
        self.source, self.weight = source, weight
        at_data = source.mean(own.X)
        self.reference = float(at_data[int(np.argmax(own.y))])
        self.y = own.y - weight * (at_data - self.reference)
        self.alpha = self.W.T @ (self.W @ self.y)

    def posterior(self, P: Array) -> tuple[Array, Array]:
        mean, variance = super().posterior(P)
        return mean + self.weight * (self.source.mean(P) - self.reference), variance

    def posterior_gradient(self, x: Array) -> tuple[float, float, Array, Array]:
        mean, variance, d_mean, d_variance = super().posterior_gradient(x)
        prior, _, d_prior, _ = self.source.model.posterior_gradient(x)
        return mean + self.weight * (prior - self.reference), variance, d_mean + self.weight * d_prior, d_variance

    def mean_gradients(self, P: Array) -> Array:
        return super().mean_gradients(P) + self.weight * self.source.model.mean_gradients(P)
