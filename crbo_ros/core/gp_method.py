"""What the methods with a Gaussian process share: theta_0 first, pending and refused points, the recommendation.

A refused point (vetoed or failed) enters the model with the worst return seen so far: it is never in the data set or
the recommendation, but the model, which would otherwise not change, turns away from it. A pending one enters with its
posterior mean. An expired one is forgotten: nobody knows anything about it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crbo_ros.core.gaussian_process import GaussianProcess, Hyperparameters, Standardizer
from crbo_ros.core.initial_design import size
from crbo_ros.core.kernels import kernel
from crbo_ros.core.method import Method
from crbo_ros.core.space import Space
from crbo_ros.core.trial import Best, Proposal, TrialStatus
from crbo_ros.errors import InvalidInput

Array = NDArray[np.float64]


def check_number(name: str, value: Any, low: float, high: float = math.inf) -> float:
    """A finite number in (low, high], or InvalidInput that names the setting."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not low < float(value) <= high:
        raise InvalidInput(f"{name}: {value!r} must be a number in ({low:g}, {high:g}]")
    return float(value)


def default_n_init(dim: int) -> int:
    """ceil(sqrt d), theta_0 included: the paper's choice for all methods."""
    return max(2, size(dim))


def latin_hypercube(count: int, dim: int, rng: np.random.Generator) -> Array:
    """Points (count, dim) in the unit box."""
    cells = np.array([rng.permutation(count) for _ in range(dim)]).T
    return (cells + rng.random((count, dim))) / max(count, 1)


class GPMethod(Method):
    """Base of the methods with a closed-form GP. Subclasses implement `_next`."""

    hyper = Hyperparameters()
    kernel_name = "matern52"
    ard = False
    centering = "mean"

    def __init__(self, space: Space, theta_0: ArrayLike, *, seed: int = 0) -> None:
        super().__init__(space, theta_0, seed=seed)
        self.x0 = np.clip(space.to_unit(self.theta_0), 0.0, 1.0)
        self.surrogate = GaussianProcess(kernel(self.kernel_name), space.dim, self.hyper, ard=self.ard)
        self.outputs = Standardizer()

    # -- proposing --------------------------------------------------------------------------------

    def _propose(self, id: int) -> Proposal:
        under_way = any(self.trials[i].proposal.kind == "start" for i in self.pending)
        if not self._completed and not under_way:
            return Proposal(id, self.theta_0.copy(), "start")
        return self._next(id)

    def _next(self, id: int) -> Proposal:
        raise NotImplementedError

    def proposal(self, id: int, x: Array, kind: str, *, predict: bool = True, reason: str = "") -> Proposal:
        """A proposal at x (d,) of the unit box with what the model, if it has data, expects of it."""
        theta, mean, sigma = self.space.from_unit(np.clip(x, 0.0, 1.0)), math.nan, math.nan
        if predict and len(self.surrogate.y):
            m, v = self.surrogate.posterior(x[None])
            mean, sigma = self.outputs.back(float(m[0])), self.outputs.scale * math.sqrt(float(v[0]))
        return Proposal(id, theta, kind, mean, sigma, reason=reason)

    # -- model ------------------------------------------------------------------------------------

    def ended(self, *ends: TrialStatus) -> Array:
        """The points whose proposals ended so, in the unit box, shape (k, d)."""
        thetas = [trial.proposal.theta for trial in self.trials if trial.end in ends]
        return self.space.to_unit(np.array(thetas).reshape(len(thetas), self.space.dim))

    def model_data(self, ids: list[int] | None = None) -> tuple[Array, Array]:
        """(X, targets): returns (of the given ids only, if given), then refused points at the worst return."""
        X, y = self.data()
        if ids is not None:
            rows = [row for row, id in enumerate(self._completed) if id in set(ids)]
            X, y = X[rows], y[rows]
        if not len(y):  # theta_0 is still out: assume the prior's mean for it
            self.outputs = Standardizer()
            return self.x0[None], np.zeros(1)
        self.outputs = Standardizer.of(y, self.centering, True, self.least_scale(y))
        refused = self.ended(TrialStatus.VETOED, TrialStatus.FAILED)
        targets = self.outputs.to(y)
        return np.vstack([X, refused]), np.append(targets, np.full(len(refused), targets.min()))

    def least_scale(self, y: Array) -> float:
        """The smallest spread of returns that is believed: equal first returns say nothing about it."""
        return 1e-3 * max(abs(float(y[0])), 1e-9)

    def fit(self, ids: list[int] | None = None) -> None:
        """Hyperparameters from the data, then the posterior with fantasies at the pending points."""
        X, targets = self.model_data(ids)
        if len(targets) > 1:
            self.surrogate.fit(X, targets)
        else:
            self.surrogate.condition(X, targets)
        self.add_pending()

    def add_pending(self) -> None:
        for x in self.ended(TrialStatus.PENDING):
            self.surrogate.add(x, float(self.surrogate.posterior(x[None])[0][0]))

    def best(self) -> Best | None:
        """The evaluated policy with the best posterior mean, hyperparameters as they were at the last proposal."""
        if not self._completed:
            return None
        X, targets = self.model_data()
        self.surrogate.condition(X, targets)
        mean, variance = self.surrogate.posterior(X[: self.n])
        i = int(np.argmax(mean))
        trial = self.trials[self._completed[i]]
        sigma = self.outputs.scale * math.sqrt(float(variance[i]))
        return Best(trial.proposal.id, trial.proposal.theta, self.outputs.back(float(mean[i])), sigma, trial.value)

    def report(self) -> dict[str, Any]:
        lengthscales = self.surrogate.lengthscales
        return {"lengthscale": float(np.exp(np.mean(np.log(lengthscales)))), "n_init": getattr(self, "n_init", 1)}
