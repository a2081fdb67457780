"""TuRBO-1 (Eriksson, Pearce, Gardner, Turner, Poloczek 2019), batch size 1, written from its paper.

A trust region, a box around the best point x* with sides L lambda_i / (prod_j lambda_j)^(1/d), lambda the
lengthscales of a GP with a lengthscale per dimension; the next point is the maximiser of one posterior draw (Thompson
sampling) over min(100 d, 5000) candidates: points of a Sobol sequence in the region that differ from x* in each
coordinate with probability min(1, 20/d) only. L doubles after 3 consecutive successes (at most 1.6), halves after d
consecutive failures, and below 2^-7 everything starts anew from a new design. x* is the point with the best posterior
mean, as the paper says for noisy returns.

As in the CRBO paper: theta_0 is evaluated first, n_init = ceil(sqrt d), and L starts (and starts anew) at `length`.

The draw. "joint" is the paper's: the posterior over all candidates at once, a Cholesky factor of up to 5000 x 5000.
"pathwise" (Wilson et al. 2020) draws the same posterior from random Fourier features and Matheron's rule, 10 to 50
times faster.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import lapack
from scipy.stats import qmc

from crbo_ros.core.gaussian_process import GaussianProcess
from crbo_ros.core.gp_method import GPMethod, design_size, latin_hypercube
from crbo_ros.core.hyperparameters import Hyperparameters
from crbo_ros.core.kernels import Array, squared_distances
from crbo_ros.core.settings import check_number
from crbo_ros.core.space import Space
from crbo_ros.core.trial import Proposal, TrialStatus
from crbo_ros.errors import InvalidInput

LONGEST, SHORTEST, SUCCESSES = 1.6, 0.5**7, 3
FEATURES = 512  # drawn anew for every proposal, so that their error averages out


class Turbo(GPMethod):
    """Settings: length (l_0, initial side), n_init (theta_0 included), draw ("pathwise" or "joint")."""

    name = "turbo"
    surrogate: GaussianProcess
    ard = True
    # the paper's constraints, on returns standardised to zero mean and unit variance
    hyper = Hyperparameters(
        lengthscale_bounds=(0.005, 2.0),
        signal_bounds=(0.05, 20.0),
        noise_bounds=(5e-4, 0.1),
        start=(0.5, 1.0, 5e-3),
    )

    def __init__(
        self,
        space: Space,
        theta_0: ArrayLike,
        *,
        seed: int = 0,
        length: float = 0.8,
        n_init: int | None = None,
        draw: str = "pathwise",
    ) -> None:
        super().__init__(space, theta_0, seed=seed)
        self.first_length = self.length = check_number("length", length, SHORTEST, LONGEST)
        if draw not in ("pathwise", "joint"):
            raise InvalidInput(f"draw: {draw!r} is neither 'pathwise' nor 'joint'")
        self.draw = draw
        self.n_init = design_size(n_init, space.dim)
        self.failures_allowed = max(4, space.dim)
        self.successes = self.failures = self.restarts = 0
        self.first = 0  # the first proposal of the current trust region; earlier ones are forgotten

    # -- books ------------------------------------------------------------------------------------

    def current(self) -> list[int]:
        """Completed ids of the current trust region, in the order of their returns."""
        return [i for i in self._completed if i >= self.first]

    def _on_end(self, id: int, end: TrialStatus) -> None:
        kind = self.trials[id].proposal.kind
        if id < self.first or kind in ("start", "initial") or end is TrialStatus.EXPIRED:
            return
        others = [self.trials[i].value for i in self.current() if i != id]
        best = max(others, default=-math.inf)
        if end is TrialStatus.COMPLETED and self.trials[id].value > best + 1e-3 * abs(best):
            self.successes, self.failures = self.successes + 1, 0
        else:  # a refusal is a failure
            self.successes, self.failures = 0, self.failures + 1
        if self.successes >= SUCCESSES:
            self.length, self.successes = min(2.0 * self.length, LONGEST), 0
        elif self.failures >= self.failures_allowed:
            self.length, self.failures = 0.5 * self.length, 0
        if self.length < SHORTEST:
            self.length, self.successes, self.failures = self.first_length, 0, 0
            self.first, self.restarts = len(self.trials), self.restarts + 1

    def report(self) -> dict[str, Any]:
        return {**super().report(), "length": self.length, "restarts": self.restarts}

    # -- proposing --------------------------------------------------------------------------------

    def _next(self, id: int) -> Proposal:
        ids = self.current()
        count = len(ids) + sum(i >= self.first for i in self.pending)
        if count < self.n_init or not ids:
            size = max(self.n_init, id - self.first + 1)
            design = latin_hypercube(size, self.space.dim, self.rng(0, self.restarts))
            return self.proposal(id, design[id - self.first], "initial", predict=False)
        self._fit_adam(*self.model_data(ids))
        self.add_pending()
        X = self.surrogate.X[: len(ids)]
        centre = X[int(np.argmax(self.surrogate.posterior(X)[0]))]
        rng = self.rng(1, id)
        candidates = self._candidates(centre, rng)
        values = self._joint(candidates, rng) if self.draw == "joint" else self._pathwise(candidates, rng)
        return self.proposal(id, candidates[int(np.argmax(values))], "acquisition")

    def _fit_adam(self, X: Array, y: Array, steps: int = 50, rate: float = 0.1) -> None:
        """50 steps of Adam from the start values: with more lengthscales than data, stopping early is the
        regulariser."""
        model = self.surrogate
        low, high = np.array(model._bounds()).T
        h = np.log(np.concatenate([np.full(self.space.dim, self.hyper.start[0]), self.hyper.start[1:]]))
        first, second = np.zeros_like(h), np.zeros_like(h)
        for t in range(1, steps + 1 if len(y) > 1 else 1):
            _, gradient = model.log_posterior(h, np.zeros((0, 0)), X, y)
            first = 0.9 * first + 0.1 * gradient
            second = 0.999 * second + 0.001 * gradient**2
            h = h + rate * (first / (1.0 - 0.9**t)) / (np.sqrt(second / (1.0 - 0.999**t)) + 1e-8)
            h = np.clip(h, low, high)
        model.h = h
        model.condition(X, y)

    def _candidates(self, centre: Array, rng: np.random.Generator) -> Array:
        d = self.space.dim
        weights = self.surrogate.lengthscales
        weights = weights / np.exp(np.mean(np.log(weights)))
        low = np.clip(centre - 0.5 * self.length * weights, 0.0, 1.0)
        high = np.clip(centre + 0.5 * self.length * weights, 0.0, 1.0)
        count = min(100 * d, 5000)
        power = math.ceil(math.log2(count))
        sobol = qmc.Sobol(d, scramble=True, seed=rng).random_base2(power)[:count]
        moves = rng.random((count, d)) <= min(1.0, 20.0 / d)
        none = np.flatnonzero(~moves.any(axis=1))
        moves[none, rng.integers(0, d, len(none))] = True
        return np.where(moves, low + (high - low) * sobol, centre)

    def _joint(self, P: Array, rng: np.random.Generator) -> Array:
        """One draw of the posterior at P (m, d), shape (m,), by a Cholesky factor of its covariance."""
        mean, _ = self.surrogate.posterior(P)
        covariance = self.surrogate.covariance(P)
        jitter = 1e-8 * self.surrogate.signal_variance
        for _ in range(8):
            covariance.flat[:: len(P) + 1] += jitter
            L, info = lapack.dpotrf(covariance, lower=1)
            if info == 0:
                return mean + np.tril(L) @ rng.standard_normal(len(P))
            jitter *= 10.0
        return mean

    def _pathwise(self, P: Array, rng: np.random.Generator) -> Array:
        """Matheron: prior draw f at P, plus k(P, X) K^-1 (y - f(X) - eps). Matern-5/2 frequencies: a t with 5
        degrees."""
        model, d = self.surrogate, self.space.dim
        sf2, sn2 = model.signal_variance, model.noise_variance
        omega = rng.standard_normal((FEATURES, d)) * np.sqrt(5.0 / rng.chisquare(5.0, (FEATURES, 1)))
        phase = rng.uniform(0.0, 2.0 * math.pi, FEATURES)
        weights = rng.standard_normal(FEATURES) * math.sqrt(2.0 * sf2 / FEATURES)
        Q = P / model.scale

        def prior(Z: Array) -> Array:
            waves = Z.astype(np.float32) @ omega.T.astype(np.float32)  # single precision: half the time, error 1e-6
            return (np.cos(waves + phase.astype(np.float32)) @ weights.astype(np.float32)).astype(np.float64)

        eps = math.sqrt(sn2) * rng.standard_normal(len(model.y))
        residual = model.W.T @ (model.W @ (model.y - prior(model.Z) - eps))
        return prior(Q) + sf2 * model.kernel.correlation(squared_distances(Q, model.Z)) @ residual
