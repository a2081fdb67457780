"""Random search around the best policy seen so far: theta_0 first, then normal steps of one size in the unit box."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from crbo_ros.core.method import Method
from crbo_ros.core.settings import check_number
from crbo_ros.core.space import Space
from crbo_ros.core.trial import Proposal


class RandomSearch(Method):
    """Settings: sigma_0, the steps' standard deviation in the unit box."""

    name = "random_search"

    def __init__(self, space: Space, theta_0: ArrayLike, *, seed: int = 0, sigma_0: float = 0.05) -> None:
        super().__init__(space, theta_0, seed=seed)
        self.sigma_0 = check_number("sigma_0", sigma_0, 0.0, 10.0)

    def _propose(self, id: int) -> Proposal:
        if not self._completed and not any(self.trials[i].proposal.kind == "start" for i in self.pending):
            return Proposal(id, self.theta_0.copy(), "start")
        best = self.best()
        centre = self.space.to_unit(self.theta_0 if best is None else best.theta)
        x = centre + self.sigma_0 * self.rng(1, id).standard_normal(self.space.dim)
        return Proposal(id, self.space.from_unit(np.clip(x, 0.0, 1.0)), "acquisition")
