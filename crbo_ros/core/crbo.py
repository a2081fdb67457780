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
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crbo_ros.core import doubt, snapshot
from crbo_ros.core.bound import Beliefs, Coverage, LipschitzBound, least_scale
from crbo_ros.core.contract import EMPTY, Contract, Executed, Terms
from crbo_ros.core.feasibility import allowed_by
from crbo_ros.core.gaussian_process import COARSE, GaussianProcess, Surrogate, fit_returns
from crbo_ros.core.gp_method import GPMethod
from crbo_ros.core.hyperparameters import make_hyperparameters
from crbo_ros.core.initial_design import directions, on_sphere, size
from crbo_ros.core.kernels import Array, kernel
from crbo_ros.core.method import TrialRecord
from crbo_ros.core.outlook import Outlook
from crbo_ros.core.region import ConfidenceRegion, Mask, r0
from crbo_ros.core.search import Search, propose, sideways
from crbo_ros.core.second_source import Informed, SecondSource
from crbo_ros.core.settings import RECIPES, TERMS, Recipe, check_gamma, make_settings, make_terms
from crbo_ros.core.space import Space
from crbo_ros.core.stall import Stall, stall
from crbo_ros.core.trial import Proposal, TrialStatus
from crbo_ros.errors import Exhausted, InvalidInput

FIRST = 4  # points of the initial design at most, where later steps explore new directions on their way
SIDEWAYS_SHARE = 0.5  # they do so while there are fewer than this times d data points
FAILURES_KEPT = 30  # the newest failed policies say where not to go
TIGHTEN = 0.7  # gamma, times this, after a veto or a failure
RECOVER = 1.5  # and back by this factor with each completed episode
SMALLEST = 0.05  # the effective gamma never falls below this share of gamma
WINDOW = 200  # the model is made of that many returns at most: those around the incumbent,
NEWEST = 25  # and the newest of all, wherever they are
MAX_VETOES = 20  # consecutive vetoes and failures, then Exhausted


