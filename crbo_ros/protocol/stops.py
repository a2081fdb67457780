"""What became of a stop, runner by runner: each echoes the number of the hold it has obeyed, with its plant's state."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from crbo_ros.protocol.ports import SAFE

CONFIRMED_WITHIN = 0.5  # s from a stop to the answer
FORGOTTEN = 5.0  # s of silence after which a runner whose plant was safe is no longer waited for


@dataclass(frozen=True)
class Seen:
    """A runner's last status."""

    when: float
    holds: int
    plant: str  # ports.UNKNOWN, SAFE or MOVING
    reason: str
    idle: bool  # not active: it obeys no hold because it moves nothing


class Stops:
    """Thread-safe: statuses come on one thread, a stop's answer is waited for on another."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._runners: dict[str, Seen] = {}

    def hear(self, runner: str, seen: Seen) -> None:
        with self._changed:
            self._runners[runner] = seen
            self._changed.notify_all()

    def unconfirmed(self, now: float, holds: int) -> dict[str, str]:
        """Each runner that has not said that its plant is safe since that hold, and what is known of it."""
        with self._changed:
            return {runner: what for runner, seen in sorted(self._runners.items()) if (what := _open(seen, now, holds))}

    def confirmed(self, now: float, holds: int) -> dict[str, str]:
        """The others, and what they measured."""
        with self._changed:
            return {
                runner: seen.reason or "safe"
                for runner, seen in sorted(self._runners.items())
                if not _open(seen, now, holds) and now - seen.when <= FORGOTTEN
            }

    def wait(self, seconds: float) -> None:
        """For the next status, or so long."""
        with self._changed:
            self._changed.wait(seconds)

    def answer(self, now: float, holds: int) -> str:
        """For the person who called stop."""
        lines = [f"{runner}: SAFE ({reason})" for runner, reason in self.confirmed(now, holds).items()]
        lines += [f"{runner}: NOT CONFIRMED ({reason})" for runner, reason in self.unconfirmed(now, holds).items()]
        return "; ".join(lines) or "no runner is heard"


def _open(seen: Seen, now: float, holds: int) -> str:
    silent = now - seen.when
    if seen.plant == SAFE and (seen.idle or seen.holds == holds or silent > FORGOTTEN):
        return ""
    return f"{seen.plant}{', ' + seen.reason if seen.reason else ''}; last heard {silent:.1f} s ago"
