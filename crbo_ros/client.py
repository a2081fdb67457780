"""Bring your own runner in ten lines: the same loop, gate and spool as our own runner (protocol/runner.py).

    from crbo_ros.client import Client

    with Client("my_runner", folder="~/my_robot") as client:
        for trial in client:                      # each one is approved by the safety monitor
            value = my_robot.run(trial.theta, may_go_on=trial.may_go_on)   # ask at every step
            trial.done(value)                     # on disk when it returns; or trial.failed("why")
        my_robot.use(client.best)

A trial in hand when the process is killed is run again after a restart if `folder` is given, at most twice; results
that were not acknowledged yet are handed in first.
"""

from __future__ import annotations

import math
import os
import queue
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crbo_ros import checks
from crbo_ros.clock import boottime
from crbo_ros.errors import CrboError, InvalidInput, StoreError
from crbo_ros.protocol.gate import HELD, QUIT, Gate, Permit
from crbo_ros.protocol.manifest import robot_of
from crbo_ros.protocol.ports import PLANTS, Command, Progress, Ran, Safe, Stage, State, Status
from crbo_ros.protocol.records import COMPLETED, FAILED, STOPPED, TERMINATED, Offer
from crbo_ros.protocol.runner import EpisodeLoop
from crbo_ros.protocol.spool import Spool
from crbo_ros.ros.link import RosLink

Array = NDArray[np.float64]
PATIENCE = 30.0  # s for a result to reach the disk


class Trial:
    """One approved policy to run now."""

    def __init__(self, offer: Offer, permit: Permit, rig: TrialRig) -> None:
        self.id, self.theta, self.kind = offer.id, offer.theta, offer.kind  # kind: start, initial, acquisition, ...
        self.predicted = offer.mean  # expected return; NaN before the first
        self.worst_case = permit.verdict.worst_case  # the monitor's bound; NaN if unknown
        self._permit, self._rig = permit, rig
        self._begun = self._over = False
        self._stopped: tuple[str, str] | None = None  # (kind, reason)

    def stop_reason(self) -> str:
        """Why this must not go on (stop was called, the monitor is gone, the approval is too old); "" when all is well.

        Ask before the first action and at every step.
        """
        now = boottime()
        obstacle = self._permit.obstacle(now) if self._begun else self._permit.refusal(now)
        self._begun = True
        if obstacle is not None and self._stopped is None:
            self._stopped = (obstacle.kind, obstacle.reason)
        return self._stopped[1] if self._stopped is not None else ""

    def may_go_on(self) -> bool:
        return not self.stop_reason()

    def done(self, value: float, *, early: bool = False) -> None:
        """The return; on disk when this returns. `early`: it ended by its own rule (a fall); it counts all the same."""
        if not math.isfinite(value):
            raise InvalidInput(f"value: the return of proposal {self.id} is {value}; use failed() if there is none")
        self._end(Ran(TERMINATED if early else COMPLETED, float(value)))

    def failed(self, reason: str) -> None:
        """There is no return: the policy failed or was refused."""
        self._end(Ran(FAILED, reason=reason))

    def stopped(self, reason: str = "") -> None:
        """It was stopped half-way; no return. If its monitor went away it comes again, else it has failed."""
        kind, why = self._stopped or (HELD, "stopped")
        self._end(Ran(STOPPED, reason=reason or why, stopped_by=kind))

    def _end(self, ran: Ran) -> None:
        if self._over:
            raise InvalidInput(f"proposal {self.id}: its result has been given already")
        self._over = True
        self._rig.ended(ran)


class TrialRig:
    """The user's robot as the loop's rig: it resets itself, and says when it is through."""

    def __init__(self) -> None:
        self.trials: queue.SimpleQueue[Trial | None] = queue.SimpleQueue()
        self.best: Array | None = None
        self.wake: Any = None
        self.kept = threading.Event()  # what has ended is on disk
        self._progress = Progress(Stage.IDLE)
        self._trial: Trial | None = None

    def prepare(self, offer: Offer) -> None:
        self._offer, self._trial, self._progress = offer, None, Progress(Stage.PREPARED)

    def begin(self, permit: Permit) -> None:
        self._progress = Progress(Stage.RUNNING)
        self._trial = Trial(self._offer, permit, self)
        self.trials.put(self._trial)

    def look(self) -> Progress:
        return self._progress

    def stop(self, kind: str, reason: str) -> None:
        if self._trial is not None:
            if self._trial._stopped is None:
                self._trial._stopped = (kind, reason)
        elif self._progress.stage is Stage.PREPARED:
            self._progress = Progress(Stage.ENDED, Ran(STOPPED, reason=reason, stopped_by=kind))

    def safe(self) -> Safe:
        return Safe(True, "the user's code gave its result")

    def rest(self, theta: Array) -> None:
        self.best = theta

    def ended(self, ran: Ran) -> None:
        self.kept.clear()
        self._progress = Progress(Stage.ENDED, ran)
        self.wake()
        if not self.kept.wait(PATIENCE):
            raise StoreError(f"the result was not written within {PATIENCE:g} s; it is kept in memory and tried again")


