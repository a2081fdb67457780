"""Safe CMA-ES (Uchida, Hamano, Nomura, Saito, Shirakawa 2024), by its authors' package `cmaes`: for noiseless returns.

Samples of CMA-ES are pulled into balls around evaluated points in which the return stays above J_min, the radius from a
Lipschitz constant that a Gaussian process estimates. The safety function is -J, its threshold -J_min, and theta_0 the
one safe seed. Here: the unit box, a generation at a time, and refused members count as the worst of their generation.
It is the authors' own code; a test checks that the translation (sign, box, generation) reaches a known optimum.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crbo_ros.core.method import Method
from crbo_ros.core.settings import check_number
from crbo_ros.core.space import Space
from crbo_ros.core.trial import Proposal, TrialStatus
from crbo_ros.errors import InvalidInput, MissingDependency


class SafeCmaEs(Method):
    """Settings: sigma_0 (unit box), j_min (default: 10 % of |J(theta_0)| below the first return)."""

    name = "safe_cma"

    def __init__(
        self, space: Space, theta_0: ArrayLike, *, seed: int = 0, sigma_0: float = 0.05, j_min: float | None = None
    ) -> None:
        super().__init__(space, theta_0, seed=seed)
        if space.dim < 2:
            raise InvalidInput("safe_cma: it needs two dimensions or more")
        self.sigma_0 = check_number("sigma_0", sigma_0, 0.0, 10.0)
        self.j_min = None if j_min is None else check_number("j_min", j_min, -math.inf)
        self._strategy: Any = None
        self._members: list[int] = []  # ids of the generation under way, in order
        self._solutions: list[Any] = []  # its points
        _import()

    def threshold(self) -> float:
        """J_min."""
        if self.j_min is not None:
            return self.j_min
        first = self.trials[self._completed[0]].value
        return first - 0.1 * abs(first)

    def _start(self) -> Any:
        """From theta_0's return on: it is the safe seed."""
        value = -self.trials[self._completed[0]].value
        return _import()(
            safe_seeds=self.space.to_unit(self.theta_0)[None],
            seeds_evals=np.array([value]),
            seeds_safe_evals=np.array([[value]]),
            safety_threshold=np.array([max(-self.threshold(), value)]),
            sigma=self.sigma_0,
            bounds=np.array([[0.0, 1.0]] * self.space.dim),
            seed=int(self.rng(0).integers(2**31)),
        )

    def _propose(self, id: int) -> Proposal:
        if not self._completed:
            return Proposal(id, self.theta_0.copy(), "start")
        if self._strategy is None:
            self._strategy = self._start()
        if len(self._solutions) >= self._strategy.population_size:  # the generation is out
            return self._proposal(id, self._strategy.ask(), "sample", "outside of the generation, which is under way")
        self._solutions.append(self._strategy.ask())
        self._members.append(id)
        return self._proposal(id, self._solutions[-1], "acquisition", "")

    def _proposal(self, id: int, x: Any, kind: str, reason: str) -> Proposal:
        return Proposal(id, self.space.from_unit(np.clip(np.asarray(x), 0.0, 1.0)), kind, reason=reason)

    def _on_end(self, id: int, end: TrialStatus) -> None:
        if self._strategy is None or len(self._members) < self._strategy.population_size:
            return
        trials = [self.trials[i] for i in self._members]
        if any(trial.end is TrialStatus.PENDING for trial in trials):
            return
        done = [-trial.value for trial in trials if trial.end is TrialStatus.COMPLETED]
        worst = max(done, default=-self.threshold())
        values = [-trial.value if trial.end is TrialStatus.COMPLETED else worst for trial in trials]
        self._strategy.tell([(x, v, np.array([v])) for x, v in zip(self._solutions, values, strict=True)])
        self._members, self._solutions = [], []

    def report(self) -> dict[str, Any]:
        if self._strategy is None:
            return {}
        return {"sigma": float(self._strategy._sigma), "popsize": int(self._strategy.population_size)}


def _import() -> Any:
    try:
        from cmaes.safe_cma import SafeCMA
    except ImportError:
        raise MissingDependency("method 'safe_cma' needs two packages: pip install cmaes gpytorch") from None
    return SafeCMA
