"""A thread that does a node's thinking, so that its executor never waits for it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

from rclpy.exceptions import InvalidHandle
from rclpy.service import Service

Job = Callable[[], None]


class Worker:
    """Does its jobs one after the other, in the order in which they came. `on_error` hears of a job that raised."""

    def __init__(self, name: str, on_error: Callable[[BaseException], None]) -> None:
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._on_error = on_error
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> None:
        self._jobs.put(job)

    @property
    def idle(self) -> bool:
        """Whether nothing waits (the job in hand is not counted)."""
        return self._jobs.empty()

    def end(self, timeout: float) -> None:
        """Finish what has been submitted, and end. Later jobs are never done."""
        self._jobs.put(None)
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except InvalidHandle:  # the node is being taken down: nobody waits for this answer
                continue
            except Exception as error:
                self._on_error(error)
                return


def defer(service: Service, worker: Worker, at_once: Callable[[Any], Any] | None = None) -> None:
    """Let a worker compute and send a service's answers. Works with every executor.

    An executor takes the request, calls service.callback and then service.send_response with what came back. Here the
    callback hands the request on, and send_response leaves it to the worker. (Coroutines would do the same in theory;
    rclpy's executors poll them without pause until they are done.)

    `at_once(request)` is called on the executor's thread as soon as the request arrives; the handler then gets what it
    returned as a third argument.
    """
    handler, send = service.callback, service.send_response

    def take(request: Any, response: Any) -> Any:
        return (request, response) if at_once is None else (request, response, at_once(request))

    service.callback = take
    service.send_response = lambda taken, header: worker.submit(lambda: send(handler(*taken), header))
