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

import numpy as np
from numpy.typing import ArrayLike

from crbo_ros.core.bound import Beliefs, Coverage, believe, signal_bound
from crbo_ros.core.contract import (
    ACCOUNT,
    BOUND,
    RISK,
    START,
    START_ROLLOUTS,
    THETA_0_FALLS,
    Contract,
    Executed,
    Judgement,
    Terms,
)
from crbo_ros.core.gaussian_process import COARSE, GaussianProcess
from crbo_ros.core.hyperparameters import default_hyperparameters
from crbo_ros.core.kernels import kernel
from crbo_ros.core.problem import Problem, differences
from crbo_ros.core.space import Vector
from crbo_ros.core.trial import LARGEST, theta_hash
from crbo_ros.errors import InvalidInput, StoreError
from crbo_ros.protocol.database import Database
from crbo_ros.protocol.monitor_store import KnownReturn, MonitorStore
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
NO_START = "waits for theta_0's return:"
LOST_START = "(If theta_0 ran, and this monitor has lost its memory: let theta_0 run again, or start a new experiment.)"
STRICTER: dict[str, Callable[[Any, Any], Any]] = {"j_min": max, "j_min_drop": min, "risk": min, "require_operator": max}
REPORTED = "reported: "  # how a violation begins that a person told of


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
        self.start_hash, self._start_x = theta_hash(theta_0), self.space.to_unit(theta_0)
        self.j_min, self.j_min_drop, self.risk, self.require_operator = j_min, j_min_drop, risk, require_operator
        self.budget, self.start_rollouts, self.lipschitz = budget, start_rollouts, lipschitz
        self.valid_for, self._key = valid_for, key
        self.approved = self.vetoed = 0
        self._recent: deque[bool] = deque(maxlen=RECENT)  # whether the contract vetoed the last proposals
        self._clock, self._lock = clock, threading.RLock()  # (the clock is for stamps, which people read)
        self._arming = threading.Lock()  # never held while computing or writing
        self._contract = Contract(self.terms, self._start_x)
        self._process = GaussianProcess(
            kernel("matern52"), self.space.dim, default_hyperparameters(self.space.dim), tolerance=COARSE
        )
        self._beliefs: Beliefs | None = None  # None: data came since
        self._believed = (-math.inf, math.nan)  # threshold and J0 for which they were made
        self._episodes: list[KnownReturn] = []  # the contract's rollouts
        self._signals: dict[str, tuple[float, float]] = {}  # name -> worst case for the last proposal, limit
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
            self._keep_terms()
            self._pending = self.store.pending()  # runner -> proposal id of a novel rollout that is under way
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
        if self._contract.terms != (terms := self.terms):
            self._contract.change(terms)
        return self._contract

    @property
    def threshold(self) -> float:
        """J_min: j_min, or J0 - j_min_drop |J0|, whichever is higher."""
        return self.contract.threshold

    @property
    def score(self) -> Coverage:
        """How often the worst cases held that were shown."""
        return self.contract.coverage

    def beliefs(self) -> Beliefs:
        """Its own model's, fitted to the newest returns."""
        contract = self.contract
        key = (contract.threshold, contract.J0)
        if self._beliefs is None or (self._believed != key and contract.active):
            known = [episode for episode in self._episodes if math.isfinite(episode.value)]
            X = np.array([episode.x for episode in known]).reshape(len(known), self.space.dim)
            y = contract.clipped(np.array([episode.value for episode in known]))
            self._beliefs, self._believed = believe(self._process, X, y), key
        return self._beliefs

    def _signal_bounds(self, x: Vector) -> dict[str, tuple[float, float]]:
        """The worst case of each safety signal at x, for information: the account counts what came of them."""
        found = {}
        for name in {name: None for episode in self._episodes for name in episode.signals}:
            known = [episode for episode in self._episodes if name in episode.signals]
            X, values = np.array([e.x for e in known]), np.array([e.signals[name][0] for e in known])
            limit = known[-1].signals[name][1]
            found[name] = (signal_bound(x, X, values, limit), limit)
        return found

    def charged(self, proposal_id: int = -1) -> int:
        """Novel rollouts under way besides this one."""
        return sum(id != proposal_id for id in self._pending.values())

    def _id_of(self, row: int) -> int:
        """The proposal of a row of the beliefs."""
        return [episode.proposal_id for episode in self._episodes if math.isfinite(episode.value)][row]

    def summary(self) -> ContractState:
        """The contract at a glance."""
        with self._lock:
            contract, account = self.contract, self.contract.account
            pending, y = self.charged(), [e.value for e in self._episodes if math.isfinite(e.value)]
            slacks = [e.value - e.worst_case for e in self._episodes if e.worst_case is not None and e.x is not None]
            state, reason = "kept", ""
            if contract.waits_for_start:
                state, reason = "waits", f"{NO_START} the threshold is relative to it"
            elif not contract.active:
                state, reason = "none", "no threshold is configured"
            elif impossible := contract.impossible:
                state, reason = "refused", impossible
            elif not account.permits(pending):
                state, reason = "empty", contract.empty_reason(pending)
            proven, mean = -1, math.nan
            if y:
                beliefs = self.beliefs()
                theta_p = contract.proven(beliefs)
                rows = [i for i, x in enumerate(beliefs.X) if np.array_equal(x, theta_p)]
                if rows:
                    proven, mean = self._id_of(rows[-1]), float(beliefs.mean[rows[-1]])
            finite = [slack for slack in slacks if math.isfinite(slack)]
            return ContractState(
                self.experiment_uid, self.uid, state, reason, self.risk, self.budget, contract.threshold, contract.J0,
                contract.J0_spread, len(contract.start_values), account.n, account.violations, account.novel,
                account.novel_violations, account.limit, pending,
                account.balance - pending if contract.active else math.nan, account.loan, account.rate, proven, mean,
                contract.lipschitz, contract.lipschitz_shown, contract.coverage.coverage,
                float(np.median(finite) / max(float(np.std(y)), 1e-300)) if finite else math.nan,
                signal_names=tuple(self._signals), signal_bounds=tuple(bound for bound, _ in self._signals.values()),
                signal_limits=tuple(limit for _, limit in self._signals.values()),
                reported=tuple(e.proposal_id for e in self._episodes if e.violation.startswith(REPORTED)),
                stamp=self._clock(),
            )  # fmt: skip

    def report_violation(self, proposal_id: int, comment: str) -> tuple[bool, str]:
        """A person has seen what no return shows: that rollout counts as a violation from now on."""
        if not comment.strip():
            return False, "comment: say what was seen"
        with self._lock:
            rows = [row for row, episode in enumerate(self._episodes) if episode.proposal_id == proposal_id]
            if not rows:
                return False, f"proposal_id: no rollout of proposal {proposal_id} is known"
            row, violation = rows[-1], REPORTED + comment.strip()
            self.store.report(self._episodes[row].episode_uid, violation)
            self._episodes[row] = self._episodes[row]._replace(violation=violation)
            self._contract.report(row, violation)
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
                self._signals = self._signal_bounds(self.space.to_unit(theta))
                if theta_hash(theta) != hash:
                    raise InvalidInput("theta_hash: not the hash of theta")
                status, rule, reason = self._decide(experiment_uid, proposal_id, hash, judgement, returns)
            except InvalidInput as error:
                status, reason = REFUSED, str(error)
            if self._unverified:
                reason += f" [{len(self._unverified)} of {self.n} returns unverified: from the optimizer's store]"
            verdict = Verdict(
                status, experiment_uid, proposal_id, hash, runner, reason, self.uid, stamp=self._clock(),
                valid_for=self.valid_for if status == APPROVED else 0.0, threshold=threshold, nonce=nonce, rule=rule,
            )  # fmt: skip
            if self.contract.active:
                verdict = replace(verdict, account=self.contract.account.balance - self.charged(proposal_id))
            if judgement is not None and judgement.nearest >= 0:
                verdict = replace(
                    verdict, worst_case=judgement.worst_case, gate=judgement.gate, distance=judgement.distance,
                    nearest_id=self._id_of(judgement.nearest), lipschitz=judgement.lipschitz,
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
        if self.experiment_uid and experiment_uid != self.experiment_uid:
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
        early = list(self._early)
        self._early.clear()
        for episode in early:
            with contextlib.suppress(InvalidInput):
                self.add_return(episode)

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

    def hint(self) -> str:
        """What the operator of a run that creeps should know: empty unless at least half of the last 20 were vetoed."""
        vetoed = sum(self._recent)
        if 2 * vetoed < RECENT or not self.n or not self.contract.active:
            return ""
        with self._lock:
            contract, beliefs = self.contract, self.beliefs()
            lowest = min((e for e in self._episodes if math.isfinite(e.value)), key=lambda episode: episode.value)
            room = (float(np.max(beliefs.mean)) - contract.threshold) / max(contract.lipschitz, 1e-300)
            limit = f"with L = {contract.lipschitz:.3g} nothing further than {room:.2g} from the best policy can pass"
            if not contract.account.permits(self.charged()):
                limit = contract.empty_reason(self.charged())
            elif room <= 0.0:
                limit = "nothing can pass, for the best policy's expected return is below the threshold"
            return (
                f"{vetoed} of the last {len(self._recent)} proposals were vetoed (the lowest return, "
                f"{lowest.value:.4g}, was proposal {lowest.proposal_id}'s): {limit}. If you know better, lower j_min "
                "or allow more risk; finish ends the run with the best policy so far"
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
            if episode.episode_uid in self._known:
                if verified:
                    self._verify(episode)
                return False
            self._book(self.store.add_return(episode, x, not verified))
            self._pending = {runner: id for runner, id in self._pending.items() if id != episode.proposal_id}
            return True

    def _settle_end(self, episode: Episode) -> None:
        """An approved rollout ended without a return and by no fault of its own."""
        if episode.verdict_id and self._pending.get(episode.runner) == episode.proposal_id:
            self.store.end_pending(episode.runner)
            del self._pending[episode.runner]

    def _verify(self, episode: Episode) -> None:
        if episode.counts and episode.value != (told := self._known[episode.episode_uid]):
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
            self.beliefs()

    def _book(self, known: KnownReturn) -> None:
        self._known[known.episode_uid] = known.value
        if known.unverified:
            self._unverified.add(known.episode_uid)
        self._episodes.append(known)
        worst_case = math.nan if known.worst_case is None else known.worst_case
        self._contract.add(Executed(known.x, known.value, known.violation, worst_case))
        self._beliefs = None

    @property
    def n(self) -> int:
        """How many returns it knows."""
        return sum(math.isfinite(episode.value) for episode in self._episodes)

    def close(self) -> None:
        with self._lock:
            self.store.close()
