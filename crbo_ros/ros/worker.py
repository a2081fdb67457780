"""A thread that does a node's computing, so that its executor never waits for it."""

from __future__ import annotations

import itertools
import queue
import re
import threading
import warnings
from collections.abc import Callable
from typing import Any

from rclpy.exceptions import InvalidHandle
from rclpy.logging import get_logger
from rclpy.service import Service

Job = Callable[[], object]
URGENT, NORMAL, LAST = range(3)
MOST_WAITING = 500  # jobs; further messages are dropped, and whoever needs an answer asks again
TRIES = 20  # to send an answer, 0.1 s each
LOST = "failed to send response"  # how rclpy's warning begins


class Worker:
    """Does its jobs one after the other: urgent ones first, else in the order in which they came.

    `on_error` hears of a job that raised. What strangers send is bounded: see `offer`.
    """

    def __init__(self, name: str, on_error: Callable[[BaseException], None]) -> None:
        self._jobs: queue.PriorityQueue[tuple[int, int, Job | None]] = queue.PriorityQueue()
        self._numbers = itertools.count()
        self._on_error = on_error
        self.dropped = 0  # jobs that were offered while too many waited
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Job, urgent: bool = False) -> None:
        self._jobs.put((URGENT if urgent else NORMAL, next(self._numbers), job))

    def offer(self, job: Job) -> bool:
        """A job for a message that anybody may have sent; not done while a flood of them waits."""
        if self._jobs.qsize() > MOST_WAITING:
            self.dropped += 1
            return False
        self.submit(job)
        return True

    @property
    def idle(self) -> bool:
        """Whether nothing waits (the job in hand is not counted)."""
        return self._jobs.empty()

    @property
    def name(self) -> str:
        return self._thread.name

    def end(self) -> None:
        """Finish what has been submitted, and end; waits for nothing. Later jobs are never done."""
        self._jobs.put((LAST, next(self._numbers), None))

    def join(self, seconds: float) -> bool:
        """Wait for its end; whether that came in time."""
        if self._thread is threading.current_thread():
            return True
        self._thread.join(max(0.0, seconds))
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (job := self._jobs.get()[2]) is not None:
            try:
                job()
            except InvalidHandle:  # the node is being taken down: nobody waits for this answer
                continue
            except Exception as error:
                self._on_error(error)
                return


def defer(
    service: Service, worker: Worker, at_once: Callable[[Any], Any] | None = None, *, urgent: bool = False
) -> None:
    """Let a worker compute and send a service's answers. Works with every executor.

    An executor takes the request, calls service.callback and then service.send_response with what came back. Here the
    callback hands the request on, and send_response leaves it to the worker. (Coroutines would do the same in theory;
    rclpy's executors poll them without pause until they are done.)

    `at_once(request)` is called on the executor's thread as soon as the request arrives; the handler then gets what it
    returned as a third argument.
    """
    handler = service.callback
    warnings.filterwarnings("error", LOST, RuntimeWarning, module=re.escape(__name__))

    def take(request: Any, response: Any) -> Any:
        return (request, response) if at_once is None else (request, response, at_once(request))

    def send(taken: Any, header: Any) -> None:
        def job() -> None:
            _send(service, worker, handler(*taken), header)

        if urgent:
            worker.submit(job, urgent=True)
        else:
            worker.offer(job)

    service.callback = take
    service.send_response = send  # type: ignore[method-assign, assignment]


def _send(service: Any, worker: Worker, response: Any, header: Any, tries: int = TRIES) -> None:
    """Answer, even a client of which discovery has found only the asking half so far (on a busy machine, at first).

    rclpy would wait 0.1 s for the other half and then drop the answer, with a warning. That warning is an exception
    here, and here only: the call is made from this module instead of by service.send_response for that. The C function
    of today's rclpy does not look for it and returns as if nothing were raised, of which Python makes a SystemError.
    """
    try:
        with service.handle:
            service.handle.service_send_response(response, getattr(header, "request_id", header))
    except (RuntimeWarning, SystemError) as error:
        lost = error.__cause__ if isinstance(error, SystemError) else error
        if not isinstance(lost, RuntimeWarning):
            raise
        if tries > 1:
            worker.submit(lambda: _send(service, worker, response, header, tries - 1))
        else:
            get_logger(service.logger_name).warning(f"{service.service_name}: {lost}")
