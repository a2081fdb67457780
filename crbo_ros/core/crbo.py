"""Confidence region Bayesian optimization (CRBO): ask for a policy, tell its return.

Froehlich, Zeilinger, Klenske: Cautious Bayesian Optimization for Efficient and Scalable Policy Search, L4DC 2021.

    optimizer = CRBO(Space([-1, -1], [1, 1]), theta_0=[0.2, 0.3], seed=1)
    for _ in range(50):
        proposal = optimizer.ask()
        optimizer.tell(proposal.id, episode(proposal.theta))
    print(optimizer.best())

All heavy work (fit, sampling, polish) happens in `ask`; `tell` only books. Everything depends on settings, seed and
the sequence of calls alone, and `state()` / `restore()` carry it over bit for bit. Settings: see presets.Settings.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crbo_ros.core import bound as lip
from crbo_ros.core import snapshot
from crbo_ros.core.gaussian_process import GaussianProcess, Standardizer, Surrogate
from crbo_ros.core.initial_design import directions, on_sphere, size
from crbo_ros.core.kernels import Array, kernel
from crbo_ros.core.method import Method
from crbo_ros.core.region import ConfidenceRegion, r0
from crbo_ros.core.search import Candidate, Search, propose, sideways
from crbo_ros.core.settings import check_gamma, check_j_min, make_hyperparameters, make_settings
from crbo_ros.core.space import Space
from crbo_ros.core.trial import Best, Proposal, TrialStatus
from crbo_ros.errors import Exhausted

PERIOD = 5  # every so many proposals one may explore instead of settling, and the fit has a second start
NOISY = 0.3  # noise variance of that start, as a share of the returns' variance
RESTLESS = 5.0  # beta is multiplied by this to explore where nothing is left to learn
FIRST = 4  # points of the initial design at most, where later steps explore new directions on their way
SIDEWAYS_SHARE = 0.5  # they do so while there are fewer than this times d data points
FAILURES_KEPT = 30  # the newest failed policies are remembered as bad ones
SMALLEST = 0.05  # the effective gamma never falls below this share of gamma


class CRBO(Method):
    """CRBO. See the module's docstring."""

    name = "crbo"

    def __init__(self, space: Space, theta_0: ArrayLike, *, seed: int = 0, **options: Any) -> None:
        super().__init__(space, theta_0, seed=seed)
        self.settings = make_settings(options)
        self.kernel = kernel(self.settings.kernel)
        self.hyper = make_hyperparameters(self.settings, space.dim)
        self.surrogate = self._make_surrogate()
        self.n_init = self.settings.n_init or size(space.dim, FIRST if self.settings.sideways else None)
        self.gamma, self.j_min = self.settings.gamma, self.settings.j_min
        self.caution = 1.0  # effective gamma = gamma * caution; falls with vetoes, recovers with episodes
        self.vetoes = 0  # consecutive vetoes and failures
        self.veto_distance = math.inf  # proposals stay closer to the data than the last vetoed one did
        self.score, self.score_paper = lip.Coverage(), lip.Coverage()
        self.outputs = Standardizer()
        self.metrics: dict[str, Any] = {}

    def _make_surrogate(self) -> Surrogate:
        if self.settings.surrogate == "gpytorch":
            from crbo_ros.core.gpytorch_process import GPyTorch

            return GPyTorch(
                self.settings.kernel,
                self.space.dim,
                self.hyper,
                ard=self.settings.ard,
                kernel=self.settings.gpytorch_kernel,
            )
        surrogate = GaussianProcess(self.kernel, self.space.dim, self.hyper, ard=self.settings.ard)
        surrogate.gradient_tolerance = 1e-2  # far below what the data can say; saves a quarter of the fit
        return surrogate

    # -- verbs ------------------------------------------------------------------------------------

    def configure(self, *, gamma: float | None = None, j_min: float | None = None) -> None:
        """Change gamma or J_min while running; forgets earlier vetoes."""
        gamma = self.gamma if gamma is None else check_gamma(gamma)
        j_min = self.j_min if j_min is None else check_j_min(j_min)
        self.gamma, self.j_min = gamma, j_min
        self.caution, self.vetoes, self.veto_distance = 1.0, 0, math.inf

    def best(self) -> Best | None:
        """The evaluated policy with the best posterior mean, not the luckiest return; None before the first one.

        Centred as for the fit: a prior mean as high as the best return would be kind to whatever was tried once.
        """
        if not self._completed:
            return None
        X, y = self.data()
        outputs = self._outputs(y, "mean" if self.settings.fit_around_mean else self.settings.centering)
        self.surrogate.condition(X, outputs.to(y))
        mean, variance = self.surrogate.posterior(X)
        i = int(np.argmax(mean))
        trial = self.trials[self._completed[i]]
        sigma = outputs.scale * math.sqrt(float(variance[i]))
        return Best(trial.proposal.id, trial.proposal.theta, outputs.back(float(mean[i])), sigma, trial.value)

    def report(self) -> dict[str, Any]:
        """Figures as of the last proposal; lengths in the unit box, variances in the return's units squared."""
        surrogate, square = self.surrogate, self.outputs.scale**2
        metrics: dict[str, Any] = {
            "preset": self.settings.preset,
            "gamma": self.gamma,
            "gamma_effective": self.gamma_effective,
            "j_min": math.nan if self.j_min is None else self.j_min,
            "r0": r0(self.kernel, self._lengthscale(), self.gamma_effective),
            "lengthscale": self._lengthscale(),
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
        return snapshot.save(self)

    def restore(self, state: dict[str, Any]) -> None:
        self.check_state(state)
        snapshot.load(self, state)

    # -- proposing --------------------------------------------------------------------------------

    def _propose(self, id: int) -> Proposal:
        if self.vetoes >= self.settings.max_vetoes:
            raise Exhausted(
                f"{self.vetoes} proposals in a row were vetoed or failed, down to {self.veto_distance:.2g} from the "
                "data (in the unit box); lower J_min, give a Lipschitz constant, or choose another theta_0"
            )
        x0 = self.space.to_unit(self.theta_0)
        start_under_way = any(self.trials[i].proposal.kind == "start" for i in self.pending)
        if not self._completed and not start_under_way:
            return Proposal(id, self.theta_0.copy(), "start", gamma=self.gamma_effective)
        if self._completed:
            X, y = self.data()
            self._fit(X, y)
            x0 = X[0]
        else:  # theta_0 is still out: assume that it will return the prior's mean
            X, y = x0[None], np.zeros(1)
            self.outputs = Standardizer()
            self.surrogate.condition(X, y)
        for i in self.pending:  # fantasies: the posterior mean, so that the variance shrinks and the mean stays
            x = self.space.to_unit(self.trials[i].proposal.theta)
            self.surrogate.add(x, float(self.surrogate.posterior(x[None])[0][0]))
        failed = [i for i, trial in enumerate(self.trials) if trial.end is TrialStatus.FAILED]
        for i in failed[-FAILURES_KEPT:]:  # a plant that refused a policy would refuse it again: expect the worst there
            self.surrogate.add(self.space.to_unit(self.trials[i].proposal.theta), float(np.min(self.outputs.to(y))))
        self.metrics = {"message": getattr(self.surrogate, "fit_message", "")}
        if self.n + len(self.pending) < self.n_init:
            return self._initial(id, x0, X, y)
        return self._acquire(id, X, y)

    def _initial(self, id: int, x0: Array, X: Array, y: Array) -> Proposal:
        """The next point on the sphere of radius r0 around theta_0; vetoes shrink the sphere."""
        count = self.n + len(self.pending)
        radius = r0(self.kernel, self.hyper.start[0], min(self.gamma_effective, 0.99))
        batch = directions(max(self.n_init - 1, count), self.space.dim, self.rng(0), self.settings.orthogonal_init)
        direction = batch[count - 1] if self.vetoes == 0 else directions(1, self.space.dim, self.rng(1, id), False)[0]
        x = on_sphere(x0, direction, min(radius, self.veto_distance))
        region = ConfidenceRegion(self.surrogate, self.gamma_effective, compensate=self.settings.compensate_noise)
        estimate = self._estimate(X, y, x[None])
        x, reason = self._respect(x, X, y, estimate)
        return self._finish(id, x, "initial", reason, region, X, y, estimate)

    def _acquire(self, id: int, X: Array, y: Array) -> Proposal:
        """The acquisition's maximiser over the region; gamma shrinks until the worst case respects J_min."""
        gamma, search = self.gamma_effective, self._search()
        for attempt in range(8):
            region = ConfidenceRegion(self.surrogate, gamma, compensate=self.settings.compensate_noise)
            candidate = propose(region, search, self.rng(2, id, attempt))
            if self._settled(region, candidate, id):
                candidate = replace(
                    propose(region, replace(search, beta=RESTLESS * search.beta), self.rng(3, id, attempt)),
                    reason="settled: exploring",
                )
            elif self.settings.sideways and candidate.kind != "fallback" and len(X) <= SIDEWAYS_SHARE * self.space.dim:
                candidate = sideways(region, candidate, self.rng(4, id, attempt))
            estimate = self._estimate(X, y, self._subset(candidate))
            value = lip.worst_case(candidate.x, X, y, estimate.noise, estimate.lipschitz)[0]
            if self.j_min is None or value >= self.j_min or not len(self._completed):
                break
            gamma *= 0.7
        x, reason = self._respect(candidate.x, X, y, estimate)
        if gamma < self.gamma_effective:
            reason = f"gamma lowered to {gamma:.3g} for J_min; {reason}".rstrip("; ")
        if (
            x is not candidate.x and not region.contains(x[None], 1e-6)[0]
        ):  # pulled towards the data and out of the region
            inside = np.flatnonzero(region.data_inside)
            x = self.surrogate.X[inside[int(np.argmax(region.data_mean[inside]))]]
            candidate, reason = (
                replace(candidate, kind="fallback"),
                "nothing closer inside the region: an evaluated policy again",
            )
        reason = "; ".join(part for part in (candidate.reason, reason) if part)
        return self._finish(id, x, candidate.kind, reason, region, X, y, estimate)

    def _settled(self, region: ConfidenceRegion, candidate: Candidate, id: int) -> bool:
        """Whether it is this proposal's turn to explore and UCB promises next to nothing over the best policy's mean.

        Next to nothing: 2 % of beta gamma sigma_f, the most that uncertainty can promise inside the region.
        """
        if not (self.settings.restless and self.settings.acquisition == "ucb" and id % PERIOD == 0):
            return False
        mean, variance = self.surrogate.posterior(candidate.x[None])
        gain = float(mean[0]) + self.settings.beta * math.sqrt(float(variance[0])) - float(np.max(region.data_mean))
        return gain < 0.02 * self.settings.beta * region.gamma * math.sqrt(region.sf2)

    def _search(self) -> Search:
        """How hard to look: in many dimensions samples matter less than the polish, with many data they cost more."""
        n, settings, high = len(self.surrogate.y), self.settings, self.space.dim > 20
        most = settings.samples or (256 if high else 1024)
        samples = max(128, int(most * (1.0 if n <= 300 else 0.5)))
        return Search(
            settings.acquisition,
            settings.beta,
            samples=samples,
            chains=max(32, samples // (2 if high else 4)),
            starts=settings.starts,
            max_evaluations=30 if high else 60,
            tolerance=1e-5 if high else 1e-7,
        )

    def _subset(self, candidate: Candidate) -> Array:
        """The points over which the gradient's maximum is taken: the proposal and some 256 samples of the region."""
        samples = candidate.samples[:: max(1, len(candidate.samples) // 256)]
        return np.vstack([candidate.x[None], samples])

    def _respect(self, x: Array, X: Array, y: Array, estimate: lip.Estimate) -> tuple[Array, str]:
        """Pull x towards the data: closer than the last veto, and until its worst case reaches J_min where that can
        be."""
        reason = ""
        nearest = X[int(np.argmin(np.sum((X - x) ** 2, axis=1)))]
        distance = float(np.linalg.norm(x - nearest))
        if distance > self.veto_distance:
            x, reason = (
                nearest + (x - nearest) * (self.veto_distance / distance),
                "pulled towards the data after a veto",
            )
        if self.j_min is None or not self._completed:
            return x, reason
        value, i, distance = lip.worst_case(x, X, y, estimate.noise, estimate.lipschitz)
        if value >= self.j_min or distance == 0.0:
            return x, reason
        i = int(np.argmax(y))
        room = (float(y[i]) - estimate.noise - self.j_min) / estimate.lipschitz
        if room <= 0.0:
            return X[i].copy(), "no policy has a worst case above J_min: the best one again"
        distance = float(np.linalg.norm(x - X[i]))
        return X[i] + (x - X[i]) * min(1.0, room / distance), "pulled towards the best policy for J_min"

    def _estimate(self, X: Array, y: Array, points: Array) -> lip.Estimate:
        return lip.estimate(
            self.surrogate,
            self.outputs,
            X,
            y,
            points,
            slope_variance=self.kernel.slope_variance,
            user=self.settings.lipschitz,
            scale=self.settings.scale,
        )

    def _finish(
        self,
        id: int,
        x: Array,
        kind: str,
        reason: str,
        region: ConfidenceRegion,
        X: Array,
        y: Array,
        estimate: lip.Estimate,
    ) -> Proposal:
        radius = r0(self.kernel, self._lengthscale(), min(region.gamma, 0.999))
        mean, variance = self.surrogate.posterior(x[None])
        self.metrics.update(
            gamma_effective=region.gamma,
            r0=radius,
            region_state=region.state,
            lipschitz=estimate.lipschitz,
            lipschitz_paper=estimate.paper,
            lipschitz_source=estimate.source,
        )
        bound = paper = math.nan
        if self._completed:
            bound = lip.worst_case(x, X, y, estimate.noise, estimate.lipschitz)[0]
            nearest = int(np.argmin(np.sum((X - x) ** 2, axis=1)))
            paper = float(y[nearest]) - radius * estimate.paper
        return Proposal(
            id,
            self.space.from_unit(x),
            kind,
            self.outputs.back(float(mean[0])),
            self.outputs.scale * math.sqrt(float(variance[0])),
            bound,
            paper,
            region.gamma,
            reason,
        )

    # -- model ------------------------------------------------------------------------------------

    def _outputs(self, y: Array, centering: str) -> Standardizer:
        return Standardizer.of(y, centering, self.settings.scaling, self._floor(y))

    def _floor(self, y: Array) -> float:
        """Equal first returns say nothing about the scale: assume some of it until they differ."""
        return lip.first_scale(y, self.settings.scale) * 1e-3

    def _fit(self, X: Array, y: Array) -> None:
        self.outputs = self._outputs(y, self.settings.centering)
        targets = self.outputs.to(y)
        if not self.settings.fit or len(y) < 2:
            self.surrogate.condition(X, targets)
            return
        around = float(np.mean(targets)) if self.settings.fit_around_mean else 0.0
        value = self.surrogate.fit(X, targets, around)
        if self.settings.second_start and len(y) >= 2 * PERIOD and len(y) % PERIOD == 0:
            # Noisy returns can be explained by noise or by a short lengthscale: two modes, and a fit that starts where
            # it stood stays in one of them for ever.
            first = self.surrogate.get_parameters()
            self.surrogate.restart(NOISY)
            if not self.surrogate.fit(X, targets, around) > value:
                self.surrogate.set_parameters(first)
                self.surrogate.condition(X, targets)

    def _lengthscale(self) -> float:
        return float(np.exp(np.mean(np.log(self.surrogate.lengthscales))))

    # -- books ------------------------------------------------------------------------------------

    def _on_end(self, id: int, end: TrialStatus) -> None:
        trial = self.trials[id]
        if end is TrialStatus.COMPLETED:
            self.score.add(trial.proposal.worst_case, trial.value)
            self.score_paper.add(trial.proposal.worst_case_paper, trial.value)
            self.caution = min(1.0, self.caution * self.settings.recovery)
            self.vetoes, self.veto_distance = 0, math.inf
        elif end in (TrialStatus.VETOED, TrialStatus.FAILED):
            self.caution = max(SMALLEST, self.caution * self.settings.veto_factor)
            self.vetoes += 1
            if end is TrialStatus.VETOED and self._completed:
                x = self.space.to_unit(trial.proposal.theta)
                distance = float(np.sqrt(np.min(np.sum((self.data()[0] - x) ** 2, axis=1))))
                self.veto_distance = self.settings.veto_factor * min(distance, self.veto_distance)
