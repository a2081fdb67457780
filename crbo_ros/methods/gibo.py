"""GIBO, local search by gradient information (Mueller, von Rohr, Trimpe 2021), that steps when ascent is probable.

Around the current policy x the GP has a belief about the gradient, N(g, C). Points are evaluated that shrink the
trace of C most,

    reduction(z) = |cov(grad J(x), J(z))|^2 / (sigma_n^2(z) + sigma_eps^2),

until g is a direction of ascent with probability alpha, Phi(|g| / sqrt(v^T C v)) >= alpha with v = g / |g|, or d
points were spent; then x moves by `rate` lengthscales along v (normalised gradient) and is evaluated. GIBO itself
always spends the same number of points; HCI-GIBO (hci_gibo.py) asks for more than ascent. alpha = 0.95, rate = 0.25:
HCI-GIBO's settings for budgets of some 100 to 200 calls. SE kernel, as in both papers.

The candidates for z lie on spheres around x in directions that no data point has covered yet: for the SE kernel the
best single point is one lengthscale away, in any such direction.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import svd
from scipy.special import ndtr

from crbo_ros.core.gaussian_process import GaussianProcess
from crbo_ros.core.gp_method import GPMethod
from crbo_ros.core.hyperparameters import Gamma, Hyperparameters, LogNormal
from crbo_ros.core.kernels import Array, squared_distances
from crbo_ros.core.settings import check_number
from crbo_ros.core.space import Space
from crbo_ros.core.trial import Proposal, TrialStatus

RADII = (0.25, 0.5, 1.0)  # lengthscales
CANDIDATES = 256


class GIBO(GPMethod):
    """Settings: alpha (probability of improvement at which to step), rate (step in lengthscales)."""

    name = "gibo"
    surrogate: GaussianProcess
    kernel_name = "se"
    reach = 1.0  # how far from x a sample may lie in each coordinate

    def __init__(
        self, space: Space, theta_0: ArrayLike, *, seed: int = 0, alpha: float = 0.95, rate: float = 0.25
    ) -> None:
        median = 0.1 * math.sqrt(space.dim)
        self.hyper = Hyperparameters(
            LogNormal(median, 0.5),
            Gamma(2.0, 0.15),
            LogNormal(1e-2, 1.5),
            lengthscale_bounds=(0.1 * median, 4.0 * median),
            signal_bounds=(1e-2, 1e3),
            noise_bounds=(1e-6, 1e1),
            start=(median, 1.0, 1e-2),
        )
        super().__init__(space, theta_0, seed=seed)
        self.alpha, self.rate = check_number("alpha", alpha, 0.5, 0.9999), check_number("rate", rate, 0.0)
        self.current, self.previous = self.x0.copy(), self.x0.copy()
        self.spent = self.steps = 0
        self.factor = 1.0  # shrinks the step after the policy that it led to was refused
        self._iterate = -1  # id of the current policy's evaluation

    def _next(self, id: int) -> Proposal:
        self.fit()
        g, A = self.gradient_belief(self.current)
        norm = float(np.linalg.norm(g))
        if norm > 0.0 and self.n > 1:
            v = g / norm
            variance = self.prior_slope - float(np.sum((v @ A) ** 2))
            certain = self.probability(norm, math.sqrt(max(variance, 1e-300))) >= self.alpha
            if (certain and self.spent > 0) or self.spent >= self.space.dim:
                self.previous = self.current
                step = self.factor * self.rate * float(self.surrogate.lengthscales[0])
                self.current = np.clip(self.current + step * v, 0.0, 1.0)
                self.spent, self.steps, self._iterate = 0, self.steps + 1, id
                return self.proposal(id, self.current, "acquisition")
        self.spent += 1
        return self.proposal(id, self._informative(self.current, A, self.rng(1, id)), "sample")

    def probability(self, slope: float, sigma: float) -> float:
        """That a step along the expected gradient is good; its slope there is N(slope, sigma^2)."""
        return float(ndtr(slope / sigma))

    @property
    def prior_slope(self) -> float:
        """Prior variance of a directional derivative."""
        return (
            self.surrogate.kernel.slope_variance * self.surrogate.signal_variance / float(self.surrogate.scale[0]) ** 2
        )

    def _cross(self, x: Array, P: Array) -> Array:
        """d k(x, p) / dx for p in P (m, d): shape (m, d)."""
        model = self.surrogate
        difference = (x - P) / model.scale
        _, dc = model.kernel.both(np.einsum("ij,ij->i", difference, difference))
        return (2.0 * model.signal_variance * dc)[:, None] * difference / model.scale

    def gradient_belief(self, x: Array) -> tuple[Array, Array]:
        """Mean g (d,) of the gradient at x, and A (d, n) with covariance = prior_slope I - A A^T."""
        G = self._cross(x, self.surrogate.X)
        return G.T @ self.surrogate.alpha, G.T @ self.surrogate.W.T

    def _informative(self, x: Array, A: Array, rng: np.random.Generator) -> Array:
        model, d = self.surrogate, self.space.dim
        directions = rng.standard_normal((CANDIDATES, d))
        # gesvd: slower than NumPy's gesdd, which gives up on some matrices
        known, singular, _ = svd(A, full_matrices=False, lapack_driver="gesvd")
        known = known[:, singular > 1e-3 * max(float(singular.max(initial=0.0)), 1e-300)]
        if known.shape[1] < d:
            free = directions - (directions @ known) @ known.T
            directions = np.vstack([directions[: CANDIDATES // 4], free[CANDIDATES // 4 :]])
        directions /= np.maximum(np.linalg.norm(directions, axis=1, keepdims=True), 1e-12)
        length = float(model.scale[0])
        offsets = np.vstack([radius * length * directions for radius in RADII])
        candidates = np.clip(x + np.clip(offsets, -self.reach, self.reach), 0.0, 1.0)
        k = model._k(squared_distances(candidates / model.scale, model.Z)) @ model.W.T  # (m, n)
        covariance = self._cross(x, candidates) - k @ A.T
        variance = np.maximum(model.signal_variance - np.einsum("ij,ij->i", k, k), 0.0) + model.noise_variance
        reduction = np.einsum("ij,ij->i", covariance, covariance) / variance
        return candidates[int(np.argmax(reduction))]

    def _on_end(self, id: int, end: TrialStatus) -> None:
        if id == self._iterate and end in (
            TrialStatus.VETOED,
            TrialStatus.FAILED,
        ):  # back, and a shorter step next time
            self.current, self.factor = self.previous, 0.5 * self.factor
        elif id == self._iterate and end is TrialStatus.COMPLETED:
            self.factor = min(1.0, 1.5 * self.factor)

    def report(self) -> dict[str, Any]:
        return {**super().report(), "steps": self.steps, "spent": self.spent}
