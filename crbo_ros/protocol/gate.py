"""The runner's last look before anything moves, and at every step while it does: is there a live, matching approval?

Time is an argument, counted on one clock of the runner's own that does not stand still while the machine sleeps
(CLOCK_BOOTTIME). Fails safe: what was not heard is not assumed.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass

from crbo_ros.protocol.records import APPROVED, Offer, Verdict

HELD, LOST, QUIT = "held", "lost", "quit"
MOST = 16  # names that are kept
SETTLED = 0.05  # s that a monitor must have been heard for: a burst of old messages after a freeze is no sign of life


@dataclass(frozen=True)
class Obstacle:
    """Why nothing may move: `held` (the monitor was told to stop) or `lost` (no living monitor stands behind it)."""

    kind: str
    reason: str


class Presence:
    """Who was heard within the last `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._heard: dict[str, float] = {}

    def hear(self, now: float, who: str) -> None:
        if len(self._heard) >= MOST and who not in self._heard and self.count(now) >= MOST:
            return  # a flood of names: more than one is too many already
        self._heard = {name: when for name, when in self._heard.items() if now - when <= self.seconds} | {who: now}

    def count(self, now: float) -> int:
        return sum(0.0 <= now - when <= self.seconds for when in self._heard.values())


class Gate:
    """Knows the monitor's heartbeats. Thread-safe: they come on one thread, the plant's loop asks on another."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._lock = threading.Lock()
        self._heard = self._since = -math.inf
        self._monitor_uid, self._armed, self._reason = "", False, ""
        self.holds = 0  # how often the monitor was told to stop, as far as was heard

    def beat(self, now: float, monitor_uid: str, armed: bool, reason: str = "", holds: int = 0) -> None:
        with self._lock:
            self.holds = holds
            if monitor_uid != self._monitor_uid or not 0.0 <= now - self._heard <= self.timeout:
                self._since = now
            self._heard, self._monitor_uid, self._armed, self._reason = now, monitor_uid, armed, reason

    def obstacle(self, now: float, verdict: Verdict | None = None) -> Obstacle | None:
        """What stands in the way of moving under this verdict's monitor, or None. Cheap: called every step."""
        with self._lock:
            silent = now - self._heard
            if not 0.0 <= silent <= self.timeout:
                heard = "never" if self._heard == -math.inf else f"{silent:.2f} s ago"
                return Obstacle(LOST, f"no heartbeat of the safety monitor (last heard: {heard})")
            if not self._armed:
                return Obstacle(HELD, self._reason or "the safety monitor is not armed")
            if self._heard - self._since < SETTLED:
                return Obstacle(LOST, "the safety monitor has been heard only just now")
            if verdict is not None and verdict.monitor_uid != self._monitor_uid:
                return Obstacle(LOST, "the safety monitor that gave the approval is gone (another one answers now)")
            return None


@dataclass(frozen=True)
class Permit:
    """One approval: for one execution of exactly this theta, by this runner, while its monitor lives and is armed."""

    gate: Gate
    verdict: Verdict
    asked: float  # when the question was sent, on the runner's clock: the approval's age counts from there

    def mismatch(self, offer: Offer, runner: str, nonce: str, key: str) -> str:
        """Which field of the verdict is for something else, or ""."""
        wanted = {
            "experiment_uid": offer.experiment_uid, "proposal_id": offer.id, "theta_hash": offer.theta_hash,
            "runner": runner, "nonce": nonce,
        }  # fmt: skip
        for field, value in wanted.items():
            if getattr(self.verdict, field) != value:
                return f"{field}: the verdict is for {getattr(self.verdict, field)!r}, not {value!r}"
        return "" if self.verdict.proven(key) else "proof: not made with the key of this experiment"

    def refusal(self, now: float) -> Obstacle | None:
        """Why the policy may not begin now, or None."""
        if self.verdict.status != APPROVED:
            return Obstacle(LOST, f"status: {self.verdict.status} ({self.verdict.reason})")
        age = now - self.asked
        if not 0.0 <= age <= self.verdict.valid_for:
            return Obstacle(
                LOST, f"valid_for: the approval is valid for {self.verdict.valid_for:g} s and {age:.2f} s old"
            )
        return self.obstacle(now)

    def obstacle(self, now: float) -> Obstacle | None:
        """Why what has begun may not go on, or None."""
        return self.gate.obstacle(now, self.verdict)
