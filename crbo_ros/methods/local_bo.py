"""Local Bayesian optimization (Akrour, Sorokin, Peters, Neumann 2017): a Gaussian search distribution led by a GP.

Notation: pi_n = N(m, S) the search distribution, p_n(x) ~ p(x is optimal | data) pi_n(x) the belief about the
optimum's place. An iteration evaluates 10 Thompson samples: the maximiser of a posterior draw over points of pi_n,
which is a sample of p_n. Then pi_n moves towards p_n under two information-theoretic constraints,

    pi_{n+1} = argmin KL(pi || p_n)   with KL(pi || pi_n) <= epsilon and H(pi_n) - H(pi) <= beta,   epsilon = beta = 1
             = [q pi_n^eta]^(1 / (1 + eta + omega)), normalised,

where q is the Gaussian with the mean and covariance of samples of p_n, eta and omega the multipliers: a Gaussian
again, with precision (Q + eta P) / (1 + eta + omega). For a given eta the entropy constraint gives omega in closed
form; eta by bisection. The samples being fewer than a covariance in 100 dimensions needs, q's is shrunk towards S.
The paper's own solver learns log p_n instead; its authors' code is not public. The GP: the CRBO paper's priors,
returns minus the worst return (the paper's centring).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crbo_ros.core.gp_method import GPMethod
from crbo_ros.core.hyperparameters import paper_hyperparameters
from crbo_ros.core.kernels import Array
from crbo_ros.core.settings import check_number
from crbo_ros.core.space import Space
from crbo_ros.core.trial import Proposal, TrialStatus

GROUPS, GROUP = 20, 150  # of local points over which posteriors are drawn jointly
DRAWS = 25  # from each group


def log_det(A: Array) -> float:
    return float(np.linalg.slogdet(A)[1])


def divergence(m: Array, S: Array, n: Array, T: Array) -> float:
    """KL(N(m, S) || N(n, T))."""
    precision = np.linalg.inv(T)
    gap = m - n
    trace = float(np.vdot(precision, S) + gap @ precision @ gap)
    return 0.5 * (trace - len(m) + log_det(T) - log_det(S))


def update(m: Array, S: Array, q_mean: Array, q_cov: Array, epsilon: float, beta: float) -> tuple[Array, Array]:
    """pi_{n+1} = N(mean (d,), covariance (d, d)) from pi_n = N(m, S) and q; see the module's docstring."""
    P, Q = np.linalg.inv(S), np.linalg.inv(q_cov)

    def at(eta: float) -> tuple[Array, Array]:
        base = np.linalg.inv(Q + eta * P)
        base = 0.5 * (base + base.T)
        # H(pi) = H(base) + d/2 log(1 + eta + omega) has to be at least H(pi_n) - beta
        needed = math.exp((log_det(S) - log_det(base) - 2.0 * beta) / len(m))
        return base @ (Q @ q_mean + eta * (P @ m)), base * max(1.0 + eta, needed)

    low, high = 0.0, 1.0
    if divergence(*at(0.0), m, S) <= epsilon:
        return at(0.0)
    while divergence(*at(high), m, S) > epsilon and high < 1e12:
        low, high = high, 4.0 * high
    for _ in range(40):
        middle = 0.5 * (low + high)
        if divergence(*at(middle), m, S) > epsilon:
            low = middle
        else:
            high = middle
    return at(high)


class LocalBO(GPMethod):
    """Settings: sigma_0 (initial standard deviation in the unit box), batch, epsilon (KL), beta (entropy reduction)."""

    name = "local_bo"
    centering = "min"

    def __init__(
        self,
        space: Space,
        theta_0: ArrayLike,
        *,
        seed: int = 0,
        sigma_0: float = 0.05,
        batch: int = 10,
        epsilon: float = 1.0,
        beta: float = 1.0,
    ) -> None:
        self.hyper = paper_hyperparameters(space.dim)
        super().__init__(space, theta_0, seed=seed)
        self.sigma_0 = check_number("sigma_0", sigma_0, 0.0, 10.0)
        self.batch = int(check_number("batch", batch, 0.0))
        self.epsilon, self.beta = check_number("epsilon", epsilon, 0.0), check_number("beta", beta, 0.0)
        self.mean, self.covariance = self.x0.copy(), self.sigma_0**2 * np.eye(space.dim)
        self._members: list[int] = []  # ids of the iteration under way
        self._queue: list[Array] = []  # its points that are not handed out yet
        self.iterations = 0

    def _next(self, id: int) -> Proposal:
        if not self._queue:  # also when all of an iteration is out and nothing has come back: then a further one
            done = [i for i in self._members if self.trials[i].end is TrialStatus.COMPLETED]
            self.fit()
            if done:
                self._move(self.rng(1, id))
            self._members = []
            self._queue = list(self._thompson(self.batch, 1, self.rng(2, id))[: self.batch])
        self._members.append(id)
        return self.proposal(id, self._queue.pop(0), "acquisition")

    def _move(self, rng: np.random.Generator) -> None:
        samples = self._thompson(GROUPS, DRAWS, rng)
        d, k = self.space.dim, len(samples)
        keep = k / (k + 2.0 * d)
        covariance = keep * np.cov(samples.T).reshape(d, d) + (1.0 - keep) * self.covariance
        self.mean, self.covariance = update(
            self.mean, self.covariance, samples.mean(0), covariance, self.epsilon, self.beta
        )
        self.iterations += 1

    def _thompson(self, groups: int, draws: int, rng: np.random.Generator) -> Array:
        """Samples of p_n, shape (groups * draws, d): maximisers of posterior draws over points of pi_n."""
        root = np.linalg.cholesky(self.covariance + 1e-12 * np.eye(self.space.dim))
        winners = []
        for _ in range(groups):
            points = np.clip(self.mean + rng.standard_normal((GROUP, self.space.dim)) @ root.T, 0.0, 1.0)
            mean, _ = self.surrogate.posterior(points)
            values, vectors = np.linalg.eigh(self.surrogate.covariance(points))
            half = vectors * np.sqrt(np.maximum(values, 0.0))
            functions = mean[:, None] + half @ rng.standard_normal((GROUP, draws))
            winners.append(points[np.argmax(functions, axis=0)])
        return np.vstack(winners)

    def report(self) -> dict[str, Any]:
        spread = math.sqrt(float(np.trace(self.covariance)) / self.space.dim)
        return {**super().report(), "sigma": spread, "iterations": self.iterations}
