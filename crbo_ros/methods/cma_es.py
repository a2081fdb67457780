"""CMA-ES (Hansen and Ostermeier 2001) with pycma: the paper's gold standard of stochastic search.

As in the paper: the mean starts at theta_0, theta_0 is evaluated first (outside of the first generation), sigma_0 in
the unit box is the exploration parameter, all else pycma's defaults; the box is kept by its smooth bound transform.
Proposals come one by one from a generation's queue; the generation is told once each of its members has ended. A
member without a return counts as the worst of its generation. A generation without any return is drawn anew with a
smaller step, so that refusals cannot make it spin.

It recommends the best observed policy: after the six generations that 100 episodes give, the mean still lags behind.
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
from crbo_ros.errors import MissingDependency


class CmaEs(Method):
    """Settings: sigma_0, initial standard deviation in the unit box; popsize (pycma's 4 + 3 ln d by default)."""

    name = "cma_es"

    def __init__(
        self,
        space: Space,
        theta_0: ArrayLike,
        *,
        seed: int = 0,
        sigma_0: float = 0.05,
        popsize: int | None = None,
    ) -> None:
        super().__init__(space, theta_0, seed=seed)
        self.sigma_0 = check_number("sigma_0", sigma_0, 0.0, 10.0)
        self._rng = self.rng(0)
        self.strategy = self._make(popsize)
        self._members: list[int] = []  # ids of the generation under way, in order
        self._solutions: list[Any] = []  # its points, as pycma gave them

    def _make(self, popsize: int | None) -> Any:
        try:
            import cma
        except ImportError:
            raise MissingDependency("method 'cma_es' needs pycma: pip install cma") from None
        options = {
            "bounds": [0.0, 1.0],
            "randn": lambda *shape: self._rng.standard_normal(shape),
            "seed": math.nan,  # leaves NumPy's global generator alone
            "verbose": -9,
            "verb_log": 0,
        }
        if popsize is not None:
            options["popsize"] = int(check_number("popsize", popsize, 1.0))
        dim = self.space.dim
        x0 = np.clip(self.space.to_unit(self.theta_0), 1e-6, 1.0 - 1e-6)
        if dim == 1:  # pycma has no one-dimensional version: a second coordinate that the return ignores
            x0 = np.append(x0, 0.5)
        return cma.CMAEvolutionStrategy(x0, self.sigma_0, options)

    def _propose(self, id: int) -> Proposal:
        under_way = any(self.trials[i].proposal.kind == "start" for i in self.pending)
        if not self._completed and not under_way:
            return Proposal(id, self.theta_0.copy(), "start")
        if len(self._members) < len(self._solutions):
            x = self._solutions[len(self._members)]
        elif self._solutions:  # the whole generation is out: more of the same distribution, told with no generation
            extra = self.strategy.ask(1)[0]
            return self._proposal(id, extra, "sample", "outside of the generation, which is under way")
        else:
            self._solutions = list(self.strategy.ask())
            x = self._solutions[0]
        self._members.append(id)
        return self._proposal(id, x, "acquisition", "")

    def _proposal(self, id: int, x: Any, kind: str, reason: str) -> Proposal:
        theta = self.space.from_unit(np.clip(np.asarray(x)[: self.space.dim], 0.0, 1.0))
        return Proposal(id, theta, kind, reason=reason)

    def _on_end(self, id: int, end: TrialStatus) -> None:
        """Tell pycma (which minimises) as soon as every member of the generation has ended."""
        if len(self._members) < len(self._solutions) or not self._members:
            return
        trials = [self.trials[i] for i in self._members]
        if any(trial.end is TrialStatus.PENDING for trial in trials):
            return
        values = [-trial.value for trial in trials if trial.end is TrialStatus.COMPLETED]
        if values:
            worst = max(values)
            self.strategy.tell(
                self._solutions, [-trial.value if trial.end is TrialStatus.COMPLETED else worst for trial in trials]
            )
        else:
            self.strategy.sigma *= 0.7
        self._members, self._solutions = [], []

    def report(self) -> dict[str, Any]:
        return {"sigma": float(self.strategy.sigma), "popsize": int(self.strategy.popsize)}
