"""Safety signals beside the return: what must not be exceeded, however good the return was.

A task names columns of its trajectories (an angle, a torque, a speed) with a limit in `Task.signals`. Their largest
absolute values (or what the task itself tells as Outcome.signals) go with the episode's result; one beyond its limit
makes the episode a violation of the contract (core.contract). Beyond a hard limit the episode ends at once, before the
next action, without a return.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crbo_ros.errors import InvalidInput
from crbo_ros.tasks.base import FAILED, STOPPED, Array, Outcome, Task, Watch


@dataclass(frozen=True)
class Signal:
    """A limit for the absolute value of a column of the task's trajectories, in its unit."""

    column: str
    limit: float  # beyond it the episode is a violation
    hard: float = math.inf  # beyond it the episode ends, too


def read_signals(limits: Mapping[str, Any] | None, columns: tuple[str, ...]) -> tuple[Signal, ...]:
    """Of {column: limit} or {column: [limit, hard limit]}; InvalidInput names what is wrong."""
    found = []
    for name, value in (limits or {}).items():
        values = list(value) if isinstance(value, (list, tuple)) else [value]
        if name not in columns:
            raise InvalidInput(f"signals: {name!r} is none of {', '.join(columns)}")
        if not 1 <= len(values) <= 2 or not all(isinstance(v, (int, float)) and v > 0.0 for v in values):
            raise InvalidInput(f"signals.{name}: {value!r} is neither a limit above 0 nor [limit, hard limit]")
        found.append(Signal(name, *(float(v) for v in values)))
    return tuple(found)


class SignalWatch:
    """Asks whoever watches, after a look at the signals with a hard limit.

    `columns` are the names of observation and action, in that order.
    """

    def __init__(self, signals: tuple[Signal, ...], columns: tuple[str, ...], watch: Watch | None) -> None:
        self._hard = [(s, columns.index(s.column)) for s in signals if math.isfinite(s.hard)]
        self._watch, self.ended = watch, ""

    def __call__(self, time: float, observation: Array, action: Array) -> str | None:
        values = np.append(observation, action)
        for signal, index in self._hard if time >= 0.0 else []:
            if not abs(values[index]) <= signal.hard:  # so that a NaN ends it, too
                self.ended = f"{signal.column} {values[index]:.4g} is beyond its hard limit {signal.hard:g}"
                return self.ended
        return self._watch(time, observation, action) if self._watch is not None else None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._watch, name)  # (ready, for a plant that holds its start)


def signals_of(named: Iterable[Any]) -> tuple[tuple[Signal, ...], tuple[str, ...]]:
    """(Task.signals, Task.columns) of signals that have a name, a limit and a hard limit of their own."""
    signals = tuple(Signal(each.name, each.limit, each.hard) for each in named)
    return signals, tuple(signal.column for signal in signals)


def beyond(signals: tuple[Signal, ...], values: Mapping[str, float]) -> list[str]:
    """Which of the largest absolute values, by name, went beyond their limits, in words."""
    return [
        f"{s.column} {values[s.column]:.4g} is beyond its limit {s.limit:g}"
        for s in signals
        if s.column in values and not values[s.column] <= s.limit
    ]


def watched_rollout(
    task: Task, theta: ArrayLike, rng: np.random.Generator, *, record: bool = False, watch: Watch | None = None
) -> Outcome:
    """task.rollout under the task's safety signals."""
    if not task.signals:
        return task.rollout(theta, rng, record=record, watch=watch)
    eyes = SignalWatch(task.signals, task.columns, watch)
    hard = any(math.isfinite(signal.hard) for signal in task.signals)
    outcome = task.rollout(theta, rng, record=True, watch=eyes if hard else watch)
    columns = outcome.trajectory.columns if outcome.trajectory is not None else {}
    values = outcome.signals or {
        s.column: float(np.max(np.abs(columns[s.column]), initial=0.0)) for s in task.signals if s.column in columns
    }
    if eyes.ended and outcome.end == STOPPED:  # by the policy's fault: it is not tried again
        outcome = replace(outcome, end=FAILED, reason=eyes.ended)
    limits = {signal.column: signal.limit for signal in task.signals if signal.column in values}
    violation = "; ".join([eyes.ended] if eyes.ended else beyond(task.signals, values))
    trajectory = outcome.trajectory if record else None
    return replace(outcome, signals=values, limits=limits, violation=violation, trajectory=trajectory)
