"""An executor on a thread of its own, which can be ended: for a node's process and for a link."""

from __future__ import annotations

import contextlib
import threading

from rclpy.executors import Executor, ExternalShutdownException, SingleThreadedExecutor
from rclpy.node import Node

PATIENCE = 3.0  # s for a callback to return


class Spinner:
    """start() ... end().

    One thread: rclpy's multi-threaded executor spends more time on handing callbacks over than on calling them.
    """

    def __init__(self, executor: Executor | None = None) -> None:
        self._executor = executor or SingleThreadedExecutor()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._spin, name="executor", daemon=True)

    def start(self, node: Node) -> None:
        self._executor.add_node(node)
        self._thread.start()

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
        self._executor.shutdown(timeout_sec=1.0)

    def _spin(self) -> None:
        with contextlib.suppress(ExternalShutdownException):
            while not self._over.is_set():
                self._executor.spin_once()
