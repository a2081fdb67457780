"""LoS-GP-UCB: UCB where the Lipschitz bound of the data permits it (Fiedler, Menn, Kreiskoether, Trimpe 2024).

The safe set is {x : y_i - eps - L |x - x_i| >= J_min for some evaluated x_i}, with distances in the unit box: it needs
an upper bound L on the slope and one (eps) on the noise, and no model of J. Within it mu + beta sigma is maximised.
Without a user's L three times the largest slope of the posterior mean at the data stands in, which guarantees
nothing. Few dimensions only, over the points that safe_opt.py searches. A test holds the set against the formula.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crbo_ros.core.kernels import Array, squared_distances
from crbo_ros.core.settings import check_number
from crbo_ros.core.space import Space
from crbo_ros.core.trial import Proposal
from crbo_ros.methods.safe_opt import SafeOpt


class LosGpUcb(SafeOpt):
    """Settings: j_min, beta, scale (as safe_opt), lipschitz (return per unit-box distance), noise (eps)."""

    name = "los_gp_ucb"

    def __init__(
        self,
        space: Space,
        theta_0: ArrayLike,
        *,
        seed: int = 0,
        j_min: float | None = None,
        beta: float = 2.0,
        scale: float | None = None,
        lipschitz: float | None = None,
        noise: float = 0.0,
    ) -> None:
        super().__init__(space, theta_0, seed=seed, j_min=j_min, beta=beta, scale=scale)
        self.lipschitz = None if lipschitz is None else check_number("lipschitz", lipschitz, 0.0)
        self.noise = check_number("noise", noise, -1e-300)

    def slope(self) -> float:
        """L in the return's units."""
        if self.lipschitz is not None:
            return self.lipschitz
        slopes = np.linalg.norm(self.surrogate.mean_gradients(self.data()[0]), axis=1)
        return 3.0 * self.outputs.scale * max(float(slopes.max()), 1e-9)

    def worst_case(self, P: Array) -> Array:
        """max_i y_i - eps - L |x - x_i| at P (m, d): (m,)."""
        X, y = self.data()
        worst: Array = (y - self.noise - self.slope() * np.sqrt(squared_distances(P, X))).max(axis=1)
        return worst

    def _next(self, id: int) -> Proposal:
        self.fit()
        if not self._completed:
            return self.proposal(id, self.x0, "fallback", reason="only theta_0 is known to be safe")
        P = self._candidates(self.rng(1, id))
        safe = self.worst_case(P) >= self.threshold()
        self.safe_share = float(np.mean(safe))
        if not safe.any():
            X, y = self.data()
            return self.proposal(id, X[int(np.argmax(y))], "fallback", reason="no point is safe: the best policy again")
        mean, variance = self.surrogate.posterior(P)
        value = np.where(safe, mean + self.beta * np.sqrt(variance), -math.inf)
        return self.proposal(id, P[int(np.argmax(value))], "acquisition")

    def report(self) -> dict[str, Any]:
        return {**super().report(), "lipschitz": self.slope() if self._completed else math.nan}
