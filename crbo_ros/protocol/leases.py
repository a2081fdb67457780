"""How long a runner may keep a proposal without a sign of life. In memory, on the holder's own steady clock."""

from __future__ import annotations

import threading
from collections.abc import Callable

from crbo_ros.clock import boottime


class Leases:
    """Thread-safe, and never waits for what is computed or written: a renewal comes with every status message."""

    def __init__(self, seconds: float, clock: Callable[[], float] = boottime) -> None:
        self.seconds = seconds
        self._clock, self._lock = clock, threading.Lock()
        self._held: dict[int, tuple[str, float]] = {}  # proposal id -> (runner, when the lease is over)

    def begin(self, id: int, runner: str) -> None:
        """A full lease from now on."""
        with self._lock:
            self._held[id] = (runner, self._clock() + self.seconds)

    def renew(self, id: int, runner: str) -> bool:
        """The same for a proposal that this runner holds; False where it does not."""
        with self._lock:
            if not runner or id not in self._held or self._held[id][0] != runner:
                return False
            self._held[id] = (runner, self._clock() + self.seconds)
            return True

    def end(self, id: int) -> None:
        """The proposal has ended."""
        with self._lock:
            self._held.pop(id, None)

    def due(self) -> list[int]:
        """Ids of the proposals whose lease is over."""
        with self._lock:
            now = self._clock()
            return sorted(id for id, (_, until) in self._held.items() if until < now)
