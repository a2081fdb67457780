"""What the monitor shows, and which of its buttons apply. Plain Python: no ROS, no Qt.

Values go in by `take` in whatever order they arrive: latched history may come before or after the optimizer's state,
twice after a restart, and for more than one experiment. The experiment shown is the optimizer's.
"""

from __future__ import annotations

import bisect
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crbo_ros.protocol.records import APPROVED, AT_OPERATOR, COUNTING, REFUSED, WAITING, Episode, Verdict
from crbo_ros.view.values import NAN, Answer, Heartbeat, Presence, Proposed, State, Status

Array = NDArray[np.float64]
HEARTBEAT_TIMEOUT = 1.0  # s; the runners' own is shorter, this one only decides what is shown
STATUS_TIMEOUT = 2.5  # s; runners report twice a second


@dataclass
class Row:
    """One line of the table: a proposal and what is known of it."""

    id: int
    proposal: Proposed | None = None
    verdict: Verdict | None = None
    episode: Episode | None = None

    @property
    def outcome(self) -> str:
        """How it ended, or pending; that a proposal has expired is told by nobody but the clock."""
        if self.episode:
            return self.episode.outcome
        return "pending"

    @property
    def value(self) -> float:
        return self.episode.value if self.episode and self.episode.outcome in COUNTING else NAN

    @property
    def bound(self) -> float:
        """The monitor's lower bound on the return, or the optimizer's where the monitor gave none."""
        if self.episode and math.isfinite(self.episode.predicted_worst_case):
            return self.episode.predicted_worst_case
        if self.verdict and math.isfinite(self.verdict.worst_case):
            return self.verdict.worst_case
        return self.proposal.worst_case if self.proposal else NAN

    @property
    def reason(self) -> str:
        if self.episode and self.episode.reason:
            return self.episode.reason
        if self.verdict and not self.episode:
            return self.verdict.reason
        return self.proposal.reason if self.proposal else ""


@dataclass
class _Data:
    """One experiment's rows, by id, and the optimizer's figures over time."""

    rows: dict[int, Row] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)  # ids, ascending
    seen: set[str] = field(default_factory=set)  # episode_uids
    gamma: dict[int, float] = field(default_factory=dict)  # by proposal id

    def row(self, id: int) -> Row:
        if id not in self.rows:
            self.rows[id] = Row(id)
            bisect.insort(self.order, id)
        return self.rows[id]


@dataclass(frozen=True)
class Series:
    """What the plots draw: x are proposal ids."""

    points: dict[str, tuple[Array, Array]]  # by outcome: (ids, returns), for vetoes (ids, bounds)
    bounds: tuple[Array, Array, Array]  # ids, bounds, returns
    best: tuple[Array, Array]
    average: tuple[Array, Array]
    gamma: tuple[Array, Array]
    coverage: tuple[Array, Array]


