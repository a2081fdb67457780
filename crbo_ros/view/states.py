"""The optimizer's state after each end of a proposal, from a run's rows: what its topic said, for who reads a store."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from crbo_ros.core.trial import NAN
from crbo_ros.protocol.manifest import effective
from crbo_ros.protocol.records import VETOED
from crbo_ros.view.run_view import RunView
from crbo_ros.view.values import OptimizerState

METRICS = (
    "gamma gamma_effective r0 lengthscale signal_variance noise_variance lipschitz lipschitz_paper coverage"
).split()


def states(run: RunView) -> Iterator[OptimizerState]:
    """The optimizer's state after each end of a proposal. The recommended policy is known for the last one only."""
    facts = run.experiment
    if facts is None:
        return
    budget = int(effective(run.manifest).get("budget") or 0)
    count, total, first, newest = 0, 0.0, NAN, NAN
    counts: dict[str, Any] = {"vetoed": 0, "failed": 0}
    for n, id in enumerate(run.order, 1):
        row = run.row(id)
        assert row.episode is not None
        if math.isfinite(row.value):
            count, total, newest = count + 1, total + row.value, row.value
            first = newest if count == 1 else first
        else:
            counts["vetoed" if row.outcome == VETOED else "failed"] += 1
        last = n == len(run.order)
        best = run.best if last else None
        metrics: dict[str, Any] = {
            name: float(v) for name in METRICS if isinstance(v := row.metrics.get(name), (int, float))
        }
        yield OptimizerState(
            facts["name"], facts["uid"], facts["task"], facts["method"],
            state="finished" if last and run.finished else "running",
            message=run.finished if last else row.reason, dim=facts["dim"], names=run.names,
            completed=count, budget=budget,
            last_return=newest, average_return=total / count if count else NAN,
            best_id=best.id if best else -1, best_mean=best.mean if best else NAN,
            best_observed=best.observed if best else NAN, start_return=first,
            stamp=row.episode.stamp, **counts, **metrics,
        )  # fmt: skip
