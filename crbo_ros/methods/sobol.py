"""A scrambled Sobol sequence over the box, theta_0 first: the baseline that every method has to beat."""

from __future__ import annotations

import math

from scipy.stats import qmc

from crbo_ros.core.method import Method
from crbo_ros.core.trial import Proposal


class Sobol(Method):
    """No settings. It recommends the best observed policy."""

    name = "sobol"

    def _propose(self, id: int) -> Proposal:
        if not self._completed and not any(self.trials[i].proposal.kind == "start" for i in self.pending):
            return Proposal(id, self.theta_0.copy(), "start")
        power = max(1, math.ceil(math.log2(id + 1)))
        points = qmc.Sobol(self.space.dim, scramble=True, seed=self.rng(0)).random_base2(power)
        return Proposal(id, self.space.from_unit(points[id - 1]), "acquisition")
