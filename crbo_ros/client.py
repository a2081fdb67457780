"""Bring your own runner in ten lines: the protocol of docs/PROTOCOL.md, with the same gate and spool as our own runner.

    import rclpy
    from crbo_ros.client import Client

    with Client("my_runner") as client:
        for trial in client:                      # each one is approved by the safety monitor
            value = my_robot.run(trial.theta, may_go_on=trial.may_go_on)   # ask at every step
            trial.done(value)                     # or trial.failed("why"); leaving it out counts as failed
        my_robot.use(client.best)

A trial in hand when the process is killed is run again after a restart if `folder` is given; results that were not
acknowledged yet are handed in first.
"""

from __future__ import annotations

import math
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crbo_ros.core.trial import theta_hash
from crbo_ros.errors import InvalidInput, PlantError
from crbo_ros.protocol.gate import Gate
from crbo_ros.protocol.records import (
    APPROVED,
    COMPLETED,
    FAILED,
    REFUSED,
    STOPPED,
    TERMINATED,
    VETOED,
    Episode,
    Verdict,
    new_uid,
)
from crbo_ros.protocol.spool import Spool
from crbo_ros.ros.link import RosLink, no_poll

Array = NDArray[np.float64]


@dataclass
class Trial:
    """One approved policy to run now."""

    id: int
    theta: Array
    kind: str  # start, initial, acquisition, ...
    predicted: float  # expected return; NaN before the first
    worst_case: float  # the monitor's bound; NaN if unknown
    _verdict: Verdict = field(repr=False)
    _gate: Gate = field(repr=False)
    end: tuple[str, float, str] | None = None

    def stop_reason(self) -> str:
        """Why this must not go on (the monitor said stop, or is gone); "" when all is well. Ask at every step."""
        obstacle = self._gate.obstacle(self._verdict)
        return obstacle.reason if obstacle else ""

    def may_go_on(self) -> bool:
        return not self.stop_reason()

    def done(self, value: float, *, early: bool = False) -> None:
        """The return. `early`: the episode ended by its own rule (a fall); the return counts all the same."""
        if not math.isfinite(value):
            raise InvalidInput(f"value: the return of proposal {self.id} is {value}; use failed() if there is none")
        self.end = (TERMINATED if early else COMPLETED, float(value), "")

    def failed(self, reason: str) -> None:
        """There is no return: the robot failed or refused."""
        self.end = (FAILED, math.nan, reason)

    def stopped(self, reason: str = "") -> None:
        """It was stopped half-way; no return."""
        self.end = (STOPPED, math.nan, reason or self.stop_reason() or "stopped")


