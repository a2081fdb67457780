"""LES, local entropy search: evaluate what tells most about where local ascent would lead (2025, arXiv 2511.19241).

From the incumbent, L posterior draws are ascended by ADAM; P points of each path make Q_l, what is known if draw l is
the truth. The acquisition is the information that an observation has about those paths,

    alpha(x) = 1/2 log s2(x | D) - 1/L sum_l 1/2 log s2(x | D u Q_l),   s2 with the observation's noise,

maximised over the points of all paths. The draws are decoupled (Wilson et al. 2020): random Fourier features for the
prior, Matheron's rule for the update; a test compares their mean and variance with the posterior's. The paper has
L = 250; 32 here, so that sweeps can be paid for: a proposal costs O(L P (L P + n)). P = 8 as in the paper.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from crbo_ros.core.gaussian_process import GaussianProcess
from crbo_ros.core.gp_method import GPMethod
from crbo_ros.core.hyperparameters import paper_hyperparameters
from crbo_ros.core.kernels import Array, squared_distances
from crbo_ros.core.settings import check_number
from crbo_ros.core.space import Space
from crbo_ros.core.trial import Proposal

FEATURES = 256
STEPS = 40  # of ADAM
RATE = 0.1  # of ADAM, in lengthscales


class Draws:
    """L functions from a Gaussian process' posterior, with gradients."""

    def __init__(self, model: GaussianProcess, count: int, rng: np.random.Generator) -> None:
        self.model = model
        d, scale = model.dim, model.scale
        omega = rng.standard_normal((FEATURES, d))
        if model.kernel.name != "se":  # a Matern kernel's spectrum is a t distribution: 2 nu = 3 or 5
            freedom = {"matern32": 3, "matern52": 5}[model.kernel.name]
            omega *= np.sqrt(freedom / rng.chisquare(freedom, (FEATURES, 1)))
        self.omega, self.phase = omega / scale, rng.uniform(0.0, 2.0 * math.pi, FEATURES)
        self.amplitude = math.sqrt(2.0 * model.signal_variance / FEATURES)
        self.weights = rng.standard_normal((FEATURES, count))
        noise = math.sqrt(model.noise_variance + model.jitter) * rng.standard_normal((len(model.y), count))
        residual = model.y[:, None] - self._prior(model.X) - noise
        self.update = model.W.T @ (model.W @ residual)  # K^-1 (y - f - eps)

    def _prior(self, P: Array) -> Array:
        prior: Array = self.amplitude * np.cos(P @ self.omega.T + self.phase) @ self.weights
        return prior

    def __call__(self, P: Array) -> Array:
        """All functions at P (m, d): (m, L)."""
        k = self.model._k(squared_distances(P / self.model.scale, self.model.Z))
        return self._prior(P) + k @ self.update

    def gradients(self, P: Array) -> Array:
        """Function l's gradient at P[l]: (L, d)."""
        wave = -self.amplitude * np.sin(P @ self.omega.T + self.phase) * self.weights.T
        Q = P / self.model.scale
        _, dc = self.model.kernel.both(squared_distances(Q, self.model.Z))
        F = 2.0 * self.model.signal_variance * dc * self.update.T
        gradients: Array = wave @ self.omega + (F.sum(1)[:, None] * Q - F @ self.model.Z) / self.model.scale
        return gradients


def ascents(draws: Draws, x: Array, count: int, points: int) -> Array:
    """`points` points of each draw's ADAM ascent from x: (count, points, d)."""
    P = np.repeat(x[None], count, axis=0)
    m, v = np.zeros_like(P), np.zeros_like(P)
    kept = set(np.linspace(1, STEPS, points).round().astype(int).tolist())
    path = []
    for step in range(1, STEPS + 1):
        g = draws.gradients(P)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        move = (m / (1.0 - 0.9**step)) / (np.sqrt(v / (1.0 - 0.999**step)) + 1e-12)
        P = np.clip(P + RATE * draws.model.scale / math.sqrt(P.shape[1]) * move, 0.0, 1.0)
        if step in kept:
            path.append(P)
    return np.stack(path, axis=1)


class LES(GPMethod):
    """Settings: draws (L), points (P)."""

    name = "les"
    surrogate: GaussianProcess

    def __init__(self, space: Space, theta_0: ArrayLike, *, seed: int = 0, draws: int = 32, points: int = 8) -> None:
        self.hyper = paper_hyperparameters(space.dim)
        super().__init__(space, theta_0, seed=seed)
        self.draws = int(check_number("draws", draws, 0.0))
        self.points = int(check_number("points", points, 0.0, STEPS + 1))

    def _next(self, id: int) -> Proposal:
        self.fit()
        rng = self.rng(1, id)
        best = self.best()
        x = self.x0 if best is None else self.space.to_unit(best.theta)
        paths = ascents(Draws(self.surrogate, self.draws, rng), x, self.draws, self.points)
        candidates = paths.reshape(-1, self.space.dim)
        return self.proposal(id, candidates[int(np.argmax(self.information(candidates)))], "acquisition")

    def information(self, candidates: Array) -> Array:
        """alpha at the paths' points (L P, d), which come path by path."""
        joint, noise = self.surrogate.covariance(candidates), self.surrogate.noise_variance
        variance = np.maximum(np.diagonal(joint), 0.0)
        left = np.zeros(len(candidates))
        for start in range(0, len(candidates), self.points):
            Q = slice(start, start + self.points)
            known = joint[Q, Q] + 1e-6 * self.surrogate.signal_variance * np.eye(self.points)
            gained = np.einsum("ij,ij->j", joint[Q], np.linalg.solve(known, joint[Q]))
            left += np.log(np.maximum(variance - gained, 0.0) + noise)
        information: Array = 0.5 * np.log(variance + noise) - 0.5 * left / (len(candidates) / self.points)
        return information
