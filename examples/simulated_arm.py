#!/usr/bin/env python3
"""Stands for an arm behind ros2_control: a planar arm of two links with the topics of a joint_trajectory_controller.

    ./crbo shell python examples/simulated_arm.py

Takes trajectory_msgs/JointTrajectory on /joint_trajectory_controller/joint_trajectory, publishes /joint_states at 100
Hz, and answers /arm/miss (std_srvs/Trigger) with how far the tip stayed from a point in space, in m, since the newest
trajectory came: what a camera on your robot would tell. Parameters `stuck` (a joint that no longer follows) and
`silent` (no joint states) make it fail. Plain rclpy, no crbo_ros.
"""

import math
from typing import Any

import rclpy
from rclpy.executors import ExternalShutdownException
from rclpy.node import Node
from sensor_msgs.msg import JointState
from std_srvs.srv import Trigger
from trajectory_msgs.msg import JointTrajectory

JOINTS = ["shoulder", "elbow"]
LINKS = (0.5, 0.4)  # m
POINT = (0.5, 0.5)  # m: the tip should pass here
RATE = 100.0  # Hz
LAG = 0.03  # s by which the arm follows its set point


class SimulatedArm(Node):
    def __init__(self) -> None:
        super().__init__("simulated_arm")
        self.declare_parameter("stuck", -1)
        self.declare_parameter("silent", False)
        self.position = [0.0, 0.6]
        self.plan: list[Any] = []
        self.began, self.miss, self.received = 0.0, math.inf, 0
        topic = "/joint_trajectory_controller/joint_trajectory"
        self.create_subscription(JointTrajectory, topic, self.on_trajectory, 10)
        self.states = self.create_publisher(JointState, "/joint_states", 10)
        self.create_service(Trigger, "/arm/miss", self.on_miss)
        self.create_service(Trigger, "/arm/received", self.on_received)
        self.create_timer(1.0 / RATE, self.step)

    def now(self) -> Any:
        return self.get_clock().now().nanoseconds * 1e-9

    def on_trajectory(self, message: Any) -> None:
        """A new trajectory replaces the old one and begins where the arm is."""
        if sorted(message.joint_names) != sorted(JOINTS) or not message.points:
            self.get_logger().error("refused: not my joints, or no points")
            return
        order = [message.joint_names.index(name) for name in JOINTS]
        self.plan = [(0.0, list(self.position))]
        for point in message.points:
            time = point.time_from_start.sec + 1e-9 * point.time_from_start.nanosec
            self.plan.append((time, [point.positions[i] for i in order]))
        self.began, self.miss, self.received = self.now(), math.inf, self.received + 1

    def target(self) -> Any:
        time = self.now() - self.began
        for (t0, q0), (t1, q1) in zip(self.plan, self.plan[1:], strict=False):
            if time <= t1:
                share = (time - t0) / (t1 - t0) if t1 > t0 else 1.0
                return [a + share * (b - a) for a, b in zip(q0, q1, strict=True)]
        return self.plan[-1][1] if self.plan else self.position

    def step(self) -> None:
        stuck = self.get_parameter("stuck").value
        for i, wanted in enumerate(self.target()):
            if i != stuck:
                self.position[i] += (wanted - self.position[i]) * min(1.0, 1.0 / (RATE * LAG))
        a, b = self.position
        tip = (
            LINKS[0] * math.cos(a) + LINKS[1] * math.cos(a + b),
            LINKS[0] * math.sin(a) + LINKS[1] * math.sin(a + b),
        )
        self.miss = min(self.miss, math.dist(tip, POINT))
        if not self.get_parameter("silent").value:
            state = JointState(name=JOINTS, position=list(self.position))
            state.header.stamp = self.get_clock().now().to_msg()
            self.states.publish(state)

    def on_miss(self, request: Any, response: Any) -> Any:
        response.success, response.message = math.isfinite(self.miss), f"{self.miss:.6f}"
        return response

    def on_received(self, request: Any, response: Any) -> Any:
        response.success, response.message = True, str(self.received)
        return response


def main() -> None:
    rclpy.init()
    node = SimulatedArm()
    try:
        rclpy.spin(node)
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    finally:
        node.destroy_node()
        rclpy.try_shutdown()


if __name__ == "__main__":
    main()
