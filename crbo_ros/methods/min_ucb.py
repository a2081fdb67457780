"""MinUCB and its look-ahead: move to the best pessimistic value near the incumbent (Fan, Wang, Yue et al. 2024).

The incumbent x moves to a local maximum of the lower bound

    l(x) = mu_n(x) - kappa sigma_n(x),   kappa = 3,

found by L-BFGS-B from x, and is evaluated there; between two moves `samples` points are evaluated that teach about it.
MinUCB takes those that shrink the belief about the gradient at x most (as gibo.py). LA-MinUCB takes, within delta of x,
the point whose return raises the bound's maximum most in expectation,

    argmax_z E[max_x' l(x' | data, J(z))],

the knowledge gradient of the bound. The paper optimises that in one shot, z and the maximisers of some draws together;
here over a finite set, CANDIDATES for z and LOCAL for x', with the expectation by Gauss-Hermite quadrature: exact up to
the sets, without inner optimisations. l is the soft form of CRBO's sigma_n <= gamma sigma_f: it never moves to where
the model knows nothing. SE kernel and the hyperparameters' priors as in gibo.py.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize

from crbo_ros.core.kernels import Array
from crbo_ros.core.settings import check_number
from crbo_ros.core.space import Space
from crbo_ros.core.trial import Proposal
from crbo_ros.methods.gibo import GIBO

CANDIDATES, LOCAL = 96, 96
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(9)  # of the standard normal law
WEIGHTS = WEIGHTS / WEIGHTS.sum()


class MinUCB(GIBO):
    """Settings: kappa (sigmas below the mean), samples (between two moves)."""

    name = "min_ucb"

    def __init__(
        self, space: Space, theta_0: ArrayLike, *, seed: int = 0, kappa: float = 3.0, samples: int = 1
    ) -> None:
        super().__init__(space, theta_0, seed=seed)
        self.kappa = check_number("kappa", kappa, 0.0)
        self.samples = int(check_number("samples", samples, 0.0))

    def _next(self, id: int) -> Proposal:
        self.fit()
        if self.spent >= self.samples and self.n > 1:
            self.previous, self.current = self.current, self.best_bound(self.current)
            self.spent, self.steps, self._iterate = 0, self.steps + 1, id
            return self.proposal(id, self.current, "acquisition")
        self.spent += 1
        return self.proposal(id, self.teacher(self.current, self.rng(1, id)), "sample")

    def best_bound(self, x: Array) -> Array:
        """The local maximum of mu - kappa sigma that L-BFGS-B finds from x, a refusal's step shortened."""

        def negative(p: Array) -> tuple[float, Array]:
            mean, variance, by_mean, by_variance = self.surrogate.posterior_gradient(p)
            sigma = math.sqrt(max(variance, 1e-16))
            return self.kappa * sigma - mean, 0.5 * self.kappa / sigma * by_variance - by_mean

        found = minimize(negative, x, jac=True, method="L-BFGS-B", bounds=[(0.0, 1.0)] * len(x))
        return np.clip(x + self.factor * (found.x - x), 0.0, 1.0)

    def teacher(self, x: Array, rng: np.random.Generator) -> Array:
        """What is evaluated before the next move."""
        return self._informative(x, self.gradient_belief(x)[1], rng)


class LookAheadMinUCB(MinUCB):
    """Settings: kappa, samples, delta (reach of the samples in the unit box)."""

    name = "la_min_ucb"

    def __init__(
        self,
        space: Space,
        theta_0: ArrayLike,
        *,
        seed: int = 0,
        kappa: float = 3.0,
        samples: int = 1,
        delta: float = 0.2,
    ) -> None:
        super().__init__(space, theta_0, seed=seed, kappa=kappa, samples=samples)
        self.delta = check_number("delta", delta, 0.0, 1.0)

    def teacher(self, x: Array, rng: np.random.Generator) -> Array:
        z = np.clip(x + self.delta * rng.uniform(-1.0, 1.0, (CANDIDATES, self.space.dim)), 0.0, 1.0)
        top = self.best_bound(x)
        shares = rng.random((LOCAL, 1)) ** 2  # more of them near the bound's present maximum
        local = np.vstack([x, top, np.clip(top + shares * (z[rng.integers(0, CANDIDATES, LOCAL)] - x), 0.0, 1.0)])
        return z[int(np.argmax(self.expected_bound(z, local)))]

    def expected_bound(self, z: Array, local: Array) -> Array:
        """E[max over `local` (m, d) of l after J(z) was seen], for each row of z (k, d)."""
        joint = self.surrogate.covariance(np.vstack([z, local]))
        k = len(z)
        seen = np.maximum(np.diagonal(joint)[:k], 0.0) + self.surrogate.noise_variance
        gain = joint[k:, :k] / np.sqrt(seen)  # (m, k): the mean moves by gain times a standard normal number
        mean = self.surrogate.posterior(local)[0]
        sigma = np.sqrt(np.maximum(np.diagonal(joint)[k:, None] - gain**2, 0.0))
        bounds = (mean[:, None] - self.kappa * sigma)[..., None] + gain[..., None] * NODES
        expected: Array = bounds.max(axis=0) @ WEIGHTS
        return expected
