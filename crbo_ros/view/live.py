"""LiveView: a run as it happens. Which experiment is shown, who is alive, which buttons apply, all of it in words.

Values go in by `record` in whatever order they arrive: latched history may come before or after the optimizer's state,
twice after a restart, and for more than one experiment. The experiment shown is the optimizer's. No ROS, no Qt.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from typing import Any

from crbo_ros.numbers import number, percent
from crbo_ros.protocol.records import AT_OPERATOR, WAITING, ContractState, Episode, Offer, Verdict
from crbo_ros.view.parameters import short
from crbo_ros.view.run_view import Row, RunView
from crbo_ros.view.values import EpisodeTrajectory, Heartbeat, OptimizerState, Publishers, Reply, RunnerStatus

HEARTBEAT_TIMEOUT = 1.0  # s; the runners' own is shorter, this one only decides what is shown
KEPT = 50  # trajectories, beside theta_0's
STATUS_TIMEOUT = 2.5  # s; runners report twice a second


class LiveView:
    """See the module's docstring. Used from one thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.clear()

    def clear(self) -> None:
        """Forget everything (another namespace was chosen)."""
        self.heartbeat: Heartbeat | None = None
        self.contract: ContractState | None = None
        self.publishers = Publishers("")
        self.runners: dict[str, tuple[float, RunnerStatus]] = {}
        self.message = ""  # the last thing a service said
        self._trajectories: dict[tuple[str, int], EpisodeTrajectory] = {}  # by experiment_uid, proposal
        self._beat = -math.inf
        self._runs: dict[str, RunView] = {}  # by experiment_uid
        self._chosen = ""  # the optimizer's experiment
        self._newest = ""  # experiment of the newest value, until the optimizer has said which
        self._asked: set[str] = set()  # buttons whose reply is not here yet
        self._reviewed: set[str] = set()  # theta_hash of proposals the operator has decided on

    # -- in -----------------------------------------------------------------------------------------

    def record(self, values: Iterable[Any]) -> None:
        """Values of the kinds in values.py, and Offer, Verdict and Episode."""
        for value in values:
            if isinstance(value, (Offer, Verdict, Episode)):
                self._newest = value.experiment_uid
                self._run(value.experiment_uid).record(value)
            elif isinstance(value, OptimizerState):
                self._chosen = value.experiment_uid
                self._run(value.experiment_uid).record(value)
            elif isinstance(value, Heartbeat):
                self.heartbeat, self._beat = value, self._clock()
            elif isinstance(value, ContractState):
                self.contract = value
            elif isinstance(value, RunnerStatus):
                self.runners[value.runner] = (self._clock(), value)
            elif isinstance(value, EpisodeTrajectory):
                self._record_trajectory(value)
            elif isinstance(value, Publishers):
                self.publishers = value
            elif isinstance(value, Reply):
                self._record_reply(value)

    def _record_trajectory(self, value: EpisodeTrajectory) -> None:
        known = self._trajectories
        known.pop((value.experiment_uid, value.proposal_id), None)
        known[value.experiment_uid, value.proposal_id] = value
        start = self.trajectories(self.run)[0]
        old = [key for key, kept in known.items() if kept is not start]
        for key in old[:-KEPT]:
            del known[key]

    def trajectories(self, run: RunView, id: int = -1) -> tuple[EpisodeTrajectory | None, EpisodeTrajectory | None]:
        """Those of theta_0 and of a proposal (or of the newest that is known), as far as they were published."""
        uid = next((uid for uid, other in self._runs.items() if other is run), "")
        own = {id: value for (known, id), value in self._trajectories.items() if known == uid}
        starts = [value for id, value in own.items() if (row := run.find(id)) and row.kind == "start"]
        return (starts[0] if starts else None), own.get(id) or next(reversed(own.values()), None)

    def _record_reply(self, reply: Reply) -> None:
        self._asked.discard(reply.button)
        if not reply.success:
            self._reviewed.clear()  # those that were accepted have their verdict by now, or will in a moment
        done = "" if reply.success else ": not done"
        self.message = f"{reply.button}{done}: {reply.message}" if reply.message else f"{reply.button}{done}"

    def asked(self, button: str, hash: str = "") -> None:
        """A button was clicked; it stays disabled until its reply is here (stop never is)."""
        self._asked.add(button)
        if hash:
            self._reviewed.add(hash)

    def _run(self, uid: str) -> RunView:
        return self._runs.setdefault(uid, RunView())

    # -- out ----------------------------------------------------------------------------------------

    @property
    def run(self) -> RunView:
        """The run that is shown."""
        return self._run(self._chosen or self._newest)

    @property
    def state(self) -> OptimizerState | None:
        """The optimizer's own."""
        return self.run.state

    @property
    def monitor_alive(self) -> bool:
        return self._clock() - self._beat < HEARTBEAT_TIMEOUT

    @property
    def armed(self) -> bool:
        return self.monitor_alive and self.heartbeat is not None and self.heartbeat.armed

    @property
    def optimizer_alive(self) -> bool:
        return self.publishers.optimizer and self.state is not None

    def live_runners(self) -> list[RunnerStatus]:
        """The runners heard of lately, by name."""
        now = self._clock()
        alive = {name: status for name, (at, status) in self.runners.items() if now - at < STATUS_TIMEOUT}
        return [alive[name] for name in sorted(alive)]

    def waiting(self) -> list[Row]:
        """Proposals that wait for the operator's decision, at a monitor that is alive and armed; the oldest first."""
        if not self.armed or self.heartbeat is None:
            return []
        judged = [(row, row.verdict) for row in self.run.pending() if row.verdict]
        return [row for row, v in judged if v.status == WAITING and v.reason.startswith(AT_OPERATOR)
                and v.monitor_uid == self.heartbeat.monitor_uid and v.theta_hash not in self._reviewed]  # fmt: skip

    def current(self) -> Row | None:
        """The proposal to look at: the one that waits for the operator, that runs, or else the newest."""
        if waiting := self.waiting():
            return waiting[0]
        run = self.run
        for status in self.live_runners():
            if status.state in ("preparing", "running") and (row := run.find(status.proposal_id)):
                return row
        return run.rows[-1] if run.rows else None

    def to_clear(self) -> str:
        """The first runner that waits for a person to look at its plant, or ""."""
        wanted = {"error", "held"} if self.armed else {"error"}
        return next((status.runner for status in self.live_runners() if status.state in wanted), "")

    def buttons(self) -> dict[str, bool]:
        """Which buttons apply. Stop is offered unless everything is known to be held already."""
        running = self.state.state if self.state and self.publishers.optimizer else ""
        held = self.monitor_alive and not self.armed
        waiting = bool(self.waiting())
        applies = {
            "pause": running == "running",
            "resume": running in ("paused", "error"),
            "rearm": held,
            "clear": bool(self.to_clear()),
            "approve": waiting,
            "reject": waiting,
        }
        applies["violation"] = self.monitor_alive and self.reportable() >= 0
        return {"stop": not held, **{name: on and name not in self._asked for name, on in applies.items()}}

    def reportable(self) -> int:
        """The rollout that a person who says "violation" means: the last one that ended; -1 if there is none."""
        run = self.run
        return next((id for id in reversed(run.order) if (row := run.find(id)) and math.isfinite(row.value)), -1)

    # -- in words -----------------------------------------------------------------------------------

    def optimizer_text(self) -> str:
        if self.state is None:
            return "not heard of yet"
        if not self.publishers.optimizer:
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

    def contract_text(self) -> tuple[str, str]:
        """(state, sentence): what is promised, what was spent of it and what is left."""
        c = self.contract
        if c is None:
            return "", "not heard of yet"
        if c.state in ("none", "waits", "refused"):
            return c.state, f"{c.state}: {c.reason}"
        of = f"/{c.budget}" if c.budget else ""
        spent = c.novel_violations / c.executed if c.executed else 0.0
        pending = f", {c.pending} under way" if c.pending else ""
        parts = [
            f"{c.state}: {c.novel_violations} of {c.allowed} falls of new policies in {c.executed}{of}{pending}",
            f"account {number(c.account)} (a new one needs {number(c.needed)})",
            f"J_min {number(c.threshold)}, risk so far {percent(spent)} of the {percent(c.risk)} agreed",
            f"proven: proposal {c.proven_id}, {number(c.proven_mean)}" if c.proven_id >= 0 else "",
            f"L {number(c.lipschitz)}" if math.isfinite(c.lipschitz) else "",
            f"bound held {percent(c.coverage)}, slack {number(c.slack)} sd" if math.isfinite(c.coverage) else "",
            c.reason,
        ]
        return c.state, "; ".join(part for part in parts if part)

    def signals_text(self) -> tuple[bool, str]:
        """(whether all are within their limits, sentence): the safety signals' worst cases for the last proposal."""
        c = self.contract
        rows = list(zip(c.signal_names, c.signal_bounds, c.signal_limits, strict=False)) if c else []
        beyond = [name for name, bound, limit in rows if bound > limit]
        text = "; ".join(f"{name} up to {number(bound)} of {number(limit)}" for name, bound, limit in rows)
        return not beyond, text or "none"

    def plant_text(self) -> tuple[str, str]:
        """(state, sentence): what the robot holds now, by the runner that knows least of it."""
        order = ("plant_unknown", "plant_moving", "plant_safe")
        alive = sorted(self.live_runners(), key=lambda s: order.index(s.plant) if s.plant in order else -1)
        if not alive:
            return "", "no runner tells"
        s = alive[0]
        words = {"plant_safe": "in its safe state", "plant_moving": "moves", "plant_unknown": "NOT KNOWN: keep away"}
        policy = f", policy of proposal {s.proposal_id}" if s.plant == "plant_moving" and s.proposal_id >= 0 else ""
        why = f": {s.plant_reason}" if s.plant_reason else ""
        which = "" if not s.robot or s.robot.startswith("host ") else f"{s.robot}: "
        return s.plant, f"{which}{words.get(s.plant, s.plant)}{policy}{why}"

    def runner_text(self) -> str:
        alive = self.live_runners()
        if not alive:
            return "none"
        broken = sum(status.interrupted for status in alive)
        if len(alive) == 1:
            s = alive[0]
            into = f", {s.episode_time:.1f} s" if s.state == "running" else ""
            why = f": {s.message}" if s.message else ""
            return f"{s.state}{why}{into}" + (f", {broken} interrupted" if broken else "")
        states = [status.state for status in alive]
        parts = [f"{states.count(state)} {state}" for state in dict.fromkeys(states)]
        return ", ".join(parts + ([f"{broken} interrupted"] if broken else []))

    def proposal_text(self) -> str:
        row = self.current()
        if row is None:
            return "no proposal yet"
        if row.proposal is None:
            return f"proposal {row.id}"
        p = row.proposal
        expected = f", expected {number(p.mean)} ± {number(p.sigma)}" if math.isfinite(p.mean) else ""
        why = f" ({p.reason})" if p.reason else ""
        names = self.run.names
        named = f"; {short(names, p.theta)}" if len(names) == len(p.theta) else ""
        return f"proposal {p.id}: {p.kind}{expected}, gamma {number(p.gamma)}{why}{named}"

    def verdict_text(self) -> tuple[str, str]:
        """(status, sentence) of the current proposal's verdict: status is approved, vetoed, waiting or ""."""
        row = self.current()
        verdict = row.verdict if row else None
        if verdict is None:
            return "", "no verdict yet"
        return verdict.status, f"{verdict.status}: {verdict.reason}"
