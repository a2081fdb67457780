"""Standard Bayesian optimization in the box: UCB over all of [0, 1]^d, the baseline of the paper's synthetic functions.

The same surrogate and search as CRBO's with gamma = 1, for which the confidence region is the whole box. How returns
are centred decides how this method does: minus the best return (CRBO's way) makes a global UCB explore for ever. It
gets the mean, which does it good. Initial design: theta_0, then a Latin hypercube.
"""

from __future__ import annotations

from dataclasses import replace

from numpy.typing import ArrayLike

from crbo_ros.core.gaussian_process import CENTERINGS
from crbo_ros.core.gp_method import GPMethod, design_size, latin_hypercube
from crbo_ros.core.hyperparameters import Gamma, Hyperparameters, LogNormal
from crbo_ros.core.region import ConfidenceRegion
from crbo_ros.core.search import Search, propose
from crbo_ros.core.settings import check_hyperparameters, check_number
from crbo_ros.core.space import Space
from crbo_ros.core.trial import Proposal
from crbo_ros.errors import InvalidInput


class BO(GPMethod):
    """Settings: beta, centering, n_init (theta_0 included), hyperparameters = (l, sf2, sn2) where they are known.

    Known hyperparameters are in the return's own units and stay fixed; else they are fitted.
    """

    name = "bo"
    takes_earlier = True
    hyper = Hyperparameters(
        Gamma(3.0, 6.0),
        Gamma(2.0, 0.15),
        LogNormal(1e-3, 2.0),
        lengthscale_bounds=(0.01, 5.0),
        signal_bounds=(1e-2, 1e3),
        noise_bounds=(1e-7, 1e1),
        start=(0.3, 1.0, 1e-3),
    )

    def __init__(
        self,
        space: Space,
        theta_0: ArrayLike,
        *,
        seed: int = 0,
        beta: float = 2.0,
        centering: str = "mean",
        n_init: int | None = None,
        hyperparameters: tuple[float, float, float] | None = None,
    ) -> None:
        if centering not in CENTERINGS:
            raise InvalidInput(f"centering: {centering!r} is none of {', '.join(CENTERINGS)}")
        if hyperparameters is not None:
            self.hyper = replace(self.hyper, start=check_hyperparameters(hyperparameters))
            self.fitting = False
        super().__init__(space, theta_0, seed=seed)
        self.beta = check_number("beta", beta, 0.0)
        self.centering = centering
        self.n_init = design_size(n_init, space.dim)

    def _next(self, id: int) -> Proposal:
        count = self.n + len(self.pending)
        if count < self.n_init:
            # the id moves on after a refusal, so that another point of the design is tried
            design = latin_hypercube(max(self.n_init, id + 1), self.space.dim, self.rng(0))
            return self.proposal(id, design[id], "initial", predict=False)
        self.fit()
        candidate = propose(ConfidenceRegion(self.surrogate, 1.0), Search("ucb", self.beta, starts=4), self.rng(1, id))
        return self.proposal(id, candidate.x, candidate.kind, reason=candidate.reason)
