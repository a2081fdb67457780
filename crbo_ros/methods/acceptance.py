"""Old policy against new one, in the order of a fair coin, until it is certain which is better (core.sequential_test).

A method like the others, so that acceptance runs under the same gate, monitor and store, and carries on after a crash.
The coin is a function of the seed and the proposal's number; a rollout that gave no return counts as the worst one
seen, whichever policy it was, and one that the monitor refused does not count. `paired`: a simulation starts proposals
2 k and 2 k + 1 from the same state; the coin decides which of the two is the new policy's.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crbo_ros.core.method import Method
from crbo_ros.core.sequential_test import BETTER, NOT_BETTER, UNDECIDED, WORSE, Earlier, SequentialTest
from crbo_ros.core.space import Space
from crbo_ros.core.trial import NEW, OLD, Best, Proposal, TrialStatus
from crbo_ros.errors import Exhausted, InvalidInput
from crbo_ros.numbers import number

MAX_VETOES = 3  # of the new policy in a row; then it cannot be accepted
COIN = 0xACCE


class Acceptance(Method):
    """`new` and `old` (theta_0 by default): the policies. `earlier`: [old, new, sd, weight] of earlier returns."""

    name = "acceptance"
    takes_earlier = True

    def __init__(
        self, space: Space, theta_0: ArrayLike, *, new: ArrayLike, old: ArrayLike | None = None, level: float = 0.05,
        margin: float = 0.0, earlier: list[float] | None = None, paired: bool = False, seed: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(space, theta_0, seed=seed)
        self.new = space.check(new, "new")
        self.old = self.theta_0 if old is None else space.check(old, "old")
        if not 0.0 < level <= 0.5:
            raise InvalidInput(f"level: {level} is outside (0, 0.5]")
        if not (math.isfinite(margin) and margin >= 0.0):
            raise InvalidInput(f"margin: {margin} is not a number from 0 on")
        if np.array_equal(self.old, self.new):
            raise InvalidInput("new: is the old policy itself")
        known = None if earlier is None else Earlier(*(float(v) for v in earlier))
        self.test = SequentialTest(float(level), float(margin), known)
        self.paired = bool(paired)
        self._half: dict[int, tuple[bool, float]] = {}  # pair -> the rollout of it that has ended
        self.vetoes = 0  # of the new policy, in a row

    def is_new(self, id: int) -> bool:
        """The coin's side for a proposal."""
        if self.paired:
            return bool(self.rng(COIN, id // 2).random() < 0.5) != bool(id % 2)
        return bool(self.rng(COIN, id).random() < 0.5)

    def _propose(self, id: int) -> Proposal:
        if why := self.conclusion():
            raise Exhausted(why)
        new = self.is_new(id)
        return Proposal(id, (self.new if new else self.old).copy(), NEW if new else OLD)

    def _on_end(self, id: int, end: TrialStatus) -> None:
        trial = self.trials[id]
        new = trial.proposal.kind == NEW
        if trial.proposal.kind not in (OLD, NEW):  # attached: the monitor's affair
            return
        if end is TrialStatus.COMPLETED:
            self._count(id, new, trial.value)
            self.vetoes = 0 if new else self.vetoes
        elif end is TrialStatus.FAILED:
            seen = [value for _, value in (*self.test.rollouts, *self._half.values())]
            if seen:
                self._count(id, new, min(seen))
        elif end is TrialStatus.VETOED and new:
            self.vetoes += 1

    def _count(self, id: int, new: bool, value: float) -> None:
        if not self.paired:
            self.test.add(new, value)
        elif (other := self._half.pop(id // 2, None)) is None:
            self._half[id // 2] = (new, value)
        else:
            old_value, new_value = (other[1], value) if new else (value, other[1])
            self.test.add_pair(old_value, new_value)

    def conclusion(self) -> str:
        """Why it is over, in a sentence; empty while it is not."""
        if self.vetoes >= MAX_VETOES:
            return f"the monitor refused the new policy {self.vetoes} times: it cannot be accepted"
        certain = f"certain at level {self.test.level:g} after {len(self.test.rollouts)} rollouts"
        return {
            BETTER: f"better: {certain}",
            NOT_BETTER: f"not better by more than {number(self.test.margin)}: {certain}",
            WORSE: f"worse: {certain}",
            UNDECIDED: "",
        }[self.test.verdict]

    def best(self) -> Best | None:
        """The new policy once it is certain that it is better; the old one until then, if it has run."""
        accepted = self.test.verdict == BETTER
        values = self.test.values(accepted)
        if not values:
            return None
        id = max(t.proposal.id for t in self.trials if t.proposal.kind == (NEW if accepted else OLD))
        spread = float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan
        theta = self.new if accepted else self.old
        return Best(id, theta, math.fsum(values) / len(values), spread, values[-1])

    def report(self) -> dict[str, Any]:
        """How the test stands; evidence is the gambler's capital, decided at 1 / level."""
        test, sides = self.test, []
        for name, new in ((OLD, False), (NEW, True)):
            values = test.values(new)
            mean = number(math.fsum(values) / len(values) if values else None)
            sides.append(f"{name} {mean} ({len(values)})")
        evidence = {name: math.exp(getattr(test, name).log_capital) for name in ("better", "not_better", "worse")}
        shown = ", ".join(f"{name.replace('_', ' ')} {value:.3g}" for name, value in evidence.items())
        text = f"{', '.join(sides)}; evidence of {1 / test.level:.3g}: {shown}"
        return {"verdict": test.verdict, "region_state": self.conclusion() or text, "progress": text, **evidence}
