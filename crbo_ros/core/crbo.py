"""Confidence region Bayesian optimization (CRBO): ask for a policy, tell its return.

Froehlich, Zeilinger, Klenske: Cautious Bayesian Optimization for Efficient and Scalable Policy Search, L4DC 2021.

    optimizer = CRBO(Space([-1, -1], [1, 1]), theta_0=[0.2, 0.3], seed=1)
    for _ in range(50):
        proposal = optimizer.ask()
        optimizer.tell(proposal.id, episode(proposal.theta))
    print(optimizer.best())

All heavy work (fit, sampling, polish) happens in `ask`; `tell` only books. Everything depends on settings, seed and
the sequence of calls alone, and `state()` / `restore()` carry it over bit for bit. Settings: see settings.Settings.
Equation numbers are the paper's.
"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crbo_ros.core import snapshot
from crbo_ros.core.bound import Coverage, LipschitzBound, least_scale
from crbo_ros.core.feasibility import allowed_by
from crbo_ros.core.gaussian_process import COARSE, GaussianProcess, Surrogate, fit_returns
from crbo_ros.core.gp_method import GPMethod
from crbo_ros.core.hyperparameters import make_hyperparameters
from crbo_ros.core.initial_design import directions, on_sphere, size
from crbo_ros.core.kernels import Array, kernel
from crbo_ros.core.region import ConfidenceRegion, r0
from crbo_ros.core.search import Search, propose, sideways
from crbo_ros.core.settings import RECIPES, Recipe, check_gamma, check_number, make_settings
from crbo_ros.core.space import Space
from crbo_ros.core.stall import Stall, stall
from crbo_ros.core.trial import Proposal, TrialStatus
from crbo_ros.errors import Exhausted, InvalidInput

FIRST = 4  # points of the initial design at most, where later steps explore new directions on their way
SIDEWAYS_SHARE = 0.5  # they do so while there are fewer than this times d data points
FAILURES_KEPT = 30  # the newest failed policies say where not to go
TIGHTEN = 0.7  # gamma, times this, after a veto or a failure, or where the worst case is below J_min
RECOVER = 1.5  # and back by this factor with each completed episode
SMALLEST = 0.05  # the effective gamma never falls below this share of gamma
WINDOW = 200  # the model is made of that many returns at most: those around the incumbent,
NEWEST = 25  # and the newest of all, wherever they are
MAX_VETOES = 20  # consecutive vetoes and failures, then Exhausted


class CRBO(GPMethod):
    """CRBO. See the module's docstring."""

    name = "crbo"
    centering = "max"  # the appendix: returns minus the best return

    def __init__(
        self, space: Space, theta_0: ArrayLike, *, seed: int = 0, recipe: Recipe | None = None, **options: Any
    ) -> None:
        if not isinstance(recipe, (Recipe, type(None))):
            raise InvalidInput("recipe: is no setting of its own; choose a preset")
        self.settings = make_settings(options)
        self.recipe = recipe or RECIPES[self.settings.preset]
        self.kernel = kernel(self.settings.kernel)
        self.hyper = make_hyperparameters(self.settings.preset, space.dim, self.settings.hyperparameters)
        self.fitting = self.settings.hyperparameters is None
        # a prior mean as high as the best return would be kind to whatever was tried once
        self.best_centering = "mean" if self.recipe.fit_around_mean else "max"
        super().__init__(space, theta_0, seed=seed)
        first = self.settings.n_init or size(space.dim, FIRST if self.recipe.sideways else None)
        self.n_init = first + self.recipe.repeat_start
        self.gamma, self.j_min = self.settings.gamma, self.settings.j_min
        self.caution = 1.0  # effective gamma = gamma * caution; falls with vetoes, recovers with episodes
        self.vetoes = 0  # consecutive vetoes and failures
        self.veto_distance = math.inf  # proposals stay closer to the data than the last vetoed one did
        self.score, self.score_paper = Coverage(), Coverage()
        self.incumbent: int | None = None  # the best trial by posterior mean when last fitted, once there is a window
        self._rows: tuple[Any, NDArray[np.intp]] = (None, np.arange(0))  # the window, and of what it was computed
        self.metrics: dict[str, Any] = {}
        self.worst: LipschitzBound | None = None  # None before the first return

    def _make_surrogate(self) -> Surrogate:
        if self.settings.surrogate == "closed_form":
            return GaussianProcess(self.kernel, self.space.dim, self.hyper, tolerance=COARSE)
        from crbo_ros.core.gpytorch_process import GPyTorch

        own = None if self.settings.surrogate == "gpytorch" else self.settings.surrogate
        if own is not None and not self.fitting:
            raise InvalidInput("hyperparameters: are a built-in kernel's; fix your own kernel's with requires_grad_")
        return GPyTorch(self.settings.kernel, self.space.dim, self.hyper, kernel=own)

    # -- verbs ------------------------------------------------------------------------------------

    def configure(self, *, gamma: float | None = None, j_min: float | None = None) -> None:
        """Change gamma or J_min while running; forgets earlier vetoes."""
        gamma = self.gamma if gamma is None else check_gamma(gamma)
        j_min = self.j_min if j_min is None else check_number("j_min", j_min)
        self.gamma, self.j_min = gamma, j_min
        self.caution, self.vetoes, self.veto_distance = 1.0, 0, math.inf

    def report(self) -> dict[str, Any]:
        """Metrics as of the last proposal; lengths in the unit box, variances in the return's units squared."""
        surrogate, square = self.surrogate, self.outputs.scale**2
        metrics: dict[str, Any] = {
            "preset": self.settings.preset,
            "gamma": self.gamma,
            "gamma_effective": self.gamma_effective,
            "j_min": math.nan if self.j_min is None else self.j_min,
            "r0": r0(self.kernel, self.lengthscale, self.gamma_effective),
            "lengthscale": self.lengthscale,
            "signal_variance": square * surrogate.signal_variance,
            "noise_variance": square * surrogate.noise_variance,
            "lipschitz": math.nan,
            "lipschitz_paper": math.nan,
            "lipschitz_source": "",
            "coverage": self.score.coverage,
            "coverage_paper": self.score_paper.coverage,
            "n_bounds": self.score.count,
            "vetoes": self.vetoes,
            "region_state": "ok",
            "message": "",
        }
        return {**metrics, **self.metrics}

    @property
    def gamma_effective(self) -> float:
        """gamma, grown by the schedule, tightened by vetoes."""
        grown = 1.0 - (1.0 - self.gamma) * math.exp(-self.settings.gamma_schedule * self.n)
        return grown * self.caution

    def state(self) -> dict[str, Any]:
        return {**snapshot.head(self), **snapshot.trials(self.trials, self._completed, self.space.dim)}

    def head(self) -> dict[str, Any]:
        return snapshot.head(self)

    def restore(self, state: dict[str, Any]) -> None:
        self.check_state(state)
        snapshot.load(self, state)

    # -- the algorithm ----------------------------------------------------------------------------

    def _propose(self, id: int) -> Proposal:
        if self.vetoes >= MAX_VETOES:
            raise Exhausted(
                f"{self.vetoes} proposals in a row were vetoed or failed, down to {self.veto_distance:.2g} from the "
                "data (in the unit box); lower J_min, give a Lipschitz constant, or choose another theta_0"
            )
        proposal = super()._propose(id)
        return replace(proposal, gamma=self.gamma_effective) if proposal.kind == "start" else proposal

    def _next(self, id: int) -> Proposal:
        self.fit()
        self.metrics = {"message": getattr(self.surrogate, "fit_message", "")}
        if self.n + len(self.pending) < self.n_init:
            return self._initial(id)
        return self._acquire(id)

    def _initial(self, id: int) -> Proposal:
        """The next point on the sphere around theta_0 (appendix, "Initial Design"); vetoes shrink the sphere."""
        count, dim = self.n + len(self.pending), self.space.dim
        region = ConfidenceRegion(self.surrogate, self.gamma_effective)
        again = int(self.recipe.repeat_start)
        if again and count == 1 and not self.pending and not self.vetoes:
            again_0 = self._finish(id, self.x0.copy(), "initial", "theta_0 again, for the noise", region, self.x0[None])
            return replace(again_0, theta=self.theta_0.copy())  # to the last bit: it is approved by its hash
        radius = r0(self.kernel, self.hyper.start[0], min(self.gamma_effective, 0.99))  # Eq. 4
        batch = directions(max(self.n_init - 1, count), dim, self.rng(0), self.recipe.orthogonal_init)
        direction = batch[count - 1 - again] if self.vetoes == 0 else directions(1, dim, self.rng(1, id), False)[0]
        x, reason = self._cautious(on_sphere(self.x0, direction, min(radius, self.veto_distance)))
        return self._finish(id, x, "initial", reason, region, x[None])

    def _acquire(self, id: int) -> Proposal:
        """The acquisition's maximiser over the region; gamma shrinks until the worst case respects J_min."""
        stalled = stall(self.outputs.to(self.data()[1])) if self.recipe.stall else Stall()
        self.metrics.update(stalled=stalled.stalled, flat_episodes=stalled.flat)
        widest, search = self._wider(stalled), self._search()
        gamma, failed = widest, self.ended(TrialStatus.FAILED)[-FAILURES_KEPT:]
        allowed = allowed_by(self.window()[0], failed, self.kernel, self.surrogate.lengthscales)
        for attempt in range(8):
            region = ConfidenceRegion(self.surrogate, gamma)  # C_n: sigma_n <= gamma sigma_f, Eq. 3
            found = propose(region, search, self.rng(2, id, attempt), allowed)  # argmax of alpha over C_n, Eq. 3
            if self.recipe.sideways and found.kind != "fallback" and self.n <= SIDEWAYS_SHARE * self.space.dim:
                found = sideways(region, found, self.rng(4, id, attempt), allowed)
            if self.j_min is None or self.worst is None or self.worst.at(found.x).value >= self.j_min:
                break
            gamma *= TIGHTEN
        x, reason = self._cautious(found.x)
        if gamma == widest > self.gamma_effective:
            note = f"no progress in much noise: gamma widened to {gamma:.3g}"
            reason, self.metrics["message"] = f"{note}; {reason}".rstrip("; "), note
        if gamma < widest:
            reason = f"gamma lowered to {gamma:.3g} for J_min; {reason}".rstrip("; ")
        kind = found.kind
        if x is not found.x and not region.contains(x[None], 1e-6)[0]:  # pulled towards the data and out of the region
            x, kind = region.best_inside(), "fallback"
            reason = "nothing closer inside the region: an evaluated policy again"
        reason = "; ".join(part for part in (found.reason, reason) if part)
        return self._finish(id, x, kind, reason, region, found.samples)

    def _wider(self, stalled: Stall) -> float:
        """The effective gamma, widened by a stall; a veto or a failure leaves none of that."""
        ratio = self.surrogate.noise_variance / self.surrogate.signal_variance
        return stalled.wider(self.gamma_effective, ratio) if self.caution == 1.0 else self.gamma_effective

    def _search(self) -> Search:
        """How hard to look: in many dimensions samples matter less than the polish, with many data they cost more."""
        high = self.space.dim > 20
        most = self.recipe.samples or (256 if high else 1024)
        samples = max(128, int(most * (1.0 if len(self.surrogate.y) <= 300 else 0.5)))
        return Search(
            self.settings.acquisition,
            self.settings.beta,
            samples=samples,
            chains=max(32, samples // (2 if high else 4)),
            max_evaluations=30 if high else 60,
            tolerance=1e-5 if high else 1e-7,
        )

    def _cautious(self, x: Array) -> tuple[Array, str]:
        """(x, reason): x (d,) itself, or pulled to within the last veto's distance of the data and towards the best
        policy until its worst case reaches J_min, where that can be."""
        worst, reason = self.worst, ""
        if worst is None:
            return x, reason
        X, y = worst.X, worst.y
        nearest = X[int(np.argmin(np.sum((X - x) ** 2, axis=1)))]
        distance = float(np.linalg.norm(x - nearest))
        if distance > self.veto_distance:
            x = nearest + (x - nearest) * (self.veto_distance / distance)
            reason = "pulled towards the data after a veto"
        if self.j_min is None:
            return x, reason
        best = int(np.argmax(y))
        for _ in range(8):  # a closer point has another gradient, and so another L
            bound = worst.at(x)
            if bound.value >= self.j_min or bound.distance == 0.0:
                return x, reason
            room = (1.0 - 1e-9) * (float(y[best]) - worst.noise - self.j_min) / bound.lipschitz
            if room <= 0.0:
                return X[best].copy(), "no policy has a worst case above J_min: the best one again"
            x = X[best] + (x - X[best]) * min(1.0, room / float(np.linalg.norm(x - X[best])))
            reason = "pulled towards the best policy for J_min"
        return X[best].copy(), "nothing around the best policy has a worst case above J_min: the best one again"

    def _finish(self, id: int, x: Array, kind: str, reason: str, region: ConfidenceRegion, samples: Array) -> Proposal:
        """The proposal with its worst case, ours and the paper's, whose L is taken over samples (m, d) of C_n."""
        radius = r0(self.kernel, self.lengthscale, min(region.gamma, 0.999))  # Eq. 4
        self.metrics.update(gamma_effective=region.gamma, r0=radius, region_state=region.state)
        proposal = replace(self.proposal(id, x, kind, reason=reason), gamma=region.gamma)
        if self.worst is None:
            return proposal
        bound = self.worst.at(x)
        L_J = self.worst.steepest(np.vstack([x[None], samples[:: max(1, len(samples) // 256)]]))  # max |grad mu_n|
        k = int(np.argmin(np.sum((self.worst.X - x) ** 2, axis=1)))  # theta_k of Eq. 5
        paper = float(self.worst.y[k]) - radius * L_J  # J(theta_n+1) >= J(theta_k) - r0(gamma) L_J, Eq. 5
        self.metrics.update(lipschitz=bound.lipschitz, lipschitz_paper=L_J, lipschitz_source=bound.source)
        return replace(proposal, worst_case=bound.value, worst_case_paper=paper)

    # -- model ------------------------------------------------------------------------------------

    def rows(self) -> NDArray[np.intp]:
        """All trials, or the nearest to the incumbent and the newest: cost and memory of a proposal are bounded."""
        if self.n <= WINDOW:
            return np.arange(self.n)
        key = (self.n, self.incumbent)
        if self._rows[0] != key:
            X, y = self.data()
            centre = X[int(np.argmax(y)) if self.incumbent is None else self.incumbent]
            near = np.argsort(np.sum((X - centre) ** 2, axis=1), kind="stable")[: WINDOW - NEWEST]
            self._rows = (key, np.union1d(near, np.arange(self.n - NEWEST, self.n)))
        return self._rows[1]

    def least_scale(self, y: Array) -> float:
        return least_scale(y, self.settings.scale)

    def with_refused(self, X: Array, targets: Array) -> tuple[Array, Array]:
        """The returns alone: what was vetoed is kept away from by its distance, what failed by its labels."""
        return X, targets

    def _fit_hyperparameters(self, X: Array, targets: Array) -> None:
        recipe = self.recipe
        fit_returns(self.surrogate, X, targets, around_mean=recipe.fit_around_mean, second_start=recipe.second_start)

    def fit(self, ids: list[int] | None = None) -> None:
        """mu_n and sigma_n (Eq. 2) of the returns, and the worst case by them; then what is pending."""
        rows = self.rows()
        self._fit_data(ids)
        if self._completed:
            self.worst = LipschitzBound(
                copy(self.surrogate),
                self.outputs,
                *self.window(),
                self.kernel,
                lipschitz=self.settings.lipschitz,
                scale=self.settings.scale,
            )
        if self.n >= WINDOW:
            self.incumbent = int(rows[int(np.argmax(self.surrogate.posterior(self.surrogate.X)[0]))])
        self.add_pending()

    # -- books ------------------------------------------------------------------------------------

    def _on_end(self, id: int, end: TrialStatus) -> None:
        trial = self.trials[id]
        if end is TrialStatus.COMPLETED:
            self.score.add(trial.proposal.worst_case, trial.value)
            self.score_paper.add(trial.proposal.worst_case_paper, trial.value)
            self.caution = min(1.0, self.caution * RECOVER)
            self.vetoes, self.veto_distance = 0, math.inf
        elif end in (TrialStatus.VETOED, TrialStatus.FAILED):
            self.caution = max(SMALLEST, self.caution * TIGHTEN)
            self.vetoes += 1
            if end is TrialStatus.VETOED and self._completed:
                x = self.space.to_unit(trial.proposal.theta)
                distance = float(np.sqrt(np.min(np.sum((self.data()[0] - x) ** 2, axis=1))))
                self.veto_distance = TIGHTEN * min(distance, self.veto_distance)
