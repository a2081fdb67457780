"""A task as the loop's rig: its rollouts on a thread of their own, each step under the permit."""

from __future__ import annotations

import queue
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crbo_ros.clock import boottime
from crbo_ros.core.safe import safe_of
from crbo_ros.core.trial import NEW, OLD
from crbo_ros.errors import InvalidInput, PolicyFailed
from crbo_ros.protocol.gate import LOST, QUIT, Gate, Permit
from crbo_ros.protocol.ports import Progress, Ran, Safe, Stage
from crbo_ros.protocol.records import FAILED, STOPPED, Offer
from crbo_ros.tasks.base import BROKEN, Outcome, Task
from crbo_ros.tasks.signals import watched_rollout

Array = NDArray[np.float64]
UNASKED = Safe(True, "nothing has moved yet")
MOVES = Safe(False, "it moves")
HANG = 0.3  # s after a stop in which the thread must have come back; then the plant is asked past it


def stop_task(task: Task) -> Safe:
    """The plant into its safe state, and what is known of it."""
    try:
        return safe_of(task.stop(), not task.hardware, f"task {task.name}")
    except BaseException as error:  # a driver that calls sys.exit() included
        return Safe(False, f"stop failed: {type(error).__name__}: {error}")


class TaskRig:
    """See protocol.ports.Rig. Never blocks its caller; `wake` is called whenever there is something to look at.

    A task that holds its start (Task.holds_start) is brought into its start set before the approval is asked for; any
    other begins its rollout, reset included, once it is approved.
    """

    def __init__(
        self,
        task: Task,
        gate: Gate,
        seed: int,
        wake: Callable[[], None],
        *,
        safe: Safe = UNASKED,
        clock: Callable[[], float] = boottime,
        record: Callable[[], bool] = lambda: False,
        show: Callable[[float, Array], None] = lambda seconds, observation: None,
        on_outcome: Callable[[Outcome], None] = lambda outcome: None,
        on_crash: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.task, self.gate, self.seed, self.wake, self.clock = task, gate, seed, wake, clock
        self._record, self._show, self._on_outcome, self._on_crash = record, show, on_outcome, on_crash
        self._changed = threading.Condition()
        self._progress = Progress(Stage.IDLE)
        self._offer: Offer | None = None
        self._permit: Permit | None = None
        self._acting = False  # the policy's first action has been permitted
        self._stop: tuple[str, str] | None = None  # (kind, reason)
        self._safe = safe
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="rig", daemon=True)
        self._thread.start()

    # -- the loop's side ---------------------------------------------------------------------------

    def prepare(self, offer: Offer) -> None:
        with self._changed:
            self._offer, self._permit, self._stop, self._acting = offer, None, None, False
            self._progress = Progress(Stage.PREPARING if self.task.holds_start else Stage.PREPARED)
            self._safe = MOVES if self.task.holds_start else self._safe
        if self.task.holds_start:
            self._jobs.put(self._rollout)

    def begin(self, permit: Permit) -> None:
        with self._changed:
            self._permit, self._progress, self._safe = permit, Progress(Stage.RUNNING), MOVES
            self._changed.notify_all()
        if not self.task.holds_start:
            self._jobs.put(self._rollout)

    def look(self) -> Progress:
        return self._progress

    def stop(self, kind: str, reason: str) -> None:
        with self._changed:
            if self._stop is None:
                self._stop = (kind, reason)
            self._changed.notify_all()
            if self._progress.stage is Stage.PREPARED and not self.task.holds_start:  # nothing is under way
                kind, reason = self._stop
                self._progress = Progress(Stage.ENDED, Ran(STOPPED, reason=reason, stopped_by=kind))
            moving = self._progress.stage in (Stage.PREPARING, Stage.PREPARED, Stage.RUNNING)
        if moving and getattr(self.task.plant, "hosted", False):  # what hangs on our thread does not hang there
            self.task.cut()
            threading.Thread(target=self._ask_past_the_thread, name="rig-stop", daemon=True).start()
        elif not moving and not self._safe.confirmed:
            self._jobs.put(self._make_safe)

    def _ask_past_the_thread(self) -> None:
        time.sleep(HANG)
        if self._safe is MOVES and self._stop is not None:
            safe = stop_task(self.task)
            if self._safe is MOVES:
                self._safe = safe
                self.wake()

    def safe(self) -> Safe:
        return self._safe

    def rest(self, theta: Array) -> None:
        self._set(Progress(Stage.PREPARING))
        self._jobs.put(lambda: self._rest(theta))

    def close(self, timeout: float) -> bool:
        """End the thread; False if it hangs in the plant."""
        self.stop(QUIT, "the runner ends")
        self._jobs.put(None)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    # -- the plant's side: this thread alone touches the task ---------------------------------------

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    def _set(self, progress: Progress) -> None:
        with self._changed:
            self._progress = progress
        self.wake()

    def _rest(self, theta: Array) -> None:
        try:
            self.task.apply_best(theta)
        except Exception as error:
            self._on_crash(f"the best policy was not left on the plant: {error}")
        self._set(Progress(Stage.IDLE))

    def _rollout(self) -> None:
        offer = self._offer
        assert offer is not None
        paired = offer.kind in (OLD, NEW) and not self.task.hardware  # a simulation starts where it is told to
        number = offer.id // 2 if paired else offer.id
        rng = np.random.default_rng([self.seed, number, 0x0E91])  # a repeat after a crash gives the same
        try:
            if self._permit is not None and (reason := self._refused(self._permit)):
                outcome = Outcome(float("nan"), STOPPED, reason)
            else:
                outcome = watched_rollout(self.task, offer.theta, rng, record=self._record(), watch=self)
            self._on_outcome(outcome)
            if outcome.end == BROKEN:
                progress = Progress(Stage.BROKEN, reason=outcome.reason)
            else:
                progress = Progress(Stage.ENDED, self._ran(outcome))
        except (InvalidInput, PolicyFailed) as error:  # nothing moved
            progress = Progress(Stage.ENDED, Ran(FAILED, reason=str(error)))
        except BaseException as error:  # by no fault of the policy, as far as anybody knows
            self._on_crash("".join(traceback.format_exception(error)))
            progress = Progress(Stage.BROKEN, reason=f"{type(error).__name__}: {error}")
        self._make_safe()
        self._set(progress)

    def _make_safe(self) -> None:
        self._safe = stop_task(self.task)
        if not self._safe.confirmed:
            self._on_crash(f"the plant is not known to be safe: {self._safe.reason}")

    def _ran(self, outcome: Outcome) -> Ran:
        statistics = outcome.statistics
        median, p99, worst = (1e-3 * float(statistics.get(f"lateness_{n}_ms", 0.0)) for n in ("median", "p99", "max"))
        kind = self._stop[0] if self._stop is not None else LOST
        return Ran(
            outcome.end, outcome.value, outcome.reason, outcome.steps, outcome.duration,
            int(statistics.get("deadline_misses", 0)), median, p99, worst,
            outcome.violation, tuple(outcome.signals), tuple(outcome.signals.values()), tuple(outcome.limits.values()),
            kind if outcome.end == STOPPED else "",
        )  # fmt: skip

    # -- what the task asks at every step ----------------------------------------------------------

    def __call__(self, seconds: float, observation: Any, action: Any) -> str | None:
        """May this go on? Before every action; with negative time on the way to the start set."""
        if seconds < 0.0:
            return self._resetting()
        if self._permit is None and (reason := self._wait_for_permit()):
            return reason
        assert self._permit is not None
        if not self._acting:
            # What held its start acts for the first time now: the permit must be fresh. What was reset after its
            # approval must still be under a living, armed monitor.
            if self.task.holds_start and (reason := self._refused(self._permit)):
                return reason
            self._acting = True
        if self._stop is None and (obstacle := self._permit.obstacle(self.clock())):
            self._stop = (obstacle.kind, obstacle.reason)
        if self._stop is not None:
            return self._stop[1]
        self._show(seconds, observation)
        return None

    def ready(self) -> bool:
        """For a plant that holds itself in its start set: may the policy take over? Does not wait."""
        if self._permit is None and self._progress.stage is Stage.PREPARING:
            self._set(Progress(Stage.PREPARED))
        return self._permit is not None

    def _refused(self, permit: Permit) -> str:
        if self._stop is None and (refusal := permit.refusal(self.clock())):
            self._stop = (refusal.kind, refusal.reason)
        return self._stop[1] if self._stop is not None else ""

    def _resetting(self) -> str | None:
        if self._stop is None and (obstacle := self.gate.obstacle(self.clock())):
            self._stop = (obstacle.kind, obstacle.reason)
        return self._stop[1] if self._stop is not None else None

    def _wait_for_permit(self) -> str:
        """In the start set, with nothing to be held: until the loop says go, or stop."""
        self.ready()
        with self._changed:
            while self._permit is None and self._stop is None:
                self._changed.wait()
        return self._stop[1] if self._stop is not None else ""
