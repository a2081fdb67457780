"""CRBO that begins with a walk along a simulator's path (core/guide.py), and goes on by itself from where that ended.

    guided = Guided(space, theta_0, guide=lambda: gradient_path(simulators, space.to_unit(theta_0), 0.5), seed=1)

The steps are proposals like any other, of kind "guided": what is pending, vetoed or broken off, the contract and the
monitor, state and restart are CRBO's. The path is asked for when the first step is due, and is part of the state from
then on until the walk has ended. While a step is under way other runners get CRBO's own proposals.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crbo_ros.core.crbo import CRBO
from crbo_ros.core.guide import GuidePath, Walk
from crbo_ros.core.kernels import Array
from crbo_ros.core.region import ConfidenceRegion, noise_proof, r0
from crbo_ros.core.space import Space
from crbo_ros.core.trial import Proposal, TrialStatus
from crbo_ros.errors import InvalidInput

SHORTEN = 0.85 ** np.arange(10)  # shares of the way that are tried
# After a walk that paid what is left to gain is small, and the cliff may be near: gamma is less by this factor, or by
# as much as gives a radius of half the way that was walked; where the simulator's crest is near, the robot's is.
AFTERWARDS = 0.5


class Guided(CRBO):
    """See the module's docstring. `guide()` gives the path; a name stands for one where no proposal is asked for."""

    def __init__(
        self, space: Space, theta_0: ArrayLike, *, guide: str | Callable[[], GuidePath], **options: Any
    ) -> None:
        super().__init__(space, theta_0, **options)
        if not (callable(guide) or isinstance(guide, str)):
            raise InvalidInput(f"guide: {guide!r:.60} is no name of a simulated plant")
        self.guide = guide
        self.walk: Walk | None = None  # before the first step is due

    @property
    def gamma_effective(self) -> float:
        gamma = super().gamma_effective
        if self.walk is None or not self.walk.paid:
            return gamma
        half = 0.5 * self.walk.s / self.hyper.start[0]  # the way, in prior lengthscales
        nearby = math.sqrt(1.0 - float(self.kernel.correlation(np.array(half**2))) ** 2)  # r0(nearby) = half the way
        return min(AFTERWARDS * gamma, nearby)

    @property
    def _designed(self) -> int:
        """A walk that paid is all the design there is: theta_0's surroundings are of no interest any more."""
        return self.n_init if self.walk is not None and self.walk.paid else super()._designed

    def _choose(self, id: int) -> Proposal:
        if self.pending or not self._completed:
            return super()._choose(id)
        if self.walk is None:
            own = [i for i in self._completed if np.array_equal(self.trials[i].proposal.theta, self.theta_0)]
            self.walk = Walk(self._path(), float(np.mean([self.trials[i].value for i in own])))
        if not self.walk.end and (proposal := self._step(id, self.walk)) is not None:
            return proposal
        return super()._choose(id)

    def _path(self) -> GuidePath:
        if not callable(self.guide):
            raise InvalidInput(f"guide: {self.guide!r} is a name, and nobody said whose (tasks/guide.py does)")
        return self.guide()

    def _step(self, id: int, walk: Walk) -> Proposal | None:
        """The next step of the walk, or None where not even a short one is permitted."""
        gamma, noise = self.gamma_effective, self.surrogate.noise_variance / self.surrogate.signal_variance
        region = ConfidenceRegion(self.surrogate, noise_proof(gamma, noise))  # a few returns look like noise alone
        radius = min(r0(self.kernel, self.hyper.start[0], min(gamma, 0.99)), self.veto_distance)
        most = walk.reach(radius)
        for share in SHORTEN:
            s = walk.s + share * (most - walk.s)
            x = walk.target(s)
            if region.contains(x[None])[0] and self._permitted(x):
                proposal = self._finish(id, x, "guided", f"the guide's path, {s:.3g} of {walk.path.length:.3g}",
                                        region, x[None])  # fmt: skip
                if proposal.kind == "guided":
                    walk.waiting = (id, s)
                return proposal
        walk.left("neither the model nor the contract permits a further step")
        return None

    def _permitted(self, x: Array) -> bool:
        return self.beliefs is None or not self.contract.active or self.contract.judge(x, self.beliefs).permitted

    def _on_end(self, id: int, end: TrialStatus) -> None:
        super()._on_end(id, end)
        walk = self.walk
        if walk is None or walk.waiting is None or walk.waiting[0] != id:
            return
        trial = self.trials[id]
        if end is TrialStatus.COMPLETED and not trial.violation:
            walk.arrived(self.space.to_unit(trial.proposal.theta), trial.value)
        elif end is TrialStatus.VETOED:
            walk.refused()
        elif end is not TrialStatus.EXPIRED:
            walk.left(trial.violation or "a step failed")

    # -- state ------------------------------------------------------------------------------------

    def report(self) -> dict[str, Any]:
        walk = self.walk
        said = "" if walk is None else f"{len(walk.ratios)} steps, {'ended: ' + walk.end if walk.end else 'goes on'}"
        return {**super().report(), "guide": said}

    def head(self) -> dict[str, Any]:
        return {**super().head(), "walk": None if self.walk is None else self.walk.state()}

    def state(self) -> dict[str, Any]:
        return {**super().state(), "walk": None if self.walk is None else self.walk.state()}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        if state.get("walk") is not None:
            self.walk = Walk.restored(state["walk"])
