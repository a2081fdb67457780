"""The safety monitor's mind: its own data, its own bound, its verdicts, and how often its bounds held.

Independent of the optimizer: it knows the task's domain and theta_0 from its own configuration and sees only
proposals and returns. The bound (lipschitz.WorstCase): J(x) >= max_i [y_i - noise - L |x - x_i|], in the unit box.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from crbo_ros.core.bound import Bound, Coverage, WorstCase
from crbo_ros.core.space import Space
from crbo_ros.core.trial import LARGEST, theta_hash
from crbo_ros.errors import InvalidInput, StoreError
from crbo_ros.protocol.database import Database, from_blob, to_blob
from crbo_ros.protocol.records import APPROVED, AT_OPERATOR, REFUSED, WAITING, Episode, Verdict, new_uid

RECENT = 20  # verdicts of which half must be vetoes before the operator is told what to do about it
NO_START = "waits for theta_0's return:"
LOST_START = "(If it ran, and this monitor has lost its memory: start a new experiment, or switch both thresholds off.)"
SCHEMA = """
CREATE TABLE returns (
    episode_uid TEXT PRIMARY KEY, experiment_uid TEXT NOT NULL, proposal_id INTEGER NOT NULL, x BLOB NOT NULL,
    value REAL NOT NULL, verdict_id TEXT NOT NULL);
CREATE TABLE approvals (
    verdict_id TEXT PRIMARY KEY, proposal_id INTEGER NOT NULL, theta_hash TEXT NOT NULL, runner TEXT NOT NULL,
    stamp REAL NOT NULL, worst_case REAL);
CREATE TABLE reviews (
    experiment_uid TEXT NOT NULL, theta_hash TEXT NOT NULL, approved INTEGER NOT NULL, comment TEXT NOT NULL,
    PRIMARY KEY (experiment_uid, theta_hash));
