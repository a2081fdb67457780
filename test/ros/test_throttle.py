"""A flood leaves a few lines that count it, a bounded queue, and room for what is urgent."""

from __future__ import annotations

import threading

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed")

from crbo_ros.ros.throttle import Throttle
from crbo_ros.ros.worker import MOST_WAITING, Worker


def test_a_flood_of_complaints_is_a_line_now_and_then_that_counts_them() -> None:
    now, said = [0.0], list[str]()
    complain = Throttle(said.append, lambda: now[0])
    for i in range(3000):
        now[0] = i * 0.001
        complain("return", f"return {i} not recorded" + "x" * 10_000)
    complain("verdict", "of another kind")
    now[0] = 6.0
    complain("return", "one more")
    assert len(said) == 3
    assert "one more (and 2999 more like it)" in said[-1]
    assert max(map(len, said)) < 600


def test_what_is_urgent_comes_first_and_a_flood_is_dropped_beyond_a_limit() -> None:
    errors: list[BaseException] = []
    worker, gate, done = Worker("test", errors.append), threading.Event(), list[str]()
    worker.submit(gate.wait)
    taken = sum(worker.offer(lambda: done.append("flood")) for _ in range(10 * MOST_WAITING))
    worker.submit(lambda: done.append("urgent"), urgent=True)
    assert taken <= MOST_WAITING + 1
    assert worker.dropped == 10 * MOST_WAITING - taken
    gate.set()
    worker.end()
    assert worker.join(30.0)
    assert done[0] == "urgent"
    assert len(done) == taken + 1
    assert not errors
