"""The safety monitor's decisions: its own data, its own contract (core.contract), its verdicts.

Independent of the optimizer: it knows the problem from its own configuration and sees only proposals and returns. The
contract is recomputed from its records at every start. A novel rollout that was approved is charged as a violation
until its end is heard, so that several at once cannot break the promise.
"""

from __future__ import annotations

import contextlib
import json
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from crbo_ros.core.bound import Beliefs, Coverage
from crbo_ros.core.contract import (
    ACCOUNT,
    BOUND,
    RISK,
    START,
    START_ROLLOUTS,
    THETA_0_FALLS,
    Contract,
    Judgement,
    Terms,
)
from crbo_ros.core.problem import Problem, differences
from crbo_ros.core.trial import LARGEST, theta_hash
from crbo_ros.errors import InvalidInput, StoreError
from crbo_ros.protocol.database import Database
from crbo_ros.protocol.evidence import NO_START, REPORTED, Evidence
from crbo_ros.protocol.monitor_store import MonitorStore
from crbo_ros.protocol.records import (
    APPROVED,
    AT_OPERATOR,
    DATA,
    HELD,
    INPUT,
    OPERATOR,
    REFUSED,
    WAITING,
    ContractState,
    Episode,
    Verdict,
    new_uid,
)

RECENT = 20  # verdicts of which half must be vetoes before the operator is told what to do about it
EARLY = 2000  # returns that are remembered until it is known which experiment they are of
LOST_START = "(If theta_0 ran, and this monitor has lost its memory: let theta_0 run again, or start a new experiment.)"
STRICTER: dict[str, Callable[[Any, Any], Any]] = {"j_min": max, "j_min_drop": min, "risk": min, "require_operator": max}