class MonitorModel:
    """See the module's docstring. Used from one thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.clear()

    def clear(self) -> None:
        """Forget everything (another namespace was chosen)."""
        self.state: State | None = None
        self.heartbeat: Heartbeat | None = None
        self.presence = Presence("")
        self.runners: dict[str, tuple[float, Status]] = {}
        self.message = ""  # the last thing a service said
        self.version = 0  # counts up with every change of the episodes
        self._beat = -math.inf
        self._data: dict[str, _Data] = {}
        self._newest = ""  # experiment of the newest value, until the optimizer has said which
        self._asked: set[str] = set()  # buttons whose answer is not here yet
        self._reviewed: set[str] = set()  # theta_hash of proposals the operator has decided on

    # -- in -----------------------------------------------------------------------------------------

    def take(self, values: Iterable[Any]) -> None:
        """Take in values of the kinds in values.py, and Episode and Verdict."""
        takers = {
            State: self._take_state, Proposed: self._take_proposal, Heartbeat: self._take_heartbeat,
            Status: self._take_status, Presence: self._take_presence, Answer: self._take_answer,
            Episode: self._take_episode, Verdict: self._take_verdict,
        }  # fmt: skip
        for value in values:
            takers[type(value)](value)

    def _take_state(self, state: State) -> None:
        if self.state is None or state.experiment_uid != self.state.experiment_uid:
            self.version += 1
        self.state = state

    def _take_proposal(self, proposal: Proposed) -> None:
        data = self._of(proposal.experiment_uid)
        data.row(proposal.id).proposal = proposal
        data.gamma[proposal.id] = proposal.gamma
        self.version += 1

    def _take_verdict(self, verdict: Verdict) -> None:
        row = self._of(verdict.experiment_uid).row(verdict.proposal_id)
        if row.verdict is not None and row.verdict.stamp > verdict.stamp:
            return  # late history
        same = row.verdict is not None and (row.verdict.status, row.verdict.reason) == (verdict.status, verdict.reason)
        row.verdict = verdict
        self.version += not same  # a waiting proposal is asked about twice a second

    def _take_episode(self, episode: Episode) -> None:
        data = self._of(episode.experiment_uid)
        if episode.episode_uid not in data.seen:
            data.seen.add(episode.episode_uid)
            data.row(episode.proposal_id).episode = episode
            self.version += 1

    def _take_heartbeat(self, heartbeat: Heartbeat) -> None:
        self.heartbeat, self._beat = heartbeat, self._clock()

    def _take_status(self, status: Status) -> None:
        self.runners[status.runner] = (self._clock(), status)

    def _take_presence(self, presence: Presence) -> None:
        self.presence = presence

    def _take_answer(self, answer: Answer) -> None:
        self._asked.discard(answer.button)
        if not answer.success:
            self._reviewed.clear()  # those that were accepted have their verdict by now, or will in a moment
        done = "" if answer.success else ": not done"
        self.message = f"{answer.button}{done}: {answer.message}" if answer.message else f"{answer.button}{done}"

    def asked(self, button: str, hash: str = "") -> None:
        """A button was clicked; it stays disabled until its answer is here (stop never is)."""
        self._asked.add(button)
        if hash:
            self._reviewed.add(hash)

    def _of(self, uid: str) -> _Data:
        self._newest = uid
        return self._data.setdefault(uid, _Data())

    # -- out ----------------------------------------------------------------------------------------

    @property
    def experiment_uid(self) -> str:
        return self.state.experiment_uid if self.state else self._newest

    @property
    def _shown(self) -> _Data:
        return self._data.get(self.experiment_uid) or _Data()

    @property
    def rows(self) -> list[Row]:
        """The experiment's proposals by id."""
        data = self._shown
        return [data.rows[id] for id in data.order]

    @property
    def monitor_alive(self) -> bool:
        return self._clock() - self._beat < HEARTBEAT_TIMEOUT

    @property
    def armed(self) -> bool:
        return self.monitor_alive and self.heartbeat is not None and self.heartbeat.armed

    @property
    def optimizer_alive(self) -> bool:
        return self.presence.optimizer and self.state is not None

    def live_runners(self) -> list[Status]:
        """The runners heard of lately, by name."""
        now = self._clock()
        alive = {name: status for name, (at, status) in self.runners.items() if now - at < STATUS_TIMEOUT}
        return [alive[name] for name in sorted(alive)]

    def waiting(self) -> list[Row]:
        """Proposals that wait for the operator's word, at a monitor that is alive and armed; the oldest first."""
        if not self.armed or self.heartbeat is None:
            return []
        uid = self.heartbeat.monitor_uid
        return [row for row in self.rows if row.episode is None and row.verdict is not None
                and row.verdict.status == WAITING and row.verdict.reason.startswith(AT_OPERATOR)
                and row.verdict.monitor_uid == uid
                and row.verdict.theta_hash not in self._reviewed]  # fmt: skip

    def current(self) -> Row | None:
        """The proposal to look at: the one that waits for the operator, that runs, or else the newest."""
        if waiting := self.waiting():
            return waiting[0]
        data = self._shown
        for status in self.live_runners():
            if status.state == "running" and status.proposal_id in data.rows:
                return data.rows[status.proposal_id]
        return data.rows[data.order[-1]] if data.order else None

    def buttons(self) -> dict[str, bool]:
        """Which buttons apply. Stop is offered unless everything is known to be held already."""
        running = self.state.state if self.state and self.presence.optimizer else ""
        held = self.monitor_alive and not self.armed
        waiting = bool(self.waiting())
        applies = {
            "pause": running == "running",
            "resume": running == "paused",
            "rearm": held,
            "approve": waiting,
            "reject": waiting,
        }
        return {"stop": not held, **{name: on and name not in self._asked for name, on in applies.items()}}

    def series(self) -> Series:
        """The curves. Bounds of vetoed proposals are drawn where their returns would be."""
        rows, data = self.rows, self._shown
        points: dict[str, tuple[Array, Array]] = {}
        for outcome in ("completed", "terminated", "vetoed"):
            shown = [row for row in rows if row.outcome == outcome]
            heights = [row.bound if outcome == "vetoed" else row.value for row in shown]
            points[outcome] = (_array(row.id for row in shown), _array(heights))
        counted = [row for row in rows if math.isfinite(row.value)]
        ids, y, bounds = (_array(f(row) for row in counted) for f in (_id, _value, _bound))
        bounded = np.isfinite(bounds)
        held = np.cumsum(y[bounded] >= bounds[bounded])
        gamma = [(id, data.gamma[id]) for id in data.order if math.isfinite(data.gamma.get(id, NAN))]
        count = np.arange(1.0, len(y) + 1.0)
        return Series(
            points,
            (ids[bounded], bounds[bounded], y[bounded]),
            (ids, np.maximum.accumulate(y) if len(y) else y),
            (ids, np.cumsum(y) / count),
            (_array(id for id, _ in gamma), _array(value for _, value in gamma)),
            (ids[bounded], held / np.arange(1.0, len(held) + 1.0)),
        )

    # -- in words -----------------------------------------------------------------------------------

    def optimizer_text(self) -> str:
        if self.state is None:
            return "not heard of yet"
        if not self.presence.optimizer:
            return f"gone (was {self.state.state})"
        s = self.state
        why = f": {s.message}" if s.message and s.message != "ok" and s.state != "running" else ""
        return f"{s.state}{why}"

    def monitor_text(self) -> str:
        if self.heartbeat is None:
            return "not heard of yet: nothing moves"
        if not self.monitor_alive:
            return "gone: nothing moves"
        return "armed" if self.armed else f"HELD: {self.heartbeat.reason}"

    def runner_text(self) -> str:
        alive = self.live_runners()
        if not alive:
            return "none"
        if len(alive) == 1:
            s = alive[0]
            into = f", {s.episode_time:.1f} s" if s.state == "running" else ""
            why = f": {s.message}" if s.message else ""
            return f"{s.state}{why}{into}"
        states = [status.state for status in alive]
        return ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))

    def figures_text(self) -> str:
        """The run in one line."""
        s = self.state
        if s is None:
            return ""
        budget = f"/{s.budget}" if s.budget else ""
        best = f"best {number(s.best_mean)} (proposal {s.best_id})" if s.best_id >= 0 else "no return yet"
        coverage = self.heartbeat.coverage if self.heartbeat else s.coverage
        held = f"bound held {100 * coverage:.0f} %" if math.isfinite(coverage) else ""
        parts = [f"{s.experiment}: {s.method} on {s.task}", f"episode {s.completed}{budget}", best]
        parts += [f"average {number(s.average_return)}", f"gamma {number(s.gamma_effective)}", held]
        return "  ·  ".join(part for part in parts if part)

    def proposal_text(self) -> str:
        row = self.current()
        if row is None:
            return "no proposal yet"
        if row.proposal is None:
            return f"proposal {row.id}"
        p = row.proposal
        expected = f", expected {number(p.mean)} ± {number(p.sigma)}" if math.isfinite(p.mean) else ""
        why = f" ({p.reason})" if p.reason else ""
        return f"proposal {p.id}: {p.kind}{expected}, gamma {number(p.gamma)}{why}"

    def verdict_text(self) -> tuple[str, str]:
        """(status, sentence) of the current proposal's verdict: status is approved, vetoed, waiting or ""."""
        row = self.current()
        verdict = row.verdict if row else None
        if verdict is None:
            return "", "no verdict yet"
        words = {APPROVED: "approved", REFUSED: "vetoed", WAITING: "waiting"}
        status = words.get(verdict.status, verdict.status)
        return status, f"{status}: {verdict.reason}"


def number(value: float) -> str:
    """A figure for people."""
    return f"{value:.4g}" if math.isfinite(value) else "–"


def _array(values: Iterable[float]) -> Array:
    return np.array(list(values), dtype=np.float64)


def _id(row: Row) -> float:
    return row.id


def _value(row: Row) -> float:
    return row.value


def _bound(row: Row) -> float:
    return row.bound
