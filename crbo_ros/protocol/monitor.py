"""The safety monitor's decisions: its own data, its own bound, its verdicts, and how often its bounds held.

Independent of the optimizer: it knows the problem from its own configuration and sees only proposals and returns. The
bound (core.bound.WorstCase): J(x) >= max_i [y_i - noise - L |x - x_i|], in the unit box.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crbo_ros.core.bound import Bound, Coverage, WorstCase
from crbo_ros.core.problem import Problem, differences
from crbo_ros.core.trial import LARGEST, theta_hash
from crbo_ros.errors import InvalidInput, StoreError
from crbo_ros.protocol.database import Database
from crbo_ros.protocol.monitor_store import KnownReturn, MonitorStore
from crbo_ros.protocol.records import APPROVED, AT_OPERATOR, REFUSED, WAITING, Episode, Verdict, new_uid

RECENT = 20  # verdicts of which half must be vetoes before the operator is told what to do about it
EARLY = 2000  # returns that are remembered until it is known which experiment they are of
NO_START = "waits for theta_0's return:"
LOST_START = "(If theta_0 ran, and this monitor has lost its memory: let theta_0 run again, or start a new experiment.)"
STRICTER: dict[str, Callable[[Any, Any], Any]] = {"j_min": max, "j_min_drop": min, "require_operator": max}


class SafetyMonitor:
    """Thread-safe. One monitor guards one experiment: the first it hears of."""

    def __init__(
        self,
        problem: Problem,
        path: Path,
        *,
        j_min: float = -math.inf,
        j_min_drop: float = math.inf,
        lipschitz: float | None = None,
        scale: float | None = None,
        require_operator: bool = False,
        valid_for: float = 5.0,
        key: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.problem, self.space, self.uid = problem, problem.space, new_uid()
        theta_0 = self.space.check(problem.theta_0, "theta_0")
        self.start_hash, self._start_x = theta_hash(theta_0), self.space.to_unit(theta_0)
        self.j_min, self.j_min_drop, self.require_operator = j_min, j_min_drop, require_operator
        self.valid_for, self._key = valid_for, key
        self.approved = self.vetoed = 0
        self._recent: deque[bool] = deque(maxlen=RECENT)  # whether the bound vetoed the last proposals
        self.score = Coverage()
        self._clock, self._lock = clock, threading.RLock()  # (the clock is for stamps, which people read)
        self._arming = threading.Lock()  # never held while computing or writing
        self._bound = WorstCase(self.space.dim, lipschitz=lipschitz, scale=scale)
        self._ids: list[int] = []  # proposal ids of the bound's data
        self._start_value = math.nan
        self._early: deque[Episode] = deque(maxlen=EARLY)  # returns heard before it knew which experiment it guards
        self._waiting: dict[str, int] = {}  # theta_hash -> proposal id, at the operator
        self._known: dict[str, float] = {}  # episode_uid -> value, of the returns it has
        self._unverified: set[str] = set()  # those of them that the optimizer told, not a runner
        self.store = MonitorStore(path)
        try:
            self.stopped = self.store.flag("stopped")  # why everything is held, or "" when armed; survives a restart
            self.holds = 0  # how often it was told to hold
            self.experiment_uid = self.store.flag("experiment_uid")  # the one it guards; empty until asked about one
            self._check_identity()
            self.notes = self._stricter()  # what the operator should know about the start
            for known in self.store.returns():
                self._book(known)
        except StoreError:
            self.store.close()
            raise

    @property
    def database(self) -> Database:
        return self.store.database

    def _check_identity(self) -> None:
        """Returns of another plant, policy or domain say nothing about this one."""
        known = self.store.flag("problem")
        if known and (others := differences(known, self.problem.key)):
            raise StoreError(
                f"{self.database.path}: the monitor's memory of another problem ({'; '.join(others)}); "
                "choose another experiment name, or move that file away"
            )
        if not known:
            self.store.set_flag("problem", self.problem.key)

    # -- thresholds --------------------------------------------------------------------------------

    def _stricter(self) -> list[str]:
        """What was set at run time holds again after a restart, where it is stricter than the configuration."""
        notes = []
        for change in {change.name: change for change in self.store.settings_log()}.values():
            configured = getattr(self, change.name)
            if STRICTER[change.name](configured, change.value) != configured:
                setattr(self, change.name, change.value)
                when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(change.stamp))
                notes.append(
                    f"{change.name} {change.value} ({change.who}, {when}) is stricter than the configured {configured} "
                    "and holds; set it at run time to change it"
                )
        return notes

    def configure(self, who: str, **changes: Any) -> dict[str, Any]:
        """Change thresholds at run time; those that did change. On disk before they are effective."""
        changes = {name: value for name, value in changes.items() if getattr(self, name) != value}
        if changes:
            self.store.log_settings(changes, who, self._clock())
            for name, value in changes.items():
                setattr(self, name, value)
        return changes

    # -- armed or not ------------------------------------------------------------------------------

    def hold(self, reason: str) -> None:
        """Hold everything, at once. Waits for nothing: neither for what it computes, nor for a disk."""
        with self._arming:
            self.stopped = reason or "stopped"
            self.holds += 1

    def keep_hold(self) -> None:
        """Write down that everything is held, so that it outlives a restart."""
        self.store.set_flag("stopped", self.stopped)

    def stop(self, reason: str) -> None:
        """Hold everything, and write that down."""
        self.hold(reason)
        self.keep_hold()

    def rearm(self, holds: int | None = None) -> bool:
        """Let things move again, once that is written down. False: somebody said hold since there were `holds`."""
        self.store.set_flag("stopped", "")
        with self._arming:
            current = holds is None or holds == self.holds
            if current:
                self.stopped = ""
        if not current:
            self.keep_hold()
        return current

    @property
    def threshold(self) -> float:
        """The return below which no worst case may fall: j_min, or J0 - j_min_drop |J0|, whichever is higher."""
        relative = self._start_value - self.j_min_drop * abs(self._start_value)
        return max(self.j_min, relative) if math.isfinite(relative) else self.j_min

    # -- verdicts ----------------------------------------------------------------------------------

    def check(
        self,
        *,
        experiment_uid: str,
        proposal_id: int,
        theta: ArrayLike,
        hash: str,
        runner: str,
        problem: str = "",
        returns: int = 0,
        nonce: str = "",
    ) -> Verdict:
        """The verdict on one proposal. Asking again gives the same decision as long as the data are the same.

        `returns`: how many the optimizer knew when it made the proposal. A monitor that knows fewer cannot judge it.
        """
        with self._lock:
            bound: Bound | None = None
            threshold = self.threshold
            try:
                self._check_problem(problem)
                if experiment_uid and not self.experiment_uid:
                    self._adopt(experiment_uid)
                    threshold = self.threshold
                theta = self.space.check(theta)
                bound = self._bound.bound(self.space.to_unit(theta))
                if theta_hash(theta) != hash:
                    raise InvalidInput("theta_hash: not the hash of theta")
                status, reason = self._decide(experiment_uid, proposal_id, hash, bound, threshold, returns)
            except InvalidInput as error:
                status, reason = REFUSED, str(error)
            if self._unverified:
                reason += f" [{len(self._unverified)} of {self.n} returns unverified: from the optimizer's store]"
            verdict = Verdict(
                status, experiment_uid, proposal_id, hash, runner, reason, self.uid, stamp=self._clock(),
                valid_for=self.valid_for if status == APPROVED else 0.0, threshold=threshold, nonce=nonce,
            )  # fmt: skip
            if bound is not None and bound.nearest >= 0:
                verdict = replace(
                    verdict, worst_case=bound.value, nearest_id=self._ids[bound.nearest], distance=bound.distance,
                    lipschitz=bound.lipschitz, lipschitz_source=bound.source,
                )  # fmt: skip
            self._record(verdict)
            return verdict.signed(self._key)

    def _decide(
        self, experiment_uid: str, proposal_id: int, hash: str, bound: Bound, threshold: float, returns: int
    ) -> tuple[str, str]:
        if self.stopped:
            return WAITING, f"held: {self.stopped}; call rearm to go on"
        if not experiment_uid:
            raise InvalidInput("experiment_uid: must not be empty")
        if self.experiment_uid and experiment_uid != self.experiment_uid:
            raise InvalidInput(f"experiment_uid: this monitor guards {self.experiment_uid}, not {experiment_uid}")
        if hash == self.start_hash:
            approval = "theta_0: approved because the operator configured it"
        elif self.lacks(returns):
            return WAITING, f"knows {self.n} of {returns} returns: without the others it cannot judge"
        elif math.isnan(self._start_value) and math.isfinite(self.j_min_drop):
            return WAITING, f"{NO_START} j_min_drop is relative to it. {LOST_START}"
        elif threshold == -math.inf:
            approval = "approved: no threshold (j_min) is configured; the bound is for information"
        elif bound.nearest < 0:
            return WAITING, f"{NO_START} without any return there is no bound. {LOST_START}"
        elif not bound.value >= threshold:  # so that a NaN is refused, too
            return REFUSED, (
                f"worst case {bound.value:.4g} is below the threshold {threshold:.4g} "
                f"({bound.distance:.3g} from proposal {self._ids[bound.nearest]}, "
                f"L = {bound.lipschitz:.3g}, {bound.source})"
            )
        else:
            approval = f"worst case {bound.value:.4g} is not below the threshold {threshold:.4g}"
        if not self.require_operator:
            return APPROVED, approval
        review = self.store.review(experiment_uid, hash)
        if review is None:
            self._waiting[hash] = proposal_id
            return WAITING, f"{AT_OPERATOR} ({approval})"
        comment = f": {review[1]}" if review[1] else ""
        if review[0]:
            return APPROVED, f"approved by the operator{comment} ({approval})"
        return REFUSED, f"rejected by the operator{comment}"

    def _check_problem(self, problem: str) -> None:
        if problem and (others := differences(self.problem.key, problem)):
            raise InvalidInput(f"problem: another one than this monitor guards ({'; '.join(others)})")

    def _adopt(self, experiment_uid: str) -> None:
        self.store.set_flag("experiment_uid", experiment_uid)
        self.experiment_uid = experiment_uid
        early = list(self._early)
        self._early.clear()
        for episode in early:
            with contextlib.suppress(InvalidInput):
                self.add_return(episode)

    def _record(self, verdict: Verdict) -> None:
        if verdict.status == APPROVED:
            self.store.add_approval(verdict)
            self.approved += 1
        elif verdict.status == REFUSED:
            self.vetoed += 1
        if verdict.status != WAITING:
            self._recent.append(verdict.status == REFUSED and verdict.worst_case < verdict.threshold)
            self._waiting.pop(verdict.theta_hash, None)

    def hint(self) -> str:
        """What the operator of a run that creeps should know: empty unless at least half of the last 20 were vetoed."""
        vetoed = sum(self._recent)
        if 2 * vetoed < RECENT or not len(self._bound.y) or not math.isfinite(self.threshold):
            return ""
        with self._lock:
            y, low = self._bound.y, int(np.argmin(self._bound.y))
            bound = self._bound.bound(self._bound.X[int(np.argmax(y))])  # the best return, less the noise
            room = (bound.value - self.threshold) / max(bound.lipschitz, 1e-300)
            limit = f"nothing further than {room:.2g} from the best policy can pass"
            if room <= 0.0:
                limit = "nothing can pass, for the best return less the noise is below the threshold"
            return (
                f"{vetoed} of the last {len(self._recent)} proposals were vetoed: with L = {bound.lipschitz:.3g} "
                f"({bound.source}; the lowest return, {y[low]:.4g}, was proposal {self._ids[low]}'s) {limit}. "
                "If you know better, restart the monitor with your own lipschitz, or lower j_min; finish ends the run "
                "with the best policy so far"
            )

    def review(self, proposal_id: int, hash: str, approve: bool, comment: str = "") -> tuple[bool, str]:
        """The operator's decision on a waiting proposal."""
        with self._lock:
            found = [h for h, id in self._waiting.items() if id == proposal_id]
            if not found:
                return False, f"proposal_id: proposal {proposal_id} is not waiting for an operator"
            if hash and hash != found[0]:
                return False, "theta_hash: the waiting proposal has another theta than the one that was shown"
            self.store.add_review(self.experiment_uid, found[0], approve, comment)
            return True, "approved" if approve else "rejected"

    @property
    def waiting(self) -> list[int]:
        """Proposals that wait for the operator. Does not wait for what is being computed."""
        return sorted(self._waiting.copy().values())

    # -- data --------------------------------------------------------------------------------------

    def add_return(self, episode: Episode, *, verified: bool = True) -> bool:
        """Record a return; False for one that does not count, is known, or is of another experiment.

        One that is not verified comes from the optimizer's store instead of a runner. It counts, and verdicts say so.
        """
        with self._lock:
            if not episode.counts or not episode.episode_uid:
                return False
            if not abs(episode.value) <= LARGEST:
                raise InvalidInput(f"value: {episode.value} is no return to judge others by")
            self._check_problem(episode.problem)
            if self.problem.hardware and not episode.problem:
                raise InvalidInput("problem: empty; for hardware a return counts only with the problem of its proposal")
            x = self.space.to_unit(self.space.check(episode.theta))
            if not self.experiment_uid:  # a late monitor hears the history before it is asked anything
                self._early.append(episode)
                return False
            if episode.experiment_uid != self.experiment_uid or self.knows(episode.episode_uid):
                return False
            if episode.episode_uid in self._known:
                if verified:
                    self._verify(episode)
                return False
            self._book(self.store.add_return(episode, x, not verified))
            return True

    def _verify(self, episode: Episode) -> None:
        if episode.value != (told := self._known[episode.episode_uid]):
            raise InvalidInput(f"value: {episode.value}, but the optimizer's store says {told}")
        self.store.verify(episode.episode_uid)
        self._unverified.discard(episode.episode_uid)

    def knows(self, episode_uid: str) -> bool:
        """Whether it has this episode's return already, from a runner."""
        return episode_uid in self._known and episode_uid not in self._unverified

    def lacks(self, returns: int) -> int:
        """How many returns it lacks that the optimizer knows."""
        return max(0, returns - self.n)

    def fit(self) -> None:
        """Fit the model to the newest returns now, so that the next verdict need not wait for it."""
        with self._lock:
            if len(self._bound.y):
                self._bound.bound(self._bound.X[-1])

    def _book(self, known: KnownReturn) -> None:
        self._known[known.episode_uid] = known.value
        if known.unverified:
            self._unverified.add(known.episode_uid)
        self._bound.add(known.x, known.value)
        self._ids.append(known.proposal_id)
        if math.isnan(self._start_value) and np.array_equal(known.x, self._start_x):
            self._start_value = known.value  # whichever proposal it was: the first may have been stopped
        if known.worst_case is not None:
            self.score.add(known.worst_case, known.value)

    @property
    def n(self) -> int:
        return len(self._ids)

    def close(self) -> None:
        with self._lock:
            self.store.close()
