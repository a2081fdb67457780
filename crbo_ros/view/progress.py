"""The progress line: episode, return, best, worst case, expected gain, vetoes, time left."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from crbo_ros.core.outlook import Outlook
from crbo_ros.numbers import bar, minutes, number
from crbo_ros.view.live import LiveView


class ProgressLine:
    """The line of a LiveView; knows the pace since it saw the first return."""

    def __init__(self, view: LiveView, clock: Callable[[], float] = time.monotonic) -> None:
        self.view, self._clock = view, clock
        self._outlook, self._seen, self._gain = Outlook(), -1, math.nan  # of the newest proposal
        self._first: tuple[float, int] | None = None  # (time, episodes) when the first return of this run came

    def line(self) -> str:
        """One line about where the run stands."""
        state, row = self.view.state, self.view.current()
        if state is None:
            return "starting ..."
        held = [s for s in self.view.live_runners() if s.state in ("waiting", "preparing", "held") and s.message]
        why = f"  ({held[0].message})" if held else ""
        left = minutes(self._left(state.completed, state.budget))
        last, average, best = map(number, (state.last_return, state.average_return, state.best_mean))
        if row and row.proposal and row.id > self._seen:
            self._seen, proposal = row.id, row.proposal
            self._gain = self._outlook.expect(proposal.mean, proposal.sigma, state.best_mean)
        expected = f"expected gain {number(self._gain)}  " if math.isfinite(self._gain) else ""
        return (
            f"{bar(state.completed, state.budget)} {state.completed}/{state.budget or '-'}  "
            f"return {last}  average {average}  best {best}  worst case {number(row.bound if row else None)}  "
            f"{expected}vetoes {state.vetoed}  failed {state.failed}  ETA {left}{why}"
        )

    def _left(self, completed: int, budget: int) -> float:
        """Seconds until the budget is used up, at the pace so far; infinite before there is one."""
        now = self._clock()
        if self._first is None and completed:
            self._first = (now, completed)
        if self._first is None or completed <= self._first[1]:
            return math.inf
        return (now - self._first[0]) / (completed - self._first[1]) * max(0, budget - completed)
