"""A method: a random step from the best so far."""

from crbo_ros.core.method import Method
from crbo_ros.core.trial import Proposal


class CoinToss(Method):
    name = "coin_toss"

    def __init__(self, space, theta_0, *, seed=0, step=0.1):
        super().__init__(space, theta_0, seed=seed)
        self.step = step

    def _propose(self, id):
        best = self.best()
        if best is None:
            return Proposal(id, self.theta_0, "start")
        x = self.space.to_unit(best.theta) + self.step * self.rng(id).normal(size=self.space.dim)
        return Proposal(id, self.space.from_unit(x.clip(0.0, 1.0)), "sample")
