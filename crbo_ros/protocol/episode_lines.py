"""One line an episode, for whoever started the graph: what ran, what it gave, and how long it will still take."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from crbo_ros.numbers import minutes, number
from crbo_ros.protocol.records import Episode

if TYPE_CHECKING:
    from crbo_ros.protocol.optimizer import OptimizerServer

FEW = 8  # so many named parameters are shown with their values


class EpisodeLines:
    """Knows the pace since its first line."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._first: tuple[float, int] | None = None  # (time, episodes) at the first return

    def line(self, experiment: OptimizerServer, episode: Episode) -> str:
        """The line about an episode that has just been recorded."""
        method, best = experiment.method, experiment.best()
        n, budget = method.n - experiment.attached, max(0, experiment.budget - experiment.attached)
        proposal = method.trials[episode.proposal_id].proposal
        ended = f"return {number(episode.value)}" if episode.counts else episode.outcome
        vetoed = sum(trial.end.value == "vetoed" for trial in method.trials)
        parts = [
            f"episode {n}/{budget or '-'}  proposal {episode.proposal_id} ({proposal.kind})  {ended}",
            f"best {number(best.mean if best else math.nan)}",
            f"worst case {number(episode.predicted_worst_case)}",
            f"vetoes {vetoed}",
            f"ETA {self._left(n, budget)}",
        ]
        if progress := method.report().get("progress"):
            parts[1:3] = [str(progress)]
        space = experiment.problem.space
        if not progress and space.named and space.dim <= FEW:
            named = zip(space.names, episode.theta, strict=True)
            parts.append(", ".join(f"{name.rpartition(' ')[2]} {number(value)}" for name, value in named))
        return "  ".join(parts)

    def _left(self, n: int, budget: int) -> str:
        now = self._clock()
        if self._first is None and n:
            self._first = (now, n)
        if self._first is None or n <= self._first[1] or not budget:
            return minutes(math.inf)
        return minutes((now - self._first[0]) / (n - self._first[1]) * max(0, budget - n))
