"""An executor on a thread of its own, which can be ended: for a node's process and for a link."""

from __future__ import annotations

import contextlib
import threading
import time

from rclpy.executors import Executor, ExternalShutdownException
from rclpy.node import Node

from crbo_ros.clock import boottime
from crbo_ros.ros.executor import make_executor

PATIENCE = 3.0  # s for a callback to return
LOOK = 0.1  # s between two looks at the system's clock, and how much of a step matters


class Spinner:
    """start() ... end().

    One thread: rclpy's multi-threaded executor spends more time on handing callbacks over than on calling them. And one
    that looks at the clock: where the middleware was built for an old C library (the wheels of `./crbo` are), it waits
    for an instant of the system's time, and a clock that is set back by an hour would make a wait an hour longer.
    """

    def __init__(self, executor: Executor | None = None) -> None:
        self._executor = executor or make_executor()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._spin, name="executor", daemon=True)
        self._clock_watch = threading.Thread(target=self._watch_clock, name="clock", daemon=True)

    def start(self, node: Node) -> None:
        self._executor.add_node(node)
        self._thread.start()
        self._clock_watch.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def end(self) -> None:
        """Wait for the callback in hand and shut the executor down."""
        self._over.set()
        self._executor.create_task(lambda: None)  # wakes it
        if self.alive:
            self._thread.join(PATIENCE)
        if self.alive:
            raise RuntimeError(f"a callback does not return within {PATIENCE:g} s")
        if self._clock_watch.is_alive():
            self._clock_watch.join(PATIENCE)
        self._executor.shutdown(timeout_sec=1.0)

    def _spin(self) -> None:
        with contextlib.suppress(ExternalShutdownException):
            while not self._over.is_set():
                self._executor.spin_once()

    def _watch_clock(self) -> None:
        """Wake the executor after a step of the system's clock: what it waits for next is right again."""
        ahead = time.time() - boottime()
        while not self._over.wait(LOOK):
            before, ahead = ahead, time.time() - boottime()
            if abs(ahead - before) > LOOK:
                self._executor.wake()
