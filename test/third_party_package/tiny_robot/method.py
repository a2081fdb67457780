"""A method: a random step from the best so far."""

from typing import Any

from crbo_ros.core.method import Method
from crbo_ros.core.trial import Proposal


class CoinToss(Method):
    name = "coin_toss"

    def __init__(self, space: Any, theta_0: Any, *, seed: int = 0, step: float = 0.1) -> None:
        super().__init__(space, theta_0, seed=seed)
        self.step = step

    def _propose(self, id: int) -> Proposal:
        best = self.best()
        if best is None:
            return Proposal(id, self.theta_0, "start")
        x = self.space.to_unit(best.theta) + self.step * self.rng(id).normal(size=self.space.dim)
        return Proposal(id, self.space.from_unit(x.clip(0.0, 1.0)), "sample")