class SafetyMonitor:
    """Thread-safe. One monitor guards one experiment: the first it hears of."""

    def __init__(
        self,
        problem: Problem,
        path: Path,
        *,
        j_min: float = -math.inf,
        j_min_drop: float = math.inf,
        risk: float = RISK,
        budget: int = 0,
        start_rollouts: int = START_ROLLOUTS,
        lipschitz: float | None = None,
        require_operator: bool = False,
        valid_for: float = 5.0,
        key: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.problem, self.space, self.uid = problem, problem.space, new_uid()
        theta_0 = self.space.check(problem.theta_0, "theta_0")
        self.start_hash = theta_hash(theta_0)
        self.j_min, self.j_min_drop, self.risk, self.require_operator = j_min, j_min_drop, risk, require_operator
        self.budget, self.start_rollouts, self.lipschitz = budget, start_rollouts, lipschitz
        self.valid_for, self._key = valid_for, key
        self.approved = self.vetoed = 0
        self._recent: deque[bool] = deque(maxlen=RECENT)  # whether the contract vetoed the last proposals
        self._clock, self._lock = clock, threading.RLock()  # (the clock is for stamps, which people read)
        self._arming = threading.Lock()  # never held while computing or writing
        self._evidence = Evidence(self.space.to_unit(theta_0), self.terms)
        self._early: deque[Episode] = deque(maxlen=EARLY)  # returns heard before it knew which experiment it guards
        self._waiting: dict[str, int] = {}  # theta_hash -> proposal id, at the operator
        self.store = MonitorStore(path)
        try:
            self.stopped = self.store.flag("stopped")  # why everything is held, or "" when armed; survives a restart
            self.holds = 0  # how often it was told to hold
            self.experiment_uid = self.store.flag("experiment_uid")  # the one it guards; empty until asked about one
            self._check_identity()
            self.notes = self._stricter()  # what the operator should know about the start
            self._keep_terms()
            self._pending = self.store.pending()  # runner -> proposal id of a novel rollout that is under way
            for known in self.store.returns():
                self._evidence.add(known)
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
            self._keep_terms()
        return changes

    def _keep_terms(self) -> None:
        """For whoever recomputes the contract from the records. (Infinities are left out: they are the defaults.)"""
        terms = {n: v for n, v in asdict(self.terms).items() if not (isinstance(v, float) and math.isinf(v))}
        self.store.set_flag("terms", json.dumps(terms))

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

    # -- the contract ------------------------------------------------------------------------------

    @property
    def terms(self) -> Terms:
        return Terms(self.risk, self.j_min, self.j_min_drop, self.budget, self.start_rollouts, self.lipschitz)

    @property
    def contract(self) -> Contract:
        """By the terms of now and everything that was executed."""
        return self._judged_by().contract

    @property
    def threshold(self) -> float:
        """J_min: j_min, or J0 - j_min_drop |J0|, whichever is higher."""
        return self.contract.threshold

    @property
    def score(self) -> Coverage:
        """How often the worst cases held that were shown."""
        return self.contract.coverage

    def beliefs(self) -> Beliefs:
        """Its own model's, by the terms of now, fitted to the newest returns."""
        return self._judged_by().beliefs()

    def _judged_by(self) -> Evidence:
        """The evidence by the terms of now."""
        if self._evidence.contract.terms != (terms := self.terms):
            self._evidence.contract.change(terms)
        return self._evidence

    def charged(self, proposal_id: int = -1) -> int:
        """Novel rollouts under way besides this one."""
        return sum(id != proposal_id for id in self._pending.values())

    def summary(self) -> ContractState:
        """The contract at a glance."""
        with self._lock:
            return self._judged_by().state(self.experiment_uid, self.uid, self.charged(), self._clock())

    def hint(self) -> str:
        """What the operator of a run that creeps should know: empty unless at least half of the last 20 were vetoed."""
        if 2 * sum(self._recent) < RECENT:  # without waiting for what is being computed
            return ""
        with self._lock:
            return self._judged_by().hint(self._recent, self.charged())

    def report_violation(self, proposal_id: int, comment: str) -> tuple[bool, str]:
        """A person has seen what no return shows: that rollout counts as a violation from now on."""
        if not comment.strip():
            return False, "comment: say what was seen"
        with self._lock:
            rows = [row for row, episode in enumerate(self._evidence.episodes) if episode.proposal_id == proposal_id]
            if not rows:
                return False, f"proposal_id: no rollout of proposal {proposal_id} is known"
            row, violation = rows[-1], REPORTED + comment.strip()
            self.store.report(self._evidence.episodes[row].episode_uid, violation)
            self._evidence.report(row, violation)
            account = self.contract.account
            return True, f"proposal {proposal_id} counts as a violation: {account.violations} of {account.n}"

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
            judgement: Judgement | None = None
            rule, threshold = INPUT, self.threshold
            try:
                self._check_problem(problem)
                if experiment_uid and not self.experiment_uid:
                    self._adopt(experiment_uid)
                    threshold = self.threshold
                theta = self.space.check(theta)
                self._settle(runner, proposal_id)
                judgement = self.contract.judge(self.space.to_unit(theta), self.beliefs(), self.charged(proposal_id))
                self._evidence.look_at_signals(self.space.to_unit(theta))
                if theta_hash(theta) != hash:
                    raise InvalidInput("theta_hash: not the hash of theta")
                status, rule, reason = self._decide(experiment_uid, proposal_id, hash, judgement, returns)
            except InvalidInput as error:
                status, reason = REFUSED, str(error)
            if self._evidence.unverified:
                reason += (
                    f" [{len(self._evidence.unverified)} of {self.n} returns unverified: from the optimizer's store]"
                )
            verdict = Verdict(
                status, experiment_uid, proposal_id, hash, runner, reason, self.uid, stamp=self._clock(),
                valid_for=self.valid_for if status == APPROVED else 0.0, threshold=threshold, nonce=nonce, rule=rule,
            )  # fmt: skip
            if self.contract.active:
                verdict = replace(verdict, account=self.contract.account.balance - self.charged(proposal_id))
            if judgement is not None and judgement.nearest >= 0:
                verdict = replace(
                    verdict, worst_case=judgement.worst_case, gate=judgement.gate, distance=judgement.distance,
                    nearest_id=self._evidence.id_of(judgement.nearest), lipschitz=judgement.lipschitz,
                    lipschitz_shown=judgement.lipschitz_shown,
                    lipschitz_source="user" if judgement.lipschitz == self.lipschitz else "calibrated",
                )  # fmt: skip
            self._record(verdict, novel=judgement is not None and judgement.rule == BOUND)
            return verdict.signed(self._key)

    def _settle(self, runner: str, proposal_id: int) -> None:
        """A runner that asks about another proposal has ended, or given back, the one before."""
        if self._pending.get(runner, proposal_id) != proposal_id:
            self.store.end_pending(runner)
            del self._pending[runner]

    def _decide(
        self, experiment_uid: str, proposal_id: int, hash: str, judgement: Judgement, returns: int
    ) -> tuple[str, str, str]:
        """(status, rule, reason)."""
        if self.stopped:
            return WAITING, HELD, f"held: {self.stopped}; call rearm to go on"
        if not experiment_uid:
            raise InvalidInput("experiment_uid: must not be empty")
        if experiment_uid != self.experiment_uid:
            raise InvalidInput(f"experiment_uid: this monitor guards {self.experiment_uid}, not {experiment_uid}")
        contract = self.contract
        if hash == self.start_hash:
            judgement = replace(judgement, rule=START, reason="theta_0: approved because the operator configured it")
        elif self.lacks(returns):
            return WAITING, DATA, f"knows {self.n} of {returns} returns: without the others it cannot judge"
        elif contract.waits_for_start:
            return WAITING, DATA, f"{NO_START} j_min_drop is relative to it. {LOST_START}"
        elif contract.active and judgement.nearest < 0:
            return WAITING, DATA, f"{NO_START} without it there is no bound. {LOST_START}"
        elif judgement.rule == THETA_0_FALLS:  # for a person to decide, not for the optimizer to get around
            return WAITING, judgement.rule, f"the contract is refused: {judgement.reason}"
        elif not judgement.permitted:
            return REFUSED, judgement.rule, judgement.reason
        rule, approval = judgement.rule, judgement.reason
        if not self.require_operator:
            return APPROVED, rule, approval
        review = self.store.review(experiment_uid, hash)
        if review is None:
            self._waiting[hash] = proposal_id
            return WAITING, OPERATOR, f"{AT_OPERATOR} ({approval})"
        comment = f": {review[1]}" if review[1] else ""
        if review[0]:
            return APPROVED, rule, f"approved by the operator{comment} ({approval})"
        return REFUSED, OPERATOR, f"rejected by the operator{comment}"

    def _check_problem(self, problem: str) -> None:
        if problem and (others := differences(self.problem.key, problem)):
            raise InvalidInput(f"problem: another one than this monitor guards ({'; '.join(others)})")

    def _adopt(self, experiment_uid: str) -> None:
        self.store.set_flag("experiment_uid", experiment_uid)
        self.experiment_uid = experiment_uid
        while self._early:
            with contextlib.suppress(InvalidInput):
                self.add_return(self._early.popleft())

    def _record(self, verdict: Verdict, novel: bool) -> None:
        if verdict.status == APPROVED:
            self.store.add_approval(verdict, novel)
            self.approved += 1
            if novel:
                self._pending[verdict.runner] = verdict.proposal_id
        elif verdict.status == REFUSED:
            self.vetoed += 1
        if verdict.status != WAITING:
            self._recent.append(verdict.status == REFUSED and verdict.rule in (ACCOUNT, BOUND))
            self._waiting.pop(verdict.theta_hash, None)

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
        """Record an executed episode; False for one that does not count, is known, or is of another experiment.

        One that is not verified comes from the optimizer's store instead of a runner. It counts, and verdicts say so.
        """
        with self._lock:
            if not episode.executed or not episode.episode_uid:
                if episode.experiment_uid == self.experiment_uid:
                    self._settle_end(episode)
                return False
            if not len(episode.signal_names) == len(episode.signal_values) == len(episode.signal_limits):
                raise InvalidInput("signal_names: not as many as signal_values and signal_limits")
            if episode.counts and not abs(episode.value) <= LARGEST:
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
            if episode.episode_uid in self._evidence.values:
                if verified:
                    self._verify(episode)
                return False
            self._evidence.add(self.store.add_return(episode, x, not verified))
            self._pending = {runner: id for runner, id in self._pending.items() if id != episode.proposal_id}
            return True

    def _settle_end(self, episode: Episode) -> None:
        """An approved rollout ended without a return and by no fault of its own."""
        if episode.verdict_id and self._pending.get(episode.runner) == episode.proposal_id:
            self.store.end_pending(episode.runner)
            del self._pending[episode.runner]

    def _verify(self, episode: Episode) -> None:
        if episode.counts and episode.value != (told := self._evidence.values[episode.episode_uid]):
            raise InvalidInput(f"value: {episode.value}, but the optimizer's store says {told}")
        self.store.verify(episode.episode_uid)
        self._evidence.unverified.discard(episode.episode_uid)

    def knows(self, episode_uid: str) -> bool:
        """Whether it has this episode's return already, from a runner."""
        return episode_uid in self._evidence.values and episode_uid not in self._evidence.unverified

    def lacks(self, returns: int) -> int:
        """How many returns it lacks that the optimizer knows."""
        return max(0, returns - self.n)

    def fit(self) -> None:
        """Fit the model to the newest returns now, so that the next verdict need not wait for it."""
        with self._lock:
            self.beliefs()

    @property
    def n(self) -> int:
        """How many returns it knows."""
        return len(self._evidence.returns)

    def close(self) -> None:
        with self._lock:
            self.store.close()
