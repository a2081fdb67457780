"""A node's way out: every step is tried whatever became of the others, and it does not take for ever."""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import traceback
from collections.abc import Callable

from crbo_ros.nodes import LEFT_BADLY, STUCK

LIMIT = 5.0  # s; whoever started the node kills it after 10


class WayOut:
    """The steps, one by one, and what failed. Begins when it is made; `over` ends it.

    After `LIMIT` all stacks are written to stderr. Once what counts is `secured` (the plant is safe, the stores are
    closed), a way out that takes longer is cut short: a middleware that hangs need not be waited for.
    """

    def __init__(self, limit: float = LIMIT) -> None:
        self.failed: list[str] = []
        self._limit = limit
        self._secured, self._over = threading.Event(), threading.Event()
        threading.Thread(target=self._watch, name="way out", daemon=True).start()

    def step(self, what: str, action: Callable[[], object]) -> None:
        """Try it; a failure is told and remembered, and does not keep the next step from being tried."""
        try:
            action()
        except BaseException:  # a driver that calls sys.exit() included
            self.failed.append(what)
            _say(f"fatal: on the way out, this failed: {what}\n{traceback.format_exc()}")

    def secured(self) -> None:
        """What counts is done; the rest is tidiness."""
        self._secured.set()

    def over(self) -> bool:
        """The end of it. True if every step was done."""
        self._over.set()
        self._secured.set()
        return not self.failed

    def _watch(self) -> None:
        if self._over.wait(self._limit):
            return
        _say(f"fatal: still on the way out after {self._limit:g} s; what every thread is doing:")
        faulthandler.dump_traceback(file=2, all_threads=True)
        self._secured.wait()
        if not self._over.wait(0.5):
            leave_now(LEFT_BADLY if self.failed else STUCK)


def leave_now(code: int) -> None:
    """End the process without tidying up: with a thread left in rclpy the interpreter's own end would abort it (-6)."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