CREATE TABLE flags (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""


class SafetyMonitor:
    """Thread-safe. One monitor guards one experiment: the first it hears of."""

    def __init__(
        self,
        space: Space,
        theta_0: ArrayLike,
        path: Path,
        *,
        j_min: float = -math.inf,
        j_min_drop: float = math.inf,
        lipschitz: float | None = None,
        scale: float | None = None,
        require_operator: bool = False,
        valid_for: float = 5.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.space, self.uid = space, new_uid()
        theta_0 = space.check(theta_0, "theta_0")
        self.start_hash, self._start_x = theta_hash(theta_0), space.to_unit(theta_0)
        self.j_min, self.j_min_drop, self.require_operator, self.valid_for = (
            j_min,
            j_min_drop,
            require_operator,
            valid_for,
        )
        self.approved = self.vetoed = 0
        self._recent: deque[bool] = deque(maxlen=RECENT)  # whether the bound vetoed the last proposals
        self.score = Coverage()
        self.last_check = 0.0  # time of the last question, for diagnostics
        self._clock, self._lock = clock, threading.RLock()
        self._arming = threading.Lock()  # never held while computing or writing
        self._bound = WorstCase(space.dim, lipschitz=lipschitz, scale=scale)
        self._ids: list[int] = []  # proposal ids of the bound's data
        self._start_value = math.nan
        self._early: list[Episode] = []  # returns heard before it knew which experiment it guards
        self._waiting: dict[str, int] = {}  # theta_hash -> proposal id, at the operator
        self.database = Database(path, SCHEMA, 1, owner=True)
        self.stopped = self._flag("stopped")  # why everything is held, or "" when armed; survives a restart
        self.holds = 0  # how often it was told to hold
        self.experiment_uid = self._flag("experiment_uid")  # the one it guards; empty until asked about one
        self._seen: set[str] = set()  # episode_uids of the returns it has
        try:
            self._check_domain()
            self._load()
        except StoreError:
            self.database.close()
            raise

    def _check_domain(self) -> None:
        """Its returns lie in the unit box of one domain: in another one they would say something else."""
        domain = json.dumps([a.tolist() for a in (self.space.lower, self.space.upper, self.space.log)])
        known = self._flag("domain")
        if known and known != domain:
            raise StoreError(
                f"{self.database.path}: the monitor's memory of another domain (other bounds, scales or number of "
                "parameters); choose another experiment name, or move that file away"
            )
        if not known:
            self._set_flag("domain", domain)

    def _load(self) -> None:
        rows = self.database.query(
            "SELECT r.episode_uid, r.proposal_id, r.x, r.value, a.worst_case FROM returns r "
            "LEFT JOIN approvals a ON a.verdict_id = r.verdict_id ORDER BY r.rowid"
        )
        for uid, proposal_id, x, value, worst_case in rows:
            self._book(uid, proposal_id, from_blob(x), value, worst_case)

    # -- armed or not ------------------------------------------------------------------------------

    def hold(self, reason: str) -> None:
        """Hold everything, at once. Waits for nothing: neither for what it computes, nor for a disk."""
        with self._arming:
            self.stopped = reason or "stopped"
            self.holds += 1

    def keep_hold(self) -> None:
        """Write down that everything is held, so that it outlives a restart."""
        self._set_flag("stopped", self.stopped)

    def stop(self, reason: str) -> None:
        """Hold everything, and write that down."""
        self.hold(reason)
        self.keep_hold()

    def rearm(self, holds: int | None = None) -> bool:
        """Let things move again, once that is written down. False: somebody said hold since there were `holds`."""
        self._set_flag("stopped", "")
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
        self, *, experiment_uid: str, proposal_id: int, theta: ArrayLike, hash: str, runner: str, nonce: str = ""
    ) -> Verdict:
        """The verdict on one proposal. Asking again gives the same decision as long as the data are the same."""
        with self._lock:
            self.last_check = self._clock()
            bound: Bound | None = None
            if experiment_uid and not self.experiment_uid:
                self._adopt(experiment_uid)
            try:
                theta = self.space.check(theta)
                bound = self._bound.bound(self.space.to_unit(theta))
                status, reason = self._decide(experiment_uid, proposal_id, theta_hash(theta), hash, bound)
            except InvalidInput as error:
                status, reason = REFUSED, str(error)
            verdict = Verdict(
                status, experiment_uid, proposal_id, hash, runner, reason, self.uid, stamp=self._clock(),
                valid_for=self.valid_for if status == APPROVED else 0.0, threshold=self.threshold, nonce=nonce,
            )  # fmt: skip
            if bound is not None and bound.nearest >= 0:
                verdict = replace(
                    verdict, worst_case=bound.value, nearest_id=self._ids[bound.nearest], distance=bound.distance,
                    lipschitz=bound.lipschitz, lipschitz_source=bound.source,
                )  # fmt: skip
            self._record(verdict)
            return verdict

    def _decide(self, experiment_uid: str, proposal_id: int, own_hash: str, hash: str, bound: Bound) -> tuple[str, str]:
        if self.stopped:
            return WAITING, f"held: {self.stopped}; call rearm to go on"
        if not experiment_uid:
            raise InvalidInput("experiment_uid: must not be empty")
        if self.experiment_uid and experiment_uid != self.experiment_uid:
            raise InvalidInput(f"experiment_uid: this monitor guards {self.experiment_uid}, not {experiment_uid}")
        if own_hash != hash:
            raise InvalidInput("theta_hash: not the hash of theta")
        if own_hash == self.start_hash:
            approval = "theta_0: approved because the operator configured it"
        elif math.isnan(self._start_value) and math.isfinite(self.j_min_drop):
            return WAITING, f"{NO_START} j_min_drop is relative to it. {LOST_START}"
        elif self.threshold == -math.inf:
            approval = "approved: no threshold (j_min) is configured; the bound is for information"
        elif bound.nearest < 0:
            return WAITING, f"{NO_START} without any return there is no bound. {LOST_START}"
        elif not bound.value >= self.threshold:  # so that a NaN is refused, too
            return REFUSED, (
                f"worst case {bound.value:.4g} is below the threshold {self.threshold:.4g} "
                f"({bound.distance:.3g} from proposal {self._ids[bound.nearest]}, "
                f"L = {bound.lipschitz:.3g}, {bound.source})"
            )
        else:
            approval = f"worst case {bound.value:.4g} is not below the threshold {self.threshold:.4g}"
        if not self.require_operator:
            return APPROVED, approval
        rows = self.database.query(
            "SELECT approved, comment FROM reviews WHERE experiment_uid = ? AND theta_hash = ?", experiment_uid, hash
        )
        if not rows:
            self._waiting[hash] = proposal_id
            return WAITING, f"{AT_OPERATOR} ({approval})"
        comment = f": {rows[0][1]}" if rows[0][1] else ""
        if rows[0][0]:
            return APPROVED, f"approved by the operator{comment} ({approval})"
        return REFUSED, f"rejected by the operator{comment}"

    def _adopt(self, experiment_uid: str) -> None:
        self._set_flag("experiment_uid", experiment_uid)
        self.experiment_uid = experiment_uid
        early, self._early = self._early, []
        for episode in early:
            self.add_return(episode)

    def _record(self, verdict: Verdict) -> None:
        if verdict.status == APPROVED:
            worst_case = verdict.worst_case if math.isfinite(verdict.worst_case) else None
            with self.database.transaction():
                self.database.insert(
                    "approvals", verdict_id=verdict.verdict_id, proposal_id=verdict.proposal_id,
                    theta_hash=verdict.theta_hash, runner=verdict.runner, stamp=verdict.stamp, worst_case=worst_case,
                )  # fmt: skip
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
        """The operator's word on a waiting proposal."""
        with self._lock:
            found = [h for h, id in self._waiting.items() if id == proposal_id]
            if not found:
                return False, f"proposal_id: proposal {proposal_id} is not waiting for an operator"
            if hash and hash != found[0]:
                return False, "theta_hash: the waiting proposal has another theta than the one that was shown"
            with self.database.transaction():
                self.database.execute(
                    "INSERT OR REPLACE INTO reviews VALUES (?, ?, ?, ?)",
                    self.experiment_uid, found[0], int(approve), comment,
                )  # fmt: skip
            return True, "approved" if approve else "rejected"

    @property
    def waiting(self) -> list[int]:
        """Proposals that wait for the operator. Does not wait for what is being computed."""
        return sorted(self._waiting.copy().values())

    # -- data --------------------------------------------------------------------------------------

    def add_return(self, episode: Episode) -> bool:
        """Take in a return; False for one that does not count, is known, or is of another experiment."""
        with self._lock:
            if not episode.counts or not episode.episode_uid:
                return False
            if not abs(episode.value) <= LARGEST:
                raise InvalidInput(f"value: {episode.value} is no return to judge others by")
            if not self.experiment_uid:  # a late monitor hears the history before it is asked anything
                self._early = [*self._early[-4999:], episode]
                return False
            if episode.experiment_uid != self.experiment_uid:
                return False
            if self.knows(episode.episode_uid):
                return False
            x = self.space.to_unit(self.space.check(episode.theta))
            rows = self.database.query("SELECT worst_case FROM approvals WHERE verdict_id = ?", episode.verdict_id)
            with self.database.transaction():
                self.database.insert(
                    "returns", episode_uid=episode.episode_uid, experiment_uid=episode.experiment_uid,
                    proposal_id=episode.proposal_id, x=to_blob(x), value=episode.value, verdict_id=episode.verdict_id,
                )  # fmt: skip
            self._book(episode.episode_uid, episode.proposal_id, x, episode.value, rows[0][0] if rows else None)
            return True

    def knows(self, episode_uid: str) -> bool:
        """Whether it has this episode's return already."""
        return episode_uid in self._seen

    def think(self) -> None:
        """Fit the model to the newest returns now, so that the next verdict need not wait for it."""
        with self._lock:
            if len(self._bound.y):
                self._bound.bound(self._bound.X[-1])

    def _book(self, episode_uid: str, proposal_id: int, x: np.ndarray, value: float, worst_case: float | None) -> None:
        self._seen.add(episode_uid)
        self._bound.add(x, value)
        self._ids.append(proposal_id)
        if math.isnan(self._start_value) and np.array_equal(x, self._start_x):
            self._start_value = value  # whichever proposal it was: the first may have been stopped
        if worst_case is not None:
            self.score.add(worst_case, value)

    @property
    def n(self) -> int:
        return len(self._ids)

    def _flag(self, name: str) -> str:
        rows = self.database.query("SELECT value FROM flags WHERE name = ?", name)
        return str(rows[0][0]) if rows else ""

    def _set_flag(self, name: str, value: str) -> None:
        with self.database.transaction():
            self.database.execute("INSERT OR REPLACE INTO flags VALUES (?, ?)", name, value)

    def close(self) -> None:
        with self._lock:
            self.database.close()
