"""What the methods with a Gaussian process share: theta_0 first, pending and refused points, the recommendation.

A refused point (vetoed or failed) enters the model with the worst return seen so far: it is never in the data set or
the recommendation, but the model, which would otherwise not change, turns away from it. A pending one enters with its
posterior mean, so that the variance there shrinks and the mean stays. An expired one is forgotten: nobody knows
anything about it.
"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from crbo_ros.core.bound import least_scale
from crbo_ros.core.gaussian_process import GaussianProcess, Standardizer, Surrogate
from crbo_ros.core.hyperparameters import Hyperparameters
from crbo_ros.core.initial_design import size
from crbo_ros.core.kernels import Array, kernel
from crbo_ros.core.method import Method
from crbo_ros.core.region import Mask
from crbo_ros.core.settings import check_number
from crbo_ros.core.space import Space
from crbo_ros.core.trial import Best, Proposal, TrialStatus


def design_size(n_init: int | None, dim: int) -> int:
    """The user's n_init, theta_0 included, or ceil(sqrt d): the paper's choice for all methods."""
    return max(2, size(dim)) if n_init is None else int(check_number("n_init", n_init, 0.0))


def latin_hypercube(count: int, dim: int, rng: np.random.Generator) -> Array:
    """Points (count, dim) in the unit box."""
    cells = np.array([rng.permutation(count) for _ in range(dim)]).T
    return (cells + rng.random((count, dim))) / max(count, 1)


class GPMethod(Method):
    """Base of the methods with a Gaussian process. Subclasses implement `_next`."""

    hyper = Hyperparameters()
    kernel_name = "matern52"
    ard = False
    centering = "mean"  # of the returns, for the prediction
    best_centering: str | None = None  # for the recommendation, where that is another one
    fitting = True  # False: the hyperparameters stay at hyper.start, in the return's own units
    surrogate: Surrogate

    def __init__(self, space: Space, theta_0: ArrayLike, *, seed: int = 0) -> None:
        super().__init__(space, theta_0, seed=seed)
        self.x0 = np.clip(space.to_unit(self.theta_0), 0.0, 1.0)
        self.surrogate = self._make_surrogate()
        self.outputs = Standardizer()
        self.doubted: Mask = np.zeros(0, dtype=bool)  # returns that the last fit left out

    def _make_surrogate(self) -> Surrogate:
        return GaussianProcess(kernel(self.kernel_name), self.space.dim, self.hyper, ard=self.ard)

    # -- proposing --------------------------------------------------------------------------------

    def _propose(self, id: int) -> Proposal:
        under_way = any(self.trials[i].proposal.kind == "start" for i in self.pending)
        ran = any(self.trials[i].proposal.kind != "attached" for i in self._completed)
        if not ran and not under_way:
            return Proposal(id, self.theta_0.copy(), "start")
        return self._next(id)

    def _next(self, id: int) -> Proposal:
        raise NotImplementedError

    def proposal(self, id: int, x: Array, kind: str, *, predict: bool = True, reason: str = "") -> Proposal:
        """A proposal at x (d,) of the unit box with what the model, if it has data, expects of it."""
        theta, mean, sigma = self.space.from_unit(np.clip(x, 0.0, 1.0)), math.nan, math.nan
        if self.space.integer.any() or self.space.below:
            x = self.space.to_unit(theta)  # what will really run
        if predict and len(self.surrogate.y):
            m, v = self.surrogate.posterior(x[None])
            mean, sigma = self.outputs.back(float(m[0])), self.outputs.scale * math.sqrt(float(v[0]))
        return Proposal(id, theta, kind, mean, sigma, reason=reason)

    # -- model ------------------------------------------------------------------------------------

    def rows(self) -> NDArray[np.intp]:
        """Which of the completed trials the model is made of, in their order. Here all."""
        return np.arange(self.n)

    def window(self) -> tuple[Array, Array]:
        """The model's part of `data()`."""
        X, y = self.data()
        rows = self.rows()
        return (X, y) if len(rows) == len(y) else (X[rows], y[rows])

    def believed(self, X: Array, y: Array) -> tuple[Array, Mask]:
        """The returns y (n,) of X (n, d) as far as the model believes them, and which of them it doubts. Here none."""
        return y, np.zeros(len(y), dtype=bool)

    def ended(self, *ends: TrialStatus) -> Array:
        """The points whose proposals ended so, in the unit box, shape (k, d)."""
        thetas = [trial.proposal.theta for trial in self.trials if trial.end in ends]
        return self.space.to_unit(np.array(thetas).reshape(len(thetas), self.space.dim))

    def least_scale(self, y: Array) -> float:
        """The smallest spread of returns that is believed."""
        return least_scale(y, None)

    def standardizer(self, y: Array, centering: str | None = None) -> Standardizer:
        return Standardizer.of(y, centering or self.centering, self.fitting, self.least_scale(y))

    def with_refused(self, X: Array, targets: Array) -> tuple[Array, Array]:
        """Evaluated points and their targets, then refused points at the worst target."""
        refused = self.ended(TrialStatus.VETOED, TrialStatus.FAILED)
        return np.vstack([X, refused]), np.append(targets, np.full(len(refused), targets.min()))

    def model_data(self, ids: list[int] | None = None) -> tuple[Array, Array]:
        """(X, targets) of the evaluated points (of the given ids only, if given) and the refused ones."""
        X, y = self.window()
        if ids is not None:
            X, y = self.data()
            rows = [row for row, id in enumerate(self._completed) if id in set(ids)]
            X, y = X[rows], y[rows]
        if not len(y):  # theta_0 is still out: assume the prior's mean for it
            self.outputs, self.doubted = Standardizer(), np.zeros(1, dtype=bool)
            return self.x0[None], np.zeros(1)
        y, self.doubted = self.believed(X, y)
        self.outputs = self.standardizer(y[~self.doubted])
        return self.with_refused(X, self.outputs.to(y))

    def fit(self, ids: list[int] | None = None) -> None:
        """Hyperparameters from the data, then the posterior with fantasies at the pending points."""
        self._fit_data(ids)
        self.add_pending()

    def _fit_data(self, ids: list[int] | None = None) -> tuple[Array, Array]:
        X, targets = self.model_data(ids)
        if self.fitting and len(targets) > 1:
            kept = np.append(~self.doubted, np.ones(len(targets) - len(self.doubted), dtype=bool))
            self._fit_hyperparameters(X[kept], targets[kept])
        if not self.fitting or len(targets) < 2 or self.doubted.any():
            self.surrogate.condition(X, targets)
        return X, targets

    def _fit_hyperparameters(self, X: Array, targets: Array) -> None:
        self.surrogate.fit(X, targets)

    def add_pending(self) -> None:
        for x in [self.space.to_unit(self.trials[id].proposal.theta) for id in self.pending]:
            self.surrogate.add(x, float(self.surrogate.posterior(x[None])[0][0]))

    def best(self) -> Best | None:
        """The evaluated policy with the best posterior mean, not the luckiest return; None before the first one.

        Hyperparameters as they were at the last proposal. Asking changes nothing.
        """
        if not self._completed:
            return None
        X, y = self.window()
        y, doubted = self.believed(X, y)
        outputs, model = self.standardizer(y[~doubted], self.best_centering), copy(self.surrogate)
        model.condition(*self.with_refused(X, outputs.to(y)))
        mean, variance = model.posterior(X)
        mean[doubted] = -math.inf  # nobody has seen what the others say of them
        best = self._recommend(mean, np.sqrt(variance), outputs)
        return replace(best, p_better=self._against_start(model, X[int(np.argmax(mean))]))

    def _against_start(self, model: Surrogate, x: Array) -> float:
        """P(J(x) > J(theta_0)) for x (d,), by the joint posterior of both; 0 for theta_0 itself."""
        both = np.vstack([x, self.x0])
        if np.array_equal(both[0], both[1]):
            return 0.0
        (mean, _), covariance = model.posterior(both), model.covariance(both)
        variance = float(covariance[0, 0] + covariance[1, 1] - 2.0 * covariance[0, 1])
        return float(ndtr(float(mean[0] - mean[1]) / math.sqrt(max(variance, 1e-300))))

    def _recommend(self, mean: Array, sigma: Array, outputs: Standardizer) -> Best:
        """The best by posterior mean (n,) and sigma (n,) of the trials in `rows`, in the targets' units."""
        i = int(np.argmax(mean))
        trial = self.trials[self._completed[int(self.rows()[i])]]
        expected, spread = outputs.back(float(mean[i])), outputs.scale * float(sigma[i])
        return Best(trial.proposal.id, trial.proposal.theta, expected, spread, trial.value)

    def report(self) -> dict[str, Any]:
        return {"lengthscale": self.lengthscale, "n_init": getattr(self, "n_init", 1)}

    @property
    def lengthscale(self) -> float:
        """Of all dimensions: the geometric mean."""
        return float(np.exp(np.mean(np.log(self.surrogate.lengthscales))))
