"""policy_node: an exported policy in use, behind a watchdog."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crbo_ros.policies.agent import Agent

pytest.importorskip("rclpy")
from crbo_ros.nodes.policy_node import Guarded

pytestmark = pytest.mark.ros


def agent(**options: Any) -> Agent:
    known: dict[str, Any] = {"output": "clip", "low": [1.0], "high": [5.0], "meta": {"rate": 100.0}}
    return Agent([(np.array([[1.0], [2.0]]), np.zeros(1))], **{**known, **options})


def test_a_fresh_observation_acts_within_the_limits_and_a_stale_one_gives_the_safe_output() -> None:
    guarded = Guarded(agent(), 0.01)
    assert guarded.act(0.0) == (np.array([1.0]), "no fresh observation")  # 0 is beyond the limits: the nearest
    guarded.observe([1.0, 1.0], 1.0)
    assert guarded.act(1.029) == (np.array([3.0]), "")
    assert guarded.act(1.031)[1] == "no fresh observation"
    guarded.observe([9.0, 9.0], 2.0)
    assert guarded.act(2.0) == (np.array([5.0]), "")


@pytest.mark.parametrize("bad", [[np.nan, 1.0], [np.inf, 1.0], [1.0], [1.0, 2.0, 3.0], []])
def test_what_is_no_observation_is_a_fault_that_stays_until_it_is_cleared(bad: list[float]) -> None:
    guarded = Guarded(agent(), 0.01)
    guarded.observe(bad, 1.0)
    guarded.observe([1.0, 1.0], 1.0)  # good ones again: it stays
    action, why = guarded.act(1.0)
    assert action == guarded.safe
    assert why.startswith("fault: an observation")
    assert guarded.clear()
    assert guarded.act(1.0)[1] == "no fresh observation", "what was seen before the fault is not acted on"


def test_an_action_that_is_not_finite_is_a_fault() -> None:
    guarded = Guarded(agent(), 0.01)
    guarded.observe([1.0, 1.0], 1.0)
    guarded.agent = lambda x: np.array([np.nan])  # type: ignore[assignment]
    assert guarded.act(1.0) == (guarded.safe, "fault: the policy's action is not finite for [1.0, 1.0]")


@pytest.mark.slow
def test_the_node_runs_a_file_on_topics_and_falls_back_when_observations_stop(tmp_path: Path) -> None:
    import rclpy
    from std_msgs.msg import Float64MultiArray

    from crbo_ros.nodes.policy_node import PolicyNode
    from crbo_ros.ros import qos

    agent().save(tmp_path / "policy.npz")
    rclpy.init(args=["--ros-args", "-p", f"policy:={tmp_path / 'policy.npz'}"])
    node, other = PolicyNode(), rclpy.create_node("robot", use_global_arguments=False)
    seen: list[float] = []
    try:

        def heard(message: Any) -> None:
            seen.append(message.data[0])

        other.create_subscription(Float64MultiArray, "action", heard, 10)  # with ROS's default, as controllers do
        robot = other.create_publisher(Float64MultiArray, "observation", qos.SENSOR)
        assert node.begin()

        def spin(seconds: float, observe: bool) -> None:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                if observe:
                    robot.publish(Float64MultiArray(data=[1.0, 1.0]))
                for each in (node, other):
                    rclpy.spin_once(each, timeout_sec=0.002)

        spin(2.0, True)
        assert 3.0 in seen
        spin(0.5, False)
        assert seen[-1] == 1.0, "no observation: the safe output"
        robot.publish(Float64MultiArray(data=[float("nan"), 1.0]))
        spin(0.3, False)
        spin(0.5, True)
        assert seen[-1] == 1.0
        assert "not finite" in node.diagnose()[1]
    finally:
        node.destroy_node()
        other.destroy_node()
        rclpy.shutdown()
