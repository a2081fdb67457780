"""Log lines about what others send, throttled and counted: a flood must not fill the disk, and must not pass unseen."""

from __future__ import annotations

from collections.abc import Callable

from crbo_ros.clock import boottime

PERIOD = 5.0  # s between two lines about the same thing


class Throttle:
    """Passes on the first line about a thing, then one each PERIOD, which says how many were left out."""

    def __init__(self, say: Callable[[str], object], clock: Callable[[], float] = boottime) -> None:
        self._say, self._clock = say, clock
        self._last: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def __call__(self, thing: str, text: str) -> None:
        now = self._clock()
        if now - self._last.get(thing, -PERIOD) < PERIOD:
            self._left_out[thing] = self._left_out.get(thing, 0) + 1
            return
        self._last[thing] = now
        more = self._left_out.pop(thing, 0)
        shown = text if len(text) <= 500 else text[:500] + "..."
        self._say(f"{shown} (and {more} more like it)" if more else shown)