class Client:
    """Iterate over it: each item is a Trial that may run now. A context manager.

    `namespace`: that of the graph. `folder`: where request and results survive a kill; None: a fresh start each time.
    """

    def __init__(
        self,
        name: str = "client",
        *,
        namespace: str = "",
        folder: str | Path | None = None,
        heartbeat_timeout: float = 0.5,
        timeout: float = 20.0,
    ) -> None:
        self.namespace = namespace.strip("/")
        self.runner = "/".join(["", *filter(None, [self.namespace]), name])
        self.timeout = timeout
        self.gate = Gate(heartbeat_timeout)
        self.link = RosLink(name)
        self.best: Array | None = None
        self.why_done = ""
        self.quit = threading.Event()  # set it to leave the loop after the trial in hand
        self._folder = folder
        self._spool: Spool | None = None
        self._recent: list[Any] = []

    # -- connection -------------------------------------------------------------------------------

    def connect(self) -> None:
        if self.link.node is not None:
            return
        if self._folder is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="crbo-")
        folder = Path(self._folder or self._temporary.name).expanduser()
        folder.mkdir(parents=True, exist_ok=True)
        self._spool = Spool(folder / f"{self.runner.strip('/').replace('/', '.')}.sqlite")
        self.link.open()
        from crbo_ros import msg
        from crbo_ros.ros import qos

        self._returns = self.link.node.create_publisher(msg.EpisodeReturn, self._name("episode_return"), qos.HISTORY)
        self._heartbeat = self.link.node.create_subscription(
            msg.SafetyHeartbeat, self._name("safety_heartbeat"), self._on_heartbeat, qos.HEARTBEAT
        )

    def _on_heartbeat(self, message: Any) -> None:
        self.gate.heartbeat(message.monitor_uid, message.armed, message.reason)

    def _name(self, relative: str) -> str:
        return "/".join(["", *filter(None, [self.namespace]), relative])

    def close(self) -> None:
        self.link.close()
        if self._spool is not None:
            spool, self._spool = self._spool, None
            spool.close()
            if self._folder is None:
                self._temporary.cleanup()

    def __enter__(self) -> Client:
        self.connect()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    # -- the loop ---------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Trial]:
        self.connect()
        self._hand_in()
        while not self.quit.is_set():
            proposal = self._next_proposal()
            if proposal is None:
                if self.why_done:
                    return
                continue
            trial = self._approved(proposal)
            if trial is None:
                continue
            yield trial
            end = trial.end or (FAILED, math.nan, "the runner's code gave no result")
            self._report(proposal, trial._verdict, *end)

    def _next_proposal(self) -> Any | None:
        from crbo_ros import srv

        assert self._spool is not None
        request = srv.ProposePolicy.Request(runner=self.runner, request_id=self._spool.request_id())
        answer = self._call("ProposePolicy", "propose_policy", request)
        if answer.status == answer.OK:
            return answer.proposal
        if answer.status == answer.REFUSED:
            self._spool.new_request()
        elif answer.status == answer.WAIT:
            self.quit.wait(answer.retry_after)
        else:
            self.why_done = answer.reason or "done"
            self.best = np.array(answer.proposal.theta) if len(answer.proposal.theta) else None
        return None

    def _approved(self, proposal: Any) -> Trial | None:
        """The trial once the monitor has approved it; None when it was vetoed (reported) or time ran out."""
        from crbo_ros import srv
        from crbo_ros.ros import convert

        assert self._spool is not None
        theta = np.array(proposal.theta, dtype=np.float64)
        while not self.quit.is_set():
            if self.gate.obstacle():
                self.quit.wait(0.05)
                continue
            request = srv.CheckRollout.Request(proposal=proposal, runner=self.runner, recent=self._recent)
            verdict = convert.from_message(self._call("CheckRollout", "check_rollout", request).verdict, Verdict)
            refusal = self.gate.refusal(
                verdict, experiment_uid=proposal.experiment_uid, proposal_id=proposal.id,
                theta_hash=theta_hash(theta), runner=self.runner, arrived=time.monotonic(),
            )  # fmt: skip
            if verdict.status == APPROVED and not refusal:
                return Trial(proposal.id, theta, proposal.kind, proposal.mean, verdict.worst_case, verdict, self.gate)
            if verdict.status == REFUSED and (verdict.proposal_id, verdict.runner) == (proposal.id, self.runner):
                self._report(proposal, verdict, VETOED, math.nan, verdict.reason)
                return None
            self.quit.wait(0.1)
        return None

    def _report(self, proposal: Any, verdict: Verdict, end: str, value: float, reason: str) -> None:
        from crbo_ros.ros import convert

        assert self._spool is not None
        episode = Episode(
            episode_uid=new_uid(),
            experiment_uid=proposal.experiment_uid,
            proposal_id=proposal.id,
            runner=self.runner,
            theta=np.array(proposal.theta, dtype=np.float64),
            outcome=end,
            value=value,
            reason=reason,
            verdict_id=verdict.verdict_id,
            predicted_worst_case=verdict.worst_case,
            stamp=time.time(),
        )
        self._spool.add(episode)
        message = convert.to_message(episode)
        self._returns.publish(message)
        if episode.counts:
            self._recent = [*self._recent[-2:], message]
        self._hand_in()

    def _hand_in(self) -> None:
        from crbo_ros import srv
        from crbo_ros.ros import convert

        assert self._spool is not None
        for episode in self._spool.pending():
            request = srv.AcknowledgeEpisode.Request(episode=convert.to_message(episode))
            while True:
                answer = self._call("AcknowledgeEpisode", "acknowledge_episode", request)
                if answer.status != answer.RETRY:
                    break
                self.quit.wait(1.0)
            end = "refused" if answer.status == answer.REFUSED else "done"
            self._spool.settle(episode.episode_uid, end, answer.reason)

    def _call(self, type_: str, name: str, request: Any) -> Any:
        """An answer; every call of the protocol may be repeated, so: until there is one, or quit."""
        while True:
            try:
                return self.link.call(f"crbo_ros/srv/{type_}", self._name(name), request, self.timeout, no_poll)
            except PlantError as error:
                if self.quit.is_set():
                    raise
                self.link.node.get_logger().info(f"{error}; trying again")
