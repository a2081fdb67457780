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

START = 2.0
LATE = 1.0  # s


class Told(Record):
    """Writes down changes only."""

    def state(self, unsafe: bool) -> None:
        if (self.voltage != 0.0) != unsafe or not len(self):
            self.add(float(unsafe))


def tuned(node: Any, record: Told, mode: str) -> None:
    """`slow`, `refuses` (any other value than the start's), `stuck` (takes a trial value, then nothing), `forgets`."""
    from rcl_interfaces.msg import SetParametersResult
    from std_msgs.msg import Float64

    node.declare_parameter("gain", START)

    def check(parameters: Any) -> Any:
        wanted = next((p.value for p in parameters if p.name == "gain"), START)
        if mode == "slow":
            time.sleep(LATE)
        if (mode == "refuses" and wanted != START) or (mode == "stuck" and node.get_parameter("gain").value != START):
            return SetParametersResult(successful=False, reason="no")
        return SetParametersResult(successful=True)

    def before(parameters: Any) -> Any:
        for p in parameters:
            if mode == "forgets" and p.name == "gain" and p.value != START:
                p._value = START
        return parameters

    node.add_on_set_parameters_callback(check)
    node.add_pre_set_parameters_callback(before)
    cost = node.create_publisher(Float64, "~/cost", 10)

    def tick() -> None:
        record.state(node.get_parameter("gain").value != START)
        cost.publish(Float64(data=1.0))

    node.create_timer(0.01, tick)


def action(node: Any, record: Told, mode: str) -> None:
    """A goal that takes for ever: `refuses` every cancel, is `mute` (answers none), or accepts the goal `late`."""
    from rclpy.action import ActionServer, CancelResponse, GoalResponse
    from rclpy.callback_groups import ReentrantCallbackGroup
    from test_msgs.action import Fibonacci

    node.declare_parameter("gain", START)

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
        return CancelResponse.REJECT if mode == "refuses" else CancelResponse.ACCEPT

    node.server = ActionServer(
        node, Fibonacci, "~/work", execute, callback_group=ReentrantCallbackGroup(), goal_callback=accept,
        cancel_callback=cancel,
    )  # fmt: skip


def arm(node: Any, record: Told, mode: str) -> None:
    """Two joints that follow a trajectory; after 1 s of a long one its states are `silent` or `nan`."""
    from sensor_msgs.msg import JointState
    from trajectory_msgs.msg import JointTrajectory

    names, here, plan = ["shoulder", "elbow"], [0.0, 0.6], []
    began, last = 0.0, list(here)
    states = node.create_publisher(JointState, "/joint_states", 10)

    def take(message: Any) -> None:
        nonlocal plan, began
        times = [p.time_from_start.sec + 1e-9 * p.time_from_start.nanosec for p in message.points]
        plan = [(0.0, list(here)), *zip(times, [list(p.positions) for p in message.points], strict=True)]
        began = time.monotonic()

    def tick() -> None:
        nonlocal last
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
        broken = long and now > 1.0
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