class Client:
    """Iterate over it: each item is a Trial that may run now. A context manager.

    `namespace`: that of the graph. `folder`: where request and results survive a kill; None: a fresh start each time.
    `experiment`: the name of the one to work for; empty: whoever answers.
    """

    def __init__(
        self,
        name: str = "client",
        *,
        namespace: str = "",
        folder: str | Path | None = None,
        heartbeat_timeout: float = 0.5,
        experiment: str = "",
    ) -> None:
        self.namespace = namespace.strip("/")
        self.runner = "/".join(["", *filter(None, [self.namespace]), name])
        self.gate = Gate(heartbeat_timeout)
        self.link = RosLink(name)
        self._folder, self._experiment = folder, experiment
        self._rig = TrialRig()
        self._spool: Spool | None = None
        self._loop: EpisodeLoop | None = None
        self._error: BaseException | None = None

    @property
    def best(self) -> Array | None:
        """The recommended policy, once the run is over."""
        return self._rig.best

    @property
    def why_done(self) -> str:
        """Why there are no more trials; empty while there may be."""
        return "" if self._loop is None else self._loop.why_done

    # -- connection -------------------------------------------------------------------------------

    def connect(self) -> None:
        if self._loop is not None:
            return
        if self._folder is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="crbo-")
        folder = checks.path(self._folder or self._temporary.name, "folder")
        self._spool = Spool(folder / f"{self.runner.strip('/').replace('/', '.')}.sqlite")
        self.link.open()
        import crbo_ros.msg as msg
        from crbo_ros.ros import qos
        from crbo_ros.ros.runner_link import Driver, RunnerLink

        self._driver = Driver(self._on_status, self._on_crash)
        self._rig.wake = self._driver.wake
        link = RunnerLink(
            self.link.node, self.runner, self.gate, self._driver, name=self._name, publish_status=self._publish_status,
            memory=lambda: self._spool.database if self._spool is not None else None,
        )  # fmt: skip
        self._statuses = self.link.node.create_publisher(msg.RunnerStatus, self._name("runner_status"), qos.LATCHED)
        self._loop = EpisodeLoop(
            self.runner, self._spool, link, self._rig, self.gate, experiment=self._experiment,
            key=os.environ.get("CRBO_KEY", ""), exit_when_done=True, say=self._say,
        )  # fmt: skip
        self._driver.start(self._loop)

    def _publish_status(self) -> None:
        """A sign of life, which renews the lease of the proposal in hand."""
        import crbo_ros.msg as msg

        assert self._loop is not None
        status, running = self._loop.status, self._loop.state is State.RUN
        self._statuses.publish(
            msg.RunnerStatus(
                runner=self.runner,
                experiment_uid=status.experiment_uid,
                proposal_id=status.proposal_id,
                state=msg.RunnerStatus.RUNNING if running else msg.RunnerStatus.WAITING,
                message=status.message,
                verdict_id=status.verdict_id,
                episodes=status.episodes,
                interrupted=status.interrupted,
                unreported=status.unreported,
                plant=PLANTS[status.plant],
                plant_reason=status.plant_reason,
                robot=robot_of(),
                holds=status.holds,
            )
        )

    def _name(self, relative: str) -> str:
        return "/".join(["", *filter(None, [self.namespace]), relative])

    def _say(self, level: str, text: str) -> None:
        from crbo_ros.ros.runner_link import say

        say(self.link.node.get_logger(), level, text)

    def _on_status(self, status: Status) -> None:
        if status.state not in (State.RUN, State.MAKE_SAFE, State.KEEP):
            self._rig.kept.set()
        if status.state is State.ENDED:
            self._rig.trials.put(None)

    def _on_crash(self, error: BaseException) -> None:
        self._error = error
        self._rig.trials.put(None)
        self._rig.kept.set()

    def clear(self) -> None:
        """A person has looked at what was broken off too often, or failed too often: it may be tried again."""
        if self._loop is not None:
            self._loop.told(Command.CLEAR)
            self._driver.wake()

    def quit(self) -> None:
        """Leave the loop; from any thread. A trial in hand is told to stop (may_go_on)."""
        if self._loop is not None:
            self._loop.told(Command.QUIT)
            self._driver.wake()

    def close(self) -> None:
        if self._loop is not None and self._spool is not None:
            self.quit()
            trial = self._rig._trial
            if trial is not None and not trial._over:
                trial._over = True
                self._rig._progress = Progress(Stage.ENDED, Ran(STOPPED, reason="left", stopped_by=QUIT))
                self._driver.wake()
            self._driver.join(10.0)
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
        while (trial := self._rig.trials.get()) is not None:
            yield trial
            if not trial._over:
                trial.failed("the runner's code gave no result")
        if self._error is not None:
            raise CrboError(f"the runner's loop failed: {self._error}") from self._error
