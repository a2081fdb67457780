"""What every method shares: ids, end states, the data set, and a state that saves and loads.

A method is deterministic: its proposals depend on its settings, its seed and the sequence of calls, and on
nothing else. So the sequence of calls *is* its state; `state()` returns it and `restore()` replays it. A
method for which replaying is too slow (CRBO's own optimizer) overrides both with a snapshot.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crbo_ros.core.space import Space
from crbo_ros.core.trial import LARGEST, Best, Proposal, TrialStatus
from crbo_ros.errors import Exhausted, InvalidInput

REFUSED = (TrialStatus.VETOED, TrialStatus.FAILED)
MAX_REFUSED = 100  # proposals in a row that were vetoed or failed, then Exhausted


@dataclass
class TrialRecord:
    """A proposal and what became of it."""

    proposal: Proposal
    end: TrialStatus = TrialStatus.PENDING
    value: float = math.nan
    reason: str = ""
    violation: str = ""  # why it broke the contract whatever its return was; empty if it did not


class Method(ABC):
    """Base of all methods. Subclasses implement `_propose` and may override `_on_end` and `best`."""

    name = "method"
    takes_earlier = False  # whether returns that it did not ask for can enter its data

    def __init__(self, space: Space, theta_0: ArrayLike, *, seed: int = 0) -> None:
        self.space = space
        self.theta_0 = space.check(theta_0, "theta_0")
        self.seed = int(seed)
        self.trials: list[TrialRecord] = []
        self._completed: list[int] = []  # ids in the order in which their returns came
        self._open: dict[int, None] = {}  # ids of those that have not ended, in order
        self._log: list[list[Any]] = []
        self._X, self._y = np.zeros((0, space.dim)), np.zeros(0)  # what data() has gathered so far

    # -- the flat verbs ---------------------------------------------------------------------------

    def ask(self) -> Proposal:
        """The next policy to try. Asking again before telling gives a different one.

        Exhausted: nothing is left to try, or all of the last MAX_REFUSED proposals were vetoed or failed.
        """
        newest = self.trials[-MAX_REFUSED:]
        if len(newest) == MAX_REFUSED and all(trial.end in REFUSED for trial in newest):
            raise Exhausted(
                f"{MAX_REFUSED} proposals in a row were vetoed or failed, the last one: {newest[-1].reason or 'unsaid'}"
                f"; {self.name} finds nothing that may run: look at the contract, the plant and theta_0"
            )
        proposal = self._propose(len(self.trials))
        self.trials.append(TrialRecord(proposal))
        self._open[proposal.id] = None
        self._log.append(["ask"])
        return proposal

    def tell(self, id: int, value: float) -> None:
        """The return of proposal `id`, also a late one of an expired proposal. Refused (InvalidInput, nothing changed)
        unless it is finite and the first."""
        trial = self._pending_trial(id, late=True)
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise InvalidInput(f"value: {value!r} is not a number") from None
        if not math.isfinite(number):
            raise InvalidInput(f"value: the return of proposal {id} is {number}; it must be finite")
        if abs(number) > LARGEST:
            raise InvalidInput(f"value: the return of proposal {id} is {number:g}; at most {LARGEST:g} is accepted")
        trial.value = number
        self._end(id, TrialStatus.COMPLETED, "")
        self._log.append(["tell", int(id), number])

    def attach(self, theta: ArrayLike, value: float) -> Proposal:
        """An episode of earlier, as a completed proposal of kind "attached"."""
        if not self.takes_earlier:
            raise InvalidInput(f"method {self.name!r} cannot begin with earlier episodes")
        theta = self.space.check(theta)
        if not abs(value) <= LARGEST:
            raise InvalidInput(f"value: an earlier return is {value}; it must be finite")
        proposal = Proposal(len(self.trials), theta, "attached")
        self.trials.append(TrialRecord(proposal, value=float(value)))
        self._end(proposal.id, TrialStatus.COMPLETED, "")
        self._log.append(["attach", theta.tolist(), float(value)])
        return proposal

    def inform(self, thetas: ArrayLike, values: ArrayLike) -> None:
        """Returns (m,) of policies (m, d) on another plant, which are no data of this one. Part of no state."""
        raise InvalidInput(f"method {self.name!r} cannot use returns of another plant")

    def veto(self, id: int, reason: str = "") -> None:
        """Proposal `id` was refused before it ran."""
        self._close(id, TrialStatus.VETOED, reason)

    def fail(self, id: int, reason: str = "") -> None:
        """Proposal `id` gave no usable return."""
        self._close(id, TrialStatus.FAILED, reason)

    def mark(self, id: int, violation: str) -> None:
        """Proposal `id` breaks the contract whatever its return is: by a signal, a failure, or a person's word."""
        if not 0 <= id < len(self.trials):
            raise InvalidInput(f"id: no proposal has the id {id!r}")
        self.trials[id].violation = violation
        self._log.append(["mark", int(id), violation])

    def expire(self, id: int, reason: str = "") -> None:
        """Nobody reported back on proposal `id` in time."""
        self._close(id, TrialStatus.EXPIRED, reason)

    def best(self) -> Best | None:
        """The policy to recommend, or None before the first return. Here: the best observed one."""
        if not self._completed:
            return None
        id = max(self._completed, key=lambda i: self.trials[i].value)
        trial = self.trials[id]
        return Best(id, trial.proposal.theta, trial.value, math.nan, trial.value)

    def report(self) -> dict[str, Any]:
        """Figures for people (gamma, lengthscale, ...); keys differ by method."""
        return {}

    # -- data -------------------------------------------------------------------------------------

    @property
    def n(self) -> int:
        """Number of completed episodes."""
        return len(self._completed)

    @property
    def pending(self) -> list[int]:
        """Ids of the proposals that have not ended."""
        return list(self._open)

    def data(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(X, y): evaluated points in the unit box, shape (n, d), and their returns, shape (n,); not to be changed."""
        new = [self.trials[i] for i in self._completed[len(self._y) :]]
        if new:
            X = self.space.to_unit(np.array([trial.proposal.theta for trial in new]))
            self._X, self._y = np.vstack([self._X, X]), np.append(self._y, [trial.value for trial in new])
        return self._X, self._y

    # -- state ------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything needed to carry on bit for bit: JSON values and NumPy arrays."""
        return {"method": self.name, "log": [list(entry) for entry in self._log]}

    def head(self) -> dict[str, Any]:
        """`state()` without the trials, for a store that has them already. Here all of it."""
        return self.state()

    def restore(self, state: dict[str, Any]) -> None:
        """Bring a freshly made method (same settings and seed) to `state`."""
        self.check_state(state)
        for verb, *args in state["log"]:
            getattr(self, verb)(*args)

    def check_state(self, state: dict[str, Any]) -> None:
        if self.trials:
            raise InvalidInput("state: restore needs a freshly made method")
        if state.get("method") != self.name:
            raise InvalidInput(f"state: saved by method {state.get('method')!r}, this is {self.name!r}")

    # -- for subclasses ---------------------------------------------------------------------------

    @abstractmethod
    def _propose(self, id: int) -> Proposal:
        """Make proposal number `id` (0 is theta_0 by convention, kind "start")."""

    def _on_end(self, id: int, end: TrialStatus) -> None:  # noqa: B027  (most methods have no books)
        """Called after trial `id` has ended, for methods that keep their own books."""

    def rng(self, *key: int) -> np.random.Generator:
        """The generator for one purpose: a function of seed and key alone, so that no state need be kept."""
        return np.random.default_rng([self.seed & 0xFFFFFFFF, *key])

    def _close(self, id: int, end: TrialStatus, reason: str) -> None:
        self._pending_trial(id)
        self._end(id, end, reason)
        self._log.append(
            [
                {TrialStatus.VETOED: "veto", TrialStatus.FAILED: "fail", TrialStatus.EXPIRED: "expire"}[end],
                int(id),
                reason,
            ]
        )

    def _end(self, id: int, end: TrialStatus, reason: str) -> None:
        trial = self.trials[id]
        trial.end, trial.reason = end, reason
        self._open.pop(int(id), None)
        if end is TrialStatus.COMPLETED:
            self._completed.append(int(id))
        self._on_end(int(id), end)

    def _pending_trial(self, id: int, late: bool = False) -> TrialRecord:
        if isinstance(id, bool) or not isinstance(id, (int, np.integer)) or not 0 <= id < len(self.trials):
            raise InvalidInput(f"id: no proposal has the id {id!r}")
        trial = self.trials[int(id)]
        if trial.end is not TrialStatus.PENDING and not (late and trial.end is TrialStatus.EXPIRED):
            raise InvalidInput(f"id: proposal {id} has already ended ({trial.end.value})")
        return trial
