"""An experiment: a method, its store, and the optimizer's side of docs/PROTOCOL.md. The ROS node only translates.

Order of writing: a proposal is made by the method and then written; an end state is written and then told to the
method. Should the disk fail in between, a proposal that could not be written is kept and handed out at the next try,
and an end state that could not be written has not been told: memory and disk agree about what was acknowledged.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crbo_ros import __version__
from crbo_ros.core.method import Method
from crbo_ros.core.space import Space
from crbo_ros.core.trial import LARGEST, Best, Proposal, TrialStatus
from crbo_ros.errors import CrboError, Exhausted, InvalidInput, StoreError
from crbo_ros.protocol.records import COUNTING, OUTCOMES, VETOED, Episode, Verdict, new_uid
from crbo_ros.protocol.store import ExperimentStore, ProposalRow, dump_state, load_state

RUNNING, PAUSED, FINISHED, EXHAUSTED, ERROR = "running", "paused", "finished", "exhausted", "error"
OK, WAIT, DONE, REFUSED = "ok", "wait", "done", "refused"  # answers to a wish for a proposal
ACCEPTED, DUPLICATE, RETRY = "accepted", "duplicate", "retry"  # answers to a result (or REFUSED)


@dataclass(frozen=True)
class Answer:
    """What a runner that asks for a proposal gets."""

    status: str
    reason: str = ""
    retry_after: float = 0.0
    proposal: Proposal | None = None
    lease: float = 0.0  # s
    alarm: bool = False  # a person should know


class OptimizerServer:
    """Thread-safe: one lock around method and store, held while a proposal is computed."""

    def __init__(
        self,
        store: ExperimentStore,
        method: Method,
        *,
        budget: int = 0,
        expiry: float = 600.0,
        clock: Callable[[], float] = time.time,
        make: Callable[[dict[str, Any]], Method] | None = None,
    ) -> None:
        self.store, self.method, self.budget, self.expiry, self.clock = store, method, budget, expiry, clock
        self._make = make
        row = store.experiment()
        assert row is not None
        self.uid, self.name, self.task = str(row["uid"]), str(row["name"]), str(row["task"])
        self.state, self.message = RUNNING, ""
        self.propose_seconds = math.nan
        self._lock = threading.RLock()
        self._unsaved: Proposal | None = None  # made early, or refused by the disk: for the next runner that asks
        self._seen: dict[str, tuple[int, str, float]] = {}  # episode_uid -> what find_episode says of it
        if store.flag("finished"):
            self.state, self.message = FINISHED, store.flag("finished")
        self._check_budget()

    # -- opening ----------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        name: str,
        task: str,
        space: Space,
        theta_0: ArrayLike,
        method: str,
        make: Callable[[dict[str, Any]], Method],
        seed: int,
        settings: dict[str, Any],
        resume: bool = True,
        **options: Any,
    ) -> OptimizerServer:
        """Create the experiment, or carry on with it. `make(settings)` builds the method.

        An experiment that exists keeps its settings; only gamma and j_min, where given and different, change.
        """
        if not resume and path.exists():
            raise StoreError(f"{path}: exists already; choose another experiment, or resume it")
        store = ExperimentStore(path, owner=True)
        clock = options.get("clock", time.time)
        try:
            found = store.experiment()
            if found is None:
                instance = make(settings)
                store.create(
                    uid=new_uid(), name=name, task=task, method=method, seed=seed, space=space,
                    theta_0=instance.theta_0, config=settings, version=__version__, now=clock(),
                )  # fmt: skip
                return cls(store, instance, make=make, **options)
            wanted = {"task": task, "method": method, "seed": seed, "dim": space.dim}
            _refuse_other(path, found, wanted, space, np.asarray(theta_0, float))
            instance = make(found["config"])
            _replay(instance, store)
            store.extend_pending(clock() + options.get("expiry", 600.0))  # time stood still while nobody was there
            experiment = cls(store, instance, make=make, **options)
            experiment._reconfigure(settings)
            return experiment
        except BaseException:
            store.close()
            raise

    def _reconfigure(self, settings: dict[str, Any]) -> None:
        report = self.method.report()
        changed = {
            key: value
            for key in ("gamma", "j_min")
            if (value := settings.get(key)) is not None and report.get(key) != value and key in report
        }
        if changed:
            self.configure(**changed)

    # -- the runner's questions -------------------------------------------------------------------

    def propose(self, runner: str, request_id: str, experiment_uid: str = "") -> Answer:
        """The next policy for a runner; the same request_id yields the same proposal."""
        if not runner or not request_id:
            return Answer(REFUSED, f"{'request_id' if runner else 'runner'}: must not be empty")
        if experiment_uid and experiment_uid != self.uid:
            return Answer(
                REFUSED, f"experiment_uid: this is experiment {self.name!r} ({self.uid}), not {experiment_uid}"
            )
        with self._lock:
            known = self.store.find_request(runner, request_id)
            if known is not None:
                if known.end is not TrialStatus.PENDING:
                    return Answer(
                        REFUSED, f"request_id: its proposal {known.proposal.id} has ended ({known.end.value})"
                    )
                return Answer(OK, proposal=known.proposal, lease=self.expiry)
            if self.state in (FINISHED, EXHAUSTED):
                best = self.best()
                return Answer(DONE, self.message, proposal=None if best is None else best_as_proposal(best))
            if self.state in (PAUSED, ERROR):
                return Answer(WAIT, self.message or self.state, 0.5)
            if self.budget and self.method.n + len(self.pending) >= self.budget:
                return Answer(WAIT, "the rest of the budget is pending with other runners", 0.1)
            return self._new_proposal(runner, request_id)

    def _new_proposal(self, runner: str, request_id: str) -> Answer:
        if self._unsaved is None:
            try:
                self._unsaved = self._ask()
            except Exhausted as error:
                self.state, self.message = EXHAUSTED, str(error)
                return self.propose(runner, request_id)
        proposal = self._unsaved
        now = self.clock()
        try:
            self.store.add_proposal(
                proposal, runner=runner, request_id=request_id, now=now, expires=now + self.expiry,
                report=_plain(self.method.report()), state=dump_state(self.method.state()),
            )  # fmt: skip
        except StoreError as error:
            self.message = str(error)
            return Answer(WAIT, f"the proposal could not be stored: {error}", 1.0, alarm=True)
        self._unsaved = None
        return Answer(OK, proposal=proposal, lease=self.expiry)

    def _ask(self) -> Proposal:
        start = time.thread_time()
        proposal = self.method.ask()
        self.propose_seconds = time.thread_time() - start
        return proposal

    def prepare(self) -> bool:
        """Make the next proposal before anybody asks for it; whether there is one in hand now.

        It is the same, bit for bit, as if it were made at the question: it is begun only when nothing is pending, so
        that no result can come in between, and the operator's words that would change it discard it (see _forget). It
        lives in memory alone; after a kill the store knows nothing of it and it is made again.
        """
        with self._lock:
            if self._make is None or self.state != RUNNING or (self.method.pending and self._unsaved is None):
                return False
            if self._unsaved is None:
                try:
                    self._unsaved = self._ask()
                except Exhausted:
                    self._rebuild()  # it is for propose to say so, to somebody who asked
                    return False
            return True

    def _forget(self) -> None:
        """Discard a proposal that nobody has seen: the method goes back to what the store knows."""
        if self._unsaved is not None and self._make is not None:
            self._rebuild()
            self._unsaved = None

    def _rebuild(self) -> None:
        assert self._make is not None
        row = self.store.experiment()
        assert row is not None
        method = self._make(row["config"])
        _replay(method, self.store)
        self.method = method

    @property
    def pending(self) -> list[int]:
        """Ids of the proposals that are with a runner."""
        unseen = None if self._unsaved is None else self._unsaved.id
        return [id for id in self.method.pending if id != unseen]

    def acknowledge(self, episode: Episode) -> tuple[str, str]:
        """Take in how a proposal ended: (status, reason). ACCEPTED only after it is on disk."""
        with self._lock:
            try:
                known = self._seen.get(episode.episode_uid) or self.store.find_episode(episode.episode_uid)
                if known is not None:
                    same = known[:2] == (episode.proposal_id, episode.outcome) and (
                        known[2] == episode.value or not episode.counts
                    )
                    return (DUPLICATE, "") if same else (REFUSED, "episode_uid: known, with another result")
                row = self._check_episode(episode)
                end = (
                    TrialStatus.COMPLETED
                    if episode.counts
                    else TrialStatus.VETOED
                    if episode.outcome == VETOED
                    else TrialStatus.FAILED
                )
                verb = {TrialStatus.COMPLETED: "tell", TrialStatus.VETOED: "veto", TrialStatus.FAILED: "fail"}[end]
                arguments = [row.proposal.id, episode.value if episode.counts else episode.reason]
                self.store.end_proposal(row.proposal.id, end, episode.reason, (verb, arguments), self.clock(), episode)
                getattr(self.method, verb)(*arguments)
                self._seen[episode.episode_uid] = (episode.proposal_id, episode.outcome, episode.value)
            except InvalidInput as error:
                return REFUSED, str(error)
            except StoreError as error:
                self.message = str(error)
                return RETRY, str(error)
            if end is not TrialStatus.COMPLETED:
                self.message = f"proposal {row.proposal.id} {end.value}: {episode.reason}"
            self._check_budget()
            return ACCEPTED, ""

    def knows(self, episode_uid: str) -> bool:
        """Whether this episode has been taken in since the start. (One taken in before is known to the store alone.)"""
        return episode_uid in self._seen

    def _check_episode(self, episode: Episode) -> ProposalRow:
        if not episode.episode_uid:
            raise InvalidInput("episode_uid: must not be empty")
        if episode.experiment_uid != self.uid:
            raise InvalidInput(f"experiment_uid: this is {self.uid}, the episode is of {episode.experiment_uid!r}")
        row = self.store.proposal(episode.proposal_id)
        if row is None:
            raise InvalidInput(f"proposal_id: no proposal has the id {episode.proposal_id}")
        if row.end is not TrialStatus.PENDING:
            raise InvalidInput(f"proposal_id: proposal {episode.proposal_id} has already ended ({row.end.value})")
        if episode.outcome not in OUTCOMES:
            raise InvalidInput(f"outcome: {episode.outcome!r} is none of {', '.join(OUTCOMES)}")
        if not np.array_equal(episode.theta, row.proposal.theta):
            raise InvalidInput(f"theta: not the policy of proposal {episode.proposal_id}")
        if episode.outcome in COUNTING and not abs(episode.value) <= LARGEST:
            raise InvalidInput(
                f"value: the return is {episode.value}; it must be finite and at most {LARGEST:g} in size"
            )
        return row

    def add_verdict(self, verdict: Verdict) -> None:
        """Keep a verdict for the record; one about another experiment or an unknown proposal is ignored."""
        with self._lock:
            if verdict.experiment_uid == self.uid and self.store.proposal(verdict.proposal_id) is not None:
                self.store.add_verdict(verdict)

    def expire_due(self) -> list[int]:
        """End the proposals whose time is up; their ids."""
        with self._lock:
            now = self.clock()
            due = self.store.proposals("WHERE end = 'pending' AND expires < ?", now)
            for row in due:
                reason = f"nothing heard within {self.expiry:g} s"
                self.store.end_proposal(
                    row.proposal.id, TrialStatus.EXPIRED, reason, ("expire", [row.proposal.id, reason]), now
                )
                self.method.expire(row.proposal.id, reason)
            return [row.proposal.id for row in due]

    # -- the operator's words ---------------------------------------------------------------------

    def configure(self, **changes: Any) -> None:
        """Change gamma or j_min of a method that has them; recorded."""
        with self._lock:
            if not hasattr(self.method, "configure"):
                raise InvalidInput(f"{', '.join(changes)}: method {self.method.name!r} has no such setting")
            self._forget()
            self.method.configure(**changes)
            try:
                self.store.add_event("configure", [changes])
            except StoreError:
                if self._make is not None:  # what was not written down is not in force
                    self._rebuild()
                raise

    def pause(self) -> tuple[bool, str]:
        with self._lock:
            if self.state != RUNNING:
                return False, f"cannot pause: {self.state}"
            self.state, self.message = PAUSED, "paused by the operator"
            return True, self.message

    def resume(self) -> tuple[bool, str]:
        with self._lock:
            if self.state != PAUSED:
                return False, f"cannot resume: {self.state}"
            self.state, self.message = RUNNING, ""
            return True, "running"

    def finish(self, reason: str = "finished by the operator") -> tuple[bool, str]:
        """End the run: from now on every runner gets DONE with the best policy."""
        with self._lock:
            self.store.set_flag("finished", reason)
            self._forget()
            self.state, self.message = FINISHED, reason
            return True, reason

    def set_budget(self, budget: int) -> None:
        """A larger budget lets a finished experiment go on."""
        with self._lock:
            self.budget = budget
            if self.state == FINISHED and (not budget or self.method.n < budget):
                self.store.set_flag("finished", "")
                self.state, self.message = RUNNING, ""
            self._check_budget()

    def best(self) -> Best | None:
        with self._lock:
            return self.method.best()

    def summary(self) -> dict[str, Any]:
        """Figures for people, as OptimizerState needs them."""
        with self._lock:
            ends = [trial.end for trial in self.method.trials]
            y = self.method.data()[1]
            best = self.method.best()
            start = next((t.value for t in self.method.trials if t.end is TrialStatus.COMPLETED), math.nan)
            return {
                **self.method.report(),
                "state": self.state,
                "message": self.message,
                "completed": len(y),
                "pending": len(self.pending),
                "vetoed": ends.count(TrialStatus.VETOED),
                "failed": ends.count(TrialStatus.FAILED),
                "expired": ends.count(TrialStatus.EXPIRED),
                "last_return": float(y[-1]) if len(y) else math.nan,
                "average_return": float(np.mean(y)) if len(y) else math.nan,
                "start_return": start,
                "best": best,
                "propose_seconds": self.propose_seconds,
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


def _replay(method: Method, store: ExperimentStore) -> None:
    """Bring a freshly made method to where the store is."""
    blob, events = store.resume_point()
    try:
        if blob is not None:
            method.restore(load_state(blob))
        for verb, arguments in events:
            if verb == "configure":
                method.configure(**arguments[0])  # type: ignore[attr-defined]
            else:
                getattr(method, verb)(*arguments)
    except (CrboError, KeyError, ValueError) as error:
        raise StoreError(
            f"{store.database.path}: the method's saved state cannot be restored ({error}); the file was kept"
        ) from error


def _refuse_other(path: Path, found: dict[str, Any], wanted: dict[str, Any], space: Space, theta_0: Any) -> None:
    for key, value in wanted.items():
        if found[key] != value:
            raise StoreError(
                f"{path}: holds an experiment with {key} {found[key]!r}, not {value!r}; choose another experiment name"
            )
    vectors = {
        "lower": space.lower,
        "upper": space.upper,
        "log_scale": space.log,
        "theta_0": space.check(theta_0, "theta_0"),
    }
    for key, vector in vectors.items():
        if not np.array_equal(found[key], vector):
            raise StoreError(f"{path}: holds an experiment with other values of {key}; choose another experiment name")


def _plain(report: dict[str, Any]) -> dict[str, Any]:
    """JSON without NaN: figures that are not known are left out."""
    return {k: v for k, v in report.items() if not (isinstance(v, float) and not math.isfinite(v))}
