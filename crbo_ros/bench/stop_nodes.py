"""Somebody else's nodes that bench/stops.py breaks: parameters under tuning, an action, an arm. They keep a Record.

    python -m crbo_ros.bench.stop_nodes '{"node": "tuned", "record": "file", "mode": "slow"}'

The record holds 0 while the node is safe (start values, no goal under way, joints that stand), and 1 while it is not.
"""

from __future__ import annotations

import json
import math
import sys
import time
from itertools import pairwise
from typing import Any

from crbo_ros.bench.broken import Record

START = {"gain": 2.0, "damping": 1.0}
LATE = 1.0  # s


class Told(Record):
    """Writes down changes only."""

    def state(self, unsafe: bool) -> None:
        if (self.voltage != 0.0) != unsafe or not len(self):
            self.add(float(unsafe))


def tuned(node: Any, record: Told, mode: str) -> None:
    """`slow`; `refuses` trial values; `stuck` with them; `forgets` what it was told; `unstable`: its cost turns NaN."""
    from rcl_interfaces.msg import SetParametersResult
    from std_msgs.msg import Float64

    for name, value in START.items():
        node.declare_parameter(name, value)

    def on_trial() -> bool:
        return any(node.get_parameter(name).value != value for name, value in START.items())

    def check(parameters: Any) -> Any:
        if mode == "slow":
            time.sleep(LATE / len(START))  # it is asked for each parameter
        trial = any(p.value != START.get(p.name, p.value) for p in parameters)
        if (mode == "refuses" and trial) or (mode == "stuck" and on_trial()):
            return SetParametersResult(successful=False, reason="no")
        return SetParametersResult(successful=True)

    def before(parameters: Any) -> Any:
        for p in parameters:
            if mode == "forgets":
                p._value = START.get(p.name, p.value)
        return parameters

    node.add_on_set_parameters_callback(check)
    node.add_pre_set_parameters_callback(before)
    cost = node.create_publisher(Float64, "~/cost", 10)

    def tick() -> None:
        record.state(on_trial())
        if on_trial() and mode == "unstable":
            record.break_now()
        cost.publish(Float64(data=math.nan if on_trial() and mode == "unstable" else 1.0))

    node.create_timer(0.01, tick)


def action(node: Any, record: Told, mode: str) -> None:
    """A goal that takes for ever: cancels are refused, never answered (`mute`), `slow`; or the goal is taken `late`."""
    from rclpy.action import ActionServer, CancelResponse, GoalResponse
    from rclpy.callback_groups import ReentrantCallbackGroup
    from test_msgs.action import Fibonacci

    node.declare_parameter("gain", START["gain"])

    def execute(goal: Any) -> Any:
        record.state(True)
        while not goal.is_cancel_requested:
            time.sleep(0.005)
        record.state(False)
        goal.canceled()
        return Fibonacci.Result()

    def accept(_: Any) -> Any:
        time.sleep(LATE if mode == "late" else 0.0)
        return GoalResponse.ACCEPT

    def cancel(_: Any) -> Any:
        if mode == "mute":
            time.sleep(1e6)
        time.sleep(LATE if mode == "slow" else 0.0)
        return CancelResponse.REJECT if mode == "refuses" else CancelResponse.ACCEPT

    node.server = ActionServer(
        node, Fibonacci, "~/work", execute, callback_group=ReentrantCallbackGroup(), goal_callback=accept,
        cancel_callback=cancel,
    )  # fmt: skip


def arm(node: Any, record: Told, mode: str) -> None:
    """Two joints that follow a trajectory; after 1 s of a long one its states are `silent` or `nan`, for good."""
    from sensor_msgs.msg import JointState
    from trajectory_msgs.msg import JointTrajectory

    names, here, plan = ["shoulder", "elbow"], [0.0, 0.6], []
    began, last, broken = 0.0, list(here), False
    states = node.create_publisher(JointState, "/joint_states", 10)

    def take(message: Any) -> None:
        nonlocal plan, began
        times = [p.time_from_start.sec + 1e-9 * p.time_from_start.nanosec for p in message.points]
        plan = [(0.0, list(here)), *zip(times, [list(p.positions) for p in message.points], strict=True)]
        began = time.monotonic()

    def tick() -> None:
        nonlocal last, broken
        now = time.monotonic() - began
        for (t0, q0), (t1, q1) in pairwise(plan):
            if now <= t1:
                share = (now - t0) / max(t1 - t0, 1e-9)
                here[:] = [a + share * (b - a) for a, b in zip(q0, q1, strict=True)]
                break
        speed = 100.0 * max(abs(a - b) for a, b in zip(here, last, strict=True))
        last = list(here)
        long = bool(plan) and plan[-1][0] > 5.0
        record.state(speed > 0.02)  # what counts as standing still
        broken = broken or (long and now > 1.0 and mode != "")  # and it stays so
        if broken:
            record.break_now()
        if not (broken and mode == "silent"):
            shown = [math.nan, here[1]] if broken and mode == "nan" else list(here)
            message = JointState(name=names, position=shown)
            message.header.stamp = node.get_clock().now().to_msg()
            states.publish(message)

    node.create_subscription(JointTrajectory, "/joint_trajectory_controller/joint_trajectory", take, 10)
    node.create_timer(0.01, tick)


def main(order: dict[str, Any]) -> None:
    import rclpy
    from rclpy.executors import MultiThreadedExecutor

    rclpy.init()
    node = rclpy.create_node("victim")
    record = Told(order["record"])
    record.state(False)
    {"tuned": tuned, "action": action, "arm": arm}[order["node"]](node, record, order.get("mode", ""))
    executor = MultiThreadedExecutor(num_threads=8)
    executor.add_node(node)
    print("up", flush=True)
    executor.spin()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
