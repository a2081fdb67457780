"""Values <-> messages: nothing changes on the way, and nothing too long is sent."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("crbo_ros.msg", reason="the interfaces are not built; use ./crbo test")

from typing import Any

from rclpy.serialization import deserialize_message, serialize_message

import crbo_ros.msg as msg
from crbo_ros.protocol.chain import Head
from crbo_ros.protocol.records import OUTCOMES, VERDICTS, Episode, Offer, Verdict
from crbo_ros.ros import convert


def sent(value: Any) -> Any:
    """What comes back from the bytes that go over the wire."""
    message = convert.to_message(value)
    return convert.from_message(deserialize_message(serialize_message(message), type(message)), type(value))


@pytest.mark.parametrize("outcome", list(OUTCOMES))
def test_an_episode_survives_the_way_there_and_back(outcome: str) -> None:
    episode = Episode(
        "u", "e", 7, "r", np.array([0.1, 1.0 / 3.0]), outcome, 0.1 + 0.2, "why", "v", -1.5, 9, 2.5, 3, 0.1, 0.2, 0.25,
        12.5, "p", "it scraped", ("speed",), (2.0,), (1.5,),
    )  # fmt: skip
    back = sent(episode)
    assert back.theta.tolist() == episode.theta.tolist()
    assert {**back.__dict__, "theta": 0} == {**episode.__dict__, "theta": 0}


@pytest.mark.parametrize("status", list(VERDICTS))
def test_a_verdict_and_an_offer_survive_too(status: str) -> None:
    verdict = Verdict(
        status, "e", 3, "h", "r", "why", "m", "v", 4.25, 5.0, 0.5, "bound", 1.5, 0.75, 0.25, 2, 0.125, 8.0, 9.0, "user",
        "n", "p",
    )  # fmt: skip
    assert sent(verdict) == verdict
    offer = Offer("x", "e", "p", 3, np.array([0.5]), "h", "start", "r", 1.0, 2.0, 3.0, 4.0, 0.5, 6, 7.0, 8.5)
    back = sent(offer)
    assert {**back.__dict__, "theta": 0} == {**offer.__dict__, "theta": 0}


def test_an_unknown_code_is_no_word_of_ours() -> None:
    message = msg.SafetyVerdict(status=77)
    assert convert.from_message(message, Verdict).status == "code 77"


@pytest.mark.parametrize("seconds", [0.0, 1.5, 1e9 + 0.25, 0.9999999999, -0.5])
def test_a_time_is_what_it_was(seconds: float) -> None:
    stamp = convert.to_time(seconds)
    assert 0 <= stamp.nanosec < 10**9
    assert math.isclose(convert.to_seconds(stamp), seconds, abs_tol=1e-8)


def test_a_time_just_below_the_next_second_stays_below_it() -> None:
    assert convert.to_time(-1e-18).nanosec == 999_999_999
    assert convert.to_time(0.5).nanosec == 500_000_000


def test_a_text_is_cut_to_what_its_field_can_hold() -> None:
    assert convert.clip("x" * 1024, "string<1024>") == "x" * 1024
    cut = convert.clip("ä" * 1024, "string<1024>")
    assert len(cut.encode()) <= 1024
    assert cut.endswith("...")
    assert convert.clip("x" * 5000, "string") == "x" * 5000
    vetoed = Verdict("vetoed", "e", 3, "h", "r", "w" * 5000, "m")
    assert len(sent(vetoed).reason) == 1024, "a long reason is cut, and the verdict is still sent"
    status = convert.fit(msg.RunnerStatus(message="y" * 3000, runner="r", episodes=3))
    assert (len(status.message), status.runner, status.episodes) == (1024, "r", 3)


def test_heads_survive_and_are_bounded() -> None:
    heads = [Head(f"s{i}", i, "d") for i in range(8)]
    assert convert.from_heads(convert.to_heads(heads)) == heads
    assert len(convert.from_heads([msg.Head()] * 100)) == 8