class CRBO(GPMethod):
    """CRBO. See the module's docstring."""

    name = "crbo"
    takes_earlier = True
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
        self.n_init = self.settings.n_init or size(space.dim, FIRST if self.recipe.sideways else None)
        self.gamma, self.terms = self.settings.gamma, make_terms(options)
        self.caution = 1.0  # effective gamma = gamma * caution; falls with vetoes, recovers with episodes
        self.vetoes = 0  # consecutive vetoes and failures
        self.veto_distance = math.inf  # proposals stay closer to the data than the last vetoed one did
        self.score, self.score_paper = Coverage(), Coverage()
        self.incumbent: int | None = None  # the best trial by posterior mean when last fitted, once there is a window
        self._rows: tuple[Any, NDArray[np.intp]] = (None, np.arange(0))  # the window, and of what it was computed
        self._contract: tuple[Any, Contract] = (None, Contract(Terms(), self.x0))  # and what it was computed of
        self.source: SecondSource | None = None
        self.metrics: dict[str, Any] = {}
        self.outlook = Outlook()
        self.worst: LipschitzBound | None = None  # None before the first return
        self.beliefs: Beliefs | None = None  # by returns clipped as the contract says; None before the first return

    def _make_surrogate(self) -> Surrogate:
        if self.settings.surrogate == "closed_form":
            return GaussianProcess(self.kernel, self.space.dim, self.hyper, tolerance=COARSE)
        from crbo_ros.core.gpytorch_process import GPyTorch

        own = None if self.settings.surrogate == "gpytorch" else self.settings.surrogate
        if own is not None and not self.fitting:
            raise InvalidInput("hyperparameters: are a built-in kernel's; fix your own kernel's with requires_grad_")
        return GPyTorch(self.settings.kernel, self.space.dim, self.hyper, kernel=own)

    # -- verbs ------------------------------------------------------------------------------------

    def configure(self, *, gamma: float | None = None, **terms: Any) -> None:
        """Change gamma or the contract's terms (j_min, j_min_drop, risk, budget) while running; forgets vetoes."""
        gamma = self.gamma if gamma is None else check_gamma(gamma)
        self.gamma, self.terms = gamma, make_terms(terms, self.terms)
        self.caution, self.vetoes, self.veto_distance = 1.0, 0, math.inf

    def inform(self, thetas: ArrayLike, values: ArrayLike) -> None:
        """Returns (m,) of policies (m, d) on another plant: see core/second_source.py. Not part of the state."""
        X = self.space.to_unit(np.array([self.space.check(theta) for theta in np.asarray(thetas)]))
        self.source = SecondSource(X, values, self.kernel, self.hyper)

    def report(self) -> dict[str, Any]:
        """Metrics as of the last proposal; lengths in the unit box, variances in the return's units squared."""
        surrogate, square, contract = self.surrogate, self.outputs.scale**2, self.contract
        metrics: dict[str, Any] = {
            "preset": self.settings.preset,
            "gamma": self.gamma,
            "gamma_effective": self.gamma_effective,
            **{name: getattr(self.terms, name) for name in TERMS},
            "account": contract.account.balance if contract.active else math.nan,
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
        """gamma, grown by the schedule, tightened by vetoes and by what the contract's account holds."""
        grown = 1.0 - (1.0 - self.gamma) * math.exp(-self.settings.gamma_schedule * self.n)
        return self.contract.gamma(grown) * self.caution

    @property
    def contract(self) -> Contract:
        """The contract with everything that ended so far; without a threshold it permits everything."""
        key = (self.terms, len(self.trials), len(self._log))
        if self._contract[0] != key:
            self._contract = (key, self._make_contract())
        return self._contract[1]

    def _make_contract(self) -> Contract:
        contract = Contract(self.terms, self.space.to_unit(self.theta_0))
        if math.isinf(self.terms.j_min) and math.isinf(self.terms.j_min_drop):
            return contract
        failed = [i for i, t in enumerate(self.trials) if t.end is TrialStatus.FAILED and t.violation]
        for id in [*self._completed, *failed]:
            trial = self.trials[id]
            x = self.space.to_unit(trial.proposal.theta)
            contract.add(Executed(x, trial.value, trial.violation, trial.proposal.worst_case))
        return contract

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
        starts = sum(self.trials[i].proposal.kind == "start" for i in self.pending)
        if self._completed and self._has_terms:
            contract = self.contract
            if contract.wants_start(starts):
                return Proposal(id, self.theta_0.copy(), "start", gamma=self.gamma_effective)
            if reason := contract.impossible:
                raise Exhausted(f"the contract is refused: {reason}")
        if self.recipe.repeat_start and self.n == 1 and not self.pending and not self.vetoes:
            return Proposal(id, self.theta_0.copy(), "start", gamma=self.gamma_effective, reason="again, for the noise")
        proposal = super()._propose(id)
        return replace(proposal, gamma=self.gamma_effective) if proposal.kind == "start" else proposal

    def _next(self, id: int) -> Proposal:
        self.fit()
        self.metrics = {"message": getattr(self.surrogate, "fit_message", "")}
        return self._choose(id)

    def _choose(self, id: int) -> Proposal:
        """By the model as it was just fitted."""
        if (again := self._again(id)) is not None:
            return again
        if self._designed < self.n_init:
            return self._initial(id)
        return self._acquire(id)

    def _again(self, id: int) -> Proposal | None:
        """The policy of the newest return, where that return is doubted and a second one tells more than noise hides.

        Once; not after a veto; and where the contract forbids the policy, `_finish` turns to another one.
        """
        if self.vetoes or not self._completed or not self.doubted[-1]:
            return None
        last = self.trials[self._completed[-1]].proposal
        if sum(np.array_equal(trial.proposal.theta, last.theta) for trial in self.trials) > 1:
            return None
        x, region = self.data()[0][-1], ConfidenceRegion(self.surrogate, self.gamma_effective)
        return self._finish(id, x, "repeat", "again, since its return is hard to believe", region, x[None])

    @property
    def _has_terms(self) -> bool:
        return math.isfinite(self.terms.j_min) or math.isfinite(self.terms.j_min_drop)

    @property
    def _designed(self) -> int:
        """How many trials count for the initial design: repeats of theta_0 do not."""
        ids = [*self._completed, *self.pending]
        return len(ids) - max(0, sum(self.trials[i].proposal.kind == "start" for i in ids) - 1)

    def _initial(self, id: int) -> Proposal:
        """The next point on the sphere around theta_0 (appendix, "Initial Design"); vetoes shrink the sphere."""
        count, dim = self._designed, self.space.dim
        radius = r0(self.kernel, self.hyper.start[0], min(self.gamma_effective, 0.99))  # Eq. 4
        batch = directions(max(self.n_init - 1, count), dim, self.rng(0), self.recipe.orthogonal_init)
        direction = batch[count - 1] if self.vetoes == 0 else directions(1, dim, self.rng(1, id), False)[0]
        x, reason = self._cautious(on_sphere(self.x0, direction, min(radius, self.veto_distance)))
        return self._finish(id, x, "initial", reason, ConfidenceRegion(self.surrogate, self.gamma_effective), x[None])

    def _acquire(self, id: int) -> Proposal:
        """The acquisition's maximiser over what of the region the contract permits."""
        gamma, note = self._wider()
        region = ConfidenceRegion(self._informed(), gamma)  # C_n: sigma_n <= gamma sigma_f, Eq. 3
        failed = self.ended(TrialStatus.FAILED)[-FAILURES_KEPT:]
        allowed = allowed_by(self.window()[0], failed, self.kernel, self.surrogate.lengthscales)
        contract, beliefs = self.contract, self.beliefs
        permitted = None
        if contract.active and beliefs is not None:
            permitted = partial(contract.feasible, beliefs=beliefs)
        found = propose(region, self._search(), self.rng(2, id, 0), permitted, allowed)  # argmax of alpha, Eq. 3
        if self.recipe.sideways and found.kind != "fallback" and self.n <= SIDEWAYS_SHARE * self.space.dim:
            found = sideways(region, found, self.rng(4, id, 0), allowed)
        x, reason = self._cautious(found.x)
        kind = found.kind
        if x is not found.x and not region.contains(x[None], 1e-6)[0]:  # pulled towards the data and out of the region
            x, kind = region.best_inside(), "fallback"
            reason = "nothing closer inside the region: an evaluated policy again"
        reason = "; ".join(part for part in (note, found.reason, reason) if part)
        proposal = self._finish(id, x, kind, reason, region, found.samples)
        self._look_ahead()
        return proposal

    def _look_ahead(self) -> None:
        """Exhausted, if a least gain was set, the run has stalled, and the next episode is expected to gain less."""
        least, gain = self.settings.least_gain, self.metrics["expected_gain"]
        if least is not None and self.metrics["stalled"] and gain < least:
            raise Exhausted(
                f"no progress in {self.metrics['flat_episodes']} episodes, and the next one is expected to gain "
                f"{gain:.3g}, less than least_gain {least:.3g}: finish, or resume with a smaller one"
            )

    def _informed(self) -> Surrogate:
        """The model, with what a second source adds to its mean."""
        source, model = self.source, self.surrogate
        if source is None or not isinstance(model, GaussianProcess):
            return model
        weight = source.weight(model)
        self.metrics["second_source"] = weight
        return Informed(model, source, weight) if weight > 0.0 else model

    def _wider(self) -> tuple[float, str]:
        """(gamma, note): the effective one, or in a stall a wider one; a veto or a failure leaves none of that."""
        stalled, gamma = stall(self.outputs.to(self.data()[1])) if self.recipe.stall else Stall(), self.gamma_effective
        self.metrics.update(stalled=stalled.stalled, flat_episodes=stalled.flat)
        wider = stalled.wider(gamma, self.surrogate.noise_variance / self.surrogate.signal_variance)
        if self.caution < 1.0 or not wider > gamma:
            return gamma, ""
        self.metrics["message"] = f"no progress in much noise: gamma widened to {wider:.3g}"
        return wider, self.metrics["message"]

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
        """(x, reason): x (d,) itself, or pulled to within the last veto's distance of the data."""
        worst, reason = self.worst, ""
        if worst is None:
            return x, reason
        X = worst.X
        nearest = X[int(np.argmin(np.sum((X - x) ** 2, axis=1)))]
        distance = float(np.linalg.norm(x - nearest))
        if distance > self.veto_distance:
            x = nearest + (x - nearest) * (self.veto_distance / distance)
            reason = "pulled towards the data after a veto"
        return x, reason

    def _within_contract(self, x: Array, kind: str, reason: str) -> tuple[Array, str, str]:
        """(x, kind, reason): as they are, or steered to what the contract permits."""
        if self.beliefs is None:  # no contract of its own, but a monitor may have one
            best = self.best() if self._told_empty else None
            return (
                (x, kind, reason) if best is None else (self.space.to_unit(best.theta), "proven", f"{EMPTY}: told so")
            )
        closer, why = self.contract.steer(x, self.beliefs, len(self.pending), novelty=not self._told_empty)
        if not why:
            return x, kind, reason
        proven = self.contract.is_proven(closer) or np.array_equal(closer, self.x0)
        return closer, "proven" if proven else "steered", "; ".join(part for part in (reason, why) if part)

    def _evaluated(self, x: Array, theta: Array) -> Array:
        """The evaluated policy at x (d,), else theta."""
        thetas = (self.trials[id].proposal.theta for id in self._completed)
        return next((own.copy() for own in thetas if np.array_equal(self.space.to_unit(own), x)), theta)

    @property
    def _told_empty(self) -> bool:
        """Whether a monitor, by data of its own, refused novelty since the last episode."""
        since = self.trials[self._completed[-1] + 1 :] if self._completed else []
        return any(trial.end is TrialStatus.VETOED and trial.reason.startswith(EMPTY) for trial in since)

    def _finish(self, id: int, x: Array, kind: str, reason: str, region: ConfidenceRegion, samples: Array) -> Proposal:
        """The proposal, as the contract permits it, with its worst case, ours and the paper's, whose L is taken over
        samples (m, d) of C_n."""
        x, kind, reason = self._within_contract(x, kind, reason)
        radius = r0(self.kernel, self.lengthscale, min(region.gamma, 0.999))  # Eq. 4
        self.metrics.update(gamma_effective=region.gamma, r0=radius, region_state=region.state)
        proposal = replace(self.proposal(id, x, kind, reason=reason), gamma=region.gamma)
        if kind in ("proven", "fallback", "repeat"):  # the very policy that ran, to the last bit
            proposal = replace(proposal, theta=self._evaluated(x, proposal.theta))
        best = self.outputs.back(float(np.max(region.data_mean)))
        self.metrics.update(best_mean=best, expected_gain=self.outlook.expect(proposal.mean, proposal.sigma, best))
        if self.worst is None:
            return proposal
        bound = self.worst.at(x)
        L_J = self.worst.steepest(np.vstack([x[None], samples[:: max(1, len(samples) // 256)]]))  # max |grad mu_n|
        k = int(np.argmin(np.sum((self.worst.X - x) ** 2, axis=1)))  # theta_k of Eq. 5
        paper = float(self.worst.y[k]) - radius * L_J  # J(theta_n+1) >= J(theta_k) - r0(gamma) L_J, Eq. 5
        value, lipschitz, source = bound.value, bound.lipschitz, bound.source
        if self._has_terms and self.beliefs is not None:
            judgement = self.contract.judge(self.space.to_unit(proposal.theta), self.beliefs)
            value, lipschitz, source = judgement.worst_case, judgement.lipschitz_shown, "calibrated"
        self.metrics.update(lipschitz=lipschitz, lipschitz_paper=L_J, lipschitz_source=source)
        return replace(proposal, worst_case=value, worst_case_paper=paper)

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

    def believed(self, X: Array, y: Array) -> tuple[Array, Mask]:
        """By the model of the last proposal (core/doubt.py); accidents are believed."""
        if not (self.recipe.doubt and self.fitting and self.outputs.grid and len(y) >= doubt.FEWEST):
            return super().believed(X, y)
        sure, outputs = self._sure(), self.outputs
        z, doubted, strange = doubt.believed(self.surrogate.inverse(X), outputs.to(y), sure)
        first = int(np.argmax(strange[: doubt.FEWEST]))
        if len(y) <= 2 * doubt.FEWEST and strange[first] > doubt.EARLY:
            # it came before anything could be doubted, and the model has believed it: ask one that has not
            kept = ~doubted & (np.arange(len(y)) != first)
            outputs, model = self.standardizer(y[kept]), copy(self.surrogate)
            model.restart(self.hyper.start[2])
            fit_returns(model, X[kept], outputs.to(y[kept]), around_mean=self.recipe.fit_around_mean)
            z, doubted, _ = doubt.believed(model.inverse(X), outputs.to(y), sure)
        return np.where(doubted, outputs.centre + outputs.scale * z, y), doubted

    def _sure(self) -> Mask:
        """Which returns of `rows` are never doubted: accidents, what came again, and what was believed when it came.

        Open to doubt is the newest return, one whose policy ran again and gave another one, nearer to what had been
        expected, and what came before anything could be doubted. Good returns that gather around an old disaster do not
        undo it.
        """
        completed, limit = [self.trials[id] for id in self._completed], -math.inf
        if self._has_terms and self.contract.active:
            limit = self.contract.threshold
        again = {t.proposal.theta.tobytes(): t.value for t in completed if t.proposal.kind == "repeat"}

        def is_open(row: int, trial: TrialRecord) -> bool:
            proposal = trial.proposal
            if trial.violation or trial.value < limit or proposal.kind == "repeat":
                return False
            second = again.get(proposal.theta.tobytes())
            if second is not None:
                return abs(second - trial.value) > abs(second - proposal.mean)
            return row < doubt.FEWEST or row == len(completed) - 1

        return np.array([not is_open(row, completed[row]) for row in self.rows()])

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
            if self._has_terms:
                X, y = self.window()
                model = copy(self.surrogate)
                model.condition(X, self.outputs.to(self.contract.clipped(y)))
                self.beliefs = Beliefs.of(model, self.outputs, X)
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
