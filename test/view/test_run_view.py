"""One run in one model, whichever way it is fed."""

import math
import time
from typing import Any

import numpy as np
import pytest

from crbo_ros.protocol.records import Episode, Offer, Verdict
from crbo_ros.view.run_view import RunView
from crbo_ros.view.scale import visible, x_range, y_range

UID = "experiment"


def offer(id: Any, gamma: float = 0.4) -> Any:
    return Offer("furuta", UID, "", id, np.zeros(2), f"hash {id}", "acquisition", worst_case=0.1, gamma=gamma)


def episode(
    id: Any, value: float = math.nan, outcome: str = "completed", uid: str = "", bound: float = math.nan
) -> Any:
    return Episode(uid or f"episode {id}", UID, id, "r", np.zeros(2), outcome, value, predicted_worst_case=bound)


def verdict(id: Any, status: Any, stamp: Any, reason: str = "because", **fields: Any) -> Any:
    return Verdict(status, UID, id, f"hash {id}", "r", reason, "monitor", stamp=stamp, **fields)


@pytest.fixture
def run() -> Any:
    return RunView()


def record(run: RunView, *values: Any) -> None:
    for value in values:
        run.record(value)


def same(one: Any, other: Any) -> None:
    for name in ("bounds", "best", "average", "gamma", "coverage", "threshold"):
        for a, b in zip(getattr(one, name), getattr(other, name), strict=True):
            np.testing.assert_array_equal(a, b)
    for outcome, curve in one.points.items():
        np.testing.assert_array_equal(curve, other.points[outcome])


def test_any_order_and_any_repetition_gives_the_same_run() -> None:
    values = [value for id in range(40) for value in
              (offer(id, 0.4 - id / 200), verdict(id, "waiting", id), verdict(id, "approved", id + 0.5, threshold=0.2),
               episode(id, math.sin(id), bound=math.cos(id)))]  # fmt: skip
    straight, mixed = RunView(), RunView()
    record(straight, *values)
    rng = np.random.default_rng(1)
    record(mixed, *(values[i] for i in [*rng.permutation(len(values)), *rng.permutation(len(values))]))
    same(straight.series(), mixed.series())
    assert [row.id for row in mixed.rows] == list(range(40))
    assert [row.verdict and row.verdict.status for row in mixed.rows] == ["approved"] * 40


def test_what_is_known_already_changes_nothing_that_can_be_seen(run: RunView) -> None:
    record(run, offer(0), verdict(0, "waiting", 1.0), episode(0, 0.5))
    changes = len(run.changes)
    record(run, offer(0), verdict(0, "waiting", 1.5), episode(0, 0.5), episode(0, 0.7, uid="a second one"))
    assert len(run.changes) == changes
    assert run.returns.tolist() == [0.5]


def test_a_proposal_that_was_given_back_counts_when_it_has_run(run: RunView) -> None:
    record(run, offer(0), episode(0, outcome="returned", uid="first"), offer(1), episode(1, 0.4))
    assert [row.id for row in run.pending()] == [0]
    record(run, verdict(0, "waiting", 1.0))
    assert [v.status for v in run.rows[0].verdicts] == ["waiting"]
    assert run.rows[0].verdict is run.rows[0].verdicts[-1]
    record(run, episode(0, 0.6))
    assert run.counts() == {"completed": 2}
    assert run.order == [1, 0]
    assert run.last_return == 0.6
    assert run.pending() == []


def test_rows_are_appended_and_never_made_again(run: RunView) -> None:
    record(run, *(offer(id) for id in range(100)))
    rows, first = run.rows, run.rows[0]
    record(run, *(offer(id) for id in range(200)))
    assert run.rows is rows
    assert rows[0] is first
    assert len(rows) == 200


def test_one_more_of_10000_episodes_costs_next_to_nothing(run: RunView) -> None:
    record(run, *(value for id in range(10_000) for value in (offer(id), episode(id, 0.5, bound=0.1))))
    begun = time.process_time()
    for id in range(10_000, 10_020):
        record(run, offer(id), episode(id, 0.5, bound=0.1))
        run.series()
    assert (time.process_time() - begun) / 20 < 0.02  # s; measured: below 0.002


def test_vetoes_below_the_picture_are_drawn_on_its_edge(run: RunView) -> None:
    record(run, episode(0, 0.5), episode(1, 0.6), episode(2, outcome="vetoed"), episode(3, outcome="vetoed"))
    record(run, verdict(2, "vetoed", 1.0, worst_case=-1e9))
    limits = y_range(run.series())
    assert limits is not None
    ids, heights = visible(run.series().points["vetoed"], limits)
    assert ids.tolist() == [2.0, 3.0]
    assert limits[0] < heights[0] == heights[1] < 0.5


def test_the_axis_of_a_long_run_stands_still_for_a_while(run: RunView) -> None:
    record(run, *(episode(id, 0.5) for id in range(1001)))
    before = x_range(run.series())
    record(run, episode(1001, 0.5), episode(1002, 0.5))
    assert x_range(run.series())[1] >= 1002
    record(run, *(episode(id, 0.5) for id in range(1003, 1010)))
    assert x_range(run.series()) != before
    assert x_range(run.series())[1] < 1.05 * 1010
