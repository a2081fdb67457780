"""Listens to a running graph for a progress line: episode, return, best, worst case, vetoes, time left."""

from __future__ import annotations

import math
import threading
import time
from types import TracebackType

import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.signals import SignalHandlerOptions

from crbo_ros import msg
from crbo_ros.ros import qos


class Watcher:
    """A context manager: a node of its own in a context of its own, spun on a thread."""

    def __init__(self, namespace: str = "") -> None:
        self.namespace = namespace
        self.state: msg.OptimizerState | None = None
        self.verdict: msg.SafetyVerdict | None = None
        self.status: msg.RunnerStatus | None = None
        self.returns: dict[str, msg.EpisodeReturn] = {}
        self._first: tuple[float, int] | None = None  # (time, episodes) when the first return of this run came

    def __enter__(self) -> Watcher:
        self._context = rclpy.Context()
        rclpy.init(context=self._context, signal_handler_options=SignalHandlerOptions.NO)
        self._node = rclpy.create_node("crbo_run", namespace=self.namespace, context=self._context)
        subscribe = self._node.create_subscription
        subscribe(msg.OptimizerState, "optimizer_state", self._on_state, qos.LATCHED)
        subscribe(msg.SafetyVerdict, "safety_verdict", self._on_verdict, qos.HISTORY)
        subscribe(msg.RunnerStatus, "runner_status", self._on_status, qos.LATCHED)
        subscribe(msg.EpisodeReturn, "episode_return", self._on_return, qos.HISTORY)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        self._thread = threading.Thread(target=self._spin, daemon=True)
        self._quit = threading.Event()
        self._thread.start()
        return self

    def _spin(self) -> None:
        while not self._quit.is_set():
            self._executor.spin_once(timeout_sec=0.1)

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._quit.set()
        self._thread.join()
        self._executor.shutdown()
        self._node.destroy_node()
        rclpy.shutdown(context=self._context)

    def _on_state(self, message: msg.OptimizerState) -> None:
        self.state = message

    def _on_verdict(self, message: msg.SafetyVerdict) -> None:
        self.verdict = message

    def _on_status(self, message: msg.RunnerStatus) -> None:
        self.status = message

    def _on_return(self, message: msg.EpisodeReturn) -> None:
        self.returns[message.episode_uid] = message

    @property
    def over(self) -> bool:
        """Whether the optimizer has nothing more to propose."""
        over = (msg.OptimizerState.FINISHED, msg.OptimizerState.EXHAUSTED)
        return self.state is not None and self.state.state in over

    def line(self) -> str:
        """One line about where the run stands."""
        state = self.state
        if state is None:
            return "starting ..."
        if self._first is None and state.completed:
            self._first = (time.monotonic(), state.completed)
        left = math.inf
        if self._first is not None and state.completed > self._first[1]:
            pace = (time.monotonic() - self._first[0]) / (state.completed - self._first[1])
            left = pace * max(0, state.budget - state.completed)
        worst_case = self.verdict.worst_case if self.verdict else math.nan
        waiting = ""
        if self.status is not None and self.status.state in (msg.RunnerStatus.WAITING, msg.RunnerStatus.HELD):
            waiting = f"  ({self.status.message})"
        last, average, best, bound = map(_known, (state.last_return, state.average_return, state.best_mean, worst_case))
        return (
            f"{bar(state.completed, state.budget)} {state.completed}/{state.budget or '-'}  "
            f"return {last}  average {average}  best {best}  worst case {bound}  "
            f"vetoes {state.vetoed}  failed {state.failed}  ETA {eta(left)}{waiting}"
        )


def _known(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else "-"


def bar(done: int, total: int, width: int = 20) -> str:
    """A bar of `width` characters."""
    filled = round(width * done / total) if total else 0
    return "█" * filled + "·" * (width - filled)


def eta(seconds: float) -> str:
    """Seconds as m:ss."""
    return "--:--" if not math.isfinite(seconds) else f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
