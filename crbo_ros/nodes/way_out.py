"""A node's way out: every step is tried whatever became of the others, and it does not take for ever."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

LIMIT = 5.0  # s; whoever started the node kills it after 10


class WayOut:
    """The steps, one by one, and what failed. Begins when it is made; `over` ends it.

    After `LIMIT` the stacks of all threads are written to stderr. Once what counts is `secured` (the plant is safe, the
    stores are closed), a way out that takes longer is cut short: a middleware that hangs need not be waited for.
    Neither needs Python to run: what hangs may be holding the interpreter's lock.
    """

    def __init__(self, limit: float = LIMIT) -> None:
        self.failed: list[str] = []
        self._limit, self._secured = limit, False
        faulthandler.dump_traceback_later(limit, file=2)

    def step(self, what: str, action: Callable[[], object]) -> None:
        """Try it; a failure is told and remembered, and does not keep the next step from being tried."""
        try:
            action()
        except BaseException:  # a driver that calls sys.exit() included
            self.failed.append(what)
            print(f"fatal: on the way out, this failed: {what}\n{traceback.format_exc()}", file=sys.stderr, flush=True)

    def secured(self) -> None:
        """What counts is done, the rest is tidiness: if it takes longer than the limit, SIGALRM ends the process."""
        if not self.failed:
            self._secured = True
            signal.setitimer(signal.ITIMER_REAL, self._limit + 0.5)  # (after the stacks)

    def over(self) -> bool:
        """The end of it. True if every step was done."""
        faulthandler.cancel_dump_traceback_later()
        if self._secured:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        return not self.failed


def leave_now(code: int) -> NoReturn:
    """End the process when all is done, or all that can be done.

    Not by the interpreter's own end: it aborts the process (-6) when a thread is still in rclpy, takes up to a second
    on a busy machine, and if it hangs in the middleware's last destructors, nobody is left to notice.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
