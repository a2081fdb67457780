"""The runner's last look before anything moves, and at every step while it does: is there a live, matching approval?"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from crbo_ros.protocol.records import APPROVED, Verdict

HELD, LOST = "held", "lost"


@dataclass(frozen=True)
class Obstacle:
    """Why nothing may move: `held` (the monitor was told to stop) or `lost` (no living monitor stands behind it)."""

    kind: str
    reason: str


class Presence:
    """Who was heard within the last `seconds`."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds, self._clock = seconds, clock
        self._heard: dict[str, float] = {}

    def hear(self, who: str) -> None:
        now = self._clock()
        self._heard = {name: when for name, when in self._heard.items() if now - when <= self.seconds} | {who: now}

    def count(self) -> int:
        now = self._clock()
        return sum(now - when <= self.seconds for when in self._heard.values())


class Gate:
    """Knows the monitor's last heartbeat. Fails safe: what it has not heard, it does not assume."""

    def __init__(self, timeout: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.timeout, self._clock = timeout, clock
        self._lock = threading.Lock()
        self._heard, self._monitor_uid, self._armed, self._reason = -float("inf"), "", False, ""

    def heartbeat(self, monitor_uid: str, armed: bool, reason: str = "") -> None:
        with self._lock:
            self._heard, self._monitor_uid, self._armed, self._reason = self._clock(), monitor_uid, armed, reason

    def obstacle(self, verdict: Verdict | None = None) -> Obstacle | None:
        """What stands in the way of moving under this verdict's monitor, or None. Cheap: called every step."""
        with self._lock:
            silent = self._clock() - self._heard
            if silent > self.timeout:
                heard = "never" if self._heard == -float("inf") else f"{silent:.2f} s ago"
                return Obstacle(LOST, f"no heartbeat of the safety monitor (last heard: {heard})")
            if not self._armed:
                return Obstacle(HELD, self._reason or "the safety monitor is not armed")
            if verdict is not None and verdict.monitor_uid != self._monitor_uid:
                return Obstacle(LOST, "the safety monitor that gave the approval is gone (another one answers now)")
            return None

    def refusal(self, verdict: Verdict, *, experiment_uid: str, proposal_id: int, theta_hash: str, runner: str,
                arrived: float) -> str:  # fmt: skip
        """Why this verdict does not permit this rollout now, or "" when it does.

        `arrived`: when the answer came (this gate's clock).
        """
        wanted = {
            "experiment_uid": experiment_uid,
            "proposal_id": proposal_id,
            "theta_hash": theta_hash,
            "runner": runner,
        }
        for field, value in wanted.items():
            if getattr(verdict, field) != value:
                return f"{field}: the verdict is for {getattr(verdict, field)!r}, not {value!r}"
        if verdict.status != APPROVED:
            return f"status: {verdict.status} ({verdict.reason})"
        age = self._clock() - arrived
        if age > verdict.valid_for:
            return f"valid_for: the approval was valid for {verdict.valid_for:g} s and is {age:.2f} s old"
        obstacle = self.obstacle(verdict)
        return obstacle.reason if obstacle else ""
