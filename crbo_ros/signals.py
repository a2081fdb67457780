"""SIGINT and SIGTERM as something to wait for.

Not threading.Event: Python calls a signal's handler on the main thread, between two lines of whatever that one is
doing. If it is just inside Event.wait(), with the event's lock held, Event.set() waits for that lock for ever, and the
process answers no signal but SIGKILL (seen: 1 in 300 signals while other threads are busy). SimpleQueue.put() is made
to be called in the middle of SimpleQueue.get().
"""

from __future__ import annotations

import contextlib
import queue
import signal

NUMBERS = (signal.SIGINT, signal.SIGTERM)


class Signals:
    """From now on both signals end nothing by themselves. To be made, and waited for, on the main thread."""

    def __init__(self) -> None:
        self.came = False
        self._queue: queue.SimpleQueue[int] = queue.SimpleQueue()
        for number in NUMBERS:
            signal.signal(number, lambda number, frame: self._queue.put(number))

    def wait(self, seconds: float) -> bool:
        """Whether one has come, by now or within this time."""
        if not self.came:
            with contextlib.suppress(queue.Empty):
                self._queue.get(timeout=seconds)
                self.came = True
        return self.came

    def ignore(self) -> None:
        """All is safe: from here on a signal must not spoil the exit code."""
        for number in NUMBERS:
            signal.signal(number, signal.SIG_IGN)
