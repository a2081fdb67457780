"""SafeOpt (Sui et al. 2015; Berkenkamp, Schoellig, Krause 2016) for low dimensions: never below J_min, with high
probability.

With the confidence interval [l, u] = mean -+ beta sigma the safe set is S = {x : l(x) >= J_min}; theta_0 is in it
because the operator says so. Of the maximisers {x in S : u(x) >= max_S l} and the expanders (safe points whose
optimistic observation u(x) would make further points safe) the one with the widest interval is evaluated. Over a grid
in up to 3 dimensions, over a Sobol sequence and points around the safe data above that; more than `MOST` dimensions
are refused, as nothing would be found.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import qmc

from crbo_ros.core.gaussian_process import Hyperparameters
from crbo_ros.core.gp_method import Array, GPMethod, check_number
from crbo_ros.core.hyperparameters import Gamma, LogNormal
from crbo_ros.core.space import Space
from crbo_ros.core.trial import Proposal
from crbo_ros.errors import InvalidInput

MOST = 10
SIDES = {1: 1001, 2: 71, 3: 19}  # points a side of the grid
EXPANDERS = 32  # of the widest safe points, how many are tried as expanders


class SafeOpt(GPMethod):
    """Settings: j_min (default: 10 % of |J(theta_0)| below the first return), beta (width of the confidence interval),
    scale (typical spread of the returns; default: the first one's size)."""

    name = "safe_opt"

    def __init__(
        self,
        space: Space,
        theta_0: ArrayLike,
        *,
        seed: int = 0,
        j_min: float | None = None,
        beta: float = 2.0,
        scale: float | None = None,
    ) -> None:
        if space.dim > MOST:
            raise InvalidInput(f"safe_opt: {space.dim} dimensions; SafeOpt searches a grid and takes at most {MOST}")
        median = 0.1 * math.sqrt(space.dim)
        self.hyper = Hyperparameters(
            LogNormal(median, 0.5),
            Gamma(2.0, 0.15),
            LogNormal(1e-3, 2.0),
            lengthscale_bounds=(0.2 * median, median),  # the fit may add caution, never take it away
            signal_bounds=(1.0, 1e3),
            noise_bounds=(1e-7, 1e1),
            start=(median, 1.0, 1e-3),
        )
        super().__init__(space, theta_0, seed=seed)
        self.beta = check_number("beta", beta, 0.0)
        self.j_min = None if j_min is None else check_number("j_min", j_min, -math.inf)
        self.scale = None if scale is None else check_number("scale", scale, 0.0)
        self.safe_share = math.nan

    def least_scale(self, y: Array) -> float:
        """SafeOpt rests on a known spread of returns: the user's, or |J(theta_0)|; never what few returns happen to
        show."""
        return self.scale or abs(float(y[0])) or 1.0

    def threshold(self) -> float:
        """J_min in the return's units."""
        if self.j_min is not None:
            return self.j_min
        first = self.trials[self._completed[0]].value if self._completed else 0.0
        return first - 0.1 * abs(first)

    def _next(self, id: int) -> Proposal:
        self.fit()
        if not self._completed:  # theta_0 is still out: nothing else is known to be safe
            return self.proposal(id, self.x0, "fallback", reason="only theta_0 is known to be safe")
        target = float(self.outputs.to(np.array(self.threshold())))
        P = self._candidates(self.rng(1, id))
        mean, variance = self.surrogate.posterior(P)
        sigma = np.sqrt(variance)
        low, high = mean - self.beta * sigma, mean + self.beta * sigma
        safe = low >= target
        self.safe_share = float(np.mean(safe))
        if not safe.any():
            X, y = self.data()
            return self.proposal(id, X[int(np.argmax(y))], "fallback", reason="no point is safe: the best policy again")
        interesting = safe & (high >= float(low[safe].max()))
        width = np.where(interesting, sigma, -1.0)
        i = int(np.argmax(width))
        expander = self._expander(P, safe, sigma, high, target, at_least=float(width[i]))
        i = i if expander is None else expander
        return self.proposal(id, P[i], "acquisition")

    def _expander(
        self, P: Array, safe: NDArray[np.bool_], sigma: Array, high: Array, target: float, at_least: float
    ) -> int | None:
        """The widest safe point, wider than `at_least`, whose observation at u(x) would make an unsafe point safe."""
        rows = np.flatnonzero(safe & (sigma > at_least))
        unsafe = np.flatnonzero(~safe)
        if not len(unsafe):
            return None
        model = self.surrogate
        for i in rows[np.argsort(-sigma[rows], kind="stable")][:EXPANDERS]:
            near = unsafe[np.argsort(np.sum((P[unsafe] - P[i]) ** 2, axis=1))[:64]]
            joint = model.covariance(np.vstack([P[i][None], P[near]]))
            gain = joint[0, 1:] / (joint[0, 0] + model.noise_variance)
            mean, variance = model.posterior(P[near])
            mean = mean + gain * (high[i] - model.posterior(P[i][None])[0][0])
            variance = np.maximum(variance - gain * joint[0, 1:], 0.0)
            if np.any(mean - self.beta * np.sqrt(variance) >= target):
                return int(i)
        return None

    def _candidates(self, rng: np.random.Generator) -> Array:
        d = self.space.dim
        if d in SIDES:
            axis = np.linspace(0.0, 1.0, SIDES[d])
            grid = np.stack(np.meshgrid(*[axis] * d, indexing="ij"), axis=-1).reshape(-1, d)
        else:
            grid = qmc.Sobol(d, scramble=True, seed=rng).random_base2(12)
        X, _ = self.data()
        spread = float(self.surrogate.lengthscales[0]) * rng.random((4000, 1))
        u = rng.standard_normal((4000, d))
        around = X[rng.integers(0, len(X), 4000)] + spread * u / np.linalg.norm(u, axis=1, keepdims=True)
        return np.vstack([grid, np.clip(around, 0.0, 1.0)])

    def report(self) -> dict[str, Any]:
        return {**super().report(), "j_min": self.threshold(), "safe_share": self.safe_share}
