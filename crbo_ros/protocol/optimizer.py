"""The optimizer's side of docs/PROTOCOL.md: who is given which proposal, and how each ends.

The ROS node only translates. The method, its store, and the order of writing are protocol/learner.py's.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crbo_ros import __version__
from crbo_ros.clock import boottime
from crbo_ros.core.method import Method
from crbo_ros.core.problem import Problem, differences
from crbo_ros.core.trial import LARGEST, Best, Proposal, TrialStatus
from crbo_ros.errors import Exhausted, InvalidInput, StoreError
from crbo_ros.protocol.learner import Learner, NoProposal
from crbo_ros.protocol.leases import Leases
from crbo_ros.protocol.ports import ACCEPTED, DONE, DUPLICATE, OK, REFUSED, RETRY, WAIT, Answer
from crbo_ros.protocol.records import (
    CHANGEABLE,
    COMPLETED,
    COUNTING,
    FAILED,
    RETURNED,
    STOPPED,
    TERMINATED,
    VETOED,
    Episode,
    Experiment,
    Offer,
    Verdict,
    new_uid,
)
from crbo_ros.protocol.replay import SECOND, Make
from crbo_ros.protocol.store import ExperimentStore, ProposalRow, dump_state

RUNNING, PAUSED, FINISHED, EXHAUSTED, ERROR = "running", "paused", "finished", "exhausted", "error"
ADVICE = "the data are kept; resume tries it again, finish ends the run with the best policy so far"
LEASE = 600.0  # s without a word from its runner until a proposal is withdrawn; or twice the longest episode
MOST_PENDING = 64  # proposals with runners at the same time; a stranger who asks and asks gets no more
MOST_VERDICTS = 50  # kept of one proposal
ENDS = {  # outcome of an episode -> what the method is told, and how the proposal ends
    COMPLETED: ("tell", TrialStatus.COMPLETED),
    TERMINATED: ("tell", TrialStatus.COMPLETED),
    VETOED: ("veto", TrialStatus.VETOED),
    STOPPED: ("fail", TrialStatus.FAILED),
    FAILED: ("fail", TrialStatus.FAILED),
    RETURNED: ("expire", TrialStatus.EXPIRED),
}


class OptimizerServer:
    """Thread-safe: one lock around method and store, held while a proposal is computed."""

    def __init__(
        self,
        store: ExperimentStore,
        problem: Problem,
        make: Make,
        *,
        budget: int = 0,
        lease: float = LEASE,
        clock: Callable[[], float] = boottime,
    ) -> None:
        identity = store.identity()
        assert identity is not None
        self.store, self.problem, self.identity, self.budget = store, problem, identity, budget
        self.uid, self.name, self.task = identity.uid, identity.name, problem.task
        self.learner = Learner(store, make)
        self.state, self.message = RUNNING, ""
        self._lock = threading.RLock()
        self._seen: dict[str, tuple[int, str, float]] = {}  # episode_uid -> what find_episode says of it
        self._leases = Leases(lease, clock)
        for row in store.proposals("WHERE end = 'pending'"):  # time stood still while nobody was there
            self._leases.begin(row.proposal.id, row.runner)
        self.budget += self.attached if self.budget else 0  # they cost no robot time
        if store.flag("finished"):
            self.state, self.message = FINISHED, store.flag("finished")
        self._check_budget()

    @property
    def method(self) -> Method:
        return self.learner.method

    @property
    def pending(self) -> list[int]:
        """Ids of the proposals that are with a runner."""
        return self.learner.pending

    # -- opening ----------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        problem: Problem,
        name: str,
        method: str,
        make: Make,
        seed: int,
        settings: dict[str, Any],
        lease: float | None = None,
        **options: Any,
    ) -> OptimizerServer:
        """Create the experiment, or carry on with it. `make(settings)` builds the method.

        Carrying on changes gamma and the contract where they are given and different; anything else that differs is
        another experiment, and refused.
        """
        lease = max(LEASE, 2.0 * problem.episode_seconds) if lease is None else lease
        wanted = Experiment(new_uid(), name, problem.key, method, json.loads(json.dumps(settings)), seed)
        store = ExperimentStore(path, owner=True)
        try:
            found = store.identity()
            if found is None:
                make(settings)  # bad settings are refused before anything is written
                store.create(wanted, problem, version=__version__, now=time.time())
            elif others := found.differences(wanted):
                raise StoreError(
                    f"{path}: holds another experiment ({'; '.join(others)}); choose another experiment name"
                )
            server = cls(store, problem, make, lease=lease, **options)
            server.name = name  # its folder may have been renamed; what it is, its uid says
            server._reconfigure(settings)
            return server
        except BaseException:
            store.close()
            raise

    def _reconfigure(self, settings: dict[str, Any]) -> None:
        report = self.method.report()
        changed = {
            key: value
            for key in CHANGEABLE
            if (value := settings.get(key)) is not None and report.get(key) != value and key in report
        }
        if changed:
            self.configure(**changed)

    def attach(self, episodes: Sequence[tuple[ArrayLike, float]], source: str) -> int:
        """Begin with earlier episodes, (theta, return) each; how many. Only before the first proposal, and all or none.

        They are recorded as completed proposals of kind "attached", so that the monitor hears of them as well.
        """
        with self._lock:
            if self.method.trials:
                return 0
            try:
                rows = []
                for theta, value in episodes:
                    proposal = self.method.attach(theta, value)
                    episode = Episode(
                        new_uid(), self.uid, proposal.id, "attached", proposal.theta, COMPLETED, float(value),
                        f"from {source}", stamp=time.time(), problem=self.problem.key,
                    )  # fmt: skip
                    rows.append((proposal, episode))
                self.store.attach(rows, now=time.time(), state=dump_state(self.method.state()))
            except BaseException:
                self.learner.rebuild()
                raise
            self.budget += len(rows) if self.budget else 0
            return len(rows)

    def inform(self, episodes: Sequence[tuple[ArrayLike, float]]) -> int:
        """Begin with returns of another plant, (theta, return) each; how many. Only before the first proposal.

        They inform the method's mean alone (core/second_source.py): neither data nor monitor nor contract hear of them.
        """
        with self._lock:
            if self.method.trials or self.informed:
                return 0
            thetas = [np.asarray(theta, dtype=np.float64).tolist() for theta, _ in episodes]
            values = [float(value) for _, value in episodes]
            self.method.inform(thetas, values)  # refused before anything is written
            self.store.set_flag(SECOND, json.dumps([thetas, values]))
            self.learner.rebuild()
            return len(values)

    @property
    def informed(self) -> bool:
        """Whether there is a second source."""
        return bool(self.store.flag(SECOND))

    @property
    def attached(self) -> int:
        """How many of the returns are earlier ones."""
        return sum(trial.proposal.kind == "attached" for trial in self.method.trials)

    # -- the runner's questions -------------------------------------------------------------------

    def propose(self, runner: str, request_id: str, experiment_uid: str = "") -> Answer:
        """The next policy for a runner; the same request_id yields the same proposal."""
        answer = self._answer(runner, request_id, experiment_uid)
        return replace(answer, experiment=self.name, problem=self.problem.key)

    def _answer(self, runner: str, request_id: str, experiment_uid: str) -> Answer:
        if not runner or not request_id:
            return Answer(REFUSED, f"{'request_id' if runner else 'runner'}: must not be empty")
        if experiment_uid and experiment_uid != self.uid:
            return Answer(
                REFUSED, f"experiment_uid: this is experiment {self.name!r} ({self.uid}), not {experiment_uid}"
            )
        with self._lock:
            known = self.store.find_request(runner, request_id)
            if known is not None and known.end is not TrialStatus.PENDING:
                return Answer(REFUSED, f"request_id: its proposal {known.proposal.id} has ended ({known.end.value})")
            if known is not None and self.state != FINISHED:  # who asks has not begun it: a finished run is over
                self._leases.begin(known.proposal.id, runner)  # whoever asks is alive
                return Answer(OK, offer=self._offer(known.proposal))
            if self.state in (FINISHED, EXHAUSTED):
                best = self.best()
                return Answer(DONE, self.message, offer=None if best is None else self._offer(best_as_proposal(best)))
            if self.state in (PAUSED, ERROR):
                return Answer(WAIT, self.message, 0.5)
            if len(self.pending) >= MOST_PENDING:
                return Answer(WAIT, f"{MOST_PENDING} proposals are pending; ends of those come first", 1.0)
            if self.budget and self.method.n + len(self.pending) >= self.budget:
                return Answer(WAIT, "the rest of the budget is pending with other runners", 0.1)
            return self._new_proposal(runner, request_id)

    def _new_proposal(self, runner: str, request_id: str) -> Answer:
        try:
            proposal = self.learner.make()
        except Exhausted as error:
            self.state, self.message = EXHAUSTED, str(error)
            return self._answer(runner, request_id, "")
        except NoProposal as error:  # with the same data it would fail again
            self.state, self.message = ERROR, f"{error}; {ADVICE}"
            return Answer(WAIT, self.message, 0.5, alarm=True)
        try:
            self.learner.write(proposal, runner, request_id)
        except StoreError as error:
            self.message = str(error)
            return Answer(WAIT, f"the proposal could not be stored: {error}", 1.0, alarm=True)
        self._leases.begin(proposal.id, runner)
        return Answer(OK, offer=self._offer(proposal))

    def prepare(self) -> bool:
        """Make the next proposal before anybody asks for it; whether there is one in hand now.

        It is the same, bit for bit, as if it were made at the question: it is begun only when nothing is pending, so
        that no result can come in between but a late one, and that and the operator's commands that would change it
        discard it (see Learner.forget). It lives in memory alone; after a kill the store knows nothing of it and it is
        made again.
        """
        with self._lock:
            if self.state != RUNNING or self.pending:
                return False
            try:
                self.learner.make()
            except (Exhausted, NoProposal):  # it is for propose to say so, to somebody who asked
                return False
            return True

    def _offer(self, proposal: Proposal) -> Offer:
        """A proposal as it travels."""
        return Offer.of(
            proposal, experiment=self.name, experiment_uid=self.uid, problem=self.problem.key, returns=self.method.n,
            lease=self._leases.seconds, stamp=time.time(),
        )  # fmt: skip

    def renew(self, proposal_id: int, runner: str) -> bool:
        """A sign of life from a runner that holds a proposal: its lease begins anew. Waits for nothing."""
        return self._leases.renew(proposal_id, runner)

    def acknowledge(self, episode: Episode) -> tuple[str, str]:
        """Record how a proposal ended: (status, reason). ACCEPTED only after it is on disk."""
        with self._lock:
            try:
                known = self._seen.get(episode.episode_uid) or self.store.find_episode(episode.episode_uid)
                if known is not None:
                    same = known[:2] == (episode.proposal_id, episode.outcome) and (
                        known[2] == episode.value or not episode.counts
                    )
                    return (DUPLICATE, "") if same else (REFUSED, "episode_uid: known, with another result")
                trouble = self._record(self._check_episode(episode), episode)
            except InvalidInput as error:
                return REFUSED, str(error)
            except StoreError as error:
                self.message = str(error)
                return RETRY, str(error)
            if self.state == ERROR:  # from other data the method may find something
                self.state = RUNNING
            self._check_budget()
            return ACCEPTED, trouble

    def _record(self, row: ProposalRow, episode: Episode) -> str:
        """To the store and then to the method; what a person should know about it, or ""."""
        id, trouble = row.proposal.id, ""
        verb, end = ENDS[episode.outcome]
        if row.end is TrialStatus.EXPIRED:
            self.learner.forget()  # what was made ahead of time was made without it
        if row.end is TrialStatus.EXPIRED and not episode.counts:
            self.store.add_episode(episode)
        else:
            arguments = [id, episode.value if episode.counts else episode.reason]
            if episode.breach and verb in ("tell", "fail"):
                arguments.append(episode.breach)
            self.store.end_proposal(id, end, episode.reason, (verb, arguments), time.time(), episode)
            trouble = self.learner.tell(verb, arguments, end)
        self._leases.end(id)
        self._seen[episode.episode_uid] = (id, episode.outcome, episode.value)
        if trouble or end is not TrialStatus.COMPLETED:
            self.message = trouble or f"proposal {id} {episode.outcome}: {episode.reason}"
        return trouble

    def knows(self, episode_uid: str) -> bool:
        """Whether this episode has been recorded since the start. (One from before is known to the store alone.)"""
        return episode_uid in self._seen

    def _check_episode(self, episode: Episode) -> ProposalRow:
        id = episode.proposal_id
        if not episode.episode_uid:
            raise InvalidInput("episode_uid: must not be empty")
        if episode.experiment_uid != self.uid:
            raise InvalidInput(f"experiment_uid: this is {self.uid}, the episode is of {episode.experiment_uid!r}")
        if episode.problem and (others := differences(self.problem.key, episode.problem)):
            raise InvalidInput(f"problem: the episode is of another one than this experiment's ({'; '.join(others)})")
        row = self.store.proposal(id)
        if row is None:
            raise InvalidInput(f"proposal_id: no proposal has the id {id}")
        if episode.outcome not in ENDS:
            raise InvalidInput(f"outcome: {episode.outcome!r} is none of {', '.join(ENDS)}")
        late = row.end is TrialStatus.EXPIRED and (episode.counts or not self.store.has_episode(id))
        if row.end is not TrialStatus.PENDING and not late:
            raise InvalidInput(f"proposal_id: proposal {id} has already ended ({row.end.value})")
        if not np.array_equal(episode.theta, row.proposal.theta):
            raise InvalidInput(f"theta: not the policy of proposal {id}")
        if episode.outcome in COUNTING and not abs(episode.value) <= LARGEST:
            raise InvalidInput(
                f"value: the return is {episode.value}; it must be finite and at most {LARGEST:g} in size"
            )
        return row

    def returns(self, start: int = 0, limit: int = 500) -> tuple[int, list[Episode]]:
        """How many executed episodes the store holds, and those from number `start` on, oldest first."""
        with self._lock:
            found = [episode for episode in self.store.episodes() if episode.executed]
            return len(found), found[start : start + limit]

    def add_verdict(self, verdict: Verdict) -> None:
        """Keep a verdict for the record; one about another experiment or an unknown proposal is ignored."""
        with self._lock:
            if verdict.experiment_uid == self.uid and self.store.proposal(verdict.proposal_id) is not None:
                self.store.add_verdict(verdict, MOST_VERDICTS)

    def expire_due(self) -> list[int]:
        """End the proposals whose lease is over; their ids."""
        with self._lock:
            due = self._leases.due()
            for id in due:
                reason = f"nothing heard within {self._leases.seconds:g} s"
                self.store.end_proposal(id, TrialStatus.EXPIRED, reason, ("expire", [id, reason]), time.time())
                self._leases.end(id)
                self.learner.tell("expire", [id, reason], TrialStatus.EXPIRED)
            return due

    # -- the operator's commands ------------------------------------------------------------------

    def configure(self, **changes: Any) -> None:
        """Change gamma or the contract of a method that has them; recorded."""
        with self._lock:
            if not hasattr(self.method, "configure"):
                raise InvalidInput(f"{', '.join(changes)}: method {self.method.name!r} has no such setting")
            self.learner.forget()
            self.method.configure(**changes)
            try:
                self.store.add_event("configure", [changes])
            except StoreError:
                self.learner.rebuild()  # what was not written down is not effective
                raise
            if self.state in (EXHAUSTED, ERROR):  # by other terms there may be something left
                self.state, self.message = RUNNING, ""

    def mark(self, id: int, violation: str) -> bool:
        """Somebody reported a rollout as a violation: the method hears of it, once; recorded."""
        with self._lock:
            if not 0 <= id < len(self.method.trials) or self.method.trials[id].violation:
                return False
            self.learner.forget()
            self.store.add_event("mark", [id, violation])
            self.learner.tell("mark", [id, violation], self.method.trials[id].end)
            return True

    def pause(self) -> tuple[bool, str]:
        with self._lock:
            if self.state != RUNNING:
                return False, f"cannot pause: {self.state}"
            self.state, self.message = PAUSED, "paused by the operator"
            return True, self.message

    def resume(self) -> tuple[bool, str]:
        with self._lock:
            if self.state not in (PAUSED, ERROR):
                return False, f"cannot resume: {self.state}"
            self.state, self.message = RUNNING, ""
            return True, "running"

    def finish(self, reason: str = "finished by the operator") -> tuple[bool, str]:
        """End the run: from now on every runner gets DONE with the best policy."""
        with self._lock:
            self.store.set_flag("finished", reason)
            self.learner.forget()
            self.state, self.message = FINISHED, reason
            return True, reason

    def set_budget(self, budget: int) -> None:
        """A larger budget lets a finished experiment go on."""
        with self._lock:
            self.budget = budget + self.attached if budget else 0
            if self.state == FINISHED and (not budget or self.method.n < self.budget):
                self.store.set_flag("finished", "")
                self.state, self.message = RUNNING, ""
            self._check_budget()

    def best(self) -> Best | None:
        with self._lock:
            return self.method.best()

    def summary(self) -> dict[str, Any]:
        """Metrics for people, as OptimizerState needs them."""
        with self._lock:
            ends = [trial.end for trial in self.method.trials]
            kinds = [trial.proposal.kind for trial in self.method.trials]
            y = self.method.data()[1]
            best, report = self.method.best(), self.method.report()
            start = next((t.value for t in self.method.trials if t.end is TrialStatus.COMPLETED), math.nan)
            return {
                **report,
                "state": self.state,
                "message": self.message or report.get("message", ""),
                "completed": len(y),
                "pending": len(self.pending),
                "vetoed": ends.count(TrialStatus.VETOED),
                "failed": ends.count(TrialStatus.FAILED),
                "expired": ends.count(TrialStatus.EXPIRED),
                "last_return": float(y[-1]) if len(y) else math.nan,
                "average_return": float(np.mean(y)) if len(y) else math.nan,
                "start_return": start,
                "steered": kinds.count("steered"),
                "repeated": kinds.count("proven"),
                "best": best,
                "propose_seconds": self.learner.propose_seconds,
            }

    def close(self) -> None:
        with self._lock:
            self.store.close()

    def _check_budget(self) -> None:
        if self.state in (RUNNING, PAUSED) and self.budget and self.method.n >= self.budget:
            self.state, self.message = FINISHED, f"all {self.budget} episodes are done"


def best_as_proposal(best: Best) -> Proposal:
    """The recommended policy in the form of a proposal, kind "best"."""
    return Proposal(best.id, best.theta, "best", best.mean, best.sigma)
