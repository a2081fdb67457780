"""A topic's messages that the middleware brings late belong to the episode in which they were sent."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("rclpy")

from crbo_ros.errors import PlantError
from crbo_ros.plants.ros import episode
from crbo_ros.plants.ros.config import ReturnConfig
from crbo_ros.plants.ros.episode import RosReturn
from crbo_ros.returns.definition import ReturnDefinition, Term, TopicSignal
from crbo_ros.ros.link import no_poll


class Link:
    """Waits as the real one does, in short looks."""

    def wait(self, condition: Any, seconds: float, poll: Any = no_poll) -> bool:
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() >= end:
                return False
            poll()
            time.sleep(0.005)
        return True


def collecting() -> RosReturn:
    signals = (
        TopicSignal("a", "/a", "std_msgs/msg/Float64", "data"),
        TopicSignal("b", "/b", "std_msgs/msg/Float64", "data"),
    )
    config = ReturnConfig("", settle=0.0, definition=ReturnDefinition(signals, (Term("mean", "a"), Term("mean", "b"))))
    made = RosReturn(Link(), config)  # type: ignore[arg-type]
    made.begin()
    return made


def hear(to: RosReturn, topic: str, value: float, sent: float, received: float) -> None:
    info = {"source_timestamp": int(1e9 * sent), "received_timestamp": int(1e9 * received)}
    header = SimpleNamespace(stamp=SimpleNamespace(sec=0, nanosec=0))
    to._on_logged(topic, SimpleNamespace(header=header, data=value), info)


def test_a_topic_that_was_silent_is_waited_for_and_what_was_sent_in_the_episode_counts() -> None:
    made, now = collecting(), time.time()
    for k in range(2):
        hear(made, "/a", 1.0, now + 0.001 * k, now + 0.001 * k)

    def late() -> None:
        for k in range(2):
            hear(made, "/b", 2.0, now + 0.001 * k, time.time() + 0.001 * k)
        hear(made, "/b", 99.0, time.time() + 1.0, time.time() + 1.0)  # of after the episode

    time.sleep(0.01)
    timer = threading.Timer(0.4, late)
    timer.start()
    assert made.end(None, 10.0, no_poll) == pytest.approx(3.0)
    timer.join()


def test_of_a_topic_that_spoke_nothing_counts_that_comes_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    made, now = collecting(), time.time()
    for topic in ("/a", "/b"):
        for k in range(2):
            hear(made, topic, 1.0, now + 0.001 * k, now + 0.001 * k)
    time.sleep(0.01)
    timer = threading.Timer(0.05, lambda: hear(made, "/a", 99.0, now, time.time()))
    timer.start()
    monkeypatch.setattr(episode, "BACKLOG", 0.3)
    assert made.end(None, 10.0, no_poll) == pytest.approx(2.0)
    timer.join()


def test_a_topic_that_stays_silent_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(episode, "OVERDUE", 0.1)
    made, now = collecting(), time.time()
    for k in range(2):
        hear(made, "/a", 1.0, now + 0.001 * k, now + 0.001 * k)
    with pytest.raises(PlantError, match="no message on /b"):
        made.end(None, 10.0, no_poll)


def test_what_was_sent_before_the_episode_does_not_count_whatever_the_publishers_clock_says() -> None:
    for ahead in (0.0, -3600.0, 86400.0):
        made, now = collecting(), time.time()
        hear(made, "/a", 99.0, now - 1.0 + ahead, now + 0.001)  # of the episode before, 1 s on its way
        for topic in ("/a", "/b"):
            for k in range(1, 3):
                hear(made, topic, 1.0, now + 0.001 * k + ahead, now + 0.001 * k + 0.0005)
        time.sleep(0.01)
        assert made.end(None, 10.0, no_poll) == pytest.approx(2.0), ahead
